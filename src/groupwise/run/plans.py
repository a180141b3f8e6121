"""What the plan of a recipe is made of: steps with what they read of the config and from outside.

A step's key and its view of the config come from one declaration, so that it cannot depend on a
setting that its key does not know. Models and edited code are known by their content.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from inspect import getattr_static
from pathlib import Path
from typing import Any

from groupwise import core
from groupwise.core import Config
from groupwise.run.steps import Step, StepContext

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
        """Return a step; what it is made of has spaces between.

        Args:
            name: of the step.
            run: its work.
            reads: paths of the config and names of facts. The step's work gets a view of these
                settings, in which any other one raises.
            uses: names of earlier steps whose outputs it reads.
            code: modules and packages whose code and texts decide its outputs and are edited
                between releases (rewards, parsers, prompts).
            **more: other fields of the step.
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
