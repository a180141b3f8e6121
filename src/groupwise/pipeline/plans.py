"""What the plan of a recipe is made of: steps with what they read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from groupwise.core import Config
from groupwise.pipeline.inputs import digest_code
from groupwise.pipeline.steps import Step, StepContext
from groupwise.pipeline.views import collect_settings, view_config


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the steps of a plan, each with its key and its view from one declaration.

    Attributes:
        config: of the run.
        facts: what steps depend on besides settings, by name; ``metric_versions`` is known. A
            fact with the name of a section stands for it in keys: what of it counts.
        inputs: what settings that name files, folders or models stand for, by the path of the
            setting. Every step that reads the setting depends on it.
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
        """Return a step.

        Args:
            name: of the step.
            run: its work.
            reads: paths of the config and names of facts, with spaces between them. The step's
                work gets a view of these settings, in which any other one raises.
            uses: names of earlier steps whose outputs it reads, with spaces between them.
            code: modules and packages whose code and texts decide its outputs and are edited
                between releases (rewards, parsers, prompts), with spaces between them.
            **more: other fields of the step.
        """
        facts = {"metric_versions": _list_metric_versions(), **self.facts}
        names = reads.split()
        fields = type(self.config).model_fields
        paths = [one for one in names if one not in facts or one in fields]
        settings = collect_settings(self.config, paths)
        return Step(
            name=name,
            run=run,
            uses=tuple(uses.split()),
            settings={**settings, **{one: facts[one] for one in names if one in facts}},
            config=view_config(self.config, paths, step=name),
            reads=tuple(paths),
            inputs={**self._find_inputs(paths), **digest_code(*code.split())},
            **more,
        )

    def _find_inputs(self, reads: Iterable[str]) -> dict[str, str]:
        return {
            name: digest
            for name, digest in self.inputs.items()
            if any(name == path or name.startswith(f"{path}.") for path in reads)
        }


def _list_metric_versions() -> dict[str, int]:
    from groupwise.evaluation import METRIC_VERSIONS

    return dict(METRIC_VERSIONS)
