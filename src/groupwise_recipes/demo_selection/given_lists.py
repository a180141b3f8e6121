"""Lists that somebody recorded before (``data.recorded``): whose queries and items they are of.

Ids of a published file are those of the items here, question ids of the data set, or places in its
order. Which of them is not written in the file: it is what makes each query ask what the data set
asks there.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.core import DataError, Example, write_json
from groupwise_recipes.demo_selection.candidate_files import CandidateFile
from groupwise_recipes.demo_selection.candidates import RecordedQuery, Recording
from groupwise_recipes.demo_selection.conditions import ItemId
from groupwise_recipes.demo_selection.items import read_question
from groupwise_recipes.demo_selection.published_files import ImportedCandidates, read_published

GIVEN = "given.json"
"""Where the stage ``prepare`` says what the file had."""


@dataclass(frozen=True)
class GivenLists:
    """The lists of a published file, by the ids of the items here.

    Attributes:
        found: the recording and what was dropped.
        named_by: what the ids of the file are.
    """

    found: ImportedCandidates
    named_by: str

    def split(self, *, num_validation: int, num_anchors: int, seed: int) -> dict[str, Recording]:
        """Return the recordings of anchors and of validation queries, which the seed draws."""
        recording = self.found.recording
        names = [one.query_id for one in recording.queries]
        if num_validation >= len(names):
            raise DataError(
                "data.recorded has too few queries to leave some to train on",
                got=len(names),
                expected=f"more than the {num_validation} of num_validation",
            )
        drawn = random.Random(seed).sample(
            names, num_validation + min(num_anchors, len(names) - num_validation)
        )
        sides = {"validation": set(drawn[:num_validation]), "anchors": set(drawn[num_validation:])}
        return {
            side: replace(
                recording,
                queries=tuple(one for one in recording.queries if one.query_id in wanted),
            )
            for side, wanted in sides.items()
        }


def read_given(path: Path, items: Sequence[Example], *, is_whole: bool) -> GivenLists:
    """Read a published file of recorded lists."""
    found = read_lists(path)
    recording = found.recording
    named_by, names = _find_names(recording, items, path, is_whole=is_whole)
    queries = [_rename(one, names, path) for one in recording.queries]
    renamed = replace(recording, queries=tuple(queries))
    return GivenLists(replace(found, recording=renamed), named_by)


def read_lists(path: Path) -> ImportedCandidates:
    """Read a published file, by its own ids."""
    found = read_published(path)
    lacking = [one.query_id for one in found.recording.queries if one.pool is None]
    if lacking:
        raise DataError(
            f"{path} has no pools, which training needs",
            got=f"{len(lacking)} queries without candidate_pool_ids",
            expected="candidate_pool_ids, a list of train ids, in each query",
        )
    return found


def write_given(
    given: GivenLists, splits: Mapping[str, Recording], folder: Path, path: Path
) -> None:
    """Write the recordings, one for each side, in the own form, and what the file had."""
    for side, recording in splits.items():
        with CandidateFile(folder / f"{side}.jsonl", recording.conditions) as rows:
            for query in recording.queries:
                rows.append(query)
    facts = {
        "file": path.name,
        "digest": given.found.recording.digest,
        "ids": given.named_by,
        "num_queries": len(given.found.recording.queries),
        "num_lists": given.found.num_lists,
        "drops": given.found.drops.to_json(),
    }
    write_json(folder / GIVEN, facts)


def _find_names(
    recording: Recording, items: Sequence[Example], path: Path, *, is_whole: bool
) -> tuple[str, dict[str, str]]:
    """Return what the ids are, and the item of each."""
    schemes: dict[str, dict[str, Example]] = {
        "item ids": {one.id: one for one in items},
        "question ids": {str(one.fields["question_id"]): one for one in items},
    }
    if is_whole:
        schemes["places in the data set"] = {str(n): one for n, one in enumerate(items)}
    misfits: dict[str, str] = {}
    for name, known in schemes.items():
        wrong = [one for one in recording.queries if not _asks(one, known.get(one.query_id))]
        if not wrong:
            return name, {key: one.id for key, one in known.items()}
        misfits[name] = f"as {name} {len(wrong)} do not fit, the first is {wrong[0].query_id}"
    raise DataError(
        f"the queries of {path} are not those of the data set",
        got="; ".join(misfits.values()),
        expected="queries whose question and question_id are in the training questions"
        + ("" if is_whole else " (rows were dropped, so places in the data set are not known)"),
    )


def _asks(query: RecordedQuery, item: Example | None) -> bool:
    return (
        item is not None
        and str(item.fields["question_id"]) == str(query.question_id)
        and read_question(item).strip() == query.question.strip()
    )


def _rename(query: RecordedQuery, names: Mapping[str, str], path: Path) -> RecordedQuery:
    """Return a query by the ids of the items here."""
    unknown = [one for one in query.require_pool() if str(one) not in names]
    if unknown:
        raise DataError(
            f"the pool of query {query.query_id} in {path} names what is no train item",
            got=unknown[0],
        )

    def rename(ids: Sequence[ItemId]) -> tuple[str, ...]:
        return tuple(names[str(one)] for one in ids)

    return replace(
        query,
        query_id=names[query.query_id],
        pool=rename(query.require_pool()),
        candidates=tuple(replace(one, ids=rename(one.ids)) for one in query.candidates),
    )
