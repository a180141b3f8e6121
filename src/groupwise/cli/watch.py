"""``groupwise watch``: follow a run from outside, on a terminal or as plain text.

A run holds its folder with a lock; each step's folder has ``started.json`` while it works and
``step.json`` when it is done. Nothing here writes into the folder.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupwise.cli.run import Debug
from groupwise.core import STEP_DONE, RunError, check_records, check_sealed, is_locked
from groupwise.evaluation.alarms import (
    Alarm,
    History,
    Series,
    describe_value,
    find_alarms,
    title_series,
)
from groupwise.evaluation.report.phrases import Phrases, format_duration

_MAX_CELLS, _NARROW, _WORD, _LINES = 8, 60, 40, 8
"""Cells of a sweep that are named; columns below which a table has fewer; letters up to which texts
are listed with their counts; lines that are shown of a longer one."""
_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_MARKS = {
    "done": ("✓", "+", "green"),
    "reused": ("✓", "+", "dim"),
    "running": ("▶", ">", "bold cyan"),
    "stopped": ("✗", "x", "bold red"),
    "left": ("·", ".", "dim"),
}
_PHRASES = Path(__file__).with_name("watch.yaml")
_COLORS = {"waiting": "yellow", "running": "cyan", "stopped": "bold red", "finished": "green"}
StepPhase = Literal["done", "reused", "running", "stopped", "left"]
_Record = Mapping[str, Any]


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it may come later.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one page and leave.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.2, help="Seconds between pages.", show_default="2 on a terminal, else 30"
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Training to show.",
            show_default="the one that runs, or the last",
        ),
    ] = None,
    language: Annotated[Literal["en", "zh"], typer.Option(help="Of the page's words.")] = "en",
    debug: Debug = False,
) -> None:
    """Follow a run: its steps, its training's values, and alarms. Changes nothing in it.

    Ends with 0 when the run is finished and with 1 when it was stopped before its end; Ctrl-C
    leaves, and the run goes on.
    """
    from rich.live import Live

    if hasattr(sys.stdout, "reconfigure"):  # what cannot be encoded never stops the page
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    console = Console(highlight=False, markup=False, emoji=False)
    reader, phrases = RunReader(run), Phrases(language, own=_PHRASES)

    def read() -> RunState:
        state = reader.read()
        names = [training.step for training in state.trainings]
        if step is not None and names and step not in names:
            raise RunError(
                f"{run} has no training step {step!r}", expected=f"one of {', '.join(names)}"
            )
        return state

    def draw(state: RunState) -> RenderableType:
        is_ascii = console.options.ascii_only
        return Group(*_Page(console.width, phrases, is_ascii).draw(state, step))

    state, is_open = read(), ("waiting", "running")
    if once and state.phase == "waiting":
        raise RunError(f"there is no run at {run}", fix="leave out --once to wait for it")
    try:
        if console.is_terminal and not once:
            with Live(draw(state), console=console, auto_refresh=False) as live:
                live.vertical_overflow = "crop"
                while state.phase in is_open:
                    time.sleep(every or 2.0)
                    state = read()
                    live.update(draw(state), refresh=True)
                live.vertical_overflow = "visible"
                live.refresh()
        else:
            console.print(draw(state))
            while state.phase in is_open and not once:
                time.sleep(every or 30.0)
                before, state = state, read()
                if (before.phase, state.phase) != ("waiting", "waiting"):  # which is said once
                    console.print("-" * min(40, console.width))
                    console.print(draw(state))
    except KeyboardInterrupt:
        return
    if state.phase == "stopped":
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class StepState:
    """One step of a run.

    ``reused``: done by an earlier start of the run; ``stopped``: begun, but the process is gone.
    ``duration_s`` is what its work took, or has taken so far; None if it has not begun.
    """

    name: str
    phase: StepPhase
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingState:
    """One training step and what it has logged.

    Attributes:
        step: name of the run's step.
        phase: of that step.
        history: its rows.
        alarms: errors first.
        num_steps: training steps in all, None where it is not known.
        left_s: seconds until its last step, estimated from its last row; None where not known.
        row_age_s: seconds since its last row was written; None without rows.
        num_damaged: lines of its log that could not be read.
        memory: of each of its processes, ``device``, ``now_mib``, ``peak_mib``, ``total_mib``.
    """

    step: str
    phase: StepPhase
    history: History
    alarms: tuple[Alarm, ...] = ()
    num_steps: int | None = None
    left_s: float | None = None
    row_age_s: float | None = None
    num_damaged: int = 0
    memory: Sequence[_Record] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment.

    Attributes:
        folder: its folder.
        recipe: its name; "" while there is no manifest.
        phase: ``waiting``: nothing has begun; ``stopped``: killed, or ended by an error.
        steps: in the order of the plan where it is known, else as they were begun.
        trainings: the steps that log rows, in the same order.
        elapsed_s: since its last start until now, or until its last step was done.
        is_plan_known: whether ``steps`` has those that have not begun, too.
    """

    folder: Path
    recipe: str
    phase: Literal["waiting", "running", "stopped", "finished"]
    steps: tuple[StepState, ...] = ()
    trainings: tuple[TrainingState, ...] = ()
    elapsed_s: float | None = None
    is_plan_known: bool = False

    @property
    def current(self) -> TrainingState | None:
        """The training that runs or was stopped, else the last one with a reward, else the last."""
        begun = [training for training in self.trainings if training.phase != "left"]
        active = [training for training in begun if training.phase in ("running", "stopped")]
        rewarded = [training for training in begun if training.history.read("reward")]
        return next(reversed(active or rewarded or begun), None)


@dataclass(slots=True)
class RunReader:
    """Follows one run, whose folder need not exist yet; a log is read again when it has changed."""

    folder: Path
    _logs: dict[Path, tuple[tuple[int, ...], History, int]] = field(default_factory=dict)
    _checked: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def read(self) -> RunState:
        """Return the state at this moment.

        Raises:
            RunError: if the folder is a file, a sweep, or holds something else than a run; or the
                manifest or a finished step is not what the run wrote.
        """
        manifest = _read_object(self.folder / "manifest.json")
        if manifest is None:
            _check_folder(self.folder)
            return RunState(self.folder, "", "waiting")
        check_sealed(manifest, self.folder / "manifest.json")
        for marker in sorted(self.folder.glob(f"[!.]*/{STEP_DONE}")):
            step = marker.parent.name  # its records are held against its marker once
            stamp = _read_stamp(marker)
            if stamp is not None and self._checked.get(step) != stamp:
                check_records(self.folder, step)
                self._checked[step] = stamp
        is_held, now = is_locked(self.folder / ".lock"), datetime.now(UTC)
        began, planned = _moment(manifest), tuple(manifest.get("plan", ()))
        markers = self._read_markers(planned)
        steps = _list_steps(markers, began, now if is_held else None)
        ends = [_moment(done) for step in steps if (done := markers[step.name][1])]
        end = now if is_held else max(ends, default=None)
        is_whole = bool(steps) and all(step.phase in ("done", "reused") for step in steps)
        return RunState(
            folder=self.folder,
            recipe=str(manifest["recipe"]),
            phase="running" if is_held else "finished" if is_whole else "stopped",
            steps=steps,
            trainings=tuple(self._list_trainings(steps, now)),
            elapsed_s=None if end is None else max(0.0, (end - began).total_seconds()),
            is_plan_known=bool(planned),
        )

    def _read_markers(
        self, planned: Sequence[str]
    ) -> dict[str, tuple[_Record | None, _Record | None]]:
        """Return both markers of the planned steps, or else of those begun."""
        paths = [*self.folder.glob("*/started.json"), *self.folder.glob("*/step.json")]
        found: dict[str, tuple[_Record | None, _Record | None]] = {
            name: (
                _read_object(self.folder / name / "started.json"),
                _read_object(self.folder / name / "step.json"),
            )
            for name in planned or sorted({path.parent.name for path in paths})
        }
        if planned:
            return found
        begun = [(name, both) for name, both in found.items() if any(both)]
        return dict(
            sorted(begun, key=lambda one: (one[1][0] is not None, _moment(one[1][0] or one[1][1])))
        )

    def _list_trainings(self, steps: Sequence[StepState], now: datetime) -> Iterator[TrainingState]:
        for step in steps:
            folder = self.folder / step.name
            progress = _read_object(folder / "progress.json")
            path = folder / "metrics.jsonl"
            row_time, history, num_damaged = None, History(), 0
            if (stamp := _read_stamp(path)) is not None:
                if path not in self._logs or self._logs[path][0] != stamp:
                    self._logs[path] = stamp, *read_log(path)
                _, history, num_damaged = self._logs[path]
                row_time = datetime.fromtimestamp(stamp[1] / 1e9, UTC)
            if history.is_empty and progress is None:
                continue
            left_s = None
            if step.phase == "running" and progress is not None and row_time is not None:
                left_s = estimate_left(progress, history.last_step, row_time=row_time, now=now)
            num_steps = None if progress is None else progress["num_steps"]
            yield TrainingState(
                step=step.name,
                phase=step.phase,
                history=history,
                alarms=find_alarms(history, num_steps=num_steps),
                num_steps=num_steps,
                left_s=left_s,
                row_age_s=None if row_time is None else (now - row_time).total_seconds(),
                num_damaged=num_damaged,
                memory=(_read_object(folder / "memory.json") or {}).get("processes", ()),
            )


def read_log(path: Path) -> tuple[History, int]:
    """Return a log that another process may be writing, and how many of its lines are damaged.

    A last line that is not finished yet is left out.
    """
    lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]
    rows = [row for line in lines if (row := _parse_object(line)) is not None]
    return History(rows), len(lines) - len(rows)


def _read_stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:  # it is being done again
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read_object(path: Path) -> _Record | None:
    """Return the object in a file, None if it is not there or cannot be read."""
    try:
        return _parse_object(path.read_bytes())
    except OSError:
        return None


def _parse_object(text: bytes) -> _Record | None:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _moment(record: _Record | None) -> datetime:
    record = record or {}
    return datetime.fromisoformat(record.get("finished_at") or record["started_at"])


def _list_steps(
    markers: Mapping[str, tuple[_Record | None, _Record | None]],
    began: datetime,
    now: datetime | None,
) -> tuple[StepState, ...]:
    """Return the state of each step; ``now`` is None where no process works in the run.

    Left out are steps that have not begun although a later one has. Steps are done in order, so
    this run's plan did not have them: the recipe got them afterwards.
    """
    found: list[StepState] = []
    is_past = False  # behind the running step, results are those of an earlier start
    for name, (started, done) in markers.items():
        if started is not None:
            is_past = True
            passed_s = None if now is None else (now - _moment(started)).total_seconds()
            found.append(StepState(name, "stopped" if now is None else "running", passed_s))
        elif done is None or is_past:
            found.append(StepState(name, "left"))
        else:
            phase = "reused" if _moment(done) < began else "done"
            found.append(StepState(name, phase, done["duration_s"]))
    last = max((place for place, step in enumerate(found) if step.phase != "left"), default=-1)
    return tuple(s for place, s in enumerate(found) if s.phase != "left" or place > last)


def _check_folder(folder: Path) -> None:
    """Refuse a path without a manifest at which no run can appear."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder", fix="give the folder of a run")
    if (folder / "sweep.json").is_file():
        cells = sorted(path.parent for path in folder.glob("cells/*/manifest.json"))
        if not cells:
            raise RunError(f"{folder} is a sweep, not a run, and none of its cells has begun")
        shown = "".join(f"\n  {cell}" for cell in cells[:_MAX_CELLS])
        more = f"\n  and {len(cells) - _MAX_CELLS} more" if len(cells) > _MAX_CELLS else ""
        told = f"give one of its {len(cells)} cells:{shown}{more}"
        raise RunError(f"{folder} is a sweep, not a run; {told}")
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise RunError(f"{folder} has files but holds no run", fix="give the folder of a run")


def estimate_left(
    progress: Mapping[str, Any], last_step: int, *, row_time: datetime, now: datetime
) -> float | None:
    """Return the seconds until the last training step, None where nothing can be said.

    ``progress`` has ``num_steps`` in all, ``first_step`` and ``started_at`` of this attempt; the
    row of ``last_step`` was written at ``row_time``.
    """
    num_done = last_step - progress["first_step"]
    passed_s = (row_time - _moment(progress)).total_seconds()
    if num_done <= 0 or passed_s <= 0:
        return None
    all_s = passed_s / num_done * (progress["num_steps"] - last_step)
    return max(0.0, all_s - max(0.0, (now - row_time).total_seconds()))


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


@dataclass(frozen=True, slots=True)
class _Page:
    """A run's state as lines for a terminal or a plain text file."""

    width: int
    phrases: Phrases
    is_ascii: bool

    def draw(self, state: RunState, step: str | None) -> Iterator[RenderableType]:
        """Yield the page; ``step`` is the training whose values are shown, None: the current."""
        shown = step or (state.current.step if state.current is not None else None)
        recipe = f"{state.recipe} · " if state.recipe else ""
        text = Text(self._clean(f"{recipe}{state.folder.resolve().name}  "), "bold")
        text.append(self._say(state.phase), _COLORS[state.phase])
        if state.elapsed_s is not None:
            text.append(self._clean(f"  {format_duration(state.elapsed_s)}"))
        yield text
        if state.phase == "stopped":
            command = f"groupwise run {state.recipe} --out {state.folder} --resume"
            yield Text(f"{self._say('continue')}: {command}", "bold")
        if state.steps:
            yield Text()
            yield self._draw_steps(state)
        for training in state.trainings:
            is_whole = training.step == shown
            if training.phase != "left" and (is_whole or training.alarms):
                yield from self._draw_training(training, is_whole=is_whole)

    def _say(self, name: str, **values: object) -> str:
        return self._clean(self.phrases.say(f"watch.{name}", **values))

    def _clean(self, text: str) -> str:
        if not self.is_ascii:
            return text
        return text.replace("\u00a0", " ").replace("\u202f", " ").replace("·", "-")

    def _draw_steps(self, state: RunState) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        for step in state.steps:
            mark, ascii_mark, style = _MARKS[step.phase]
            took = "" if step.duration_s is None else format_duration(step.duration_s)
            phase = self._say("step_stopped" if step.phase == "stopped" else step.phase)
            shown = Text(ascii_mark if self.is_ascii else mark, style)
            table.add_row(shown, Text(step.name), Text(phase, style), Text(self._clean(took)))
        if state.is_plan_known or state.phase == "finished":
            return table
        return Group(table, Text(self._say("plan"), "dim"))

    def _draw_training(
        self, training: TrainingState, *, is_whole: bool
    ) -> Iterator[RenderableType]:
        history, num_steps = training.history, training.num_steps
        text = Text(training.step, "bold")
        name = "step" if num_steps is None else "step_of"
        text.append(f"  {self._say(name, step=history.last_step, all=num_steps)}")
        if training.left_s is not None:
            text.append(f"  {self._say('time_left', s=training.left_s)}")
        if training.row_age_s is None:
            text.append(f"  {self._say('no_rows')}", "dim")
        elif training.phase == "running":
            text.append(f"  {self._say('last_row', s=training.row_age_s)}", "dim")
        yield Text()
        yield text
        if training.num_damaged:
            yield Text(self._say("damaged", num=training.num_damaged), "yellow")
        if is_whole and not history.is_empty:
            yield self._draw_series(history)
            yield from self._draw_facts(history.facts)
            if training.memory:
                yield Text()
                yield Text(self._say("memory"), "bold")
            for rank, one in enumerate(training.memory):
                values = {"now": one["now_mib"], "peak": one["peak_mib"], "all": one["total_mib"]}
                said = self._say("process", rank=rank, device=one["device"], **values)
                yield Text(f"  {said}")
        if not training.alarms and not history.is_empty:
            yield Text(self._say("no_alarms"), "green")
        for alarm in training.alarms:
            color = "bold red" if alarm.level == "error" else "bold yellow"
            text = Text("! ", color).append(f"{alarm.name}", color)
            said = self._clean(self.phrases.say(alarm.said))
            text.append(f" ({self._say('step', step=alarm.step)}): {said}")
            yield text
            yield Text(f"  {self._say('do')}: {self.phrases.say(alarm.advice)}", "dim")

    def _draw_series(self, history: History) -> Table:
        is_narrow = self.width < _NARROW
        heads = ["", *map(self._say, ("now",) if is_narrow else ("now", "start", "range"))]
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
        for place, head in enumerate(heads):
            table.add_column(head, justify="right" if place else "left", no_wrap=True)
        table.add_column(self._say("course"), no_wrap=True)
        room = max(6, self.width - (34 if is_narrow else 62))
        shares = {} if history.facts is None else history.facts["shares"]
        for one in history.list_series():
            bars = draw_sparkline(one.values, room, is_ascii=self.is_ascii)
            count = shares.get(one.key.removeprefix("reward/"))
            table.add_row(*self._list_cells(one, count, is_narrow), Text(bars, "cyan"))
        return table

    def _list_cells(
        self, series: Series, count: Sequence[int] | None, is_narrow: bool
    ) -> list[str]:
        values = series.values
        now, start, low, high = (
            self._clean(describe_value(series.key, value))
            for value in (values[-1], values[0], min(values), max(values))
        )
        if count is not None:
            now = f"{self.phrases.say('of', part=count[0], all=count[1])}  {now}"
        title = title_series(series.key, self.phrases)
        return [title, now] if is_narrow else [title, now, start, f"{low} .. {high}"]

    def _draw_facts(self, facts: _Record | None) -> Iterator[Text]:
        """Yield what was told of the last answers: sums, words with their counts, long texts."""
        if facts is None:
            return
        yield Text()
        yield Text(self._say("facts", num=facts["num"], step=facts["step"]), "bold")
        for name, (total, _) in facts["sums"].items():
            yield Text(f"  {name}  {total:,.4g}" if total % 1 else f"  {name}  {total:,.0f}")
        for name, tally in facts["texts"].items():
            texts, num, different = tally["commonest"], tally["num"], tally["different"]
            if all(len(text) <= _WORD for text, _ in texts):
                shown = [f"{text} {count}" for text, count in texts]
                if rest := num - sum(count for _, count in texts):
                    shown.append(self._say("others", num=rest))
                said = self._say("tally", num=num, different=different)
                yield Text(f"  {name}  {said}: {', '.join(shown)}")
                continue
            text, part = texts[0]
            said = self._say("mode", part=part, num=num, different=different)
            yield Text(f"  {name}  {said}")
            lines = text.splitlines()
            for line in [*lines[:_LINES], "..."] if len(lines) > _LINES else lines:
                yield Text(self._clean(f"    {line}"), "dim", no_wrap=True, overflow="crop")
