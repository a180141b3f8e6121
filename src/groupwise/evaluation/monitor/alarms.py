"""Alarms of a training: what in its series a person should look at now.

Each rule is a pure function of series and thresholds. It returns numbers, no sentences; those are
in ``words``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, median
from typing import Any, Literal

from groupwise.evaluation.monitor.history import History, Series
from groupwise.evaluation.monitor.settings import AlarmSettings

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
    "judge_no_verdict",
    "grad_spike",
    "loss_not_moving",
]
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


def find_alarms(
    history: History,
    settings: AlarmSettings | None = None,
    *,
    judge: Mapping[str, Any] | None = None,
) -> tuple[Alarm, ...]:
    """Return every alarm of a training, errors first.

    Args:
        history: its rows so far.
        settings: thresholds; the defaults if None.
        judge: what its judge counted (``judge.json``), if it has one.
    """
    chosen = settings or AlarmSettings()
    found = [alarm for rule in _RULES for alarm in rule(history, chosen)]
    found += _check_judge(judge or {}, history, chosen)
    return tuple(sorted(found, key=lambda alarm: alarm.level))


def _check_gradient(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    norm = history.read("grad_norm")
    last = norm.values[-settings.window :]
    if len(last) == settings.window and not any(last):
        yield Alarm("no_gradient", norm.steps[-1], {"num_rows": len(last)}, level="error")


def _check_dead_groups(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    dead, reward = history.read("dead_groups"), history.read("reward")
    last = dead.values[-settings.window :]
    if len(last) == settings.window and min(last) >= settings.dead_share:
        numbers = {"now": fmean(last), "num_rows": float(len(last))}
        if reward:
            numbers["reward"] = reward.average_end(settings.window)
        yield Alarm("all_groups_dead", dead.steps[-1], numbers, level="error")


def _check_heldout(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    """The last two held-out checks lie below the best one while the reward has risen since."""
    for name in settings.heldout_measures:
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


def _check_kl(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    yield from _find_jump(
        "kl_jump", history.read("kl"), settings, settings.kl_factor, settings.kl_floor
    )


def _check_spike(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    yield from _find_jump(
        "grad_spike",
        history.read("grad_norm"),
        settings,
        settings.grad_factor,
        settings.grad_floor,
    )


def _find_jump(
    name: AlarmName, series: Series, settings: AlarmSettings, factor: float, floor: float
) -> Iterator[Alarm]:
    """Report the last value far above the median of the rows before it, and how many there are."""
    jumps: list[tuple[int, float, float]] = []
    for place in range((settings.history + 1) // 2, len(series)):
        usual = median(series.values[max(0, place - settings.history) : place])
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
    limits: dict[AlarmName, float] = {
        "truncated": settings.truncated_share,
        "invalid": settings.invalid_share,
        "unscored": settings.unscored_share,
    }
    for name, limit in limits.items():
        share = history.read(name)
        if len(share) >= settings.window and share.average_end(settings.window) > limit:
            numbers = {"now": share.average_end(settings.window), "limit": limit}
            yield Alarm(name, share.steps[-1], numbers)


def _check_loss(history: History, settings: AlarmSettings) -> Iterator[Alarm]:
    """Supervised training only: the loss of GRPO says nothing about what is learned."""
    loss = history.read("loss")
    if history.read("reward") or len(loss) < 2 * settings.window:
        return
    start, now = loss.average_start(settings.window), loss.average_end(settings.window)
    if start > settings.loss_floor and abs(now - start) < settings.loss_change * start:
        yield Alarm("loss_not_moving", loss.steps[-1], {"start": start, "now": now})


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
    _check_kl,
    _check_entropy,
    _check_length,
    _check_shares,
    _check_spike,
    _check_loss,
)
