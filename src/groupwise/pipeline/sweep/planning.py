"""From a grid to cells that can be run: every config is loaded and checked before anything is done.

Writes nothing. All problems of all cells are reported at once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core import (
    Config,
    ConfigError,
    GroupwiseError,
    RunFolder,
    describe_unknown,
    digest_json,
    dump_config,
    load_config,
)
from groupwise.pipeline.recipe import Recipe
from groupwise.pipeline.reward_audit import check_accepted, plan_steps
from groupwise.pipeline.runner import are_done
from groupwise.pipeline.steps import Step, check_plan
from groupwise.pipeline.sweep.grid import (
    Axis,
    list_coordinates,
    name_cell,
    parse_axes,
    parse_coordinates,
)
from groupwise.pipeline.sweep.record import CELLS, check_folder, make_record, read_record


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell that can be run.

    Attributes:
        name: of its folder.
        coordinates: the text of its value on each axis.
        folder: its run folder, which may not exist yet.
        config: resolved.
        steps: what a run of it does.
        work: of each step, a digest of all that is known to decide its outputs beforehand; the
            same in two cells if one can take it over from the other.
    """

    name: str
    coordinates: Mapping[str, str]
    folder: Path
    config: Config
    steps: Sequence[Step] = field(repr=False)
    work: Mapping[str, str] = field(repr=False)

    def is_done(self, recipe: Recipe[Any]) -> bool:
        """Return whether its folder holds the whole run, digesting all of its outputs."""
        if not RunFolder(self.folder).manifest_path.is_file():
            return False
        manifest = RunFolder(self.folder).read_manifest()
        if manifest.get("config_digest") != digest_json(dump_config(self.config)):
            return False
        accepted = manifest.get("accepted_findings", ())
        steps = self.steps
        if accepted:
            steps = plan_steps(recipe, self.config, self.folder, accepted=accepted)
        return are_done(steps, self.folder)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A grid whose cells can all be run.

    Attributes:
        recipe: what every cell runs.
        folder: of the sweep.
        axes: what varies, in the order it was given.
        cells: all of them; the last axis varies fastest.
        accepted: findings of the reward audit that every cell goes on with.
    """

    recipe: Recipe[Any]
    folder: Path
    axes: tuple[Axis, ...]
    cells: tuple[PlannedCell, ...]
    accepted: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """What ``sweep.json`` says."""
        cells = {
            cell.name: {
                "coordinates": dict(cell.coordinates),
                "config": dump_config(cell.config),
            }
            for cell in self.cells
        }
        return make_record(self.recipe.name, self.axes, cells)

    def find_cell(self, name: str) -> PlannedCell:
        """Return a cell by its name, or by coordinates in any order and spelling.

        Raises:
            ConfigError: with the nearest name, if there is none.
        """
        typed = parse_coordinates(name)
        for cell in self.cells:
            if name == cell.name or typed == cell.coordinates:
                return cell
        raise ConfigError(describe_unknown("cell", name, [cell.name for cell in self.cells]))

    def count_work(self) -> dict[str, int]:
        """Return how many different pieces of work each step has over all cells."""
        pairs = {pair for cell in self.cells for pair in cell.work.items()}
        counts = Counter(step for step, _ in pairs)
        return {step.name: counts[step.name] for cell in self.cells for step in cell.steps}


def plan_sweep(
    recipe: Recipe[Any],
    config: Path,
    grids: Sequence[str],
    *,
    out: Path,
    settings: Sequence[str] = (),
    accepted: Sequence[str] = (),
) -> SweepPlan:
    """Return the cells of a grid, ready to run.

    Args:
        recipe: what every cell runs.
        config: the YAML file that all cells start from.
        grids: ``key=value,value`` texts, one per axis.
        out: folder of the sweep; if it holds one already, that one goes on or grows.
        settings: ``key=value`` texts that hold for all cells.
        accepted: findings of the reward audit to go on with.

    Raises:
        ConfigError: with every problem of the grid, of any cell, and of ``out``.
    """
    axes, problems = parse_axes(grids, settings=settings)
    _note(problems, lambda: check_accepted(recipe, accepted))
    coordinates = {name_cell(place): place for place in list_coordinates(axes)}
    loaded = _load_cells(recipe, config, settings, coordinates, problems)
    if problems:
        raise _refuse(problems)
    return _make_plan(recipe, out, axes, (coordinates, loaded), accepted)


def plan_recorded(recipe: Recipe[Any], out: Path, *, accepted: Sequence[str] = ()) -> SweepPlan:
    """Return the cells of the sweep that ``out`` holds, with the configs recorded there.

    Raises:
        ConfigError: if it is of another recipe, or a config no longer fits.
        RunError: if there is no sweep.
    """
    record = read_record(out)
    if record["recipe"] != recipe.name:
        raise ConfigError(f"{out} holds a sweep of {record['recipe']}, not of {recipe.name}")
    check_accepted(recipe, accepted)
    axes = tuple(Axis(axis["key"], tuple(axis["values"])) for axis in record["axes"])
    coordinates = {cell["name"]: cell["coordinates"] for cell in record["cells"]}
    config_type = recipe.load_config_type()
    loaded = {c["name"]: load_config(config_type, c["config"]) for c in record["cells"]}
    return _make_plan(recipe, out, axes, (coordinates, loaded), accepted)


def _load_cells(
    recipe: Recipe[Any],
    config: Path,
    settings: Sequence[str],
    coordinates: Mapping[str, Mapping[str, str]],
    problems: list[str],
) -> dict[str, Config]:
    """Load the config of every cell; a problem that many of them have is noted once."""
    config_type = recipe.load_config_type()
    loaded: dict[str, Config] = {}
    for name, place in coordinates.items():
        overrides = [*settings, *(f"{key}={text}" for key, text in place.items())]
        try:
            loaded[name] = load_config(config_type, config, overrides=overrides)
        except ConfigError as error:
            first, *lines = str(error).split("\n")
            found = [line.strip() for line in lines] or [_name_option(first, place)]
            problems += [line for line in found if line not in problems]
    return loaded


def _name_option(message: str, place: Mapping[str, str]) -> str:
    is_axis = any(f"--set {key}" in message for key in place)
    return message.replace("--set", "--grid", 1) if is_axis else message


def _make_plan(
    recipe: Recipe[Any],
    out: Path,
    axes: tuple[Axis, ...],
    cells: tuple[Mapping[str, Mapping[str, str]], Mapping[str, Config]],
    accepted: Sequence[str],
) -> SweepPlan:
    coordinates, loaded = cells
    problems = [*_list_twins(loaded), *_list_previews(recipe, loaded)]
    if problems:
        raise _refuse(problems)
    planned: list[PlannedCell] = []
    for name, config in loaded.items():
        folder = out / CELLS / name
        steps = plan_steps(recipe, config, folder, accepted=accepted)
        check_plan(steps)
        work = _digest_work(steps)
        planned.append(PlannedCell(name, coordinates[name], folder, config, steps, work))
    plan = SweepPlan(recipe, out, axes, tuple(planned), tuple(accepted))
    check_folder(out, plan.record)
    return plan


def _list_twins(loaded: Mapping[str, Config]) -> list[str]:
    """Name cells that differ in how a value is written only."""
    first: dict[str, str] = {}
    problems: list[str] = []
    for name, config in loaded.items():
        twin = first.setdefault(digest_json(dump_config(config)), name)
        if twin != name:
            problems.append(f"the cells {twin} and {name} have the same configuration")
    return problems


def _list_previews(recipe: Recipe[Any], loaded: Mapping[str, Config]) -> list[str]:
    """Return what would stop a cell, each once, with how many cells it stops."""
    found: dict[str, list[str]] = {}
    for name, config in loaded.items():
        try:
            problems = recipe.preview(config).problems
        except GroupwiseError as error:
            problems = [str(error)]
        for problem in problems:
            found.setdefault(problem, []).append(name)
    return [
        problem if len(names) == len(loaded) else f"{problem} ({_describe_cells(names)})"
        for problem, names in found.items()
    ]


def _describe_cells(names: Sequence[str]) -> str:
    more = f"{len(names) - 1} more cell" + ("s" if len(names) > 2 else "")
    return names[0] if len(names) == 1 else f"{names[0]} and {more}"


def _digest_work(steps: Sequence[Step]) -> dict[str, str]:
    work: dict[str, str] = {}
    for step in steps:
        uses = {name: work[name] for name in step.uses}
        work[step.name] = digest_json(
            {
                "name": step.name,
                "settings": step.settings,
                "inputs": dict(step.inputs),
                "uses": uses,
            }
        )
    return work


def _note(problems: list[str], check: Any) -> None:
    try:
        check()
    except GroupwiseError as error:
        problems.append(str(error))


def _refuse(problems: Sequence[str]) -> ConfigError:
    lines = "".join(f"\n  {line}" for line in problems)
    return ConfigError(f"{len(problems)} problem(s) stop this sweep:{lines}")
