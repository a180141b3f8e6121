"""What must be known of the tables before any number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.evaluation import LEVELS, Language, MethodDifference, Statement
from groupwise_recipes.visual_reasoning.study.arms import Arm, StudyRun
from groupwise_recipes.visual_reasoning.study.tables import StudyTable
from groupwise_recipes.visual_reasoning.study.values import Value

_MAX_APART = 4
_FEW_SEEDS = 2


@dataclass(frozen=True)
class Filled:
    """A table with its arms and the values of each by column; pairs of arms with differences."""

    table: StudyTable
    arms: tuple[tuple[Arm, tuple[Value, ...]], ...]
    pairs: tuple[tuple[Arm, Arm, tuple[MethodDifference | None, ...]], ...] = ()


def collect_notices(
    filled: Sequence[Filled],
    runs: Sequence[StudyRun],
    tables: Sequence[StudyTable],
    language: Language,
) -> list[Statement]:
    """Return all notices, the worst first.

    Args:
        filled: the tables that are shown.
        runs: all that were given.
        tables: of all studies.
        language: of titles.
    """
    found = [
        *_note_unmatched(filled, runs, tables, language),
        *(one for each in filled for one in _note_arms(each, language)),
        *_note_seeds(filled),
        *_note_waiting(filled),
    ]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def _note_unmatched(
    filled: Sequence[Filled],
    runs: Sequence[StudyRun],
    tables: Sequence[StudyTable],
    language: Language,
) -> Iterator[Statement]:
    shown = {
        one.run.folder
        for each in filled
        for arm, _ in each.arms
        for one in (*arm.runs, *arm.repeated)
    }
    for run in runs:
        if run.folder in shown:
            continue
        studies = [one.title.choose(language) for one in tables if one.fits(run.settings)]
        kind = "study.no_row" if studies else "study.no_study"
        yield Statement(kind, {"folder": str(run.folder), "studies": studies}, "warning")


def _note_arms(filled: Filled, language: Language) -> Iterator[Statement]:
    by_row: dict[str, list[Arm]] = {}
    for arm, _ in filled.arms:
        by_row.setdefault(arm.row.name, []).append(arm)
    for arms in by_row.values():
        named = {
            "row": arms[0].row.title.choose(language),
            "table": filled.table.title.choose(language),
        }
        if len(arms) > 1:
            keys = dict.fromkeys(one.partition(" ")[0] for arm in arms for one in arm.apart)
            values = {**named, "settings": list(keys)[:_MAX_APART]}
            yield Statement("study.told_apart", values, "warning")
        for arm in arms:
            if arm.differs_repeated:
                values = {
                    "shown": [str(one.run.folder) for one in arm.runs],
                    "left": [str(one.run.folder) for one in arm.repeated],
                }
                yield Statement("study.repeated", {**named, **values}, "warning")


def _note_seeds(filled: Sequence[Filled]) -> Iterator[Statement]:
    numbers = [len(arm.runs) for each in filled for arm, _ in each.arms]
    if 1 in numbers:
        yield Statement("study.one_seed", {"num": numbers.count(1)}, "warning")
    if _FEW_SEEDS in numbers:
        yield Statement("study.few_seeds")


def _note_waiting(filled: Sequence[Filled]) -> Iterator[Statement]:
    values = [one for each in filled for _, found in each.arms for one in found]
    waiting = sum(one.state == "waiting" for one in values)
    if waiting:
        yield Statement("study.waiting", {"num": waiting, "all": len(values)})
