"""Training on the page of a run: the series that the monitor sees, as plots and tables.

Raw values are drawn faintly, with a light moving mean over them; nothing else is smoothed.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from groupwise.evaluation.alarms import Series, describe_value, is_share, title_series
from groupwise.evaluation.facts import find_manifests
from groupwise.evaluation.report import plots
from groupwise.evaluation.report.page import Block, Part, Plot, Table
from groupwise.evaluation.report.phrases import DASH, Phrases, format_count, format_duration
from groupwise.evaluation.report.run import Report

_SIGNALS = (
    *("kl", "entropy", "dead_groups", "invalid", "truncated", "unscored", "reward_std"),
    *("completion_length", "tokens_per_s", "learning_rate", "grad_norm"),
)
_HELDOUT = "heldout/accuracy"
_MACHINE = ("cpu", "num_cpus", "memory_mib", "accelerators", "num_threads")


def show_training(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield curves and values of every training, its time, and its on-policy check."""
    say, blocks = phrases.say, list[Block | Table]()
    if not report.logs:
        return
    if drawn := tuple(_plot_curves(report, phrases)):
        blocks.append(Block(plots=drawn))
    if drawn := tuple(_plot_signals(report, phrases)):
        blocks.append(Block(say("signals"), "fold", blocks=(Block(plots=drawn),)))
    blocks.append(Block(say("values"), "heading"))
    head = phrases.say_each("series", "last", "first", "lowest", "highest", "rows")
    times: list[tuple[str, ...]] = []
    for name, log in report.logs.items():
        rows: list[tuple[str, ...]] = []
        for series in log.list_series():
            values, title = series.values, title_series(series.key, phrases)
            if title.startswith(" "):
                title = say("reward_part", name=title.strip())
            ends = (values[-1], values[0], min(values), max(values))
            texts = (describe_value(series.key, value) for value in ends)
            rows.append((title, *texts, format_count(len(values))))
        told = say("series_over_steps", policy=name, num=len(rows), steps=log.last_step)
        blocks.append(Block(told, "fold", blocks=(Table("", head, tuple(rows)),)))
        seconds, step = log.read("step_s").values, report.steps.get(name, {})
        durations = (median(seconds) if seconds else None, step.get("duration_s"))
        took = (DASH if one is None else format_duration(one) for one in durations)
        hardware: Mapping[str, Any] = {}
        if report.manifest is not None and "finished_at" in step:
            hardware = find_manifests(report.folder, (name,))[0].get("hardware", {})
        machine = {key: hardware[key] for key in _MACHINE if key in hardware}
        shown = describe_machine(machine, phrases) or DASH
        times.append((phrases.title_policy(name), format_count(log.last_step), *took, shown))
    head = phrases.say_each("training", "num_steps", "time_per_step", "total_time", "machine")
    blocks += [Block(say("speed"), "heading"), Table("", head, tuple(times), kind="wrap")]
    if report.on_policy:
        blocks += [Block(say("on_policy"), "heading"), Block(say("on_policy_lead"))]
    for step, check in report.on_policy.items():
        values = [f"{k} = {say('not_measured') if v is None else v}" for k, v in check.items()]
        blocks.append(Block(say("on_policy_of", policy=step, values=values)))
    yield Part("training", say("training"), tuple(blocks))


def describe_machine(hardware: Mapping[str, Any], phrases: Phrases) -> str:
    """Return what a machine is; empty where nothing was recorded."""
    shown: list[str] = []
    for name, value in hardware.items():
        known = phrases.join(map(str, value)) if isinstance(value, list) else str(value)
        shown.append(f"{phrases.title('hardware', name)} {known or phrases.say('none')}")
    return phrases.join(shown)


def _plot_curves(report: Report, phrases: Phrases) -> Iterator[Plot]:
    """Yield learning curves, losses and the parts of rewards, as far as there are numbers."""
    say, logs = phrases.say, report.logs
    losses, heldouts = list[plots.Line](), list[plots.Line]()
    for name, log in logs.items():
        color, heldout = plots.color_policy(name, report.policies), log.heldout
        if not log.is_rewarded:
            losses += _draw(log.read("loss"), phrases.title_policy(name), color)
            heldouts += _draw(log.read(_HELDOUT), phrases.title_policy(name), color, has_marks=True)
            continue
        lines = _draw(log.read("reward"), say("mean_reward"), color)
        measured = title_series(heldout.key, phrases) if heldout else ""
        lines += _draw(heldout, measured, plots.pick_color(1), has_marks=True)
        diamonds = say("diamonds", measure=measured) if measured else ""
        title = say("learning_curve", policy=name)
        yield from _plot_lines(phrases, f"learning-curve-{name}", title, lines, "share", diamonds)
    yield from _plot_lines(phrases, "loss", say("supervised_loss"), losses)
    title = phrases.title("series", _HELDOUT)
    yield from _plot_lines(phrases, "heldout-accuracy", title, heldouts, "share")
    for name, log in logs.items():
        parts = log.list_parts() if log.is_rewarded else []
        lines = [
            line
            for n, part in enumerate(parts)
            for line in _draw(log.read(f"reward/{part}"), part, plots.pick_color(n))
        ]
        title = say("reward_parts", policy=name)
        yield from _plot_lines(phrases, f"reward-parts-{name}", title, lines, "share")


def _plot_signals(report: Report, phrases: Phrases) -> Iterator[Plot]:
    """Yield what to watch of trainings by rewards."""
    logs = {name: log for name, log in report.logs.items() if log.is_rewarded}
    for name, key in ((name, key) for name in logs for key in _SIGNALS):
        title, caption = (phrases.title(kind, key) for kind in ("series", "signal"))
        title = phrases.say("plot_of", key=title, step=name) if len(logs) > 1 else title
        lines = _draw(logs[name].read(key), "", plots.color_policy(name, report.policies))
        form = "percent" if is_share(key) else "plain"
        file = f"signal-{name}-{key.replace('_', '-')}"
        yield from _plot_lines(phrases, file, title, lines, form, "" if caption == key else caption)


def _plot_lines(
    phrases: Phrases,
    file: str,
    title: str,
    lines: Sequence[plots.Line],
    form: plots.Form = "plain",
    caption: str = "",
) -> Iterator[Plot]:
    """Yield a plot of lines, if there are any, and how they are drawn."""
    if lines:
        window = plots.choose_window(max(len(one.values) for one in lines))
        told = phrases.say("smoothed", window=window) if window > 1 else phrases.say("not_smoothed")
        caption, file = f"{told} {caption}".strip(), plots.name_file(file)
        yield plots.plot_lines(file, title, lines, phrases, form=form, caption=caption)


def _draw(series: Series, title: str, color: str, *, has_marks: bool = False) -> list[plots.Line]:
    """Return the line of a series; none if it has no values."""
    line = plots.Line(title, series.steps, series.values, color, has_marks=has_marks)
    return [line] if series else []
