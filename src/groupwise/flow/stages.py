"""Stages: the usual way of a recipe, and how they become the steps of a plan.

A stage declares what it reads; its key, its view of the config and what a comparison knows of it
come from that one declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.flow.settings import place_base
from groupwise.pipeline import AUDIT_REWARDS, Planner, Step, StepContext, digest_models

if TYPE_CHECKING:
    from groupwise.flow.task import PartName, Task


_BASELINES = "groupwise.evaluation.baselines groupwise.flow.probing groupwise.models.embedders"
TRAINED = ("sft", "grpo", "sft_control")
POLICY = "model.base model.dtype model.quantization model.max_pixels"
"""What loading a policy reads."""
ASKED = f"seed {POLICY} grpo.max_new_tokens evaluation.batch_size"
"""What loading a policy and asking it reads."""
LOOKS = f"{ASKED} evaluation.num_heldout_items"
"""What looks at validation read while a policy trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a recipe.

    Attributes:
        name: also of its folder.
        work: does it; ``context.config`` is a view of what the stage declares to read. Work of
            the flow is a name, ``module:function``, and is imported when it runs.
        summary: what it does, a clause for people.
        reads: paths of the config and names of facts, with spaces between them.
        parts: of the task that it uses; what they read and their code count, too.
        uses: earlier stages whose outputs it reads, with spaces between them.
        code: as for a ``Part``.
        files: it also writes into the run folder itself.
        is_shared: it trains by ``train_sft`` or ``train_grpo``, so that all processes of a run do
            the work together; only the first of them writes.
    """

    name: str
    work: Callable[[Any, StepContext], None] | str
    summary: str
    reads: str = ""
    parts: Sequence[PartName] = ()
    uses: str = ""
    code: str = ""
    files: tuple[str, ...] = ()
    is_shared: bool = False


def list_usual_stages(task: Task[Any], config: Any) -> list[Stage]:
    """Return prepare, audit, baselines, the trainings that the config asks for, and the rest."""
    sources = task.list_sources(config)
    shown = f"{task.measured_from} {sources} audit"
    asked = f"{ASKED} evaluation.num_items evaluation.num_latency_items"
    has_warmup = config.sft is not None
    trained = TRAINED if has_warmup else ("grpo",)
    built = ("warmup", "parser") if has_warmup else ("parser",)
    return [
        Stage(
            name="prepare",
            work="preparing:run_prepare" if has_warmup else "preparing:run_prepare_without_warmup",
            summary="data into splits",
            # Without a warm-up, that there is none is all that is read of it.
            reads=f"seed data model.base model.max_pixels{'' if has_warmup else ' sft'}",
            parts=("data", *built),
        ),
        Stage(
            name="audit",
            work="preparing:run_audit",
            summary="what the data can be trusted for",
            reads="data.budget data.mirror_invariant model.base model.max_pixels",
            parts=("audit",),
            uses=sources,
        ),
        Stage(
            name="baselines",
            work="evaluating:run_baselines",
            summary="majority, text, picture, joint, prompt",
            reads=asked,
            parts=("parser", "measures"),
            uses=shown,
            code=_BASELINES,
        ),
        *([_make_sft(sources, config)] if has_warmup else []),
        Stage(
            name="grpo",
            work="training:run_grpo",
            summary=f"training on the rewards: {task.describe_weights(config)}",
            reads=f"{LOOKS} grpo stop_on_alarm",
            parts=("parser", "rewards"),
            uses=f"{sources} sft" if has_warmup else sources,
            is_shared=True,
        ),
        *([_make_control(sources, config)] if has_warmup else []),
        Stage(
            name="evaluate",
            work="evaluating:run_evaluate",
            summary="all policies on the test split",
            reads=f"{asked} evaluation.num_calibration_items metric_versions",
            parts=("parser", "measures"),
            uses=" ".join((shown, "baselines", *trained)),
        ),
        Stage(
            name="report",
            work="evaluating:run_report",
            summary="report.html and report.md",
            uses=" ".join((shown, AUDIT_REWARDS, *trained, "evaluate")),
            files=("report.html", "report.md"),
        ),
    ]


def plan_stages(task: Task[Any], config: Any, run: Path) -> list[Step]:
    """Return the steps of a task; the pipeline adds the audit of its rewards."""
    stages = task.stages(config)
    # A model that is served, or built here, is not looked for.
    is_read = any("model.base" in _list_reads(stage, task).split() for stage in stages)
    base = place_base(config, run) if is_read and not config.model.is_tiny else None
    planner = Planner(
        config,
        facts=task.facts(config, run),
        inputs={**task.inputs(config), **digest_models({"model.base": base})},
    )
    return [make_step(stage, task, planner) for stage in stages]


def keep_stages(stages: Sequence[Stage], **changes: Mapping[str, Any] | None) -> list[Stage]:
    """Return the stages with changed fields by name; those changed to None are left out."""
    kept = [stage for stage in stages if changes.get(stage.name, {}) is not None]
    return [replace(stage, **changes.get(stage.name) or {}) for stage in kept]


def _make_sft(sources: str, config: Any) -> Stage:
    return Stage(
        name="sft",
        work="training:run_sft",
        summary="warm-up",
        reads=f"{LOOKS if config.sft.has_looks else f'seed {POLICY}'} sft stop_on_alarm",
        parts=("parser", "warmup"),
        uses=sources,
        is_shared=True,
    )


def _make_control(sources: str, config: Any) -> Stage:
    has_looks = config.grpo.validation or config.sft.heldout_every_steps
    return Stage(
        name="sft_control",
        work="training:run_sft_control",
        summary="control: SFT on the labels GRPO saw",
        reads=f"{LOOKS if has_looks else ASKED} sft grpo.epochs grpo.learning_rate "
        "grpo.trainable grpo.validation",
        parts=("parser", "warmup"),
        uses=f"{sources} sft",
        is_shared=True,
    )


def make_step(stage: Stage, task: Task[Any], planner: Planner) -> Step:
    """Return the step of a stage."""
    parts = [task.parts[name] for name in stage.parts if name in task.parts]
    return planner.make_step(
        stage.name,
        lambda context: _do(stage, task, context, planner.config),
        summary=stage.summary,
        reads=_list_reads(stage, task),
        uses=_join(stage.uses),
        code=_join(stage.code, *(part.code for part in parts)),
        files=stage.files,
    )


def _list_reads(stage: Stage, task: Task[Any]) -> str:
    """Return what a stage and the parts of the task that it uses read."""
    parts = (task.parts[name].reads for name in stage.parts if name in task.parts)
    return _join(stage.reads, *parts)


def _do(stage: Stage, task: Task[Any], context: StepContext, config: Any) -> None:
    """Do a stage's work; one that trains, with all processes of the run."""
    work = stage.work
    if isinstance(work, str):
        work = EntryPoint(stage.name, f"groupwise.flow.{work}", "").load()
    if stage.is_shared:
        from groupwise.flow.distributed import train_together

        train_together(partial(work, task, context), context, config)
    else:
        work(task, context)


def _join(*names: str) -> str:
    """Return names, each once, in order."""
    return " ".join(dict.fromkeys(" ".join(names).split()))
