"""``groupwise compare``: runs, methods over seeds, sweeps, and the report of one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from groupwise.cli.options import choose_out, language, option, split_run
from groupwise.core import ConfigError, EvaluationError, RunFolder, read_json
from groupwise.run.recipe import Recipe, find_recipe

if TYPE_CHECKING:
    from groupwise.evaluation.result_table import ResultTable

Language = Literal["en", "zh"]


@click.command()
@click.argument("runs", metavar="RUN[,RUN][:POLICY]...", nargs=-1, required=True)
@option(
    "--together",
    "The runs are repetitions over seeds whose policies are compared, or the arms of a "
    "recipe's study: the same as joining them by commas.",
    is_flag=True,
)
@option(
    "--metric SPLIT/MEASURE",
    "What is compared.",
    show_default="what heads the report: test/accuracy, or test/ and the first own measure",
)
@option(
    "--factor factors KEY",
    "A setting (grpo.beta) or aspect (data, policy) that is meant to differ. Repeatable.",
    multiple=True,
)
@language
@choose_out("runs/compare-<run>-<run>, or the sweep's folder", what="Where to write it.")
def compare(
    runs: Sequence[str],
    together: bool,
    metric: str | None,
    factors: Sequence[str],
    language: Language,
    out: Path | None,
) -> None:
    """Compare finished runs: what differs, whether it is fair, and what to take.

    RUN is a finished run, a result of `evaluate`, or a method: several runs joined by commas, or a
    folder of runs with several seeds. The last policy that all runs have is compared, unless
    RUN:POLICY names another. With several runs on a side methods are compared, else these
    checkpoints.

    Of one RUN the report is written: of a run again, in --language; of a sweep, whose values on the
    first axis are compared, or those of the axes named --factor, with its seeds as repetitions; of
    several runs that differ in the seed only, and of a sweep over seeds alone, that of their
    policies. A recipe that has a report of its own for several runs, also of sweeps, writes that
    one, unless --metric or --factor is given; of one run, it does so with --out.
    """
    if together or len(runs) == 1:
        parts = [part for run in runs for part in _split_commas(run)]
        is_sweep = {part: (part / "sweep.json").is_file() for part in parts}
        targets = [x for part in parts for x in ([part] if is_sweep[part] else _list_seeds(part))]
        _report(targets, metric, list(factors), out, language)
        return
    from groupwise.evaluation.result_table import Question, Result, read_runs

    sides = [_read_side(run) for run in runs]
    names = [name for name, _, _ in sides]
    if len(set(names)) < len(names):  # What was typed tells folders of one name apart.
        names = [run.replace("/", "-") for run in runs]
    if len(set(names)) < len(names):
        what = "side" if any(len(folders) > 1 for _, folders, _ in sides) else "run"
        raise EvaluationError(f"a {what} is named twice", got=runs, fix=f"name each {what} once")
    is_one_run = len({tuple(_read_origin(x)[0] for x in folders) for _, folders, _ in sides}) == 1
    results = [
        Result(name, folder=str(folder), policy=policy or "")
        for name, (_, folders, policy) in zip(names, sides, strict=True)
        for folder in folders
    ]
    split, measure = _split_metric(metric, sides[0][1][0])
    named = (*factors, *(("policy",) if is_one_run else ()))
    question = Question(measure, split, named, title=" · ".join(names))
    folder = out or Path("runs") / "-".join(["compare", *(n.replace(":", "-") for n in names)])
    _write(read_runs(results, question), folder, language)


def _report(
    targets: list[Path],
    metric: str | None,
    factors: list[str],
    out: Path | None,
    language: Language,
) -> None:
    """Write the report of a sweep, of several runs, or of one run again."""
    target, *others = targets
    is_run, is_sweep = ((target / x).is_file() for x in ("manifest.json", "sweep.json"))
    is_study_wanted = metric is None and not factors and not (is_run and not others and out is None)
    if is_study_wanted and (study := _find_study(targets)) is not None:
        folder = out or (Path("runs") / f"study-{target.resolve().name}" if others else target)
        _check_free(folder)
        write_study(*study, folder, language)
    elif others:
        folder = out or Path("runs") / f"methods-{target.resolve().name}"
        report_seeds(targets, metric, folder, language)
    elif is_sweep:
        _report_sweep(target, metric, factors, out or target, language)
    elif is_run and out is not None:
        fix = "leave that out, or compare the run's policies: compare RUN:A RUN:B"
        raise ConfigError("a run's own report is written into the run", got="--out", fix=fix)
    elif is_run:
        from groupwise.evaluation.report.run import write_report

        html, _ = write_report(target, language=language)
        click.echo(f"report: {html}")
    else:
        what = f"there is nothing to report on at {target}"
        expected = "a run or a sweep, or two runs to compare"
        raise EvaluationError(what, expected=expected, fix="check the path")


def _report_sweep(
    folder: Path, metric: str | None, factors: list[str], out: Path, language: Language
) -> None:
    """Write and print the report of a sweep."""
    from groupwise.evaluation.result_table import Question, Result, read_runs
    from groupwise.run.sweep import read_sweep

    sweep = read_sweep(folder)
    done = [cell.folder for cell in sweep.cells if cell.state == "done"]
    keys = [axis.key for axis in sweep.axes]
    if keys == ["seed"]:
        report_seeds(done, metric, out, language)
        return
    chosen = [key for key in keys if key in factors] or [key for key in keys if key != "seed"][:1]
    rest = [axis for axis in sweep.axes if axis.key not in (*chosen, "seed")]
    results: list[Result] = []
    for cell in sweep.cells:
        values = [cell.coordinates[key] for key in chosen]
        titled = zip(chosen, values, strict=True)
        system = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in titled)
        results.append(
            Result(
                system=values[0] if len(chosen) == 1 else system,
                folder=str(cell.folder),
                cell=tuple(cell.coordinates[axis.key] for axis in rest),
                state=cell.state,
                error=cell.error,
            )
        )
    split, measure = _split_metric(metric, *done)
    question = Question(
        measure=measure,
        split=split,
        factors=tuple(dict.fromkeys((*chosen, *factors))),
        title=f"{sweep.recipe} · {folder.resolve().name}",
        system_axis=chosen[0] if len(chosen) == 1 else "",
        chosen=tuple(key for key in keys if key != "seed"),
    )
    axes = {axis.key: axis.values for axis in rest}
    _write(read_runs(results, question, axes), out, language)


def report_seeds(runs: list[Path], metric: str | None, folder: Path, language: Language) -> None:
    """Write and print the report of the policies of runs that differ in the seed only."""
    from groupwise.evaluation.result_table import Question, read_policies_of_runs

    if not runs:
        raise EvaluationError("no run is done", fix="run the sweep again")
    split, measure = _split_metric(metric, *runs)
    names = [run.resolve().name for run in runs]
    question = Question(measure, split, title=f"{names[0]} … {names[-1]}")
    _write(read_policies_of_runs(runs, question), folder, language)


def write_study(recipe: Recipe[Any], runs: list[Path], folder: Path, language: Language) -> None:
    """Write and print a recipe's own report of several runs, if it has one."""
    if recipe.report_study is not None and runs:
        for line in recipe.report_study(runs, folder, language):
            click.echo(line)


def _write(table: "ResultTable", folder: Path, language: Language) -> None:
    """Write the report; print its warnings, findings and recommendation."""
    from groupwise.evaluation.compare import compare_results
    from groupwise.evaluation.report.comparison import tell_comparison, write_comparison

    _check_free(folder)
    comparison = compare_results(table)
    html = write_comparison(comparison, folder, language=language)
    for line in tell_comparison(comparison, language=language):
        click.echo(line)
    click.echo(f"report: {html}")


def _check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, whose own files would be replaced."""
    if (folder / "manifest.json").is_file():
        raise EvaluationError(f"{folder} holds a run", fix="give another --out")


def _read_side(text: str) -> tuple[str, list[Path], str | None]:
    """Return name, runs and policy of a side: a run, runs joined by commas, or a folder of runs."""
    path, policy = split_run(text)
    parts = _split_commas(str(path))
    folders = [run for part in parts for run in _list_seeds(part)]
    ends = dict.fromkeys([parts[0].resolve().name, parts[-1].resolve().name])
    name = "…".join(ends) + (f":{policy}" if policy else "")
    return name, folders, policy or _read_origin(folders[0])[1]


def _split_commas(text: str) -> list[Path]:
    """Return folders that are joined by commas; one in the name of a folder joins none."""
    parts, waiting = list[Path](), ""
    for part in text.split(","):
        waiting = f"{waiting},{part}" if waiting else part
        if Path(waiting).is_dir():
            parts.append(Path(waiting))
            waiting = ""
    return parts + ([Path(waiting)] if waiting else [])


def _list_seeds(folder: Path) -> list[Path]:
    """Return the finished runs of a sweep over seeds, those in a folder, or the run itself."""
    from groupwise.run.sweep import read_sweep

    if (folder / "sweep.json").is_file():
        sweep = read_sweep(folder)
        keys = [axis.key for axis in sweep.axes]
        if keys != ["seed"]:
            raise EvaluationError(
                f"{folder} is no sweep over seeds alone",
                got=f"the axes {', '.join(keys)}",
                fix="name the runs of each side, joined by commas",
            )
        return [cell.folder for cell in sweep.cells if cell.state == "done"] or [folder]
    if (folder / "manifest.json").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("[!.]*/manifest.json")) or [folder]


def _read_origin(folder: Path) -> tuple[Path, str | None]:
    """Return the run of a folder; of a result of ``evaluate`` that run and its policy."""
    manifest = folder / "manifest.json"
    origin = read_json(manifest, dict).get("evaluated", {}) if manifest.is_file() else {}
    return Path(origin.get("run", folder)).resolve(), origin.get("policy")


def _split_metric(metric: str | None, *runs: Path) -> tuple[str, str]:
    """Return split and measure of ``test/accuracy``; None: what heads the report of a run."""
    from groupwise.evaluation.results import read_headline

    if metric is None:
        return "test", read_headline(runs[0]).name if runs else "accuracy"
    split, _, measure = metric.partition("/")
    if not split or not measure:
        expected = "SPLIT/MEASURE: test/accuracy"
        raise EvaluationError("--metric is not a metric", got=repr(metric), expected=expected)
    return split, measure


def _find_study(targets: list[Path]) -> tuple[Recipe[Any], list[Path]] | None:
    """Return the recipe of runs and sweeps that reports on several runs itself, and the runs."""
    from groupwise.run.sweep import read_sweep

    found: list[Path] = []
    for one in targets:
        if (one / "sweep.json").is_file():
            found += [cell.folder for cell in read_sweep(one).cells if cell.state == "done"]
        elif (one / "manifest.json").is_file():
            found.append(one)
        else:
            return None
    runs = list({run.resolve(): run for run in reversed(found)}.values())[::-1]
    if not runs:
        return None
    try:
        recipe = find_recipe(RunFolder(runs[0]).read_manifest()["recipe"], run=runs[0])
    except ConfigError:  # It is not installed here; other reports do not need it.
        return None
    return None if recipe.report_study is None else (recipe, runs)
