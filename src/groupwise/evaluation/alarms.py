"""The log of a training as series of numbers, and the alarms: what a person should look at now.

Sentences stand with the phrases of the reports. Thresholds stand beside what they decide.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Literal

from groupwise.evaluation.report.phrases import Phrases, Statement

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
WINDOW = 5  # rows that "the start" and "now" are means of
ENTROPY_SHARE, INVALID_SHARE, DEAD_SHARE = 0.2, 0.2, 0.999
SOLVED_REWARD = 0.98  # from this mean on nothing is left to try, and low entropy is right
BARREN_GROUPS = 60  # none of which differed: at most one in twenty does (95 %, rule of three)
# KL in nats above so many times the median of the rows before; half of these must be there.
KL_HISTORY, KL_FACTOR, KL_FLOOR = 10, 5.0, 0.1
# The loss of SFT has to fall by this share (a LoRA of SmolLM2-135M went from 3.23 to 3.40 at 1e-5,
# to 0.52 at 2e-4), unless it begins below so many nats: the rest may be noise in the labels.
LOSS_FALL, LOSS_FLOOR = 0.03, 0.7
# From half of the steps on SFT and looks end a training: a linear rate has done 3/4 of its work.
DUE_SHARE, DUE_STEPS = 0.5, 20
_HIDDEN = re.compile(r"step|epoch|skipped_rows|heldout/(n|majority)|num_.*|reward/.*_std")
SHARES = (
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
        series: by key, as they come.
        last_step: of all rows.
        facts: what rewards said of the completions of the last row that has any: ``step``, ``num``
            (completions), ``shares`` and ``sums`` by name as (part, of how many), ``texts`` by name
            with ``num``, ``different`` and ``commonest`` (text, count).
        is_rewarded: it trained by rewards, as GRPO does; the loss then says nothing.
        is_empty: there is no row with a number yet.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.last_step = 0
        self.facts: Mapping[str, Any] | None = None
        points: dict[str, tuple[list[int], list[float]]] = {}
        for row in rows:
            if not isinstance(step := row.get("step"), int):
                continue
            self.last_step = max(self.last_step, step)
            if "facts" in row:
                self.facts = {**row["facts"], "step": step}
            for key, value in row.items():
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if is_number and math.isfinite(value):
                    steps, values = points.setdefault(key, ([], []))
                    steps.append(step)
                    values.append(float(value))
        self.series = {key: Series(key, tuple(x), tuple(y)) for key, (x, y) in points.items()}
        self.is_rewarded, self.is_empty = "reward" in self.series, not self.series

    def read(self, key: str) -> Series:
        """Return a series; it is empty if no row has ``key``."""
        return self.series.get(key, Series(key))

    def list_series(self) -> list[Series]:
        """Return the series to look at: the reward and its parts, held-out values, the rest."""

        def rank(key: str) -> tuple[int, str]:
            kind = key.partition("/")[0]
            return ("reward", "mean", "heldout", "loss", kind).index(kind), key

        shown = (key for key in self.series if not _HIDDEN.fullmatch(key))
        return [self.series[key] for key in sorted(shown, key=rank)]


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
    found = [*_check_rewards(history), *_check_heldout(history, is_due)]
    # The first and the last third of the rows of SFT; while the rate still rises none is said.
    loss, rates = history.read("loss"), history.read("learning_rate").values
    third = len(loss) // 3
    is_rising = bool(rates) and rates.index(max(rates)) > len(rates) // 2
    if is_due and third and not history.is_rewarded and not is_rising:
        start, now = fmean(loss.values[:third]), fmean(loss.values[-third:])
        if start > LOSS_FLOOR and start - now < LOSS_FALL * start:
            numbers = {"start": start, "now": now}
            found.append(Alarm("loss_not_falling", loss.steps[-1], numbers, level="error"))
    return tuple(sorted(found, key=lambda alarm: alarm.level))


def find_stop(history: History, *, num_steps: int) -> Alarm | None:
    """Return the alarm for which a training of so many steps is to end now, if there is one."""
    # An error is one: more time would be spent on nothing; but dead groups may come alive.
    errors = (one for one in find_alarms(history, num_steps=num_steps) if one.level == "error")
    return next((one for one in errors if one.name != "all_groups_dead"), None)


def _check_rewards(history: History) -> Iterator[Alarm]:
    """Dead groups while something is left to earn, invalid answers, low entropy, a jump of KL."""
    reward, dead, invalid = map(history.read, ("reward", "dead_groups", "invalid"))
    num_groups, num_dead = (sum(history.read(f"num_{x}groups").values) for x in ("", "dead_"))
    last, earned = dead.values[-WINDOW:], fmean(reward.values[-WINDOW:] or [1.0])
    is_barren = num_dead == num_groups >= BARREN_GROUPS
    if is_barren and max(reward.values, default=1.0) < SOLVED_REWARD:
        numbers = {"num_groups": num_groups, "reward": reward.values[-1]}
        yield Alarm("nothing_earned", reward.steps[-1], numbers, level="error")
    elif len(last) == WINDOW and min(last) >= DEAD_SHARE:
        numbers = {"now": fmean(last), "num_rows": WINDOW}
        yield Alarm("all_groups_dead", dead.steps[-1], numbers, level="error")
    if len(invalid) >= WINDOW and (share := fmean(invalid.values[-WINDOW:])) > INVALID_SHARE:
        yield Alarm("invalid", invalid.steps[-1], {"now": share, "limit": INVALID_SHARE})
    entropy = history.read("entropy")
    if len(entropy) >= 2 * WINDOW:
        start, now = fmean(entropy.values[:WINDOW]), fmean(entropy.values[-WINDOW:])
        if now < ENTROPY_SHARE * start and earned < SOLVED_REWARD:
            numbers = {"start": start, "now": now, "reward": earned}
            yield Alarm("entropy_collapse", entropy.steps[-1], numbers)
    kl, jumps = history.read("kl"), list[tuple[int, dict[str, float]]]()
    for place in range((KL_HISTORY + 1) // 2, len(kl)):
        usual, value = median(kl.values[max(0, place - KL_HISTORY) : place]), kl.values[place]
        if value > max(KL_FLOOR, KL_FACTOR * usual):
            jumps.append((kl.steps[place], {"value": value, "usual": usual}))
    if jumps:
        yield Alarm("kl_jump", jumps[-1][0], {**jumps[-1][1], "num_jumps": len(jumps)})


def _check_heldout(history: History, is_due: bool) -> Iterator[Alarm]:
    """The last two looks lie below the best while the reward rose; or one answer to everything."""
    reward, sizes = history.read("reward"), history.read("heldout/n").values
    # Training chooses by the first value of each look.
    name = next((key for key in history.series if key.startswith("heldout/")), "heldout/")
    looks = history.read(name)
    best, now, drop = max(looks.values, default=0.0), max(looks.values[-2:], default=0.0), 0.02
    step = looks.steps[looks.values.index(best)] if looks else 0
    if sizes and 0 <= best <= 1:  # two standard errors of a look of so many items
        drop = max(drop, 2 * math.sqrt(best * (1 - best) / sizes[-1]))
    before = [x for at, x in zip(reward.steps, reward.values, strict=True) if at <= step]
    after = reward.values[len(before) :][-WINDOW:]
    if len(looks) >= 3 and best - now > drop and before and after:
        then, later = fmean(before[-WINDOW:]), fmean(after)
        if later - then >= 0.01:
            numbers = {"best": best, "best_step": step, "now": now}
            numbers |= {"reward_then": then, "reward_now": later}
            subject = name.removeprefix("heldout/")
            yield Alarm("reward_up_heldout_down", looks.steps[-1], numbers, subject)
    # At two looks one answer to nearly everything, though the commonest truth has a smaller share.
    looks, truth = history.read("heldout/commonest"), history.read("heldout/majority").values
    last, is_asked = looks.values[-2:], bool(sizes) and sizes[-1] >= 20
    if is_asked and truth and truth[-1] <= 0.9 and len(last) == 2 and min(last) >= 0.98:
        numbers = {"now": last[-1], "truth": truth[-1], "num_looks": 2}
        level = "error" if is_due else "warning"
        yield Alarm("constant_answers", looks.steps[-1], numbers, level=level)


def title_series(key: str, phrases: Phrases) -> str:
    """Return what a series is called; one that is not known keeps its key."""
    kind, _, name = key.partition("/")
    said = {"reward": f"  {name}", "heldout": phrases.say("heldout", name=name)}
    said["mean"] = f"  {phrases.say('mean_of', name=name)}"
    title = phrases.title("series", key)
    return said.get(kind, title) if name and title == key else title
