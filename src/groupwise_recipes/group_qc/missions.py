"""The one table of missions that both stages share: a name is in it for both, or for none.

The built-in table is ``missions.yaml``; a file of the same form adds missions or replaces them
by name. What is asked about a mission is worded in ``prompts``.
"""

from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from groupwise.core import Config, DataError, find_nearest, load_config

MAX_NAME_BYTES = 180
_FORBIDDEN_IN_NAMES = '/\\:*?"<>|'


def _check_line(text: str) -> str:
    if not text.strip() or text != text.strip() or not text.isprintable():
        raise ValueError("expected one line of text without white space around it")
    return text


Line = Annotated[str, AfterValidator(_check_line)]


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

    def __len__(self) -> int:
        return len(self.missions)

    def __getitem__(self, name: str) -> Mission:
        """Return the mission.

        Raises:
            DataError: if the table does not have it; the nearest name is given.
        """
        self.require([name], where="the call")
        return self.missions[name]

    def require(self, names: Iterable[str], *, where: str = "the data") -> None:
        """Refuse names that are not in the table, at start-up rather than row by row.

        Args:
            names: names as found.
            where: what they were found in, for the message.

        Raises:
            DataError: listing every unknown name with the nearest known one.
        """
        unknown = [name for name in dict.fromkeys(names) if name not in self.missions]
        if unknown:
            raise DataError(
                f"{where} names a mission that is not in the mission table",
                got="; ".join(describe_unknown(name, self.names) for name in unknown),
                expected="one of " + ", ".join(self.names),
                fix="rename it, or add it to the missions file",
            )

    def extend(self, extra: "MissionTable") -> "MissionTable":
        """Return this table with the other's missions added; those of the same name replaced."""
        return MissionTable(missions={**self.missions, **extra.missions})


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """Return the quoted name and, if one is near, the name that was probably meant."""
    near = find_nearest(name, known)
    return f"{name!r} (did you mean {near!r}?)" if near else repr(name)


def load_missions(extra: Path | None = None) -> MissionTable:
    """Read the built-in table and, if given, a file that adds to it.

    Raises:
        ConfigError: if the file is not a table of missions; all its problems are listed.
    """
    with as_file(files("groupwise_recipes.group_qc").joinpath("missions.yaml")) as path:
        table = load_config(MissionTable, path)
    return table.extend(load_config(MissionTable, extra)) if extra else table


def _check_name(name: str) -> None:
    is_line = name.strip() == name and name.isprintable() and name
    if not is_line or name.startswith(".") or set(name) & set(_FORBIDDEN_IN_NAMES):
        raise ValueError(
            f"the mission {name!r} cannot name a file; expected one line without white space "
            f"around it, a leading dot or any of {_FORBIDDEN_IN_NAMES}"
        )
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"the mission {name!r} is longer than {MAX_NAME_BYTES} bytes")
