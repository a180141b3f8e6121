"""A grid of runs: a loop over run folders, each filled by a ``groupwise run`` of its own.

    DIR/sweep.json      recipe, axes, and every cell with its coordinates and resolved config
    DIR/cells/NAME/     run folders, which take over finished steps from one another
    DIR/configs/NAME.json, DIR/logs/NAME.log
    DIR/failed/NAME.txt how a cell has failed, until it is started again

The cells' folders are the truth about what is done, so a sweep goes on after any end. A folder
belongs to one grid. It may grow by values; with other axes or other settings its cells would
differ in more than their coordinates.
"""

import itertools
import json
import math
import os
import re
import reprlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import yaml

from groupwise import core
from groupwise.core import Config, ConfigError, DataError, GroupwiseError, RunError, Say
from groupwise.run.recipe import Recipe
from groupwise.run.running import check_accepted, compare_settings, plan_steps
from groupwise.run.steps import DONE, Step, are_done, check_plan, describe_now

CellState = Literal["done", "failed", "running", "waiting"]

_RECORD = "sweep.json"
_CELLS = "cells"
_FORMAT = 1
_MAX_CELLS = 10_000
_MAX_NAME_BYTES = 120
_MAX_SHOWN = 5
_POLL_S = 0.05
_UNSAFE = re.compile(r"[^\w.+-]")
# A quote inside a word is an apostrophe; one behind a quote is an escaped one.
_BEFORE_QUOTES = "[{,:'"


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting that varies, ``section.name``, and the texts of its values, as cells have them."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One run of a sweep, as the sweep's files say it."""

    name: str  # of its folder
    coordinates: Mapping[str, str]  # the text of its value on each axis
    folder: Path  # its run folder, which may not exist yet
    state: CellState  # waiting: it was never run, or was interrupted
    error: str = ""  # how it failed


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid of runs of one recipe, as far as it is; among cells the last axis varies fastest."""

    axes: tuple[Axis, ...]
    cells: tuple[SweepCell, ...]
    recipe: str


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell that can be run: its place, its resolved config, and what a run of it does.

    ``work`` has, of each step, a digest of all that is known to decide its outputs beforehand: the
    same in two cells if one can take it over from the other.
    """

    name: str
    coordinates: Mapping[str, str]
    folder: Path
    config: Config
    steps: Sequence[Step]
    work: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A grid whose cells can all be run, each going on with the same accepted findings."""

    recipe: Recipe[Any]
    folder: Path
    axes: tuple[Axis, ...]
    cells: tuple[PlannedCell, ...]
    accepted: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """What ``sweep.json`` says."""
        cells: list[dict[str, Any]] = []
        for cell in self.cells:
            config = core.dump_config(cell.config)
            known = {"name": cell.name, "folder": f"{_CELLS}/{cell.name}", "config": config}
            own = {"config_digest": core.digest_json(config), "coordinates": dict(cell.coordinates)}
            cells.append(known | own)
        axes = [{"key": axis.key, "values": list(axis.values)} for axis in self.axes]
        return {"format": _FORMAT, "recipe": self.recipe.name, "axes": axes, "cells": cells}


def parse_axes(
    grids: Sequence[str], *, settings: Sequence[str] = ()
) -> tuple[tuple[Axis, ...], list[str]]:
    """Read ``key=value,value`` texts, whose values are YAML as with ``--set``.

    Returns the axes that could be read, and a clause for everything that is wrong.
    """
    axes: list[Axis] = []
    problems: list[str] = []
    taken = {text.partition("=")[0].strip(): "it is in --set, too" for text in settings}
    for text in grids:
        key, equals, rest = (part.strip() for part in text.partition("="))
        if not equals or not all(part.strip() for part in key.split(".")):
            problems.append(f"--grid {text}: expected key.path=value,value")
            continue
        for other, why in taken.items():
            if key == other or key.startswith(f"{other}.") or other.startswith(f"{key}."):
                problems.append(f"--grid {key}: {why}; leave one of them out")
        taken[key] = "there is another axis for it"
        values: list[str] = []
        for part in _split(rest):
            try:
                if not part:
                    raise yaml.YAMLError
                values.append(_spell(core.parse_yaml(part)))
            except yaml.YAMLError:
                got = reprlib.repr(part)
                problems.append(
                    f"--grid {key}: a value is empty (write null) or no YAML; got {got}"
                )
        twice = [value for value, count in Counter(values).items() if count > 1]
        problems += [f"--grid {key}: the value {value} appears twice" for value in twice]
        axes += [Axis(key, tuple(dict.fromkeys(values)))] if values else []
    return tuple(axes), problems


def _split(text: str) -> Iterator[str]:
    """Cut at the commas that stand in no brackets and no quotes."""
    depth, quote, start = 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and text[start:position].rstrip()[-1:] in _BEFORE_QUOTES:
            quote = character
        elif character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
        else:
            depth += (character in "[{") - (character in "]}")
    yield text[start:].strip()


def _spell(value: Any) -> str:
    """Return the one spelling of a value that ``--set`` reads as this value again.

    So ``0.10`` and ``0.1`` are the same cell.
    """
    texts = [value] if isinstance(value, str) else []
    as_yaml: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=2**31)
    # YAML folds some characters that JSON leaves as they are, such as U+0085.
    texts += [json.dumps(value, ensure_ascii=is_ascii, default=str) for is_ascii in (False, True)]
    texts += [as_yaml.removesuffix("...\n").strip()]  # an infinity, which JSON has not
    for text in texts:
        try:
            found = core.parse_yaml(text)
        except yaml.YAMLError:
            continue
        if type(found) is type(value) and found == value:
            return text
    return texts[-1]


def list_coordinates(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """Return all combinations of values; the last axis varies fastest."""
    num_cells = math.prod(len(axis.values) for axis in axes)
    if num_cells > _MAX_CELLS:
        raise ConfigError(
            "the grid is too large", got=f"{num_cells} cells", expected=f"at most {_MAX_CELLS}"
        )
    keys = [axis.key for axis in axes]
    values = itertools.product(*(axis.values for axis in axes))
    return [dict(zip(keys, combination, strict=True)) for combination in values]


def name_cell(coordinates: Mapping[str, str]) -> str:
    """Return ``key=value,key=value`` as the name of a folder.

    Where characters had to be replaced or the end to be cut, a digest keeps names apart.
    """
    whole = ",".join(f"{key}={text}" for key, text in coordinates.items())
    safe = {_UNSAFE.sub("_", key): _UNSAFE.sub("_", text) for key, text in coordinates.items()}
    name = ",".join(f"{key}={text}" for key, text in safe.items())
    if name == whole and len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    short = name.encode()[: _MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}-{core.digest_json(dict(coordinates))[:8]}"


def read_sweep(folder: Path) -> Sweep:
    """Return the sweep in a folder, as its files say it; nothing is digested.

    A RunError if there is none, a DataError if ``sweep.json`` is damaged.
    """
    record = _read_record(folder)
    cells: list[SweepCell] = []
    for cell in record["cells"]:
        run, failed = folder / cell["folder"], folder / "failed" / f"{cell['name']}.txt"
        state, error = "waiting", ""
        if core.is_locked(run / ".lock"):
            state = "running"
        elif failed.is_file():
            state, error = "failed", failed.read_text(encoding="utf-8")
        else:
            with suppress(DataError):  # it was never run
                manifest = core.read_json(run / "manifest.json", dict)
                if manifest.get("config_digest") != cell["config_digest"]:
                    error = "its folder no longer holds the run that was done"
                elif all((run / step / DONE).is_file() for step in manifest.get("plan") or [""]):
                    state = "done"
        cells.append(SweepCell(cell["name"], cell["coordinates"], run, state, error))
    return Sweep(_read_axes(record), tuple(cells), record["recipe"])


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    if not path.exists():
        raise RunError(f"{folder} holds no sweep", fix="check the folder, or give --grid")
    record = core.read_json(path, dict)
    if record.get("format") != _FORMAT:
        raise RunError(f"{path} is not of format {_FORMAT}", fix="use another --out")
    return record


def _read_axes(record: Mapping[str, Any]) -> tuple[Axis, ...]:
    return tuple(Axis(axis["key"], tuple(axis["values"])) for axis in record["axes"])


def plan_sweep(
    recipe: Recipe[Any],
    config: Path,
    grids: Sequence[str],
    *,
    out: Path,
    settings: Sequence[str] = (),
    accepted: Sequence[str] = (),
) -> SweepPlan:
    """Return the cells of a grid, ready to run; nothing is written.

    All start from the YAML file ``config`` and the ``key=value`` texts ``settings``; ``grids`` are
    ``key=value,value`` texts, one per axis. If ``out`` holds a sweep already, that one goes on or
    grows. ``accepted`` are findings of the reward audit to go on with. A ConfigError has every
    problem of the grid, of any cell, and of ``out``.
    """
    axes, problems = parse_axes(grids, settings=settings)
    try:
        check_accepted(recipe, accepted)
    except GroupwiseError as error:
        problems.append(str(error))
    coordinates = {name_cell(place): place for place in list_coordinates(axes)}
    loaded: dict[str, Config] = {}
    for name, place in coordinates.items():
        overrides = [*settings, *(f"{key}={text}" for key, text in place.items())]
        try:
            loaded[name] = core.load_config(recipe.load_config_type(), config, overrides=overrides)
        except ConfigError as error:
            first, *lines = str(error).split("\n")
            if any(f"--set {key}" in first for key in place):
                first = first.replace("--set", "--grid", 1)
            # What many cells have is told once.
            found = [line.strip() for line in lines] or [first]
            problems += [line for line in found if line not in problems]
    _refuse(problems)
    return _make_plan(recipe, out, axes, coordinates, loaded, accepted)


def plan_recorded(recipe: Recipe[Any], out: Path, *, accepted: Sequence[str] = ()) -> SweepPlan:
    """Return the cells of the sweep that ``out`` holds, with the configs recorded there.

    A ConfigError if it is of another recipe, or a config no longer fits; a RunError if there is
    none.
    """
    record = _read_record(out)
    if record["recipe"] != recipe.name:
        raise ConfigError(f"{out} holds a sweep of {record['recipe']}, not of {recipe.name}")
    check_accepted(recipe, accepted)
    coordinates = {cell["name"]: cell["coordinates"] for cell in record["cells"]}
    config_type = recipe.load_config_type()
    loaded = {c["name"]: core.load_config(config_type, c["config"]) for c in record["cells"]}
    return _make_plan(recipe, out, _read_axes(record), coordinates, loaded, accepted)


def _make_plan(
    recipe: Recipe[Any],
    out: Path,
    axes: tuple[Axis, ...],
    coordinates: Mapping[str, Mapping[str, str]],
    loaded: Mapping[str, Config],
    accepted: Sequence[str],
) -> SweepPlan:
    """Check all cells, and the folder."""
    first: dict[str, str] = {}
    problems: list[str] = []
    stopped: dict[str, list[str]] = {}
    for name, config in loaded.items():
        twin = first.setdefault(core.digest_json(core.dump_config(config)), name)
        if twin != name:  # they differ in how a value is written only
            problems.append(f"the cells {twin} and {name} have the same configuration")
        try:
            found = recipe.preview(config).problems
        except GroupwiseError as error:
            found = [str(error)]
        for problem in found:
            stopped.setdefault(problem, []).append(name)
    for problem, names in stopped.items():
        more = f" and {len(names) - 1} more cell{'s' if len(names) > 2 else ''}"
        told = f" ({names[0]}{more if len(names) > 1 else ''})"
        problems.append(problem if len(names) == len(loaded) else f"{problem}{told}")
    _refuse(problems)
    cells: list[PlannedCell] = []
    for name, config in loaded.items():
        folder = out / _CELLS / name
        steps = plan_steps(recipe, config, folder, accepted=accepted)
        check_plan(steps)
        work: dict[str, str] = {}
        for step in steps:
            uses = [work[used] for used in step.uses]
            work[step.name] = core.digest_json([step.name, step.settings, {**step.inputs}, uses])
        cells.append(PlannedCell(name, coordinates[name], folder, config, steps, work))
    plan = SweepPlan(recipe, out, axes, tuple(cells), tuple(accepted))
    _check_folder(out, plan.record)
    return plan


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        lines = "".join(f"\n  {line}" for line in problems)
        raise ConfigError(f"{len(problems)} problem(s) stop this sweep:{lines}")


def _check_folder(folder: Path, after: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else than this sweep, or a part of it."""
    if not (folder / _RECORD).is_file():
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", fix="use another --out")
        if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise ConfigError(f"{folder} has files but holds no sweep", fix="use another --out")
        return
    before = _read_record(folder)
    old, new = ({axis["key"]: axis["values"] for axis in r["axes"]} for r in (before, after))
    if before["recipe"] != after["recipe"]:
        problems = [f"its recipe is {before['recipe']}, not {after['recipe']}"]
    elif list(old) != list(new):
        problems = [f"its axes are {', '.join(old)}, not {', '.join(new)}"]
    else:
        gone = [(key, value) for key in old for value in old[key] if value not in new[key]]
        problems = [f"it has {key}={value}, which is missing now" for key, value in gone]
        configs = {cell["name"]: cell["config"] for cell in after["cells"]}
        changed: dict[str, str] = {}
        for cell in before["cells"]:
            if cell["name"] in configs:
                changed |= compare_settings(cell["config"], configs[cell["name"]])
        lines = [f"{key} was {values}" for key, values in changed.items()]
        num_more = len(lines) - _MAX_SHOWN
        problems += lines[:_MAX_SHOWN] + [f"and {num_more} more settings"] * (num_more > 0)
    if problems:
        shown = "".join(f"\n  {line}" for line in problems)
        raise ConfigError(
            f"{folder} holds another sweep:{shown}\n"
            "use another --out, or what it was started with (an axis may get more values)"
        )


def run_sweep(
    plan: SweepPlan, *, slots: Sequence[str | None] = (None,), say: Say = lambda _: None
) -> Sweep:
    """Run all cells that are not done yet; one that fails is recorded and the others go on.

    A cell runs in each of ``slots``: on the GPU of that name, or, if None, on whatever is there.
    ``say`` is told a line when something happens to a cell: how far all are, and what it is.
    Returns the sweep as it is afterwards. A RunError if another process runs this sweep; a
    ConfigError if the folder holds another one.
    """
    with core.RunFolder(plan.folder).lock():
        _check_folder(plan.folder, plan.record)
        core.write_json(plan.folder / _RECORD, plan.record)
        _run_cells(plan, slots, say)
    return read_sweep(plan.folder)


def _run_cells(plan: SweepPlan, slots: Sequence[str | None], say: Say) -> None:
    """Run cells until all are done or have failed, as many at once as there are slots."""
    waiting, free, counts = [*plan.cells], [*slots], Counter[str]()
    running: dict[str, tuple[PlannedCell, core.ChildProcess, str | None]] = {}
    took, done = list[float](), set[str]()

    def tell(cell: PlannedCell, event: str, what: str) -> None:
        counts[event] += 1
        num_done, num_open = counts["kept"] + counts["done"], len(waiting) + len(running)
        numbers = {"failed": counts["failed"], "running": len(running), "left": len(waiting)}
        parts = [f"{num_done} of {len(plan.cells)} done"]
        parts += [f"{number} {name}" for name, number in numbers.items() if number]
        if took and num_open:
            left_s = mean(took) * num_open / min(len(slots), num_open)
            parts.append(f"{core.describe_duration(left_s)} to go")
        say(f"[{', '.join(parts)}] {cell.name} {what}")

    states = {cell.name: cell.state for cell in read_sweep(plan.folder).cells}
    failures = {cell.name: plan.folder / "failed" / f"{cell.name}.txt" for cell in plan.cells}
    for cell in plan.cells:
        if _is_done(cell, plan.recipe):
            waiting.remove(cell)
            done |= {*cell.work.values()}
            failures[cell.name].unlink(missing_ok=True)
            tell(cell, "kept", "kept")
        elif states[cell.name] == "done":
            tell(cell, "damaged", "was done, but its files have changed: it is run again")
    # What was started before comes first: it can be continued.
    waiting.sort(key=lambda cell: not cell.folder.is_dir())
    try:
        while waiting or running:
            while free and waiting:
                # The one that shares least unfinished work with those that run: it need not wait,
                # nor begin anew what another one has half done.
                busy = {key for one, _, _ in running.values() for key in one.work.values()} - done
                cell = min(waiting, key=lambda one: len(busy & {*one.work.values()}))
                waiting.remove(cell)
                failures[cell.name].unlink(missing_ok=True)
                slot = free.pop(0)
                running[cell.name] = cell, _start(plan, cell, slot), slot
                tell(cell, "started", "started")
            time.sleep(_POLL_S)
            for cell, child, slot in [*running.values()]:
                if child.process.poll() is None:
                    continue
                del running[cell.name]
                free.append(slot)
                if child.process.returncode:
                    error = child.describe_failure()
                    failures[cell.name].parent.mkdir(exist_ok=True)
                    core.write_text(failures[cell.name], error)
                    tell(cell, "failed", "failed: " + error.replace("\n", "\n    "))
                else:
                    took.append(child.duration_s)
                    done |= {*cell.work.values()}
                    tell(cell, "done", f"done in {took[-1]:.1f} s")
    finally:
        core.stop_children([child for _, child, _ in running.values()])


def _is_done(cell: PlannedCell, recipe: Recipe[Any]) -> bool:
    """Return whether a cell's folder holds its whole run, digesting all of its outputs."""
    if not core.RunFolder(cell.folder).manifest_path.is_file():
        return False
    manifest = core.RunFolder(cell.folder).read_manifest()
    if manifest.get("config_digest") != core.digest_json(core.dump_config(cell.config)):
        return False
    steps, accepted = cell.steps, manifest.get("accepted_findings", ())
    if accepted:
        steps = plan_steps(recipe, cell.config, cell.folder, accepted=accepted)
    return are_done(steps, cell.folder)


def _start(plan: SweepPlan, cell: PlannedCell, slot: str | None) -> core.ChildProcess:
    """Start ``groupwise run`` for a cell; its config is written beside the cells first."""
    config = plan.folder / "configs" / f"{cell.name}.json"
    core.write_json(config, cell.config.model_dump(mode="json"))
    words = ["-m", "groupwise.cli", "run", plan.recipe.name, "--config", str(config)]
    words += ["--out", str(cell.folder), "--share-with", str(plan.folder / _CELLS)]
    words += [part for finding in plan.accepted for part in ("--accept", finding)]
    return core.start_child(
        # -P: the working folder is no place to import from, as with the installed command.
        [sys.executable, "-P", *words],
        log=plan.folder / "logs" / f"{cell.name}.log",
        title=f"{describe_now()} {' '.join(words)}",
        env={**os.environ, **({} if slot is None else {"CUDA_VISIBLE_DEVICES": slot})},
    )
