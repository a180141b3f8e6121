"""The one table of missions that both stages share: a name is in it for both, or for none.

The built-in table is ``missions.yaml``; a file of the same form adds missions or replaces them
by name, and a table in the config stands instead of it.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from groupwise.core import Config, DataError, find_nearest, load_config
from groupwise_recipes.group_qc.words import Line

MAX_NAME_BYTES = 180
_FORBIDDEN_IN_NAMES = '/\\:*?"<>|'


class Mission(Config):
    """What is said about a mission.

    Attributes:
        focus: what Stage A looks for in every photo.
        key_points: what must hold, for Stage B; at least one.
    """

    focus: Line
    key_points: tuple[Line, ...] = Field(min_length=1)


class MissionTable(Config):
    """Missions by name, in the order in which they are reported.

    A name is a folder's name and the beginning of a file's name (``<mission>_stage_a.jsonl``).
    """

    missions: dict[str, Mission] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.missions:
            _check_name(name)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self.missions)

    def __contains__(self, name: object) -> bool:
        return name in self.missions

    def __getitem__(self, name: str) -> Mission:
        """Return the mission."""
        self.require([name], where="the call")
        return self.missions[name]

    def require(self, names: Iterable[str], *, where: str = "the data") -> None:
        """Refuse names that are not in the table, at start-up rather than row by row."""
        unknown = [name for name in dict.fromkeys(names) if name not in self.missions]
        if unknown:
            raise DataError(
                f"{where} names a mission that is not in the mission table",
                got="; ".join(describe_unknown(name, self.names) for name in unknown),
                expected="one of " + ", ".join(self.names),
                fix="rename it, or add it to the missions file",
            )


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """Return the quoted name and, if one is near, the name that was probably meant."""
    near = find_nearest(name, known)
    return f"{name!r} (did you mean {near!r}?)" if near else repr(name)


def load_missions(own: Path | Mapping[str, Mission] | None = None) -> MissionTable:
    """Return the built-in table, with what a file adds to it; a table of one's own as it is."""
    if isinstance(own, Mapping):
        return MissionTable(missions=dict(own))
    with as_file(files("groupwise_recipes.group_qc").joinpath("missions.yaml")) as path:
        found = [load_config(MissionTable, one).missions for one in (path, own) if one]
    return MissionTable(missions={name: one for table in found for name, one in table.items()})


def _check_name(name: str) -> None:
    is_line = name.strip() == name and name.isprintable() and name
    if not is_line or name.startswith(".") or set(name) & set(_FORBIDDEN_IN_NAMES):
        raise ValueError(
            f"the mission {name!r} cannot name a file; expected one line without white space "
            f"around it, a leading dot or any of {_FORBIDDEN_IN_NAMES}"
        )
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"the mission {name!r} is longer than {MAX_NAME_BYTES} bytes")
