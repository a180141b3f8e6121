"""The history of one training: its logged rows as series of numbers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

# In the order in which people look at them.
_ORDER = (
    "reward",
    "heldout/accuracy",
    "loss",
    "kl",
    "entropy",
    "dead_groups",
    "invalid",
    "unscored",
    "truncated",
    "completion_length",
    "reward_std",
    "mean_token_accuracy",
    "grad_norm",
    "learning_rate",
    "tokens_per_s",
    "step_s",
)
_HIDDEN = (
    *("step", "epoch", "skipped_rows", "heldout/n", "heldout/majority"),
    *("num_groups", "num_dead_groups", "num_skipped_rows"),
    *("num_refills", "num_dead_refills", "num_filled_groups", "num_refill_tokens"),
)


@dataclass(frozen=True, slots=True)
class Series:
    """One value over the steps of a training.

    Attributes:
        key: its name in ``metrics.jsonl``.
        steps: steps of the rows that have it, in the order of the rows.
        values: its values there; all are finite.
    """

    key: str
    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def __len__(self) -> int:
        """How many rows have it."""
        return len(self.values)

    def average_start(self, window: int) -> float:
        """Return the mean of the first ``window`` values."""
        return fmean(self.values[:window])

    def average_end(self, window: int) -> float:
        """Return the mean of the last ``window`` values."""
        return fmean(self.values[-window:])


@dataclass(frozen=True, slots=True)
class Tally:
    """Texts that were told of completions.

    Attributes:
        num: completions of which one was told.
        num_different: texts.
        commonest: texts with their counts, the commonest first; rare ones are left out.
    """

    num: int
    num_different: int
    commonest: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What rewards told of the completions of one row.

    Attributes:
        step: of the row.
        num: completions.
        counts: by series, of how many it is true, and of how many it is told.
        sums: by name.
        tallies: by name.
    """

    step: int
    num: int
    counts: Mapping[str, tuple[int, int]]
    sums: Mapping[str, float]
    tallies: Mapping[str, Tally]


def _read_facts(step: int, told: Mapping[str, Any]) -> Facts:
    return Facts(
        step=step,
        num=told["num"],
        counts={f"reward/{name}": (part, num) for name, (part, num) in told["shares"].items()},
        sums={name: total for name, (total, _) in told["sums"].items()},
        tallies={
            name: Tally(one["num"], one["different"], tuple(map(tuple, one["commonest"])))
            for name, one in told["texts"].items()
        },
    )


class History:
    """All series of one training.

    Args:
        rows: its log; one without a step and values that are no finite numbers are left out.

    Attributes:
        last_step: of all rows.
        facts: of the last row that has any.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._points: dict[str, tuple[list[int], list[float]]] = {}
        self.last_step = 0
        self.facts: Facts | None = None
        for row in rows:
            step = row.get("step")
            if not isinstance(step, int):
                continue
            self.last_step = max(self.last_step, step)
            if "facts" in row:
                self.facts = _read_facts(step, row["facts"])
            for key, value in row.items():
                if _is_number(value):
                    steps, values = self._points.setdefault(key, ([], []))
                    steps.append(step)
                    values.append(float(value))

    def read(self, key: str) -> Series:
        """Return a series; it is empty if no row has ``key``."""
        steps, values = self._points.get(key, ((), ()))
        return Series(key, tuple(steps), tuple(values))

    @property
    def heldout(self) -> Series:
        """What held-out looks choose by: accuracy, or else the first value of each."""
        keys = [key for key in self._points if key.startswith("heldout/")]
        return self.read("heldout/accuracy" if "heldout/accuracy" in keys else (*keys, "")[0])

    def list_series(self) -> list[Series]:
        """Return the series to look at: the reward and its parts, held-out values, the rest."""
        keys = [
            key
            for key in self._points
            if key not in _HIDDEN and not (key.startswith("reward/") and key.endswith("_std"))
        ]
        return [self.read(key) for key in sorted(keys, key=_rank_key)]

    def list_parts(self) -> list[str]:
        """Return the names of the parts of the reward (``reward/NAME``), sorted."""
        keys = [key for key in self._points if key.startswith("reward/")]
        return sorted(key.removeprefix("reward/") for key in keys if not key.endswith("_std"))

    @property
    def is_rewarded(self) -> bool:
        """Whether it trained by rewards, as GRPO does; the loss then says nothing."""
        return "reward" in self._points

    @property
    def is_empty(self) -> bool:
        """Whether there is no row with a step yet."""
        return not self._points


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _rank_key(key: str) -> tuple[float, str]:
    """Parts follow the reward, other held-out values the accuracy, unknown ones come last."""
    if key in _ORDER:
        return float(_ORDER.index(key)), key
    if key.startswith(("reward/", "mean/")):
        return 0.5, key
    if key.startswith("heldout/"):
        return 1.5, key
    return float(len(_ORDER)), key
