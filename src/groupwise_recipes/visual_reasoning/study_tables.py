"""What each table of the studies has, as its file says: rows that are arms, columns of measures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from groupwise.core import Config, load_config
from groupwise.evaluation.predictions import Language

FOLDER = Path(__file__).with_name("tables")
NAMES = ("alignment", "grounding", "transfer", "bias", "prompts")
Settings = Mapping[str, Any]
Title = Mapping[Language, str]


class Wanted(Config):
    """What a setting has to be, all of it; a setting that a run does not have is null.

    ``given`` says whether it, or any setting below it, is more than null.
    """

    any_of: tuple[Any, ...] | None = None
    none_of: tuple[Any, ...] = ()
    given: bool | None = None

    def fits(self, settings: Settings, key: str) -> bool:
        """Return whether a run's setting is as wanted."""
        value = settings.get(key)
        below = (one for name, one in settings.items() if name.startswith(f"{key}."))
        is_given = value is not None or any(one is not None for one in below)
        is_allowed = self.any_of is None or value in self.any_of
        return is_allowed and value not in self.none_of and self.given in (None, is_given)


def _want(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {"any_of": [value]}


Condition = Mapping[str, Annotated[Wanted, BeforeValidator(_want)]]
Conditions = Annotated[
    tuple[Condition, ...],
    BeforeValidator(lambda value: [value] if isinstance(value, Mapping) else value),
]
"""What the settings of a run have to be, by key; of several, one is enough."""


def fits_any(conditions: Sequence[Condition], settings: Settings) -> bool:
    """Return whether settings are as one of the conditions wants them."""
    return any(all(wanted.fits(settings, key) for key, wanted in one.items()) for one in conditions)


class Published(Config):
    """A published value in percent; of how many items, where somebody says."""

    value: float = Field(ge=0, le=100)
    n: int | None = Field(default=None, ge=1)


class Row(Config):
    """An arm: ``policy`` of the runs whose settings fit ``where``, and published values by column.

    An extra one is left out as long as no run is there.
    """

    name: str
    title: Title
    policy: str
    where: Conditions = ({},)
    is_extra: bool = False
    published: Mapping[str, Published] = Field(default_factory=dict)


class Column(Config):
    """A measure, of all items or of a ``part`` of them.

    A part is a field and the values that it may have; a run has the first that it asked about.
    """

    name: str
    title: Title
    measure: str
    part: tuple[str, tuple[str, ...]] | None = None


class StudyTable(Config):
    """One table, of runs whose settings fit ``runs``.

    ``pairs`` are rows that are compared: what the second has more than the first.
    """

    name: Literal["alignment", "grounding", "transfer", "bias", "prompts"]
    title: Title
    lead: Title
    runs: Conditions
    rows: tuple[Row, ...] = Field(min_length=1)
    columns: tuple[Column, ...] = Field(min_length=1)
    pairs: tuple[tuple[str, str], ...] = ()
    split: str = "test"


def read_tables() -> tuple[StudyTable, ...]:
    """Return the tables of the five studies."""
    return tuple(load_config(StudyTable, FOLDER / f"{name}.yaml") for name in NAMES)
