"""The page of ``groupwise watch``: a run's state as lines for a terminal or a plain text file.

Draws only; what is shown was read and judged by ``groupwise.evaluation.monitor``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupwise.evaluation.monitor import (
    Facts,
    History,
    ProcessMemory,
    RunState,
    Series,
    StepState,
    Tally,
    TrainingState,
    advise,
    describe_alarm,
    describe_value,
    title_series,
)
from groupwise.evaluation.report.phrases import Language, Phrases, format_duration

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_NARROW = 60
_WORD = 40
"""Texts that are longer are no words to be listed: the commonest is shown."""
_LINES = 8
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
    parts = [part.mean() for part in np.array_split(np.asarray(values), min(len(values), width))]
    low, high = min(parts), max(parts)
    bars = _ASCII_BARS if is_ascii else _BARS
    if high == low:
        return bars[0] * len(parts)
    top = len(bars) - 1
    return "".join(bars[round((value - low) / (high - low) * top)] for value in parts)


class _Page:
    def __init__(self, width: int, language: Language, is_ascii: bool) -> None:
        self.width = width
        self.phrases = Phrases(language, own=Path(__file__).with_name("watch.yaml"))
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

    def _say(self, name: str, **values: object) -> str:
        return self._clean(self.phrases.say(f"watch.{name}", **values))

    def _draw_head(self, state: RunState) -> Text:
        name = state.folder.resolve().name
        recipe = f"{state.recipe} · " if state.recipe else ""
        text = Text(self._clean(f"{recipe}{name}  "), "bold")
        text.append(self._say(state.phase), _COLORS[state.phase])
        if state.elapsed_s is not None:
            text.append(self._clean(f"  {format_duration(state.elapsed_s)}"))
        return text

    def _draw_steps(self, state: RunState) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        for step in state.steps:
            mark, ascii_mark, style = _MARKS[step.phase]
            took = "" if step.duration_s is None else format_duration(step.duration_s)
            shown = Text(ascii_mark if self.is_ascii else mark, style)
            table.add_row(shown, Text(step.name), self._name_phase(step), Text(self._clean(took)))
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
            yield Text(self._say("damaged", num=training.num_damaged), "yellow")
        if is_whole and not training.history.is_empty:
            yield self._draw_series(training.history)
            yield from self._draw_facts(training.history.facts)
            yield from self._draw_memory(training.memory)
        yield from self._draw_alarms(training)

    def _draw_title(self, training: TrainingState) -> Text:
        text = Text(training.step, "bold")
        last_step, num_steps = training.history.last_step, training.num_steps
        name = "step" if num_steps is None else "step_of"
        text.append(f"  {self._say(name, step=last_step, all=num_steps)}")
        if training.left_s is not None:
            text.append(f"  {self._say('time_left', s=training.left_s)}")
        if training.row_age_s is None:
            text.append(f"  {self._say('no_rows')}", "dim")
        elif training.phase == "running":
            text.append(f"  {self._say('last_row', s=training.row_age_s)}", "dim")
        return text

    def _draw_series(self, history: History) -> Table:
        is_narrow = self.width < _NARROW
        heads = ["", *map(self._say, ("now",) if is_narrow else ("now", "start", "range"))]
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
        for place, head in enumerate(heads):
            table.add_column(head, justify="right" if place else "left", no_wrap=True)
        table.add_column(self._say("course"), no_wrap=True)
        room = max(6, self.width - (34 if is_narrow else 62))
        counts = {} if history.facts is None else history.facts.counts
        for one in history.list_series():
            cells = self._list_cells(one, counts.get(one.key), is_narrow=is_narrow)
            table.add_row(*cells, self._draw_course(one, room))
        return table

    def _list_cells(
        self, series: Series, count: tuple[int, int] | None, *, is_narrow: bool
    ) -> list[str]:
        values = series.values
        title = title_series(series.key, self.phrases.language)
        now, start, low, high = (
            self._clean(describe_value(series.key, value))
            for value in (values[-1], values[0], min(values), max(values))
        )
        if count is not None:
            now = f"{self.phrases.say('of', part=count[0], all=count[1])}  {now}"
        return [title, now] if is_narrow else [title, now, start, f"{low} .. {high}"]

    def _draw_facts(self, facts: Facts | None) -> Iterator[Text]:
        """Yield what was told of the last answers: sums, words with their counts, long texts."""
        if facts is None:
            return
        yield Text()
        yield Text(self._say("facts", num=facts.num, step=facts.step), "bold")
        for name, total in facts.sums.items():
            yield Text(f"  {name}  {total:,.4g}" if total % 1 else f"  {name}  {total:,.0f}")
        for name, tally in facts.tallies.items():
            yield from self._draw_tally(name, tally)

    def _draw_memory(self, memory: Sequence[ProcessMemory]) -> Iterator[Text]:
        if memory:
            yield Text()
            yield Text(self._say("memory"), "bold")
        for rank, one in enumerate(memory):
            values = {
                "rank": rank,
                "now": one.now_mib,
                "peak": one.peak_mib,
                "all": one.total_mib,
                "device": one.device,
            }
            yield Text(f"  {self._say('process', **values)}")

    def _draw_tally(self, name: str, tally: Tally) -> Iterator[Text]:
        texts, num, different = tally.commonest, tally.num, tally.num_different
        if all(len(text) <= _WORD for text, _ in texts):
            shown = [f"{text} {count}" for text, count in texts]
            if rest := num - sum(count for _, count in texts):
                shown.append(self._say("others", num=rest))
            said = self._say("tally", num=num, different=different)
            yield Text(f"  {name}  {said}: {', '.join(shown)}")
            return
        text, part = texts[0]
        said = self._say("mode", part=part, num=num, different=different)
        yield Text(f"  {name}  {said}")
        lines = text.splitlines()
        cut = [*lines[:_LINES], "..."] if len(lines) > _LINES else lines
        for line in cut:
            yield Text(self._clean(f"    {line}"), "dim", no_wrap=True, overflow="crop")

    def _draw_course(self, series: Series, room: int) -> Text:
        return Text(draw_sparkline(series.values, room, is_ascii=self.is_ascii), "cyan")

    def _draw_alarms(self, training: TrainingState) -> Iterator[Text]:
        if not training.alarms and not training.history.is_empty:
            yield Text(self._say("no_alarms"), "green")
        for alarm in training.alarms:
            color = "bold red" if alarm.level == "error" else "bold yellow"
            said = describe_alarm(alarm, self.phrases.language)
            text = Text("! ", color).append(f"{alarm.name}", color)
            text.append(f" ({self._say('step', step=alarm.step)}): {self._clean(said)}")
            yield text
            yield Text(f"  {self._say('do')}: {advise(alarm, self.phrases.language)}", "dim")

    def _clean(self, text: str) -> str:
        if not self.is_ascii:
            return text
        return text.replace("\u00a0", " ").replace("\u202f", " ").replace("·", "-")
