"""What each table of the studies has, as its file says: rows that are arms, columns of measures."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from groupwise.core import Config, load_config, repeat_start
from groupwise.evaluation import Language

FOLDER = Path(__file__).with_name("tables")
NAMES = ("alignment", "grounding", "transfer", "bias", "prompts")
Settings = Mapping[str, Any]


class Wanted(Config):
    """What a setting has to be, all of it; a setting that a run does not have is null.

    Attributes:
        any_of: one of these.
        none_of: none of these.
        above: a number above this.
        given: whether it, or any setting below it, is more than null.
    """

    any_of: tuple[Any, ...] | None = None
    none_of: tuple[Any, ...] = ()
    above: float | None = None
    given: bool | None = None

    def fits(self, settings: Settings, key: str) -> bool:
        """Return whether a run's setting is as wanted."""
        value = settings.get(key)
        below = (one for name, one in settings.items() if name.startswith(f"{key}."))
        is_given = value is not None or any(one is not None for one in below)
        return (
            (self.any_of is None or value in self.any_of)
            and value not in self.none_of
            and (self.above is None or (value is not None and value > self.above))
            and self.given in (None, is_given)
        )


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


class Title(Config):
    """What something is called."""

    en: str
    zh: str

    def choose(self, language: Language) -> str:
        """Return it in a language."""
        return self.zh if language == "zh" else self.en


class Published(Config):
    """A value that was published, in percent.

    Attributes:
        value: of 0 to 100.
        n: items that it is of; None: nobody says it.
        split: that it is of; None: nobody says it.
    """

    value: float = Field(ge=0, le=100)
    n: int | None = Field(default=None, ge=1)
    split: str | None = None


class Row(Config):
    """An arm: a policy of the runs that were made so.

    Attributes:
        name: unique in its table.
        title: for readers.
        policy: whose answers are measured.
        where: what the settings of its runs have to be.
        settings: beside those of the table, those that make such a run.
        is_extra: whether it is left out as long as no run is there.
        published: values by column.
        published_apart: values of other items than those of ``published``; they have a table of
            their own.
    """

    name: str
    title: Title
    policy: str
    where: Conditions = ({},)
    settings: tuple[str, ...] = ()
    is_extra: bool = False
    published: Mapping[str, Published] = Field(default_factory=dict)
    published_apart: Mapping[str, Published] = Field(default_factory=dict)


class Column(Config):
    """A measure, of all items or of a part of them.

    Attributes:
        name: unique in its table.
        title: for readers.
        measure: such as ``accuracy``.
        part: a field of items and the values that it may have; a run has the first that it asked
            about. None: all items.
    """

    name: str
    title: Title
    measure: str
    part: tuple[str, tuple[str, ...]] | None = None


class StudyTable(Config):
    """One table.

    Attributes:
        name: of the study.
        title: for readers.
        lead: how it is read.
        config: that its runs are made by.
        settings: beside the config, those that make its runs.
        runs: what the settings of a run of the study are.
        rows: arms.
        columns: measures.
        pairs: rows that are compared: what the second has more than the first.
        split: that everything is measured on.
    """

    name: Literal["alignment", "grounding", "transfer", "bias", "prompts"]
    title: Title
    lead: Title
    config: str
    settings: tuple[str, ...] = ()
    runs: Conditions
    rows: tuple[Row, ...] = Field(min_length=1)
    columns: tuple[Column, ...] = Field(min_length=1)
    pairs: tuple[tuple[str, str], ...] = ()
    split: str = "test"

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for listed in (self.rows, self.columns):
            names = [one.name for one in listed]
            if len(set(names)) < len(names):
                raise ValueError(f"a name stands twice among {names}")
        typed = {name for row in self.rows for name in (*row.published, *row.published_apart)}
        unknown = typed - set(self.list_columns())
        if unknown:
            raise ValueError(f"there are no columns {sorted(unknown)}")
        unknown = {name for pair in self.pairs for name in pair} - {one.name for one in self.rows}
        if unknown:
            raise ValueError(f"pairs: there are no rows {sorted(unknown)}")
        return self

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        """Refuse published values of other items in one table, as far as their numbers say so."""
        for typed in ("published", "published_apart"):
            self._check_typed([getattr(row, typed) for row in self.rows])
        return self

    def _check_typed(self, rows: Sequence[Mapping[str, Published]]) -> None:
        known: dict[object, tuple[str, int]] = {}
        for row in rows:
            for column in self.columns:
                n = row[column.name].n if column.name in row else None
                kind = (column.part, column.measure == "pair_accuracy")
                first, num = known.setdefault(kind, (column.name, n)) if n else ("", n)
                if n != num:
                    raise ValueError(
                        f"{column.name} was published of n {n} and {first} of n {num}: one table "
                        "is of the same items"
                    )

    def list_columns(self) -> list[str]:
        """Return the names of the columns."""
        return [one.name for one in self.columns]

    def fits(self, settings: Settings) -> bool:
        """Return whether a run with these settings is one of the study."""
        return fits_any(self.runs, settings)

    def write_command(self, row: Row, like: Path | None) -> str:
        """Return the command that makes a run with a row's arm.

        Args:
            row: of the table.
            like: a run whose config and further settings it has; None: the study's own config.
        """
        settings = (*self.settings, *row.settings)
        own = [one.partition("=")[0] for any_row in self.rows for one in any_row.settings]
        own += [one.partition("=")[0] for one in self.settings]
        start = None if like is None else repeat_start(like, without=own)
        words = ["groupwise", "run", *(start or ("visual_reasoning", "--config", self.config))]
        return shlex.join([*words, *(part for one in settings for part in ("--set", one))])


def read_tables(folder: Path = FOLDER) -> tuple[StudyTable, ...]:
    """Return the tables of the five studies.

    Raises:
        ConfigError: listing every problem of a file.
    """
    return tuple(load_config(StudyTable, folder / f"{name}.yaml") for name in NAMES)
