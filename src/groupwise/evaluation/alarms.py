"""The log of a training as series of numbers, and the alarms: what a person should look at now.

A rule is a function of the series; it returns numbers, and the sentences stand with the phrases of
the reports. A row is one logged row of ``metrics.jsonl``.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Literal

from groupwise.evaluation.report.phrases import Phrases, Statement, format_plain, format_share

AlarmName = Literal[
    "all_groups_dead",
    "reward_up_heldout_down",
    "kl_jump",
    "entropy_collapse",
    "invalid",
    "loss_not_falling",
    "constant_answers",
    "nothing_earned",
]
STOPPING: tuple[AlarmName, ...] = ("loss_not_falling", "constant_answers", "nothing_earned")
"""The alarms that end a training, where they are errors: more time would be spent on nothing."""

WINDOW = 5
"""Rows that "the start" and "now" are means of; what compares the two wants twice as many."""
RISING_MEASURES = ("accuracy", "balanced_accuracy", "f1", "reward", "pass@1")
HELDOUT_DROP = 0.02
"""Smallest fall below the best held-out look; also two standard errors of a look of n items."""
REWARD_RISE = 0.01
ENTROPY_SHARE = 0.2
SOLVED_REWARD = 0.98
"""From this mean reward on nothing is left to try, and low entropy is right."""
KL_HISTORY, KL_FACTOR, KL_FLOOR = 10, 5.0, 0.1
"""KL in nats above so many times the median of the rows before; half of these must be there."""
INVALID_SHARE, DEAD_SHARE = 0.2, 0.999
LOSS_FALL, LOSS_FLOOR = 0.03, 0.7
"""The loss of SFT has to fall by this share, unless it begins below so many nats, where a token has
more than half of the probability and the rest may be noise in the labels. Measured on SmolLM2-135M
with answers of one word: at 1e-5 a LoRA went from 3.23 to 3.40 in 38 steps, at 2e-4 to 0.52."""
CONSTANT_LOOKS, CONSTANT_SHARE, CONSTANT_TRUTH, CONSTANT_ITEMS = 2, 0.98, 0.9, 20
"""So many held-out looks in a row, of at least so many items, give one answer to nearly everything,
though the commonest truth has a smaller share."""
BARREN_GROUPS = 60
"""Groups in each of which all completions earned the same: of as many without exception it is at
most one in twenty that differs (95 %, rule of three)."""
DUE_SHARE, DUE_STEPS = 0.5, 20
"""From here on SFT and looks end a training: a rate that falls in a line has done three quarters of
its work at half of the steps."""

_SHARES = (
    *("reward", "dead_groups", "invalid", "truncated", "unscored", "mean_token_accuracy"),
    *("heldout/accuracy", "heldout/invalid", "heldout/commonest"),
)
# In the order in which people look at them.
_ORDER = (
    *("reward", "heldout/accuracy", "loss", "kl", "entropy", "dead_groups", "invalid", "unscored"),
    *("truncated", "completion_length", "reward_std", "mean_token_accuracy", "grad_norm"),
    *("learning_rate", "tokens_per_s", "step_s"),
)
_HIDDEN = (
    *("step", "epoch", "skipped_rows", "heldout/n", "heldout/majority"),
    *("num_groups", "num_dead_groups", "num_skipped_rows"),
    *("num_refills", "num_dead_refills", "num_filled_groups", "num_refill_tokens"),
)


@dataclass(frozen=True, slots=True)
class Series:
    """One value over the steps of a training: its key, and steps and finite values of its rows."""

    key: str
    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def average_start(self, window: int = WINDOW) -> float:
        """Return the mean of the first ``window`` values."""
        return fmean(self.values[:window])

    def average_end(self, window: int = WINDOW) -> float:
        """Return the mean of the last ``window`` values."""
        return fmean(self.values[-window:])


class History:
    """All series of one training.

    Args:
        rows: its log; one without a step and values that are no finite numbers are left out.

    Attributes:
        last_step: of all rows.
        facts: what rewards told of the completions of the last row that has any: ``step``, ``num``
            (completions), ``shares`` and ``sums`` by name as (part, of how many), ``texts`` by name
            with ``num``, ``different`` and ``commonest`` (text, count).
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._points: dict[str, tuple[list[int], list[float]]] = {}
        self.last_step = 0
        self.facts: Mapping[str, Any] | None = None
        for row in rows:
            step = row.get("step")
            if not isinstance(step, int):
                continue
            self.last_step = max(self.last_step, step)
            if "facts" in row:
                self.facts = {**row["facts"], "step": step}
            for key, value in row.items():
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if is_number and math.isfinite(value):
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

        def rank(key: str) -> tuple[float, str]:
            if key in _ORDER:
                return float(_ORDER.index(key)), key
            places = {"reward": 0.5, "mean": 0.5, "heldout": 1.5}
            return places.get(key.partition("/")[0], float(len(_ORDER))), key

        keys = [
            key
            for key in self._points
            if key not in _HIDDEN and not (key.startswith("reward/") and key.endswith("_std"))
        ]
        return [self.read(key) for key in sorted(keys, key=rank)]

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


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to look at.

    Attributes:
        name: fixed name of the kind.
        step: training step at which it was seen; 0 where it belongs to none.
        numbers: what was measured and the threshold it broke, by name.
        subject: the measure it is about, where there are several.
        level: ``error``: training teaches nothing; ``warning``: it may teach the wrong thing.
    """

    name: AlarmName
    step: int
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    subject: str = ""
    level: Literal["error", "warning"] = "warning"

    @property
    def said(self) -> Statement:
        """What was seen, a clause without a final stop."""
        return Statement(f"alarm.{self.name}", {**self.numbers, "subject": self.subject})

    @property
    def advice(self) -> Statement:
        """What to do about it, a clause without a final stop."""
        return Statement(f"advice.{self.name}")


def find_alarms(history: History, *, num_steps: int | None = None) -> tuple[Alarm, ...]:
    """Return every alarm of a training of so many steps (None: it is over), errors first."""
    found = [*_check_groups(history), *_check_heldout(history), *_check_entropy(history)]
    found += [*_check_invalid(history), *_check_kl(history)]
    is_due = history.last_step >= max(DUE_SHARE * (num_steps or 0), DUE_STEPS)
    if is_due:
        found += _check_loss(history)
    for alarm in _check_constant(history):
        found.append(replace(alarm, level="error") if is_due else alarm)
    return tuple(sorted(found, key=lambda alarm: alarm.level))


def find_stop(history: History, *, num_steps: int) -> Alarm | None:
    """Return the alarm for which a training of so many steps is to end now, if there is one."""
    found = find_alarms(history, num_steps=num_steps)
    return next((one for one in found if one.level == "error" and one.name in STOPPING), None)


def _check_groups(history: History) -> Iterator[Alarm]:
    """All groups have been dead while something is left to earn, or those of the last rows are."""
    dead, reward = history.read("dead_groups"), history.read("reward")
    num_groups = sum(history.read("num_groups").values)
    is_barren = num_groups == sum(history.read("num_dead_groups").values)
    is_solved = max(reward.values, default=1.0) >= SOLVED_REWARD
    if num_groups >= BARREN_GROUPS and is_barren and not is_solved:
        numbers = {"num_groups": num_groups, "reward": reward.values[-1]}
        yield Alarm("nothing_earned", reward.steps[-1], numbers, level="error")
        return
    last = dead.values[-WINDOW:]
    if len(last) == WINDOW and min(last) >= DEAD_SHARE:
        numbers = {"now": fmean(last), "num_rows": float(len(last))}
        if reward:
            numbers["reward"] = reward.average_end()
        yield Alarm("all_groups_dead", dead.steps[-1], numbers, level="error")


def _check_heldout(history: History) -> Iterator[Alarm]:
    """The last two held-out looks lie below the best one while the reward has risen since."""
    chosen_by = history.heldout.key.removeprefix("heldout/")
    reward = history.read("reward")
    pairs = list(zip(reward.steps, reward.values, strict=True))
    for name in dict.fromkeys((*RISING_MEASURES, chosen_by)):
        heldout = history.read(f"heldout/{name}")
        if len(heldout) < 3:
            continue
        best = max(heldout.values)
        step, now = heldout.steps[heldout.values.index(best)], max(heldout.values[-2:])
        sizes, drop = history.read("heldout/n").values, HELDOUT_DROP
        if sizes and 0 <= best <= 1:
            drop = max(drop, 2 * math.sqrt(best * (1 - best) / sizes[-1]))
        before = [value for at, value in pairs if at <= step][-WINDOW:]
        after = [value for at, value in pairs if at > step][-WINDOW:]
        if best - now <= drop or not before or not after:
            continue
        if fmean(after) - fmean(before) >= REWARD_RISE:
            numbers = {"best": best, "best_step": step, "now": now}
            numbers |= {"reward_then": fmean(before), "reward_now": fmean(after)}
            yield Alarm("reward_up_heldout_down", heldout.steps[-1], numbers, name)


def _check_kl(history: History) -> Iterator[Alarm]:
    """The last value far above the median of the rows before it, and how many there are."""
    kl, jumps = history.read("kl"), list[tuple[int, float, float]]()
    for place in range((KL_HISTORY + 1) // 2, len(kl)):
        usual, value = median(kl.values[max(0, place - KL_HISTORY) : place]), kl.values[place]
        if value > KL_FLOOR and value > KL_FACTOR * usual:
            jumps.append((kl.steps[place], value, usual))
    if jumps:
        step, value, usual = jumps[-1]
        numbers = {"value": value, "usual": usual, "factor": KL_FACTOR, "num_jumps": len(jumps)}
        yield Alarm("kl_jump", step, numbers)


def _check_entropy(history: History) -> Iterator[Alarm]:
    entropy, reward = history.read("entropy"), history.read("reward")
    if reward and len(entropy) >= 2 * WINDOW:
        start, now, earned = entropy.average_start(), entropy.average_end(), reward.average_end()
        if now < ENTROPY_SHARE * start and earned < SOLVED_REWARD:
            numbers = {"start": start, "now": now, "reward": earned}
            yield Alarm("entropy_collapse", entropy.steps[-1], numbers)


def _check_invalid(history: History) -> Iterator[Alarm]:
    share = history.read("invalid")
    if len(share) >= WINDOW and share.average_end() > INVALID_SHARE:
        numbers = {"now": share.average_end(), "limit": INVALID_SHARE}
        yield Alarm("invalid", share.steps[-1], numbers)


def _check_loss(history: History) -> Iterator[Alarm]:
    """The first and the last third of the rows of SFT; while the rate still rises none is said."""
    loss, rate = history.read("loss"), history.read("learning_rate")
    third = len(loss) // 3
    is_rising = bool(rate) and rate.values.index(max(rate.values)) > len(rate) // 2
    if history.is_rewarded or not third or is_rising:
        return
    start, now = loss.average_start(third), loss.average_end(third)
    if start > LOSS_FLOOR and start - now < LOSS_FALL * start:
        numbers = {"start": start, "now": now}
        yield Alarm("loss_not_falling", loss.steps[-1], numbers, level="error")


def _check_constant(history: History) -> Iterator[Alarm]:
    """One answer to everything that is asked, while the truths differ."""
    share, truth = history.read("heldout/commonest"), history.read("heldout/majority")
    last = share.values[-CONSTANT_LOOKS:]
    if not truth or len(last) < CONSTANT_LOOKS or min(last) < CONSTANT_SHARE:
        return
    num_items = history.read("heldout/n").values[-1]
    if truth.values[-1] <= CONSTANT_TRUTH and num_items >= CONSTANT_ITEMS:
        numbers = {"now": last[-1], "truth": truth.values[-1], "num_looks": float(len(last))}
        yield Alarm("constant_answers", share.steps[-1], numbers)


def title_series(key: str, phrases: Phrases) -> str:
    """Return what a series is called; one that is not known keeps its key."""
    title = phrases.title("series", key)
    kind, stroke, name = key.partition("/")
    if title != key or not stroke:
        return title
    if kind == "heldout":
        return phrases.say("heldout", name=name)
    if kind == "mean":
        return f"  {phrases.say('mean_of', name=name)}"
    return f"  {name}" if kind == "reward" else key


def is_share(key: str) -> bool:
    """Whether the values of a series are shares."""
    return key in _SHARES


def describe_value(key: str, value: float) -> str:
    """Return a value of a series: shares in per cent, other numbers with three digits."""
    is_percent = is_share(key) or (key.startswith("reward/") and 0 <= value <= 1)
    return format_share(value) if is_percent else format_plain(value)
