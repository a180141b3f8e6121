"""The plots of training: learning curve, losses, reward parts, and the signals to watch.

Raw values are drawn faintly, with a light moving mean over them; nothing else is smoothed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from groupwise.evaluation.report.canvas import (
    MUTED,
    Axes,
    color_policy,
    make_percent_axis,
    pick_color,
)
from groupwise.evaluation.report.content import TrainingLog, title_policy
from groupwise.evaluation.report.numbers import format_plain, format_share
from groupwise.evaluation.untyped import uniform_filter1d

Series = tuple[list[float], list[float]]
_SIGNALS = {
    "kl": ("KL to the start", "How far the policy has moved."),
    "entropy": ("Entropy", "Near 0 nothing new is tried any more."),
    "dead_groups": ("Dead groups", "Groups that all earned the same teach nothing."),
    "invalid": ("Invalid answers", "Sampled completions that are no answer."),
    "truncated": ("Cut off", "Sampled answers that reached the length limit."),
    "unscorable": ("Not scored", "Sampled answers that no reward could score."),
    "reward_std": ("Spread of reward", "Standard deviation of the reward."),
    "completion_length": ("Answer length", "Mean number of tokens."),
    "tokens_per_s": ("Speed", "Tokens per second."),
    "learning_rate": ("Learning rate", "As scheduled."),
    "grad_norm": ("Gradient norm", "Before clipping."),
}
_SHARES = ("dead_groups", "invalid", "truncated", "unscorable")


@dataclass(frozen=True, slots=True)
class Curve:
    """One panel of training, in the words of ``plots.Plot``."""

    name: str
    section: Literal["training", "signals"]
    title: str
    caption: str
    alt: str
    draw: Callable[[Axes], None]


def choose_window(num_points: int) -> int:
    """Return the width of the moving mean: about a twentieth of the points, odd, at least 1."""
    return 2 * (num_points // 40) + 1


def smooth(values: Sequence[float]) -> list[float]:
    """Return the moving mean of ``choose_window`` values; ends repeat their last value."""
    window = choose_window(len(values))
    return [float(x) for x in uniform_filter1d(np.asarray(values), window, mode="nearest")]


def list_training_plots(logs: Mapping[str, TrainingLog]) -> Iterator[Curve]:
    """Yield every plot that the logs have numbers for."""
    rewarded = [log for log in logs.values() if log.is_rewarded]
    for log in rewarded:
        yield from _plot_reward(log)
    losses = {
        name: series
        for name, log in logs.items()
        if not log.is_rewarded and (series := log.read_series("loss"))[0]
    }
    if losses:
        yield _plot_losses(losses)
    for log in rewarded:
        yield from _plot_parts(log)
        yield from _plot_signals(log, in_title=len(rewarded) > 1)


def _plot_reward(log: TrainingLog) -> Iterator[Curve]:
    reward, heldout = log.read_series("reward"), log.read_series("heldout/accuracy")
    if not reward[0] and not heldout[0]:
        return
    words = _describe("mean reward", reward) + _describe("held-out accuracy", heldout)
    yield Curve(
        name=f"learning-curve-{log.name}",
        section="training",
        title=f"Learning curve of {title_policy(log.name)}",
        caption=_explain_smoothing(len(reward[0]))
        + (" Diamonds: accuracy on held-out items." if heldout[0] else ""),
        alt=f"{title_policy(log.name)}: {'; '.join(words)}.",
        draw=partial(_draw_reward, reward, heldout, color_policy(log.name)),
    )


def _explain_smoothing(num_points: int) -> str:
    window = choose_window(num_points)
    if window == 1:
        return "Each point is one logged step."
    return f"Faint: each logged step. Line: mean over {window} of them."


def _describe(name: str, series: Series) -> list[str]:
    if not series[0]:
        return []
    first, last = format_plain(series[1][0]), format_plain(series[1][-1])
    return [f"{name} from {first} to {last} over {len(series[0])} logged steps"]


def draw_series(axes: Axes, series: Series, *, color: str, label: str = "") -> None:
    """Draw raw values faintly and their moving mean over them."""
    steps, values = series
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    if choose_window(len(values)) == 1:
        axes.plot(steps, values, color=color, lw=1.6, marker="o", ms=3, label=label)
        return
    axes.plot(steps, values, color=color, lw=0.9, alpha=0.28)
    axes.plot(steps, smooth(values), color=color, lw=2, label=label)


def _draw_reward(reward: Series, heldout: Series, color: str, axes: Axes) -> None:
    if reward[0]:
        draw_series(axes, reward, color=color, label="mean reward")
    if heldout[0]:
        axes.plot(
            *heldout, color=pick_color(1), lw=1.2, marker="D", ms=5, label="held-out accuracy"
        )
    _finish_shares(axes, [*reward[1], *heldout[1]])


def _finish_shares(axes: Axes, values: Sequence[float]) -> None:
    """Scale to shares, from 0 or from a fifth below the lowest value to 1."""
    low = np.floor((min(values) - 0.1) * 5) / 5
    axes.set(xlabel="step", ylim=(max(0.0, low) - 0.01, 1.02))
    axes.yaxis.set_major_formatter(make_percent_axis())
    axes.legend(loc="lower right")


def _plot_losses(losses: Mapping[str, Series]) -> Curve:
    words = [text for name, series in losses.items() for text in _describe(name, series)]
    longest = max(len(series[0]) for series in losses.values())
    return Curve(
        name="loss",
        section="training",
        title="Loss of supervised training",
        caption=_explain_smoothing(longest),
        alt=f"Losses: {'; '.join(words)}.",
        draw=partial(_draw_losses, losses),
    )


def _draw_losses(losses: Mapping[str, Series], axes: Axes) -> None:
    for name, series in losses.items():
        draw_series(axes, series, color=color_policy(name), label=title_policy(name))
    axes.set(xlabel="step")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")


def _plot_parts(log: TrainingLog) -> Iterator[Curve]:
    parts = {name: log.read_series(f"reward/{name}") for name in log.list_parts()}
    if parts:
        last = ", ".join(f"{name} {format_share(one[1][-1])}" for name, one in parts.items())
        yield Curve(
            name=f"reward-parts-{log.name}",
            section="training",
            title=f"Parts of the reward of {title_policy(log.name)}",
            caption=_explain_smoothing(max(len(one[0]) for one in parts.values())),
            alt=f"Mean of each reward part at the end: {last}.",
            draw=partial(_draw_parts, parts),
        )


def _draw_parts(parts: Mapping[str, Series], axes: Axes) -> None:
    for index, (name, series) in enumerate(parts.items()):
        draw_series(axes, series, color=pick_color(index), label=name)
    _finish_shares(axes, [value for one in parts.values() for value in one[1]])


def _plot_signals(log: TrainingLog, *, in_title: bool) -> Iterator[Curve]:
    """Yield the signals of a training; its name stands in their titles if there are several."""
    place = f" of {title_policy(log.name)}" if in_title else ""
    for key, (title, caption) in _SIGNALS.items():
        series = log.read_series(key)
        if series[0]:
            yield Curve(
                name=f"signal-{log.name}-{key.replace('_', '-')}",
                section="signals",
                title=f"{title}{place}",
                caption=caption,
                alt=f"{'; '.join(_describe(title, series))}.",
                draw=partial(_draw_signal, key, series, color_policy(log.name)),
            )


def _format_tick(value: float, _: int) -> str:
    return format_plain(value)


def _draw_signal(key: str, series: Series, color: str, axes: Axes) -> None:
    draw_series(axes, series, color=MUTED if key == "learning_rate" else color)
    axes.set(xlabel="step")
    if min(series[1]) >= 0:
        axes.set_ylim(bottom=0)
    if key in _SHARES:
        axes.yaxis.set_major_formatter(make_percent_axis())
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(_format_tick))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
