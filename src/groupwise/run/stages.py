"""Stages: the usual way of a recipe, and how they become the steps of a plan.

A stage declares what it reads; its key, its view of the config and what a comparison knows of it
come from that one declaration, so that it cannot depend on a setting that its key does not know.
Models and edited code are known by their content.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from inspect import getattr_static
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise import core
from groupwise.core import Config
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


UNKNOWN = "unknown"
"""Stands for a model of the hub that is not in the local cache while the hub cannot be asked."""


def digest_models(models: Mapping[str, Path | str | None]) -> dict[str, str]:
    """Return what models are known by, by their setting: a digest, a commit, or ``UNKNOWN``.

    ``models`` are folders and hub ids; None: there is no such model, or it is built in the run.
    """
    from groupwise.models.identity import digest_base

    given = {name: model for name, model in models.items() if model is not None}
    return {name: digest_base(model) or UNKNOWN for name, model in given.items()}


def digest_code(*names: str) -> dict[str, str]:
    """Return digests of source code by the dotted names of modules and packages.

    A package is the files in its folder, texts beside the code included, without the packages in
    it. Comments and layout of Python code do not count, docstrings do: some are prompts. Nothing
    is imported. A ValueError if there is no such code.
    """
    return {name: _digest_source(_find_source(name)) for name in names}


def _find_source(name: str) -> Path:
    top, *rest = name.split(".")
    spec = find_spec(top)
    if spec is not None and not rest and spec.submodule_search_locations is None and spec.origin:
        return Path(spec.origin)
    for folder in (spec and spec.submodule_search_locations) or ():
        place = Path(folder, *rest)
        if place.with_suffix(".py").is_file() and not (place / "__init__.py").is_file():
            return place.with_suffix(".py")
        if place.is_dir():
            return place
    raise ValueError(f"there is no source code of {name}")


def _digest_source(path: Path) -> str:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        return core.digest_json([[file.name, _digest_source(file)] for file in files])
    content = path.read_bytes()
    return _digest_python(content) if path.suffix in (".py", ".pyi") else core.digest_bytes(content)


@cache
def _digest_python(content: bytes) -> str:
    try:
        return core.digest_bytes(
            ast.dump(core.parse_python(content)).encode("utf-8", "surrogatepass")
        )
    except (SyntaxError, ValueError):
        return core.digest_bytes(content)


def collect_settings(config: Config, reads: Iterable[str]) -> dict[str, Any]:
    """Return the values of settings as JSON values, by their paths.

    Settings that say where something is reached are left out: nothing that is made depends on them.
    Functions of files are named without their folders.
    """
    values, effects = core.dump_config(config), core.list_effects(type(config))

    def drop(some: Any, path: list[str]) -> None:
        """Remove a setting from nested values; ``*`` is any name."""
        if isinstance(some, dict):
            for name in list(some) if path[0] == "*" else path[:1]:
                if path[1:]:
                    drop(some.get(name), path[1:])
                else:
                    some.pop(name, None)

    for path, effect in effects.items():
        if effect.is_place:
            drop(values, path.split("."))
    found: dict[str, Any] = {}
    for path in reads:
        if core.find_effect(effects, path).is_place:
            continue
        value: Any = values
        for name in path.split("."):
            if value is not None and (not isinstance(value, dict) or name not in value):
                raise ValueError(f"a step declares to read {path}, which is no setting")
            value = None if value is None else value[name]
        found[path] = value
    return core.drop_folders(found)


def view_config(config: Config, reads: Iterable[str], *, step: str) -> Any:
    """Return a view of a config that has the declared settings and refuses all others.

    Sections that are declared as a whole are the config's own. Methods and properties of the
    others see the view, too.
    """
    return _View(config, frozenset(reads), "", step)


class _View:
    """A section of which only some settings may be read."""

    __slots__ = ("_reads", "_section", "_step", "_where")

    def __init__(self, section: Config, reads: frozenset[str], where: str, step: str) -> None:
        self._section, self._reads, self._where, self._step = section, reads, where, step

    def __getattr__(self, name: str) -> Any:
        """Return a declared setting, a view of a section with some, or what its class offers."""
        kind, path = type(self._section), self._where + name
        if path in self._reads:
            return getattr(self._section, name)
        if any(declared.startswith(f"{path}.") for declared in self._reads):
            inner = getattr(self._section, name)
            return None if inner is None else _View(inner, self._reads, f"{path}.", self._step)
        if name in kind.model_fields or (hasattr(Config, name) and not name.startswith("__")):
            raise ValueError(f"step {self._step!r} reads {path} but does not list it in reads")
        own = getattr_static(kind, name)
        return own.__get__(self, kind) if hasattr(own, "__get__") else own


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the steps of a plan, each with its key and its view from one declaration.

    ``facts`` are what steps depend on besides settings, by name; ``metric_versions`` is known. A
    fact with the name of a section stands for it in keys: what of it counts. ``inputs`` are what
    settings that name files, folders or models stand for, by the path of the setting; every step
    that reads the setting depends on it.
    """

    config: Config
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])

    def make_step(
        self,
        name: str,
        run: Callable[[StepContext], None],
        *,
        reads: str,
        uses: str = "",
        code: str = "",
        **more: Any,
    ) -> Step:
        """Return a step that does ``run``; names in one text have spaces between them.

        ``reads`` are paths of the config and names of facts: the work gets a view of these
        settings, in which any other one raises. ``uses`` are earlier steps whose outputs it reads,
        ``code`` modules and packages whose code and texts decide its outputs and are edited between
        releases (rewards, parsers, prompts), ``more`` other fields of the step.
        """
        from groupwise.evaluation.predictions import METRIC_VERSIONS

        facts = {"metric_versions": dict(METRIC_VERSIONS), **self.facts}
        names, fields = reads.split(), type(self.config).model_fields
        paths = [one for one in names if one not in facts or one in fields]
        settings = collect_settings(self.config, paths)
        inputs = {
            name: digest
            for name, digest in self.inputs.items()
            if any(name == path or name.startswith(f"{path}.") for path in paths)
        }
        return Step(
            name=name,
            run=run,
            uses=tuple(uses.split()),
            settings={**settings, **{one: facts[one] for one in names if one in facts}},
            config=view_config(self.config, paths, step=name),
            reads=tuple(paths),
            inputs={**inputs, **digest_code(*code.split())},
            **more,
        )
