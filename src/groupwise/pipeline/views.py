"""What a step declares to read of a config: its values make the step's key, a view allows no more.

Both come from one declaration, so a step cannot depend on a setting that its key does not know.
"""

from collections.abc import Iterable, Sequence
from inspect import getattr_static
from typing import Any

from groupwise.core import Config, dump_config, find_effect, list_effects


def collect_settings(config: Config, reads: Iterable[str]) -> dict[str, Any]:
    """Return the values of settings as JSON values, by their paths.

    Settings that say where something is reached are left out: nothing that is made depends on them.

    Args:
        config: of the run.
        reads: paths such as ``grpo`` (all of a section) or ``grpo.max_new_tokens``. What stands
            in a section that is None is None.

    Raises:
        ValueError: if a path is no setting.
    """
    values = dump_config(config)
    for path, effect in list_effects(type(config)).items():
        if effect.is_place:
            _drop(values, path.split("."))
    return {path: _find_value(values, path) for path in reads if not _is_place(config, path)}


def view_config(config: Config, reads: Iterable[str], *, step: str) -> Any:
    """Return a view of a config that has the declared settings and refuses all others.

    Sections that are declared as a whole are the config's own. Methods and properties of the
    others see the view, too.

    Args:
        config: of the run.
        reads: paths, as for ``collect_settings``.
        step: whose view it is, for the message.
    """
    return _View(config, frozenset(reads), "", step)


class _View:
    """A section of which only some settings may be read."""

    __slots__ = ("_reads", "_section", "_step", "_where")

    def __init__(self, section: Config, reads: frozenset[str], where: str, step: str) -> None:
        self._section, self._reads, self._where, self._step = section, reads, where, step

    def __getattr__(self, name: str) -> Any:
        """Return a declared setting, a view of a section with some, or what its class offers.

        Raises:
            ValueError: if the setting is not declared: its changes would go unnoticed.
        """
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


def _is_place(config: Config, path: str) -> bool:
    return find_effect(list_effects(type(config)), path).is_place


def _drop(values: Any, path: Sequence[str]) -> None:
    """Remove a setting from nested values; ``*`` is any name."""
    if not isinstance(values, dict):
        return
    for name in list(values) if path[0] == "*" else path[:1]:
        if path[1:]:
            _drop(values.get(name), path[1:])
        else:
            values.pop(name, None)


def _find_value(values: Any, path: str) -> Any:
    for name in path.split("."):
        if values is None:
            return None
        if not isinstance(values, dict) or name not in values:
            raise ValueError(f"a step declares to read {path}, which is no setting")
        values = values[name]
    return values
