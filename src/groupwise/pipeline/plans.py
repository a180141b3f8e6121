"""What the plan of a recipe is made of: its settings by section, late work, digests of inputs."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from groupwise.core import Config, digest_file, dump_config
from groupwise.pipeline.steps import StepContext

Parts = Mapping[str, tuple[str, Sequence[str]]]


def collect_settings(config: Config, *, parts: Parts | None = None) -> dict[str, Any]:
    """Return all that steps may depend on, as JSON values by name.

    These are the sections of the config, ``metric_versions``, and parts of sections: a step is not
    redone for settings that it does not read.

    Args:
        config: of the run.
        parts: by a new name: a section, and the keys of it that the part has.
    """
    from groupwise.evaluation import METRIC_VERSIONS

    settings = {**dump_config(config), "metric_versions": dict(METRIC_VERSIONS)}
    for part, (section, keys) in (parts or {}).items():
        settings[part] = {key: settings[section][key] for key in keys}
    return settings


def bind_work(where: str, step: str, config: Config) -> Callable[[StepContext], None]:
    """Return the work of a step; what it needs is imported when it runs.

    Args:
        where: ``module:name`` of a mapping from steps to ``(config, context) -> None``.
        step: name of the step.
        config: given to its work.
    """

    def work(context: StepContext) -> None:
        EntryPoint("work", where, "").load()[step](config, context)

    return work


def digest_inputs(paths: Mapping[str, Path | str | None]) -> dict[str, str]:
    """Return digests of the files and folders that a run reads from outside, by their setting.

    What is None or not there has none: a hub id is no folder, and the step that reads a path says
    what is wrong with it.
    """
    given = {name: Path(path) for name, path in paths.items() if path is not None}
    return {name: digest_file(path) for name, path in given.items() if path.exists()}
