"""What the plan of a recipe is made of: steps with what they read, late work, digests of inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from groupwise.core import Config, digest_file
from groupwise.pipeline.steps import Step, StepContext
from groupwise.pipeline.views import collect_settings, view_config


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the steps of a plan, each with its key and its view from one declaration.

    Attributes:
        config: of the run.
        work: ``module:name`` of a mapping from steps to ``(config, context) -> None``.
        facts: what steps depend on besides settings, by name; ``metric_versions`` is known. A
            fact with the name of a section stands for it in keys: what of it counts.
    """

    config: Config
    work: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def make_step(
        self, name: str, summary: str, *, reads: str, uses: str = "", **more: Any
    ) -> Step:
        """Return a step.

        Args:
            name: of the step.
            summary: what it does, a clause for people.
            reads: paths of the config and names of facts, with spaces between them. The step's
                work gets a view of these settings, in which any other one raises.
            uses: names of earlier steps whose outputs it reads, with spaces between them.
            **more: other fields of the step.
        """
        facts = {"metric_versions": _list_metric_versions(), **self.facts}
        names = reads.split()
        fields = type(self.config).model_fields
        paths = [one for one in names if one not in facts or one in fields]
        settings = collect_settings(self.config, paths)
        return Step(
            name=name,
            run=bind_work(self.work, name),
            uses=tuple(uses.split()),
            settings={**settings, **{one: facts[one] for one in names if one in facts}},
            config=view_config(self.config, paths, step=name),
            summary=summary,
            **more,
        )


def bind_work(where: str, step: str) -> Callable[[StepContext], None]:
    """Return the work of a step; what it needs is imported when it runs.

    Args:
        where: ``module:name`` of a mapping from steps to ``(config, context) -> None``.
        step: name of the step.
    """

    def work(context: StepContext) -> None:
        EntryPoint("work", where, "").load()[step](context.config, context)

    return work


def digest_inputs(paths: Mapping[str, Path | str | None]) -> dict[str, str]:
    """Return digests of the files and folders that a run reads from outside, by their setting.

    What is None or not there has none: a hub id is no folder, and the step that reads a path says
    what is wrong with it.
    """
    given = {name: Path(path) for name, path in paths.items() if path is not None}
    return {name: digest_file(path) for name, path in given.items() if path.exists()}


def _list_metric_versions() -> dict[str, int]:
    from groupwise.evaluation import METRIC_VERSIONS

    return dict(METRIC_VERSIONS)
