"""Alarms of a training: what in its series a person should look at now.

Each rule is a pure function of series and thresholds. It returns numbers, no sentences; those are
in ``words``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, median
from typing import Any, Literal

from pydantic import Field, field_validator

from groupwise.core import Config
from groupwise.evaluation.monitor.history import History, Series
from groupwise.evaluation.predictions import find_measure

AlarmName = Literal[
    "no_gradient",
    "all_groups_dead",
    "reward_up_heldout_down",
    "kl_jump",
    "entropy_collapse",
    "length_growth",
    "truncated",
    "invalid",
    "unscored",
    "collapsed",
    "judge_no_verdict",
    "grad_spike",
    "loss_not_falling",
    "constant_answers",
    "nothing_earned",
]
STOPPING: tuple[AlarmName, ...] = ("loss_not_falling", "constant_answers", "nothing_earned")
"""The alarms that end a training, where they are errors: more time would be spent on nothing."""
AlarmLevel = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to look at.

    Attributes:
        name: fixed name of the kind.
        step: training step at which it was seen; 0 where it belongs to none.
        numbers: what was measured and the threshold it broke, by name.
        subject: the measure or judge it is about, where there are several.
        level: ``error``: training teaches nothing; ``warning``: it may teach the wrong thing.
    """

    name: AlarmName
    step: int
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    subject: str = ""
    level: AlarmLevel = "warning"


class AlarmSettings(Config):
    """Thresholds of the alarms; a row is one logged row of ``metrics.jsonl``.

    Attributes:
        window: rows that "the start" and "now" are means of; alarms that compare the two want
            twice as many rows.
        heldout_measures: held-out values that are better when they are higher.
        heldout_drop: smallest fall below the best held-out check that counts.
        heldout_deviations: the fall must also be so many standard errors of one check, where the
            number of held-out items is known.
        reward_rise: smallest rise of the mean reward since the best held-out check that counts.
        entropy_share: entropy below this share of its start has collapsed.
        solved_reward: from this mean reward on nothing is left to try, and low entropy is right.
        length_factor: length above so many times its start has grown …
        length_tokens: … if it is also so many tokens more.
        history: rows before a jump that it is compared with; at least half of them must be there.
        kl_factor: KL above so many times the median of the rows before has jumped …
        kl_floor: … if it is also above this, in nats.
        grad_factor: gradient norm above so many times the median of the rows before is a spike …
        grad_floor: … if it is also above this.
        truncated_share: greatest share of completions that may reach the length limit.
        invalid_share: greatest share of completions that may be no answer.
        unscored_share: greatest share of completions that no reward could score.
        collapsed_share: greatest share of batches (the series ``reward/collapsed``, where a recipe
            has one) in which one answer may be the commonest for all kinds of questions.
        dead_share: groups count as all dead from this share on.
        loss_fall: the loss of supervised training has to fall by this share of its start. Measured
            on SmolLM2-135M with answers of one word: 3.17 nats, in a row of 160 answers known to
            2.2 %; at 1e-5 a LoRA went from 3.23 to 3.40 in 38 steps, at 2e-4 from there to 0.52.
        loss_floor: a loss that begins below this many nats may stay: a token then has more than
            half of the probability, and what is left may be noise in the labels.
        constant_looks: held-out looks in a row at which one answer is given to nearly everything.
        constant_share: nearly everything.
        constant_truth: greatest share of the commonest truth at which that is a fault.
        constant_items: fewer items per look show nothing.
        barren_groups: groups so far, in each of which all completions earned the same. Of as many
            without exception it is at most one in twenty that differs (95 %, rule of three).
        due_share: from this share of its steps on what supervised training and looks show ends a
            training. At half, a rate that falls in a line has done three quarters of its work.
        due_steps: nothing but ``nothing_earned`` ends a training before this step.
        no_verdict_share: greatest share of a judge's questions without a verdict.
        no_verdict_questions: below so many questions there is no share.
    """

    window: int = Field(default=5, ge=1)
    heldout_measures: tuple[str, ...] = ("accuracy", "balanced_accuracy", "f1", "reward", "pass@1")
    heldout_drop: float = Field(default=0.02, ge=0)
    heldout_deviations: float = Field(default=2.0, ge=0)
    reward_rise: float = Field(default=0.01, ge=0)
    entropy_share: float = Field(default=0.2, gt=0, lt=1)
    solved_reward: float = Field(default=0.98, ge=0, le=1)
    length_factor: float = Field(default=1.5, gt=1)
    length_tokens: float = Field(default=8.0, ge=0)
    history: int = Field(default=10, ge=2)
    kl_factor: float = Field(default=5.0, gt=1)
    kl_floor: float = Field(default=0.1, ge=0)
    grad_factor: float = Field(default=20.0, gt=1)
    grad_floor: float = Field(default=1.0, ge=0)
    truncated_share: float = Field(default=0.25, ge=0, le=1)
    invalid_share: float = Field(default=0.2, ge=0, le=1)
    unscored_share: float = Field(default=0.05, ge=0, le=1)
    collapsed_share: float = Field(default=0.5, ge=0, le=1)
    dead_share: float = Field(default=0.999, gt=0, le=1)
    loss_fall: float = Field(default=0.03, ge=0)
    loss_floor: float = Field(default=0.7, ge=0)
    constant_looks: int = Field(default=2, ge=1)
    constant_share: float = Field(default=0.98, ge=0, le=1)
    constant_truth: float = Field(default=0.9, ge=0, le=1)
    constant_items: int = Field(default=20, ge=1)
    barren_groups: int = Field(default=60, ge=1)
    due_share: float = Field(default=0.5, ge=0, le=1)
    due_steps: int = Field(default=20, ge=0)
    no_verdict_share: float = Field(default=0.05, ge=0, le=1)
    no_verdict_questions: int = Field(default=20, ge=1)

    @field_validator("heldout_measures")
    @classmethod
    def _check_direction(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a measure whose rise would be told as good news."""
        known = {name: find_measure(name) for name in names}
        falling = [name for name, one in known.items() if one and not one.is_higher_better]
        if falling:
            raise ValueError(f"less is better of {', '.join(falling)}; give measures that rise")
        return names


def find_alarms(
    history: History,
    settings: AlarmSettings | None = None,
    *,
    judge: Mapping[str, Any] | None = None,
    num_steps: int | None = None,
) -> tuple[Alarm, ...]:
    """Return every alarm of a training, errors first.

    Args:
        history: its rows so far.
        settings: thresholds; the defaults if None.
        judge: what its judge counted (``judge.json``), if it has one.
        num_steps: of the whole training; None: it is over.
    """
    chosen = settings or AlarmSettings()
    found = [alarm for rule in _RULES for alarm in rule(history, chosen)]
    if _is_due(history, num_steps, chosen):
        found += _check_loss(history, chosen)
        found += (replace(one, level="error") for one in _check_constant(history, chosen))
    else:
        found += _check_constant(history, chosen)
    found += _check_judge(judge or {}, history, chosen)
    return tuple(sorted(found, key=lambda alarm: alarm.level))


def find_stop(history: History, *, num_steps: int) -> Alarm | None:
    """Return the alarm for which a training of so many steps is to end now, if there is one."""
    found = find_alarms(history, num_steps=num_steps)
    return next((one for one in found if one.level == "error" and one.name in STOPPING), None)


def _is_due(history: History, num_steps: int | None, settings: AlarmSettings) -> bool:
    share = settings.due_share * (num_steps or 0)
    return history.last_step >= max(share, settings.due_steps)


def _check_gradient(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    norm = history.read("grad_norm")
    last = norm.values[-settings.window :]
    if len(last) == settings.window and not any(last):
        yield Alarm("no_gradient", norm.steps[-1], {"num_rows": len(last)}, level="error")


def _check_dead_groups(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    """All groups of the last rows are dead; or all have been, and the reward is not the highest."""
    dead, reward = history.read("dead_groups"), history.read("reward")
    num_groups = sum(history.read("num_groups").values)
    is_barren = num_groups == sum(history.read("num_dead_groups").values)
    is_solved = max(reward.values, default=1.0) >= settings.solved_reward
    if num_groups >= settings.barren_groups and is_barren and not is_solved:
        numbers = {"num_groups": num_groups, "reward": reward.values[-1]}
        yield Alarm("nothing_earned", reward.steps[-1], numbers, level="error")
        return
    last = dead.values[-settings.window :]
    if len(last) == settings.window and min(last) >= settings.dead_share:
        numbers = {"now": fmean(last), "num_rows": float(len(last))}
        if reward:
            numbers["reward"] = reward.average_end(settings.window)
        yield Alarm("all_groups_dead", dead.steps[-1], numbers, level="error")


def _check_heldout(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    """The last two held-out checks lie below the best one while the reward has risen since."""
    chosen_by = history.heldout.key.removeprefix("heldout/")
    for name in dict.fromkeys((*settings.heldout_measures, chosen_by)):
        heldout = history.read(f"heldout/{name}")
        if len(heldout) < 3:
            continue
        best = max(heldout.values)
        step = heldout.steps[heldout.values.index(best)]
        now = max(heldout.values[-2:])
        if best - now <= _bound_drop(best, history, settings):
            continue
        rise = _measure_rise(history.read("reward"), step, settings.window)
        if rise is not None and rise[1] - rise[0] >= settings.reward_rise:
            numbers = {"best": best, "best_step": step, "now": now}
            numbers |= {"reward_then": rise[0], "reward_now": rise[1]}
            yield Alarm("reward_up_heldout_down", heldout.steps[-1], numbers, name)


def _bound_drop(best: float, history: History, settings: AlarmSettings) -> float:
    """Return the fall that chance explains: standard errors of a share of n items."""
    sizes = history.read("heldout/n").values
    if not sizes or not 0 <= best <= 1:
        return settings.heldout_drop
    error = sqrt(best * (1 - best) / sizes[-1])
    return max(settings.heldout_drop, settings.heldout_deviations * error)


def _measure_rise(reward: Series, step: int, window: int) -> tuple[float, float] | None:
    """Return the mean reward of the rows up to ``step``, and of the last rows after it."""
    pairs = list(zip(reward.steps, reward.values, strict=True))
    before = [value for at, value in pairs if at <= step][-window:]
    after = [value for at, value in pairs if at > step][-window:]
    return (fmean(before), fmean(after)) if before and after else None


def _check_jumps(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    limits: tuple[tuple[AlarmName, str, float, float], ...] = (
        ("kl_jump", "kl", settings.kl_factor, settings.kl_floor),
        ("grad_spike", "grad_norm", settings.grad_factor, settings.grad_floor),
    )
    for name, key, factor, floor in limits:
        yield from _find_jump(name, history.read(key), settings.history, factor, floor)


def _find_jump(
    name: AlarmName, series: Series, num_before: int, factor: float, floor: float
) -> Iterator[Alarm]:
    """Report the last value far above the median of the rows before it, and how many there are."""
    jumps: list[tuple[int, float, float]] = []
    for place in range((num_before + 1) // 2, len(series)):
        usual = median(series.values[max(0, place - num_before) : place])
        value = series.values[place]
        if value > floor and value > factor * usual:
            jumps.append((series.steps[place], value, usual))
    if jumps:
        step, value, usual = jumps[-1]
        numbers = {"value": value, "usual": usual, "factor": factor, "num_jumps": len(jumps)}
        yield Alarm(name, step, numbers)


def _check_entropy(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    entropy, reward = history.read("entropy"), history.read("reward")
    if not reward or len(entropy) < 2 * settings.window:
        return
    start, now = entropy.average_start(settings.window), entropy.average_end(settings.window)
    earned = reward.average_end(settings.window)
    if now < settings.entropy_share * start and earned < settings.solved_reward:
        numbers = {"start": start, "now": now, "reward": earned}
        yield Alarm("entropy_collapse", entropy.steps[-1], numbers)


def _check_length(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    length = history.read("completion_length")
    if len(length) < 2 * settings.window:
        return
    start, now = length.average_start(settings.window), length.average_end(settings.window)
    if now > settings.length_factor * start and now - start > settings.length_tokens:
        yield Alarm("length_growth", length.steps[-1], {"start": start, "now": now})


def _check_shares(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    limits: dict[AlarmName, tuple[str, float]] = {
        "truncated": ("truncated", settings.truncated_share),
        "invalid": ("invalid", settings.invalid_share),
        "unscored": ("unscored", settings.unscored_share),
        "collapsed": ("reward/collapsed", settings.collapsed_share),
    }
    for name, (key, limit) in limits.items():
        share = history.read(key)
        if len(share) >= settings.window and share.average_end(settings.window) > limit:
            numbers = {"now": share.average_end(settings.window), "limit": limit}
            yield Alarm(name, share.steps[-1], numbers)


def _check_loss(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    """The first and the last third of the rows; while the rate still rises nothing is said.

    Supervised training only: the loss of GRPO says nothing about what is learned.
    """
    loss, rate = history.read("loss"), history.read("learning_rate")
    third = len(loss) // 3
    is_rising = bool(rate) and rate.values.index(max(rate.values)) > len(rate) // 2
    if history.is_rewarded or not third or is_rising:
        return
    start, now = loss.average_start(third), loss.average_end(third)
    if start > settings.loss_floor and start - now < settings.loss_fall * start:
        numbers = {"start": start, "now": now}
        yield Alarm("loss_not_falling", loss.steps[-1], numbers, level="error")


def _check_constant(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    """One answer to everything that is asked, while the truths differ."""
    share, truth = history.read("heldout/commonest"), history.read("heldout/majority")
    last = share.values[-settings.constant_looks :]
    if not truth or len(last) < settings.constant_looks or min(last) < settings.constant_share:
        return
    if truth.values[-1] > settings.constant_truth:
        return
    num_items = history.read("heldout/n").values[-1]
    if num_items >= settings.constant_items:
        numbers = {"now": last[-1], "truth": truth.values[-1], "num_looks": float(len(last))}
        yield Alarm("constant_answers", share.steps[-1], numbers)


def _check_judge(
    judge: Mapping[str, Any], history: History, settings: AlarmSettings
) -> Iterator[Alarm]:
    rate, num_questions = judge.get("no_verdict_rate"), judge.get("num_questions", 0)
    if rate is None or num_questions < settings.no_verdict_questions:
        return
    if rate > settings.no_verdict_share:
        numbers = {"now": rate, "limit": settings.no_verdict_share, "num_questions": num_questions}
        yield Alarm("judge_no_verdict", history.last_step, numbers, str(judge.get("judge", "")))


_RULES: tuple[Callable[[History, AlarmSettings], Iterator[Alarm]], ...] = (
    _check_gradient,
    _check_dead_groups,
    _check_heldout,
    _check_entropy,
    _check_length,
    _check_shares,
    _check_jumps,
)
