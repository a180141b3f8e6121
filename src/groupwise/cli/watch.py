"""``groupwise watch``: follow a run from outside, on a terminal or as plain text.

A run holds its folder with a lock; each step's folder has ``started.json`` while it works and
``step.json`` when it is done. Nothing here writes into the folder.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupwise.cli.options import PATH, language, option
from groupwise.core import STEP_DONE, RunError, check_records, is_locked, read_manifest
from groupwise.evaluation.alarms import SHARES, Alarm, History, find_alarms, title_series
from groupwise.evaluation.report.phrases import Phrases, format_duration, format_plain, format_share

_MAX_CELLS = 8
_MARKS = {
    "done": ("✓", "green"),
    "reused": ("✓", "dim"),
    "running": ("▶", "bold cyan"),
    "stopped": ("✗", "bold red"),
    "left": ("·", "dim"),
}
_COLORS = {"waiting": "yellow", "running": "cyan", "stopped": "bold red", "finished": "green"}
_Record = Mapping[str, Any]


@click.command()
@click.argument("run", metavar="RUN", type=PATH)
@option("--once", "Print one page and leave.", is_flag=True)
@option("--every", "Seconds between pages.", type=click.FloatRange(min=0.2), default=5.0)
@language
def watch(run: Path, once: bool, every: float, language: Literal["en", "zh"]) -> None:
    """Follow a run: its steps, its training's values, and alarms. Changes nothing in it.

    RUN is a run folder; it may come later. Ends with 0 when the run is finished and with 1 when it
    was stopped before its end; Ctrl-C leaves, and the run goes on.
    """
    if hasattr(sys.stdout, "reconfigure"):  # what cannot be encoded never stops the page
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    console = Console(highlight=False, markup=False, emoji=False)
    phrases = Phrases(language, own=Path(__file__).with_name("watch.yaml"))
    state, shown = read_state(run), ""
    if once and state.phase == "waiting":
        raise RunError(f"there is no run at {run}", fix="leave out --once to wait for it")
    check_records(run)
    try:
        while True:
            if state.phase != "waiting" or not shown:  # which is said once
                if console.is_terminal and not once:
                    console.clear()
                elif shown:
                    console.print("-" * min(40, console.width))
                console.print(Group(*_draw(state, phrases, width=console.width)))
                shown = state.phase
            if once or state.phase not in ("waiting", "running"):
                break
            time.sleep(every)
            state = read_state(run)
    except KeyboardInterrupt:
        return
    if state.phase == "stopped":
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run, and what it has logged if it trains."""

    name: str
    # reused: done by an earlier start; stopped: begun, but the process is gone
    phase: Literal["done", "reused", "running", "stopped", "left"]
    duration_s: float | None = None  # what its work took, or has taken so far
    is_training: bool = False  # it has logged rows, or says how many steps there will be
    history: History = History()  # noqa: RUF009 (nothing changes it)
    num_damaged: int = 0  # lines of its log that could not be read
    row_age_s: float | None = None  # seconds since its last row was written; None without rows
    alarms: tuple[Alarm, ...] = ()  # errors first
    num_steps: int | None = None  # in all; None where it is not known
    left_s: float | None = None  # seconds until its last step, estimated from its last row
    memory: Sequence[_Record] = ()  # of each process ``device``, ``peak_mib``, ``total_mib``


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment."""

    folder: Path
    recipe: str = ""  # "" while there is no manifest
    # waiting: nothing has begun; stopped: killed, or ended by an error
    phase: Literal["waiting", "running", "stopped", "finished"] = "waiting"
    steps: tuple[Step, ...] = ()  # as they were planned
    elapsed_s: float | None = None  # since its last start until now, or its last step was done

    @property
    def current(self) -> Step | None:
        """The training that runs or was stopped, else the last one with a reward, else the last."""
        trainings = [step for step in self.steps if step.is_training]
        active = [one for one in trainings if one.phase in ("running", "stopped")]
        rewarded = [one for one in trainings if one.history.is_rewarded]
        return next(reversed(active or rewarded or trainings), None)


def read_state(folder: Path) -> RunState:
    """Return the state of a run, whose folder need not exist yet, at this moment."""
    if not (folder / "manifest.json").is_file():
        _check_folder(folder)
        return RunState(folder)
    manifest = read_manifest(folder / "manifest.json")
    is_held, now, began = is_locked(folder / ".lock"), datetime.now(UTC), _moment(manifest)
    begun = {path.parent.name for path in folder.glob("[!.]*/st*.json")}
    steps, ends = list[Step](), list[datetime]()
    for name in manifest.get("plan") or sorted(begun):
        started = _read_object(folder / name / "started.json")
        done = _read_object(folder / name / STEP_DONE)
        # Behind the step that was begun, results are those of an earlier start.
        is_past = bool(steps) and steps[-1].phase in ("running", "stopped", "left")
        if started is not None:
            passed_s = (now - _moment(started)).total_seconds()
            step = Step(name, "running", passed_s) if is_held else Step(name, "stopped")
        elif done is None or is_past:
            steps.append(Step(name, "left"))
            continue
        else:
            ends.append(_moment(done))
            step = Step(name, "reused" if ends[-1] < began else "done", done["duration_s"])
        steps.append(_read_log(folder / name, step, now))
    is_whole = bool(steps) and all(step.phase in ("done", "reused") for step in steps)
    end = now if is_held else max(ends, default=None)
    return RunState(
        folder,
        recipe=str(manifest["recipe"]),
        phase="running" if is_held else "finished" if is_whole else "stopped",
        steps=tuple(steps),
        elapsed_s=None if end is None else max(0.0, (end - began).total_seconds()),
    )


def _read_log(folder: Path, step: Step, now: datetime) -> Step:
    """Return a step with what it has logged; as it is if it has logged nothing."""
    progress, path = _read_object(folder / "progress.json"), folder / "metrics.jsonl"
    lines, row_time = list[bytes](), None
    if path.is_file():  # another process may be writing a last line that is not finished yet
        lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]
        row_time = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    rows = [row for line in lines if (row := _parse_object(line)) is not None]
    history = History(rows)
    if history.is_empty and progress is None:
        return step
    num_steps = None if progress is None else int(progress["num_steps"])
    left_s = None
    if progress is not None and step.phase == "running" and row_time is not None:
        left_s = estimate_left(progress, history.last_step, row_time=row_time, now=now)
    return replace(
        step,
        is_training=True,
        history=history,
        num_damaged=len(lines) - len(rows),
        row_age_s=None if row_time is None else (now - row_time).total_seconds(),
        alarms=find_alarms(history, num_steps=num_steps),
        num_steps=num_steps,
        left_s=left_s,
        memory=(_read_object(folder / "memory.json") or {}).get("processes", ()),
    )


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


def _moment(record: _Record) -> datetime:
    return datetime.fromisoformat(record.get("finished_at") or record["started_at"])


def _check_folder(folder: Path) -> None:
    """Refuse a path without a manifest at which no run can appear."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder", fix="give the folder of a run")
    if (folder / "sweep.json").is_file():
        cells = sorted(str(path.parent) for path in folder.glob("cells/*/manifest.json"))
        shown = "".join(f"\n  {cell}" for cell in cells[:_MAX_CELLS])
        told = f"give one of its {len(cells)} cells:{shown}" if cells else "none has begun"
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


def _draw(state: RunState, phrases: Phrases, *, width: int) -> Iterator[RenderableType]:
    """Yield the page: the run, its steps, the current training, alarms of the others."""

    def say(name: str, **values: object) -> str:
        return phrases.say(f"watch.{name}", **values)

    recipe = f"{state.recipe} · " if state.recipe else ""
    head = Text(f"{recipe}{state.folder.resolve().name}  ", "bold")
    head.append(say(state.phase), _COLORS[state.phase])
    if state.elapsed_s is not None:
        head.append(f"  {format_duration(state.elapsed_s)}")
    yield head
    if state.phase == "stopped":
        command = f"groupwise run {state.recipe} --out {state.folder} --resume"
        yield Text(f"{say('continue')}: {command}", "bold")
    if state.steps:
        table = Table.grid(padding=(0, 1))
        for step in state.steps:
            mark, style = _MARKS[step.phase]
            took = "" if step.duration_s is None else format_duration(step.duration_s)
            phase = say("step_stopped" if step.phase == "stopped" else step.phase)
            table.add_row(Text(mark, style), step.name, Text(phase, style), took)
        yield Text()
        yield table
    current = state.current
    for training in state.steps:
        history, is_current = training.history, training is current
        if not is_current and not training.alarms:
            continue
        head = Text(f"\n{training.name}", "bold")
        name = "step" if training.num_steps is None else "step_of"
        head.append(f"  {say(name, step=history.last_step, all=training.num_steps)}")
        if training.left_s is not None:
            head.append(f"  {say('time_left', s=training.left_s)}")
        if training.row_age_s is None:
            head.append(f"  {say('no_rows')}", "dim")
        elif training.phase == "running":
            head.append(f"  {say('last_row', s=training.row_age_s)}", "dim")
        yield head
        if training.num_damaged:
            yield Text(say("damaged", num=training.num_damaged), "yellow")
        if is_current and not history.is_empty:
            yield _draw_series(history, phrases, width=width)
            yield from _draw_facts(history.facts, phrases)
        for rank, one in enumerate(training.memory):
            values = {"peak": one["peak_mib"], "all": one["total_mib"], "device": one["device"]}
            yield Text(say("memory", rank=rank, **values), "dim")
        if not training.alarms and not history.is_empty:
            yield Text(say("no_alarms"), "green")
        for alarm in training.alarms:
            color = "bold red" if alarm.level == "error" else "bold yellow"
            text = Text(f"! {alarm.name}", color)
            text.append(f" ({say('step', step=alarm.step)}): {phrases.say(alarm.said)}")
            yield text
            yield Text(f"  {say('do')}: {phrases.say(alarm.advice)}", "dim")


def _draw_series(history: History, phrases: Phrases, *, width: int) -> Table:
    """Return a line for each value: now, at the start, from lowest to highest, and its course."""
    heads = [phrases.say(f"watch.{name}") for name in ("now", "start", "range", "course")]
    table = Table("", *heads, box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:4]:
        column.justify = "right"
    shares = {} if history.facts is None else history.facts["shares"]
    for series in history.list_series():
        values = series.values
        is_part = series.key.startswith("reward/") and min(values) >= 0 and max(values) <= 1
        form = format_share if series.key in SHARES or is_part else format_plain
        now, start, low, high = map(form, (values[-1], values[0], min(values), max(values)))
        if (count := shares.get(series.key.removeprefix("reward/"))) is not None:
            now = f"{phrases.say('of', part=count[0], all=count[1])}  {now}"
        bars = Text(draw_sparkline(values, max(6, width - 62)), "cyan")
        table.add_row(title_series(series.key, phrases), now, start, f"{low} .. {high}", bars)
    return table


def draw_sparkline(values: Sequence[float], width: int) -> str:
    """Return values as a row of bars, the lowest to the highest; many are averaged into a bar."""
    parts = [part.mean() for part in np.array_split(np.asarray(values), min(len(values), width))]
    low, high = min(parts), max(parts)
    scale = 7 / (high - low) if high > low else 0.0
    return "".join("▁▂▃▄▅▆▇█"[round((value - low) * scale)] for value in parts)


def _draw_facts(facts: _Record | None, phrases: Phrases) -> Iterator[Text]:
    """Yield what rewards said of the last answers: sums, and texts with their counts."""
    if facts is None:
        return
    yield Text(phrases.say("watch.facts", num=facts["num"], step=facts["step"]), "bold")
    for name, (total, _) in facts["sums"].items():
        yield Text(f"  {name}  {total:,.4g}" if total % 1 else f"  {name}  {total:,.0f}")
    for name, tally in facts["texts"].items():
        said = phrases.say("watch.tally", num=tally["num"], different=tally["different"])
        shown = (f"{' '.join(text.split())} {count}" for text, count in tally["commonest"])
        yield Text(f"  {name}  {said}: {', '.join(shown)}", no_wrap=True, overflow="ellipsis")
