"""What a training of the selector logged, by finished epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from groupwise.core import read_jsonl

LOSS_TOLERANCE = 5e-6
"""So far a logged loss may be from PPO + β · KL: five digits after the point agree."""

_OF_LAST_ROW = ("eval_loss", "advantage_std", "advantage_max", "beta")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One finished epoch of a training; None where something was not logged.

    Attributes:
        number: the first is 1.
        loss: of training, mean over queries.
        eval_loss: validation loss: RCE at τ = 1 with raw rewards.
        ppo_loss: the clipped surrogate, without the penalty.
        kl: mean of ρ - 1 - log ρ over the recorded lists.
        beta: weight of the penalty.
        advantage_std: of the advantages of all lists.
        advantage_max: greatest size of one.
        num_groups: queries seen.
        num_dead_groups: of them, those whose lists all earned the same.
    """

    number: int
    loss: float | None = None
    eval_loss: float | None = None
    ppo_loss: float | None = None
    kl: float | None = None
    beta: float | None = None
    advantage_std: float | None = None
    advantage_max: float | None = None
    num_groups: float = 0
    num_dead_groups: float = 0

    @property
    def expected_loss(self) -> float | None:
        """PPO + β · KL; None where one of them is not known."""
        if self.ppo_loss is None or self.kl is None or self.beta is None:
            return None
        return self.ppo_loss + self.beta * self.kl

    @property
    def adds_up(self) -> bool:
        """Whether the loss is PPO + β · KL to five digits, as far as they are known."""
        expected = self.expected_loss
        if self.loss is None or expected is None:
            return True
        return abs(self.loss - expected) <= LOSS_TOLERANCE


def read_epochs(path: Path) -> tuple[Epoch, ...]:
    """Return the finished epochs of a ``metrics.jsonl``; none without the file.

    Rows within an epoch are means of its steps and are averaged by their queries. An epoch without
    its last row was interrupted and is left out.

    Raises:
        DataError: if a line is damaged.
    """
    if not path.is_file():
        return ()
    rows = [row for row in read_jsonl(path) if "epoch" in row]
    found: list[Epoch] = []
    for number, group in groupby(rows, key=lambda row: max(1, math.ceil(row["epoch"]))):
        own = list(group)
        if own[-1]["epoch"] == number:
            found.append(_join_rows(number, own))
    return tuple(found)


def _join_rows(number: int, rows: Sequence[Mapping[str, Any]]) -> Epoch:
    weights = [row.get("num_groups", 1) for row in rows]
    values: dict[str, float] = {}
    for name in (one.name for one in fields(Epoch) if one.name != "number"):
        if not all(name in row for row in rows) and name not in rows[-1]:
            continue
        if name in _OF_LAST_ROW:
            values[name] = rows[-1][name]
        elif name.startswith("num_"):
            values[name] = sum(row[name] for row in rows)
        else:
            pairs = zip(rows, weights, strict=True)
            values[name] = sum(row[name] * weight for row, weight in pairs) / sum(weights)
    return Epoch(number, **values)


def average_epochs(epochs: Sequence[Epoch]) -> Epoch:
    """Return the means of one epoch of several runs; what one of them lacks is None."""
    rows = [asdict(one) for one in epochs]
    means = {
        name: None if any(row[name] is None for row in rows) else fmean(row[name] for row in rows)
        for name in rows[0]
        if name != "number"
    }
    return Epoch(epochs[0].number, **means)  # pyright: ignore[reportArgumentType]
