"""The log of a training as series of numbers, and the alarms: what a person should look at now.

Sentences stand with the phrases of the reports. Thresholds stand beside what they decide.
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
"""Rows that "the start" and "now" are means of."""
RISING_MEASURES = ("accuracy", "balanced_accuracy", "f1", "reward", "pass@1")
ENTROPY_SHARE, INVALID_SHARE, DEAD_SHARE = 0.2, 0.2, 0.999
SOLVED_REWARD = 0.98
"""From this mean reward on nothing is left to try, and low entropy is right."""
BARREN_GROUPS = 60
"""Groups in each of which all completions earned the same: of as many without exception it is at
most one in twenty that differs (95 %, rule of three)."""
KL_HISTORY, KL_FACTOR, KL_FLOOR = 10, 5.0, 0.1
"""KL in nats above so many times the median of the rows before; half of these must be there."""
LOSS_FALL, LOSS_FLOOR = 0.03, 0.7
"""The loss of SFT has to fall by this share, unless it begins below so many nats, where a token has
more than half of the probability and the rest may be noise in the labels. Measured on SmolLM2-135M
with answers of one word: at 1e-5 a LoRA went from 3.23 to 3.40 in 38 steps, at 2e-4 to 0.52."""
DUE_SHARE, DUE_STEPS = 0.5, 20
"""From here on SFT and looks end a training: a rate that falls in a line has done three quarters of
its work at half of the steps."""

# In the order in which people look at them.
_ORDER = (
    *("reward", "heldout/accuracy", "loss", "kl", "entropy", "dead_groups", "invalid", "unscored"),
    *("truncated", "completion_length", "reward_std", "mean_token_accuracy", "grad_norm"),
    *("learning_rate", "tokens_per_s", "step_s"),
)
_SHARES = (
    *("reward", "dead_groups", "invalid", "truncated", "unscored", "mean_token_accuracy"),
    *("heldout/accuracy", "heldout/invalid", "heldout/commonest"),
)


@dataclass(frozen=True, slots=True)
class Series:
    """One value over the steps of a training: its key, and steps and finite values of its rows."""

    key: str
    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.values)


class History:
    """All series of one training, from the rows of its log.

    A row without a step and values that are no finite numbers are left out.

    Attributes:
        last_step: of all rows.
        facts: what rewards said of the completions of the last row that has any: ``step``, ``num``
            (completions), ``shares`` and ``sums`` by name as (part, of how many), ``texts`` by name
            with ``num``, ``different`` and ``commonest`` (text, count).
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._series: dict[str, tuple[list[int], list[float]]] = {}
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
                    steps, values = self._series.setdefault(key, ([], []))
                    steps.append(step)
                    values.append(float(value))

    def read(self, key: str) -> Series:
        """Return a series; it is empty if no row has ``key``."""
        steps, values = self._series.get(key, ((), ()))
        return Series(key, tuple(steps), tuple(values))

    @property
    def heldout(self) -> Series:
        """What held-out looks choose by: accuracy, or else the first value of each."""
        keys = [key for key in self._series if key.startswith("heldout/")]
        return self.read("heldout/accuracy" if "heldout/accuracy" in keys else (*keys, "")[0])

    def list_series(self) -> list[Series]:
        """Return the series to look at: the reward and its parts, held-out values, the rest."""
        hidden = ("step", "epoch", "skipped_rows", "heldout/n", "heldout/majority")

        def rank(key: str) -> tuple[float, str]:
            if key in _ORDER:
                return float(_ORDER.index(key)), key
            places = {"reward": 0.5, "mean": 0.5, "heldout": 1.5}
            return places.get(key.partition("/")[0], float(len(_ORDER))), key

        deviations = {key for key in self._series if key.startswith("reward/")}
        deviations -= {f"reward/{name}" for name in self.list_parts()}
        shown = self._series.keys() - deviations - {*hidden}
        keys = sorted((key for key in shown if not key.startswith("num_")), key=rank)
        return [self.read(key) for key in keys]

    def list_parts(self) -> list[str]:
        """Return the names of the parts of the reward (``reward/NAME``), sorted."""
        keys = [key for key in self._series if key.startswith("reward/")]
        return sorted(key.removeprefix("reward/") for key in keys if not key.endswith("_std"))

    @property
    def is_rewarded(self) -> bool:
        """Whether it trained by rewards, as GRPO does; the loss then says nothing."""
        return "reward" in self._series

    @property
    def is_empty(self) -> bool:
        """Whether there is no row with a step yet."""
        return not self._series


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to look at."""

    name: AlarmName
    step: int  # at which it was seen
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])  # also the threshold
    subject: str = ""  # the measure it is about, where there are several
    level: Literal["error", "warning"] = "warning"  # error: training teaches nothing

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
    is_due = history.last_step >= max(DUE_SHARE * (num_steps or 0), DUE_STEPS)
    found = [*_check_rewards(history), *_check_heldout(history)]
    found += [*_check_loss(history)] if is_due else []
    found = [
        replace(one, level="error") if is_due and one.name == "constant_answers" else one
        for one in found
    ]
    return tuple(sorted(found, key=lambda alarm: alarm.level))


def find_stop(history: History, *, num_steps: int) -> Alarm | None:
    """Return the alarm for which a training of so many steps is to end now, if there is one."""
    found = find_alarms(history, num_steps=num_steps)
    return next((one for one in found if one.level == "error" and one.name in STOPPING), None)


def _check_rewards(history: History) -> Iterator[Alarm]:
    """Dead groups while something is left to earn, invalid answers, low entropy, a jump of KL."""
    reward, dead, invalid = map(history.read, ("reward", "dead_groups", "invalid"))
    num_groups = sum(history.read("num_groups").values)
    is_barren = num_groups == sum(history.read("num_dead_groups").values)
    is_solved = max(reward.values, default=1.0) >= SOLVED_REWARD
    last = dead.values[-WINDOW:]
    if num_groups >= BARREN_GROUPS and is_barren and not is_solved:
        numbers = {"num_groups": num_groups, "reward": reward.values[-1]}
        yield Alarm("nothing_earned", reward.steps[-1], numbers, level="error")
    elif len(last) == WINDOW and min(last) >= DEAD_SHARE:
        numbers = {"now": fmean(last), "num_rows": float(len(last))}
        numbers |= {"reward": fmean(reward.values[-WINDOW:])} if reward else {}
        yield Alarm("all_groups_dead", dead.steps[-1], numbers, level="error")
    if len(invalid) >= WINDOW and (share := fmean(invalid.values[-WINDOW:])) > INVALID_SHARE:
        yield Alarm("invalid", invalid.steps[-1], {"now": share, "limit": INVALID_SHARE})
    entropy = history.read("entropy")
    if reward and len(entropy) >= 2 * WINDOW:
        start, now = fmean(entropy.values[:WINDOW]), fmean(entropy.values[-WINDOW:])
        earned = fmean(reward.values[-WINDOW:])
        if now < ENTROPY_SHARE * start and earned < SOLVED_REWARD:
            numbers = {"start": start, "now": now, "reward": earned}
            yield Alarm("entropy_collapse", entropy.steps[-1], numbers)
    kl, jumps = history.read("kl"), list[tuple[int, dict[str, float]]]()
    for place in range((KL_HISTORY + 1) // 2, len(kl)):
        usual, value = median(kl.values[max(0, place - KL_HISTORY) : place]), kl.values[place]
        if value > KL_FLOOR and value > KL_FACTOR * usual:
            jumps.append((kl.steps[place], {"value": value, "usual": usual, "factor": KL_FACTOR}))
    if jumps:
        yield Alarm("kl_jump", jumps[-1][0], {**jumps[-1][1], "num_jumps": len(jumps)})


def _check_heldout(history: History) -> Iterator[Alarm]:
    """The last two looks lie below the best while the reward rose; or one answer to everything."""
    reward, sizes = history.read("reward"), history.read("heldout/n").values
    pairs = list(zip(reward.steps, reward.values, strict=True))
    chosen_by = history.heldout.key.removeprefix("heldout/")
    for name in dict.fromkeys((*RISING_MEASURES, chosen_by)):
        looks = history.read(f"heldout/{name}")
        if len(looks) < 3:
            continue
        best, now, drop = max(looks.values), max(looks.values[-2:]), 0.02
        step = looks.steps[looks.values.index(best)]
        if sizes and 0 <= best <= 1:  # two standard errors of a look of so many items
            drop = max(drop, 2 * math.sqrt(best * (1 - best) / sizes[-1]))
        before = [value for at, value in pairs if at <= step][-WINDOW:]
        after = [value for at, value in pairs if at > step][-WINDOW:]
        if best - now <= drop or not before or not after:
            continue
        if fmean(after) - fmean(before) >= 0.01:
            numbers = {"best": best, "best_step": step, "now": now}
            numbers |= {"reward_then": fmean(before), "reward_now": fmean(after)}
            yield Alarm("reward_up_heldout_down", looks.steps[-1], numbers, name)
    # At two looks one answer to nearly everything, though the commonest truth has a smaller share.
    looks, truth = history.read("heldout/commonest"), history.read("heldout/majority").values
    last, is_asked = looks.values[-2:], bool(sizes) and sizes[-1] >= 20
    if is_asked and truth and truth[-1] <= 0.9 and len(last) == 2 and min(last) >= 0.98:
        numbers = {"now": last[-1], "truth": truth[-1], "num_looks": float(len(last))}
        yield Alarm("constant_answers", looks.steps[-1], numbers)


def _check_loss(history: History) -> Iterator[Alarm]:
    """The first and the last third of the rows of SFT; while the rate still rises none is said."""
    loss, rates = history.read("loss"), history.read("learning_rate").values
    third = len(loss) // 3
    is_rising = bool(rates) and rates.index(max(rates)) > len(rates) // 2
    if history.is_rewarded or not third or is_rising:
        return
    start, now = fmean(loss.values[:third]), fmean(loss.values[-third:])
    if start > LOSS_FLOOR and start - now < LOSS_FALL * start:
        yield Alarm("loss_not_falling", loss.steps[-1], {"start": start, "now": now}, level="error")


def title_series(key: str, phrases: Phrases) -> str:
    """Return what a series is called; one that is not known keeps its key."""
    title = phrases.title("series", key)
    kind, stroke, name = key.partition("/")
    if title != key or not stroke or kind not in ("heldout", "mean", "reward"):
        return title
    if kind == "heldout":
        return phrases.say("heldout", name=name)
    return f"  {phrases.say('mean_of', name=name)}" if kind == "mean" else f"  {name}"


def is_share(key: str) -> bool:
    """Whether the values of a series are shares."""
    return key in _SHARES


def describe_value(key: str, value: float) -> str:
    """Return a value of a series: shares in per cent, other numbers with three digits."""
    is_percent = is_share(key) or (key.startswith("reward/") and 0 <= value <= 1)
    return format_share(value) if is_percent else format_plain(value)
