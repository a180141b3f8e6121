"""``groupwise report``: of a sweep, a file of cells, runs with several seeds, or one run again."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groupwise.cli.compare import (
    Factors,
    Metric,
    ReportLanguage,
    check_free,
    choose_report_folder,
    compare_sides,
    split_metric,
    write_and_print,
    write_and_print_methods,
)
from groupwise.cli.run import Debug
from groupwise.core import ConfigError, EvaluationError, RunFolder
from groupwise.pipeline import Recipe, find_recipe

if TYPE_CHECKING:
    from groupwise.evaluation.comparison import Material
    from groupwise.pipeline.sweep import Sweep


def report(
    targets: Annotated[
        list[Path],
        typer.Argument(
            metavar="SWEEP_DIR|CELLS.json|RUN...",
            help="What to report on: several runs are of one recipe and differ in the seed only.",
        ),
    ],
    *,
    metric: Metric = None,
    factors: Factors = None,
    language: ReportLanguage = "en",
    out: Annotated[
        Path | None, choose_report_folder("the sweep's folder, or the file's name")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the report of a sweep, of cells without items, of several seeds, or of one run again.

    The values of the first axis of a sweep are compared, or those of the axes named --factor. Of a
    sweep over seeds alone, and of several runs, the policies are compared as methods. A recipe that
    has a report of its own for several runs, also of sweeps, writes that one, unless --metric or
    --factor is given; of one run, it does so with --out.
    """
    target = targets[0]
    is_alone = (target / "manifest.json").is_file() and not targets[1:]
    is_study_wanted = metric is None and not factors and not (is_alone and out is None)
    if is_study_wanted and (study := find_study(targets)) is not None:
        folder = out or (Path("runs") / f"study-{target.resolve().name}" if targets[1:] else target)
        check_free(folder)
        write_study(*study, folder, language)
    elif len(targets) > 1:
        folder = out or Path("runs") / f"methods-{target.resolve().name}"
        report_seeds(targets, metric, folder, language)
    elif (target / "sweep.json").is_file() and (runs := list_repetitions(target)):
        report_seeds(runs, metric, out or target, language)
    elif (target / "sweep.json").is_file():
        write_and_print(read_grid(target, metric, factors or []), out or target, language)
        report_sides(target, metric, factors or [], out or target, language)
    elif target.is_file():
        from groupwise.evaluation.comparison import read_cells_file

        folder = out or target.with_suffix("")
        write_and_print(read_cells_file(target), folder, language)
    elif (target / "manifest.json").is_file():
        from groupwise.evaluation import write_report

        if out is not None:
            raise ConfigError(
                "a run's own report is written into the run",
                got="--out",
                fix="leave that out, or compare the run's policies: compare RUN:A RUN:B",
            )
        html, _ = write_report(target, language=language)
        typer.echo(f"report: {html}")
    else:
        raise EvaluationError(
            f"there is nothing to report on at {target}",
            expected="a sweep, a run or a file of cells",
            fix="check the path",
        )


def find_study(targets: list[Path]) -> tuple[Recipe[Any], list[Path]] | None:
    """Return the recipe of runs and sweeps that reports on several runs itself, and the runs.

    Raises:
        RunError: if a sweep cannot be read.
    """
    files = ("sweep.json", "manifest.json")
    is_known = all(any((one / name).is_file() for name in files) for one in targets)
    found = [run for one in targets for run in list_runs(one)]
    runs = list({run.resolve(): run for run in reversed(found)}.values())[::-1]
    if not (is_known and runs):
        return None
    try:
        recipe = find_recipe(RunFolder(runs[0]).read_manifest()["recipe"], run=runs[0])
    except ConfigError:  # It is not installed here; other reports do not need it.
        return None
    return None if recipe.report_study is None else (recipe, runs)


def list_runs(target: Path) -> list[Path]:
    """Return the done runs of a sweep, or a run itself; none of anything else.

    Raises:
        RunError: if a sweep cannot be read.
    """
    from groupwise.pipeline.sweep import read_sweep

    if (target / "sweep.json").is_file():
        return [cell.folder for cell in read_sweep(target).cells if cell.state == "done"]
    return [target] if (target / "manifest.json").is_file() else []


def write_study(
    recipe: Recipe[Any], runs: list[Path], folder: Path, language: Literal["en", "zh"]
) -> None:
    """Write and print a recipe's own report of several runs, if it has one.

    Raises:
        GroupwiseError: if they cannot be compared.
    """
    if recipe.report_study is not None and runs:
        for line in recipe.report_study(runs, folder, language):
            typer.echo(line)


def list_repetitions(folder: Path) -> list[Path]:
    """Return the done cells of a sweep whose only axis is the seed; none of any other.

    Raises:
        RunError: if the sweep cannot be read.
    """
    from groupwise.pipeline.sweep import read_sweep

    sweep = read_sweep(folder)
    is_seeds = [axis.key for axis in sweep.axes] == ["seed"]
    return [cell.folder for cell in sweep.cells if cell.state == "done"] if is_seeds else []


def report_sides(
    folder: Path, metric: str | None, factors: list[str], out: Path, language: Literal["en", "zh"]
) -> None:
    """Write and print the report of a sweep's compared values as methods over its seeds.

    Nothing is written unless the seed is the sweep's other axis and two values have runs.

    Raises:
        EvaluationError: as ``read_sides``.
    """
    from groupwise.evaluation.seeds import Side
    from groupwise.pipeline.sweep import read_sweep

    sweep = read_sweep(folder)
    chosen = choose_axes(sweep, factors)
    found: dict[str, list[Path]] = {}
    for cell in sweep.cells:
        if cell.state == "done":
            name = name_systems(sweep, chosen)[tuple(cell.coordinates[key] for key in chosen)]
            axis = f"{chosen[0].rpartition('.')[2]} " if len(chosen) == 1 else ""
            found.setdefault(f"{axis}{name}", []).append(cell.folder)
    if [axis.key for axis in sweep.axes if axis.key not in chosen] == ["seed"] and len(found) > 1:
        sides = [Side(name, tuple(runs)) for name, runs in found.items()]
        named = [*chosen, *factors]
        keys = tuple(axis.key for axis in sweep.axes if axis.key != "seed")
        compare_sides(sides, metric, named, chosen=keys, out=out, language=language)


def choose_axes(sweep: "Sweep", factors: list[str]) -> list[str]:
    """Return the axes whose values are compared: those that are named, or the first."""
    return [axis.key for axis in sweep.axes if axis.key in factors] or [sweep.axes[0].key]


def report_seeds(
    runs: list[Path], metric: str | None, folder: Path, language: Literal["en", "zh"]
) -> None:
    """Write and print the report of the policies of runs that differ in the seed only.

    Raises:
        EvaluationError: as ``read_repetitions``.
    """
    from groupwise.evaluation.comparison import Question
    from groupwise.evaluation.seeds import read_repetitions

    if not runs:
        raise EvaluationError("no run is done", fix="run the sweep again")
    split, measure = split_metric(metric, *runs)
    names = [run.resolve().name for run in runs]
    question = Question(measure, split, title=f"{names[0]} … {names[-1]}")
    write_and_print_methods(read_repetitions(runs, question), folder, language)


def read_grid(folder: Path, metric: str | None, factors: list[str]) -> "Material":
    """Read a sweep as systems and cells.

    Raises:
        RunError: if the sweep cannot be read.
        EvaluationError: as ``read_sources``.
    """
    from groupwise.evaluation.comparison import GridAxis, Question, Source, read_sources
    from groupwise.pipeline.sweep import read_sweep

    sweep = read_sweep(folder)
    chosen = choose_axes(sweep, factors)
    rest = [axis for axis in sweep.axes if axis.key not in chosen]
    names = name_systems(sweep, chosen)
    sources = [
        Source(
            system=names[tuple(cell.coordinates[key] for key in chosen)],
            coordinates=tuple(cell.coordinates[axis.key] for axis in rest),
            folder=cell.folder,
            state=cell.state,
            error=cell.error,
        )
        for cell in sweep.cells
    ]
    done = [one.folder for one in sources if one.state == "done"]
    split, measure = split_metric(metric, *done)
    question = Question(
        measure=measure,
        split=split,
        factors=tuple(dict.fromkeys((*chosen, *factors))),
        title=f"{sweep.recipe} · {folder.resolve().name}",
        system_axis=chosen[0] if len(chosen) == 1 else "",
        chosen=tuple(axis.key for axis in sweep.axes if axis.key != "seed"),
    )
    return read_sources(sources, [GridAxis(axis.key, axis.values) for axis in rest], question)


def name_systems(sweep: "Sweep", chosen: list[str]) -> dict[tuple[str, ...], str]:
    """Return the name of each combination of values of the chosen axes."""
    axes = [axis for axis in sweep.axes if axis.key in chosen]
    if len(axes) == 1:
        return {(value,): value for value in axes[0].values}
    titles = [axis.key.rpartition(".")[2] for axis in axes]
    return {
        values: ", ".join(f"{title} {value}" for title, value in zip(titles, values, strict=True))
        for values in product(*(axis.values for axis in axes))
    }
