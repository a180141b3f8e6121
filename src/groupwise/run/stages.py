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

from groupwise.run.plans import Planner, digest_models
from groupwise.run.settings import place_base
from groupwise.run.steps import AUDIT_REWARDS, Step, StepContext

if TYPE_CHECKING:
    from groupwise.run.task import PartName, Task

_BASELINES = "groupwise.evaluation.baselines groupwise.run.rivals groupwise.models.embedders"
TRAINED = ("sft", "grpo", "sft_control")
POLICY = "model.base model.dtype model.quantization model.max_pixels"
"""What loading a policy reads."""
ASKED = f"seed {POLICY} grpo.max_new_tokens evaluation.batch_size"
"""What loading a policy and asking it reads."""
LOOKS = f"{ASKED} evaluation.num_heldout_items"
"""What looks at validation read while a policy trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a recipe; names in one text have spaces between them.

    ``work`` does it; ``context.config`` is a view of what the stage declares to read. Work of the
    usual way is a name, ``module:function``, and is imported when it runs. One that ``is_shared``
    trains by ``train_sft`` or ``train_grpo``, so that all processes of a run do the work together;
    only the first of them writes.
    """

    name: str  # also of its folder
    work: Callable[[Any, StepContext], None] | str
    summary: str  # what it does, a clause for people
    reads: str = ""  # paths of the config and names of facts
    parts: Sequence[PartName] = ()  # of the task; what they read and their code count, too
    uses: str = ""  # earlier stages whose outputs it reads
    code: str = ""  # as for a ``Part``
    files: tuple[str, ...] = ()  # it also writes into the run folder itself
    is_shared: bool = False


def list_usual_stages(task: Task[Any], config: Any) -> list[Stage]:
    """Return prepare, audit, baselines, the trainings that the config asks for, and the rest."""
    sources, sft, grpo = task.list_sources(config), config.sft, config.grpo
    shown = f"{task.measured_from} {sources} audit"
    asked = f"{ASKED} evaluation.num_items evaluation.num_latency_items"
    trained, warmup = "grpo", list[Stage]()
    if sft is not None:
        trained = " ".join(TRAINED)
        has_looks = grpo.validation or sft.heldout_every_steps
        warmup = [
            Stage(
                name="sft",
                work="training:run_sft",
                summary="warm-up",
                reads=f"{LOOKS if sft.has_looks else f'seed {POLICY}'} sft stop_on_alarm",
                parts=("parser", "warmup"),
                uses=sources,
                is_shared=True,
            ),
            Stage(
                name="sft_control",
                work="training:run_sft_control",
                summary="control: SFT on the labels GRPO saw",
                reads=f"{LOOKS if has_looks else ASKED} sft grpo.epochs grpo.learning_rate "
                "grpo.trainable grpo.validation",
                parts=("parser", "warmup"),
                uses=f"{sources} sft",
                is_shared=True,
            ),
        ]
    prepare = Stage(
        name="prepare",
        work="training:run_prepare" if warmup else "training:run_prepare_without_warmup",
        summary="data into splits",
        # Without a warm-up, that there is none is all that is read of it.
        reads=f"seed data model.base model.max_pixels{'' if warmup else ' sft'}",
        parts=("data", "warmup", "parser") if warmup else ("data", "parser"),
    )
    audit = Stage(
        name="audit",
        work="training:run_audit",
        summary="what the data can be trusted for",
        reads="data.budget data.mirror_invariant model.base model.max_pixels",
        parts=("audit",),
        uses=sources,
    )
    baselines = Stage(
        name="baselines",
        work="evaluating:run_baselines",
        summary="majority, text, picture, joint, prompt",
        reads=asked,
        parts=("parser", "measures"),
        uses=shown,
        code=_BASELINES,
    )
    training = Stage(
        name="grpo",
        work="training:run_grpo",
        summary=f"training on the rewards: {task.describe_weights(config)}",
        reads=f"{LOOKS} grpo stop_on_alarm",
        parts=("parser", "rewards"),
        uses=f"{sources} sft" if warmup else sources,
        is_shared=True,
    )
    evaluate = Stage(
        name="evaluate",
        work="evaluating:run_evaluate",
        summary="all policies on the test split",
        reads=f"{asked} evaluation.num_calibration_items metric_versions",
        parts=("parser", "measures"),
        uses=f"{shown} baselines {trained}",
    )
    report = Stage(
        name="report",
        work="evaluating:run_report",
        summary="report.html and report.md",
        uses=f"{shown} {AUDIT_REWARDS} {trained} evaluate",
        files=("report.html", "report.md"),
    )
    return [prepare, audit, baselines, *warmup[:1], training, *warmup[1:], evaluate, report]


def plan_stages(task: Task[Any], config: Any, run: Path) -> list[Step]:
    """Return the steps of a task, without the audit of its rewards."""
    stages = task.stages(config)
    # A model that is served, or built here, is not looked for.
    is_read = any("model.base" in _list_reads(stage, task) for stage in stages)
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


def make_step(stage: Stage, task: Task[Any], planner: Planner) -> Step:
    """Return the step of a stage; one that trains is done by all processes of the run."""

    def do(context: StepContext) -> None:
        work = stage.work
        if isinstance(work, str):
            work = EntryPoint(stage.name, f"groupwise.run.{work}", "").load()
        if stage.is_shared:
            from groupwise.run.distributed import train_together

            train_together(partial(work, task, context), context, planner.config)
        else:
            work(task, context)

    code = [stage.code, *(task.parts[name].code for name in stage.parts if name in task.parts)]
    return planner.make_step(
        stage.name,
        do,
        summary=stage.summary,
        reads=" ".join(_list_reads(stage, task)),
        uses=" ".join(dict.fromkeys(stage.uses.split())),
        code=" ".join(dict.fromkeys(" ".join(code).split())),
        files=stage.files,
    )


def _list_reads(stage: Stage, task: Task[Any]) -> list[str]:
    """Return what a stage and the parts of the task that it uses read, each once, in order."""
    parts = (task.parts[name].reads for name in stage.parts if name in task.parts)
    return [*dict.fromkeys(" ".join((stage.reads, *parts)).split())]
