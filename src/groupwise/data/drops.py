"""A log of rows that were not used: how many, why and where. It decides nothing itself."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Drop:
    """One row that was not used."""

    reason: str
    where: str


class DropLog:
    """Collects dropped rows.

    Reasons are few and fixed, so that they can be counted; ``where`` names the row and what
    was wrong in it.
    """

    def __init__(self) -> None:
        self._drops: list[Drop] = []

    def add(self, reason: str, where: str) -> None:
        """Record one dropped row."""
        self._drops.append(Drop(reason, where))

    @property
    def rows(self) -> tuple[Drop, ...]:
        """All dropped rows in the order they were met."""
        return tuple(self._drops)

    @property
    def counts(self) -> dict[str, int]:
        """Number of dropped rows by reason, the most frequent first."""
        counts = Counter(drop.reason for drop in self._drops)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def total(self) -> int:
        """Number of dropped rows."""
        return len(self._drops)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the log that ``to_json`` gave the values of."""
        log = cls()
        for row in values["rows"]:
            log.add(row["reason"], row["where"])
        return log

    def to_json(self) -> dict[str, Any]:
        """Return total, counts and all rows as JSON values."""
        return {
            "total": self.total,
            "counts": self.counts,
            "rows": [{"reason": drop.reason, "where": drop.where} for drop in self._drops],
        }
