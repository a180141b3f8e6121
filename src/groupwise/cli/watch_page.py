"""The page of ``groupwise watch``: a run's state as lines for a terminal or a plain text file.

Draws only; what is shown was read and judged by ``groupwise.evaluation.monitor``.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupwise.evaluation.monitor import (
    Language,
    RunState,
    Series,
    StepState,
    TrainingState,
    advise,
    describe_alarm,
    describe_value,
    title_series,
)

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_NARROW = 60
_WORDS: dict[str, tuple[str, str]] = {
    "waiting": ("waiting: there is no run yet", "等待中：运行尚未开始"),
    "running": ("running", "运行中"),
    "stopped": (
        "stopped before its end: killed, or ended by an error",
        "未完成即停止：被终止或出错",
    ),
    "finished": ("finished", "已完成"),
    "continue": ("continue with", "继续运行"),
    "done": ("done", "完成"),
    "reused": ("done before", "此前已完成"),
    "left": ("to do", "待做"),
    "step_stopped": ("stopped", "已停止"),
    "step": ("step {0}", "第 {0} 步"),
    "step_of": ("step {0} of {1}", "第 {0} 步，共 {1} 步"),
    "time_left": ("{0} left", "剩余 {0}"),
    "last_row": ("last row {0} ago", "最近一行在 {0} 前"),
    "no_rows": ("no rows yet", "尚无数据行"),
    "now": ("now", "当前"),
    "start": ("start", "起始"),
    "range": ("lowest to highest", "最低至最高"),
    "course": ("course", "走势"),
    "no_alarms": ("no alarms", "无警报"),
    "do": ("do", "建议"),
    "damaged": ("{0} lines of its log could not be read", "日志中有 {0} 行无法读取"),
    "plan": ("steps to come are not known", "后续步骤未知"),
}
_MARKS = {
    "done": ("✓", "+", "green"),
    "reused": ("✓", "+", "dim"),
    "running": ("▶", ">", "bold cyan"),
    "stopped": ("✗", "x", "bold red"),
    "left": ("·", ".", "dim"),
}
_COLORS = {"waiting": "yellow", "running": "cyan", "stopped": "bold red", "finished": "green"}


def render_page(
    state: RunState,
    *,
    width: int,
    step: str | None = None,
    language: Language = "en",
    is_ascii: bool = False,
) -> RenderableType:
    """Return the page of a run.

    Args:
        state: what was read.
        width: columns there are; below 60 the table has fewer of them.
        step: the training whose values are shown; None: the run's current one.
        language: of the words.
        is_ascii: draw with ASCII only.
    """
    page = _Page(width, language, is_ascii)
    shown = step or (state.current.step if state.current is not None else None)
    return Group(*page.draw(state, shown))


def draw_sparkline(values: Sequence[float], width: int, *, is_ascii: bool = False) -> str:
    """Return values as a row of bars, the lowest to the highest; many are averaged into a bar."""
    if not values or width < 1:
        return ""
    parts = _share_out(values, width)
    low, high = min(parts), max(parts)
    bars = _ASCII_BARS if is_ascii else _BARS
    if high == low:
        return bars[0] * len(parts)
    top = len(bars) - 1
    return "".join(bars[round((value - low) / (high - low) * top)] for value in parts)


def _share_out(values: Sequence[float], width: int) -> list[float]:
    num = min(len(values), width)
    edges = [round(place * len(values) / num) for place in range(num + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def format_time(seconds: float) -> str:
    """Return ``4.2 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class _Page:
    def __init__(self, width: int, language: Language, is_ascii: bool) -> None:
        self.width = width
        self.language: Language = language
        self.is_ascii = is_ascii

    def draw(self, state: RunState, shown: str | None) -> Iterator[RenderableType]:
        yield self._draw_head(state)
        if state.phase == "stopped":
            yield Text(f"{self._say('continue')}: {' '.join(state.resume_command)}", "bold")
        if state.steps:
            yield Text()
            yield self._draw_steps(state)
        for training in state.trainings:
            yield from self._draw_training(training, is_whole=training.step == shown)

    def _say(self, name: str, *values: object) -> str:
        return _WORDS[name][self.language == "zh"].format(*values)

    def _draw_head(self, state: RunState) -> Text:
        name = state.folder.resolve().name
        recipe = f"{state.recipe} · " if state.recipe else ""
        text = Text(self._clean(f"{recipe}{name}  "), "bold")
        text.append(self._say(state.phase), _COLORS[state.phase])
        if state.elapsed_s is not None:
            text.append(f"  {format_time(state.elapsed_s)}")
        return text

    def _draw_steps(self, state: RunState) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        for step in state.steps:
            mark, ascii_mark, style = _MARKS[step.phase]
            took = format_time(step.duration_s) if step.duration_s is not None else ""
            shown = Text(ascii_mark if self.is_ascii else mark, style)
            table.add_row(shown, Text(step.name), self._name_phase(step), Text(took))
        if state.is_plan_known or state.phase == "finished":
            return table
        return Group(table, Text(self._say("plan"), "dim"))

    def _name_phase(self, step: StepState) -> Text:
        word = "step_stopped" if step.phase == "stopped" else step.phase
        return Text(self._say(word), _MARKS[step.phase][2])

    def _draw_training(
        self, training: TrainingState, *, is_whole: bool
    ) -> Iterator[RenderableType]:
        if training.phase == "left" or not (is_whole or training.alarms):
            return
        yield Text()
        yield self._draw_title(training)
        if training.num_damaged:
            yield Text(self._say("damaged", training.num_damaged), "yellow")
        if is_whole and not training.history.is_empty:
            yield self._draw_series(training.history.list_series())
        yield from self._draw_alarms(training)

    def _draw_title(self, training: TrainingState) -> Text:
        text = Text(training.step, "bold")
        last_step, num_steps = training.history.last_step, training.num_steps
        name = "step" if num_steps is None else "step_of"
        text.append(f"  {self._say(name, last_step, num_steps)}")
        if training.left_s is not None:
            text.append(f"  {self._say('time_left', format_time(training.left_s))}")
        if training.row_age_s is None:
            text.append(f"  {self._say('no_rows')}", "dim")
        elif training.phase == "running":
            text.append(f"  {self._say('last_row', format_time(training.row_age_s))}", "dim")
        return text

    def _draw_series(self, series: Sequence[Series]) -> Table:
        is_narrow = self.width < _NARROW
        heads = ["", *map(self._say, ("now",) if is_narrow else ("now", "start", "range"))]
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
        for place, head in enumerate(heads):
            table.add_column(head, justify="right" if place else "left", no_wrap=True)
        table.add_column(self._say("course"), no_wrap=True)
        room = max(6, self.width - (34 if is_narrow else 62))
        for one in series:
            table.add_row(*self._list_cells(one, is_narrow=is_narrow), self._draw_course(one, room))
        return table

    def _list_cells(self, series: Series, *, is_narrow: bool) -> list[str]:
        values = series.values
        title = title_series(series.key, self.language)
        now, start, low, high = (
            self._clean(describe_value(series.key, value))
            for value in (values[-1], values[0], min(values), max(values))
        )
        return [title, now] if is_narrow else [title, now, start, f"{low} .. {high}"]

    def _draw_course(self, series: Series, room: int) -> Text:
        return Text(draw_sparkline(series.values, room, is_ascii=self.is_ascii), "cyan")

    def _draw_alarms(self, training: TrainingState) -> Iterator[Text]:
        if not training.alarms and not training.history.is_empty:
            yield Text(self._say("no_alarms"), "green")
        for alarm in training.alarms:
            color = "bold red" if alarm.level == "error" else "bold yellow"
            said = describe_alarm(alarm, self.language)
            text = Text("! ", color).append(f"{alarm.name}", color)
            text.append(f" ({self._say('step', alarm.step)}): {self._clean(said)}")
            yield text
            yield Text(f"  {self._say('do')}: {advise(alarm, self.language)}", "dim")

    def _clean(self, text: str) -> str:
        return text.replace("\u00a0", " ").replace("·", "-") if self.is_ascii else text
