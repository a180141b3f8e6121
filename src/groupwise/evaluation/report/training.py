"""Training on the page of a run: the series that the monitor sees, as plots and tables.

Raw values are drawn faintly, with a light moving mean over them; nothing else is smoothed.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from groupwise.evaluation import page
from groupwise.evaluation.monitor import History, Series, describe_value, is_share, title_series
from groupwise.evaluation.page import Block, Part, Words, numbers
from groupwise.evaluation.report.files import RunFiles
from groupwise.evaluation.report.origin import show_hardware

SIGNALS = (
    "kl",
    "entropy",
    "dead_groups",
    "invalid",
    "truncated",
    "unscored",
    "reward_std",
    "completion_length",
    "tokens_per_s",
    "learning_rate",
    "grad_norm",
)
HELDOUT = "heldout/accuracy"
_MACHINE = ("cpu", "num_cpus", "memory_mib", "accelerators", "num_threads")
Logs = Mapping[str, History]


def show_training(files: RunFiles, words: Words) -> Part:
    """Return plots and values of every training, and what its on-policy check measured."""
    blocks: list[Block] = []
    if plots := plot_trainings(files.logs, words):
        blocks.append(page.Plots(plots))
    if signals := plot_signals(files.logs, words):
        blocks.append(page.Fold(words.label("signals"), (page.Plots(signals),)))
    if files.logs:
        blocks += [page.Heading(words.label("values")), *tabulate_trainings(files.logs, words)]
        blocks += [page.Heading(words.label("speed")), *_tabulate_speed(files, words)]
    if files.on_policy:
        blocks += [
            page.Heading(words.label("on_policy")),
            page.Paragraph(words.label("on_policy_lead")),
        ]
    for step, check in files.on_policy.items():
        unmeasured = words.label("not_measured")
        values = [f"{k} = {unmeasured if v is None else v}" for k, v in check.items()]
        blocks.append(
            page.Paragraph(
                words.label("on_policy_of", policy=words.title_policy(step), values=values)
            )
        )
    return Part("training", words.label("training"), tuple(blocks))


def _tabulate_speed(files: RunFiles, words: Words) -> tuple[Block, ...]:
    """Return how long each training and its steps took, and on which machine, as recorded."""
    rows: list[tuple[str, ...]] = []
    for step, log in files.logs.items():
        times, total = log.read("step_s").values, files.durations.get(step)
        rows.append(
            (
                words.title_policy(step),
                numbers.format_count(log.last_step),
                numbers.format_duration(median(times)) if times else page.DASH,
                page.DASH if total is None else numbers.format_duration(total),
                _show_machine(files.hardware.get(step, {}), words) or page.DASH,
            )
        )
    head = words.labels("training", "num_steps", "time_per_step", "total_time", "machine")
    table = page.Table("", head, tuple(rows), kind="wrap")
    return page.Paragraph(words.label("speed_lead")), table


def _show_machine(hardware: Mapping[str, Any], words: Words) -> str:
    """Return what people know a machine by; all of it stands with the settings."""
    return show_hardware({name: hardware[name] for name in _MACHINE if name in hardware}, words)


def plot_trainings(logs: Logs, words: Words) -> tuple[page.Plot, ...]:
    """Return learning curves, losses and the parts of rewards, as far as there are numbers."""
    rewarded = {name: log for name, log in logs.items() if log.is_rewarded}
    taught = {name: log for name, log in logs.items() if not log.is_rewarded and log.read("loss")}
    looked = {name: log for name, log in taught.items() if log.read(HELDOUT)}
    losses = {name: log.read("loss") for name, log in taught.items() if name not in looked}
    return (
        *(plot for name, log in rewarded.items() for plot in _plot_reward(name, log, words)),
        *_plot_losses(losses, words),
        *(_plot_loss_and_accuracy(name, log, words) for name, log in looked.items()),
        *(plot for name, log in rewarded.items() for plot in _plot_parts(name, log, words)),
    )


def plot_signals(logs: Logs, words: Words) -> tuple[page.Plot, ...]:
    """Return what to watch of trainings by rewards; their names are shown if there are several."""
    rewarded = [name for name, log in logs.items() if log.is_rewarded]
    return tuple(
        _plot_signal(name, logs[name].read(key), words, in_title=len(rewarded) > 1)
        for name in rewarded
        for key in SIGNALS
        if logs[name].read(key)
    )


def _color(name: str, words: Words) -> str:
    return page.color_policy(name, words.policies)


def _draw(series: Series, title: str, color: str, *, has_marks: bool = False) -> page.Line:
    return page.Line(title, series.steps, series.values, color, has_marks=has_marks)


def _plot_reward(name: str, log: History, words: Words) -> Iterator[page.Plot]:
    reward, heldout = log.read("reward"), log.heldout
    lines = [_draw(reward, words.label("mean_reward"), _color(name, words))] if reward else []
    caption = page.explain_smoothing(len(reward), words)
    if heldout:
        is_accuracy = heldout.key == HELDOUT
        title = words.label("heldout_accuracy")
        title = title if is_accuracy else title_series(heldout.key, words.language)
        lines.append(_draw(heldout, title, page.pick_color(1), has_marks=True))
        diamonds = words.label("diamonds" if is_accuracy else "diamonds_of", measure=title)
        caption = f"{caption} {diamonds}"
    if lines:
        title = words.label("learning_curve", policy=words.title_policy(name))
        file = page.name_file("learning-curve", name)
        yield page.plot_lines(file, title, lines, words, form="share", caption=caption)


def _plot_losses(losses: Mapping[str, Series], words: Words) -> Iterator[page.Plot]:
    if losses:
        lines = [
            _draw(series, words.title_policy(name), _color(name, words))
            for name, series in losses.items()
        ]
        caption = page.explain_smoothing(max(map(len, losses.values())), words)
        yield page.plot_lines("loss", words.label("supervised_loss"), lines, words, caption=caption)


def _plot_loss_and_accuracy(name: str, log: History, words: Words) -> page.Plot:
    loss, heldout = log.read("loss"), log.read(HELDOUT)
    return page.plot_beside_share(
        page.name_file("loss-and-accuracy", name),
        words.label("loss_and_accuracy", policy=words.title_policy(name)),
        _draw(loss, words.title("series", "loss"), page.pick_color(0)),
        _draw(heldout, words.title("series", HELDOUT), page.pick_color(1), has_marks=True),
        words,
        caption=f"{page.explain_smoothing(len(loss), words)} {words.label('diamonds')}",
    )


def _plot_parts(name: str, log: History, words: Words) -> Iterator[page.Plot]:
    parts = {part: log.read(f"reward/{part}") for part in log.list_parts()}
    if parts:
        lines = [
            _draw(one, part, page.pick_color(n)) for n, (part, one) in enumerate(parts.items())
        ]
        title = words.label("reward_parts", policy=words.title_policy(name))
        caption = page.explain_smoothing(max(map(len, parts.values())), words)
        file = page.name_file("reward-parts", name)
        yield page.plot_lines(file, title, lines, words, form="share", caption=caption)


def _plot_signal(name: str, series: Series, words: Words, *, in_title: bool) -> page.Plot:
    title = words.title("series", series.key)
    if in_title:
        title = words.label("plot_of", key=title, step=words.title_policy(name))
    return page.plot_lines(
        page.name_file("signal", name, series.key.replace("_", "-")),
        title,
        [_draw(series, "", _color(name, words))],
        words,
        form="percent" if is_share(series.key) else "plain",
        caption=words.label(f"signal_{series.key}"),
    )


def tabulate_trainings(logs: Logs, words: Words) -> tuple[page.Fold, ...]:
    """Return first, last, lowest and highest value of every series of every training."""
    head = words.labels("series", "last", "first", "lowest", "highest", "rows")
    return tuple(
        page.Fold(
            words.label(
                "series_over_steps",
                policy=words.title_policy(name),
                num=len(log.list_series()),
                steps=log.last_step,
            ),
            (page.Table("", head, tuple(_describe(one, words) for one in log.list_series())),),
        )
        for name, log in logs.items()
    )


def _describe(series: Series, words: Words) -> tuple[str, ...]:
    values = series.values
    title = title_series(series.key, words.language)
    if title.startswith(" "):
        title = words.label("reward_part", name=title.strip())
    shown = (values[-1], values[0], min(values), max(values))
    texts = (describe_value(series.key, value) for value in shown)
    return (title, *texts, numbers.format_count(len(series)))
