"""Recorded candidates: the lists of demonstrations tried for each query, and what each earned.

Order counts: the same demonstrations in another order are another list. An evaluation that failed
is None, never 0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from pydantic import ConfigDict, with_config

from groupwise.core import DataError, digest_json
from groupwise.data.examples import DropLog
from groupwise_recipes.demo_selection.conditions import Conditions, ItemId, digest_items

T = TypeVar("T")
_exact = with_config(ConfigDict(extra="forbid"))


@_exact
@dataclass(frozen=True, slots=True)
class Candidate:
    """One list of demonstrations and what the answerer made of it.

    Attributes:
        ids: train items in the order of the prompt, all different.
        method: what made the list: ``beam``, ``sample``, ``retrieval`` or ``random``.
        temperature: of a sample.
        log_prob: of the list, by the selector that made it.
        answer: what the answerer said.
        accuracy: VQA accuracy of the answer, in [0, 1] (soft); None: its evaluation failed.
        correct: whether the answer was recorded as correct (hard), where that was recorded.
        scored_by: what computed the accuracy; ``vqaEval`` and ``VqaAccuracy`` are official.
    """

    ids: tuple[ItemId, ...]
    method: str
    temperature: float | None = None
    log_prob: float | None = None
    answer: str | None = None
    accuracy: float | None = None
    correct: bool | None = None
    scored_by: str | None = None


@_exact
@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """One query, its pool and the lists that were tried.

    Attributes:
        query_id: unique in the recording.
        question_id: of the data set.
        image_id: of the picture.
        question: what was asked.
        answers: of the annotators, raw.
        pool: ids of the K train items that lists are picked from, in order; None: not recorded.
        candidates: the lists, no two alike.
    """

    query_id: str
    question_id: ItemId
    image_id: ItemId | None
    question: str
    answers: tuple[str, ...]
    pool: tuple[ItemId, ...] | None
    candidates: tuple[Candidate, ...]

    def __post_init__(self) -> None:
        """Check the lists against the pool."""
        where = f"query {self.query_id}"
        if self.pool is not None and len(set(self.pool)) < len(self.pool):
            raise DataError(f"the pool of {where} has an item twice", got=_find_twice(self.pool))
        for candidate in self.candidates:
            self._check(candidate, where)
        lists = [candidate.ids for candidate in self.candidates]
        if len(set(lists)) < len(lists):
            raise DataError(f"{where} has a list twice", got=list(_find_twice(lists)))

    def _check(self, candidate: Candidate, where: str) -> None:
        ids = candidate.ids
        if not ids or len(set(ids)) < len(ids):
            raise DataError(f"a list of {where} has no item, or one twice", got=list(ids))
        if self.pool is not None and not set(ids) <= set(self.pool):
            raise DataError(f"a list of {where} has an item that is not in the pool", got=list(ids))
        if candidate.accuracy is not None and not 0 <= candidate.accuracy <= 1:
            raise DataError(
                f"an accuracy of {where} is out of range",
                got=candidate.accuracy,
                expected="a number from 0 to 1, or none where the evaluation failed",
            )

    def require_pool(self) -> tuple[ItemId, ...]:
        """Return the pool."""
        if self.pool is None:
            raise DataError(
                f"the pool of query {self.query_id} was not recorded", fix="give its pools"
            )
        return self.pool

    def find_positions(self, candidate: Candidate) -> tuple[int, ...]:
        """Return the positions of a list in the pool, each in [0, K)."""
        return tuple(map(self.require_pool().index, candidate.ids))


@dataclass(frozen=True)
class Recording:
    """The recorded candidates of all queries; all lists have one length.

    Attributes:
        queries: with different ids.
        conditions: that they were recorded under.
        notes: JSON values that came with a published file.
    """

    queries: tuple[RecordedQuery, ...]
    conditions: Conditions = field(default_factory=Conditions)
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Check what queries have in common."""
        if not self.queries:
            raise DataError("a recording has no queries")
        ids = [query.query_id for query in self.queries]
        if len(set(ids)) < len(ids):
            raise DataError("a recording has a query twice", got=_find_twice(ids))
        lengths = Counter(len(one.ids) for query in self.queries for one in query.candidates)
        if len(lengths) > 1:
            raise DataError(
                "the lists of a recording have different lengths",
                got=", ".join(f"{lengths[size]} of {size}" for size in sorted(lengths)),
                expected="one number of shots",
            )

    @property
    def digest(self) -> str:
        """Of queries, pools, lists and results; the order of queries does not count."""
        rows = sorted((asdict(query) for query in self.queries), key=lambda row: row["query_id"])
        return digest_json(rows)

    def describe(self) -> dict[str, str | None]:
        """Return what ``find_differences`` compares, by name."""
        pools = sorted((query.query_id, query.pool) for query in self.queries)
        return {
            "data": self.digest,
            "items": digest_items(query.query_id for query in self.queries),
            "pools": None if any(pool is None for _, pool in pools) else digest_json(pools),
            **self.conditions.describe(),
        }

    def read_values(self, candidate: Candidate) -> tuple[float, float] | None:
        """Return the raw values (hard, soft) of a list, or None where its evaluation failed.

        Hard is 1 if the answer is correct by ``conditions.correct_above``, else 0; soft is its VQA
        accuracy in [0, 1].
        """
        if candidate.accuracy is None:
            return None
        above = self.conditions.correct_above
        if above is not None:
            return float(candidate.accuracy > above), candidate.accuracy
        if candidate.correct is None:
            raise DataError(
                "a list has no recorded vqa_correct", fix="set correct_above, such as to 0"
            )
        return float(candidate.correct), candidate.accuracy


def drop_repeated(
    candidates: Iterable[Candidate], drops: DropLog, *, where: str
) -> list[Candidate]:
    """Return each ordered list once, and count the others.

    Of equal lists the first one stays whose evaluation did not fail.
    """
    kept: dict[tuple[ItemId, ...], Candidate] = {}
    for candidate in candidates:
        former = kept.setdefault(candidate.ids, candidate)
        if former is candidate:
            continue
        is_same = candidate.answer == former.answer and candidate.accuracy == former.accuracy
        reason = "repeated list" if is_same else "repeated list with another result"
        drops.add(reason, f"{where} list {list(candidate.ids)}")
        if former.accuracy is None and candidate.accuracy is not None:
            kept[candidate.ids] = candidate
    return list(kept.values())


def _find_twice(values: Sequence[T]) -> T:
    return Counter(values).most_common(1)[0][0]
