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
from typing import Any, Literal

import click
import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupwise.cli.options import PATH, language, option
from groupwise.core import STEP_DONE, RunError, check_records, check_sealed, is_locked
from groupwise.evaluation.alarms import (
    SHARES,
    Alarm,
    History,
    find_alarms,
    title_series,
)
from groupwise.evaluation.report.phrases import Phrases, format_duration, format_plain, format_share

_MAX_CELLS, _WORD, _LINES = 8, 40, 8
"""Cells of a sweep that are named; letters up to which texts are listed with their counts; lines
that are shown of a longer one."""
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


@click.command()
@click.argument("run", metavar="RUN", type=PATH)
@option("--once", is_flag=True, help="Print one page and leave.")
@option(
    "--every",
    type=click.FloatRange(min=0.2),
    show_default="2 on a terminal, else 30",
    help="Seconds between pages.",
)
@option(
    "--step",
    metavar="NAME",
    show_default="the one that runs, or the last",
    help="Training to show.",
)
@language
def watch(
    run: Path, once: bool, every: float | None, step: str | None, language: Literal["en", "zh"]
) -> None:
    """Follow a run: its steps, its training's values, and alarms. Changes nothing in it.

    RUN is a run folder; it may come later. Ends with 0 when the run is finished and with 1 when it
    was stopped before its end; Ctrl-C leaves, and the run goes on.
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
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True)
class StepState:
    """One step of a run."""

    name: str
    phase: StepPhase  # reused: done by an earlier start; stopped: begun, but the process is gone
    duration_s: float | None = None  # what its work took, or has taken so far


@dataclass(frozen=True, slots=True)
class TrainingState:
    """One training step and what it has logged."""

    step: str
    phase: StepPhase
    history: History
    alarms: tuple[Alarm, ...] = ()  # errors first
    num_steps: int | None = None  # in all; None where it is not known
    left_s: float | None = None  # seconds until its last step, estimated from its last row
    row_age_s: float | None = None  # seconds since its last row was written; None without rows
    num_damaged: int = 0  # lines of its log that could not be read
    # Of each of its processes, ``device``, ``now_mib``, ``peak_mib``, ``total_mib``.
    memory: Sequence[_Record] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment."""

    folder: Path
    recipe: str  # "" while there is no manifest
    # waiting: nothing has begun; stopped: killed, or ended by an error
    phase: Literal["waiting", "running", "stopped", "finished"]
    steps: tuple[StepState, ...] = ()  # in the order of the plan, else as they were begun
    trainings: tuple[TrainingState, ...] = ()  # the steps that log rows, in the same order
    elapsed_s: float | None = None  # since its last start until now, or its last step was done
    is_plan_known: bool = False  # whether ``steps`` has those that have not begun, too

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
        """Return the state at this moment."""
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
        steps, end = self._read_steps(planned, began, now if is_held else None)
        is_whole = bool(steps) and all(step.phase in ("done", "reused") for step in steps)
        return RunState(
            folder=self.folder,
            recipe=str(manifest["recipe"]),
            phase="running" if is_held else "finished" if is_whole else "stopped",
            steps=steps,
            trainings=tuple(one for step in steps if (one := self._read_training(step, now))),
            elapsed_s=None if end is None else max(0.0, (end - began).total_seconds()),
            is_plan_known=bool(planned),
        )

    def _read_steps(
        self, planned: Sequence[str], began: datetime, now: datetime | None
    ) -> tuple[tuple[StepState, ...], datetime | None]:
        """Return the state of the planned steps, or else of those begun, and when the last ended.

        ``now`` is None where no process works in the run. Left out are steps that have not begun
        although a later one has. Steps are done in order, so this run's plan did not have them: the
        recipe got them afterwards.
        """
        files = [*self.folder.glob("*/started.json"), *self.folder.glob("*/step.json")]
        markers = [
            (
                name,
                _read_object(self.folder / name / "started.json"),
                _read_object(self.folder / name / "step.json"),
            )
            for name in planned or sorted({path.parent.name for path in files})
        ]
        if not planned:
            markers = [one for one in markers if one[1] or one[2]]
            markers.sort(key=lambda one: (one[1] is not None, _moment(one[1] or one[2])))
        found: list[StepState] = []
        is_past = False  # behind the running step, results are those of an earlier start
        for name, started, done in markers:
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
        steps = [s for place, s in enumerate(found) if s.phase != "left" or place > last]
        names = {step.name for step in steps}
        ends = [_moment(done) for name, _, done in markers if done and name in names]
        return tuple(steps), now or max(ends, default=None)

    def _read_training(self, step: StepState, now: datetime) -> TrainingState | None:
        folder = self.folder / step.name
        progress, path = _read_object(folder / "progress.json"), folder / "metrics.jsonl"
        row_time, history, num_damaged = None, History(), 0
        if (stamp := _read_stamp(path)) is not None:
            if path not in self._logs or self._logs[path][0] != stamp:
                self._logs[path] = stamp, *read_log(path)
            _, history, num_damaged = self._logs[path]
            row_time = datetime.fromtimestamp(stamp[1] / 1e9, UTC)
        if history.is_empty and progress is None:
            return None
        left_s = None
        if step.phase == "running" and progress is not None and row_time is not None:
            left_s = estimate_left(progress, history.last_step, row_time=row_time, now=now)
        num_steps = None if progress is None else progress["num_steps"]
        return TrainingState(
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
    parts = [part.mean() for part in np.array_split(np.asarray(values), min(len(values), width))]
    low, high = min(parts), max(parts)
    bars = "_.-:=+*#" if is_ascii else "▁▂▃▄▅▆▇█"
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((value - low) * scale)] for value in parts)


@dataclass(frozen=True, slots=True)
class _Page:
    """A run's state as lines for a terminal or a plain text file."""

    width: int
    phrases: Phrases
    is_ascii: bool

    def _say(self, name: str, **values: object) -> str:
        return self._clean(self.phrases.say(f"watch.{name}", **values))

    def _clean(self, text: str) -> str:
        if not self.is_ascii:
            return text
        return text.replace("\u00a0", " ").replace("\u202f", " ").replace("·", "-")

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
            table = Table.grid(padding=(0, 1))
            for one in state.steps:
                mark, ascii_mark, style = _MARKS[one.phase]
                took = "" if one.duration_s is None else format_duration(one.duration_s)
                phase = self._say("step_stopped" if one.phase == "stopped" else one.phase)
                mark = Text(ascii_mark if self.is_ascii else mark, style)
                table.add_row(mark, Text(one.name), Text(phase, style), Text(self._clean(took)))
            yield Text()
            yield table
            if not state.is_plan_known and state.phase != "finished":
                yield Text(self._say("plan"), "dim")
        for training in state.trainings:
            is_whole = training.step == shown
            if training.phase != "left" and (is_whole or training.alarms):
                yield from self._draw_training(training, is_whole=is_whole)

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
            if history.facts is not None:
                yield from self._draw_facts(history.facts)
            if training.memory:
                yield Text()
                yield Text(self._say("memory"), "bold")
            for rank, one in enumerate(training.memory):
                values = {"now": one["now_mib"], "peak": one["peak_mib"], "all": one["total_mib"]}
                yield Text(f"  {self._say('process', rank=rank, device=one['device'], **values)}")
        if not training.alarms and not history.is_empty:
            yield Text(self._say("no_alarms"), "green")
        for alarm in training.alarms:
            color = "bold red" if alarm.level == "error" else "bold yellow"
            text = Text(f"! {alarm.name}", color)
            text.append(f" ({self._say('step', step=alarm.step)}): ")
            yield text.append(self._clean(self.phrases.say(alarm.said)))
            yield Text(f"  {self._say('do')}: {self.phrases.say(alarm.advice)}", "dim")

    def _draw_series(self, history: History) -> Table:
        is_narrow = self.width < 60
        heads = ("now",) if is_narrow else ("now", "start", "range")
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
        table.add_column("", no_wrap=True)
        for head in heads:
            table.add_column(self._say(head), justify="right", no_wrap=True)
        table.add_column(self._say("course"), no_wrap=True)
        room = max(6, self.width - (34 if is_narrow else 62))
        shares = {} if history.facts is None else history.facts["shares"]
        for series in history.list_series():
            values = series.values
            is_part = series.key.startswith("reward/") and min(values) >= 0 and max(values) <= 1
            form = format_share if series.key in SHARES or is_part else format_plain
            ends = (values[-1], values[0], min(values), max(values))
            now, start, low, high = (self._clean(form(value)) for value in ends)
            if (count := shares.get(series.key.removeprefix("reward/"))) is not None:
                now = f"{self.phrases.say('of', part=count[0], all=count[1])}  {now}"
            cells = (now, start, f"{low} .. {high}")[: len(heads)]
            bars = Text(draw_sparkline(values, room, is_ascii=self.is_ascii), "cyan")
            table.add_row(title_series(series.key, self.phrases), *cells, bars)
        return table

    def _draw_facts(self, facts: _Record) -> Iterator[Text]:
        """Yield what rewards said of the last answers: sums, words with counts, long texts."""
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
            yield Text(f"  {name}  {self._say('mode', part=part, num=num, different=different)}")
            lines = text.splitlines()
            for line in [*lines[:_LINES], "..."] if len(lines) > _LINES else lines:
                yield Text(self._clean(f"    {line}"), "dim", no_wrap=True, overflow="crop")
