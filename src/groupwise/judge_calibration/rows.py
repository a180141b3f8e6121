"""Verdict rows: one per question put to a judge, the source of every number about it.

A row speaks of answers ``a`` and ``b`` as people saw them, whichever came first for the judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from groupwise.core import EvaluationError, digest_json, read_jsonl, write_jsonl

Order = Literal["ab", "ba", ""]


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """What a judge said once.

    Attributes:
        item_id: the rated item.
        cluster: what is independent of other clusters (a question).
        subset: part of the data, with ``/`` between levels.
        label: what people said: ``a`` or ``b`` of a pair, otherwise the answer's label.
        verdict: what the judge said, in the same words; None = no verdict.
        cause: why there is no verdict; empty where there is one.
        order: how the judge saw the pair; empty for a single answer.
        repeat: number of this asking of the same, from 0.
        confidence: probability of the verdict, or None where not known.
        longer: the longer answer of a pair; None if they are equally long or no pair.
        is_option_flipped: whether the verdict changed with the order of the options that the
            judge chose from; None if it saw one order.

    Raises:
        EvaluationError: if the row contradicts itself.
    """

    item_id: str
    cluster: str
    subset: str
    label: str
    verdict: str | None
    cause: str = ""
    order: Order = ""
    repeat: int = 0
    confidence: float | None = None
    longer: Literal["a", "b"] | None = None
    is_option_flipped: bool | None = None

    def __post_init__(self) -> None:
        """Refuse rows that would give a wrong number later."""
        where = f"the verdict on {self.item_id}"
        if (self.verdict is None) != bool(self.cause):
            raise EvaluationError(
                f"{where} contradicts itself",
                got=f"verdict {self.verdict!r} with cause {self.cause!r}",
                expected="a cause for no verdict and none for a verdict",
            )
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise EvaluationError(
                f"{where} has a wrong confidence", got=self.confidence, expected="[0, 1] or None"
            )

    @property
    def is_first(self) -> bool:
        """Whether the judge chose what it saw first."""
        return self.verdict is not None and self.verdict == self.order[:1]

    @property
    def contradicts(self) -> bool:
        """Whether the judge chose another side than people did; a tie or no verdict does not."""
        return self.verdict not in (None, self.label, "tie")

    @property
    def agrees(self) -> bool:
        """Whether the judge said what people said."""
        return self.verdict == self.label


def write_verdicts(path: Path, rows: Iterable[VerdictRow]) -> None:
    """Replace ``path`` by one JSON row per verdict."""
    write_jsonl(path, (asdict(row) for row in rows))


def read_verdicts(path: Path) -> list[VerdictRow]:
    """Return the rows of a file."""
    known = {item.name for item in fields(VerdictRow)}
    found: list[VerdictRow] = []
    for number, row in enumerate(read_jsonl(path), start=1):
        if set(row) != known:
            raise EvaluationError(
                f"{path} row {number} is no verdict", got=sorted(row), expected=sorted(known)
            )
        found.append(VerdictRow(**row))
    return found


def group_by_item(rows: Iterable[VerdictRow]) -> dict[str, list[VerdictRow]]:
    """Return the rows of each item, items sorted by id."""
    found: dict[str, list[VerdictRow]] = {}
    for row in rows:
        found.setdefault(row.item_id, []).append(row)
    return {name: found[name] for name in sorted(found)}


def split_subsets(rows: Sequence[VerdictRow]) -> dict[str, list[VerdictRow]]:
    """Return the rows of ``all``, then of every subset and of every level above it."""
    found: dict[str, list[VerdictRow]] = {}
    for row in rows:
        parts = row.subset.split("/") if row.subset else []
        for depth in range(1, len(parts) + 1):
            found.setdefault("/".join(parts[:depth]), []).append(row)
    return {"all": list(rows), **{name: found[name] for name in sorted(found)}}


def digest_rated(rows: Iterable[VerdictRow]) -> str:
    """Return the digest of the items behind the rows: their ids with people's labels."""
    return digest_json(sorted({(row.item_id, row.label) for row in rows}))


def count_causes(rows: Iterable[VerdictRow]) -> Mapping[str, int]:
    """Return how often each cause of no verdict occurs, the most frequent first."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.verdict is None:
            counts[row.cause] = counts.get(row.cause, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
