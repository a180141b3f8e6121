"""``groupwise compare``: runs or methods side by side, with statistics behind a fairness gate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groupwise.cli.run import Debug
from groupwise.core import EvaluationError, read_json

if TYPE_CHECKING:
    from groupwise.evaluation.comparison import Material, Source
    from groupwise.evaluation.seeds import MethodMaterial, Side

Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="SPLIT/MEASURE",
        help="What is compared.",
        show_default="what heads the report: test/accuracy, or test/ and the first own measure",
    ),
]
Factors = Annotated[
    list[str] | None,
    typer.Option(
        "--factor",
        metavar="KEY",
        help="A setting (grpo.beta) or aspect (data, policy) that is meant to differ. Repeatable.",
    ),
]
ReportLanguage = Annotated[
    Literal["en", "zh"], typer.Option("--language", help="Language of the report.")
]


def choose_report_folder(default: str) -> Any:
    """Return the option for where a report goes; ``default`` says where without it."""
    return typer.Option("--out", metavar="DIR", help="Where to write it.", show_default=default)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN[,RUN][:POLICY]...",
            help="Two or more finished runs, results of `evaluate`, or methods: the runs of each "
            "joined by commas, or a folder of runs with several seeds.",
        ),
    ],
    *,
    metric: Metric = None,
    factors: Factors = None,
    language: ReportLanguage = "en",
    out: Annotated[Path | None, choose_report_folder("runs/compare-<run>-<run>")] = None,
    debug: Debug = False,
) -> None:
    """Compare finished runs: what differs, whether it is fair, and what to take.

    The last policy that all runs have is compared, unless RUN:POLICY names another. With several
    runs on a side methods are compared, else these checkpoints.
    """
    from groupwise.evaluation.comparison import Question, read_sources

    if len(runs) < 2:
        raise EvaluationError("a comparison needs two runs", got=runs, fix="name another run")
    sides = [read_side(run) for run in runs]
    if len({side.name for side in sides}) < len(sides):
        sides = [read_side(run, is_whole=True) for run in runs]
    if any(len(side.folders) > 1 for side in sides):
        compare_sides(sides, metric, factors or [], out=out, language=language)
        return
    sources = name_sources(runs)
    split, measure = split_metric(metric, sources[0].folder)
    is_one_run = len({read_origin(source.folder)[0] for source in sources}) == 1
    policy = ("policy",) if is_one_run else ()
    names = [source.system for source in sources]
    question = Question(
        measure=measure,
        split=split,
        factors=(*(factors or ()), *policy),
        title=" · ".join(names),
    )
    folder = out or Path("runs") / "-".join(
        ["compare", *(name.replace(":", "-") for name in names)]
    )
    write_and_print(read_sources(sources, (), question), folder, language)


def compare_sides(
    sides: list["Side"],
    metric: str | None,
    factors: list[str],
    *,
    chosen: tuple[str, ...] = (),
    out: Path | None,
    language: Literal["en", "zh"],
) -> None:
    """Write and print the report of methods; ``chosen`` are settings that a sweep chooses.

    Raises:
        EvaluationError: if two sides have one name, or as ``read_sides``.
    """
    from groupwise.evaluation.comparison import Question
    from groupwise.evaluation.seeds import read_sides

    names = [side.name for side in sides]
    if len(set(names)) < len(names):
        raise EvaluationError("a side is named twice", got=names, fix="name each side once")
    split, measure = split_metric(metric, *sides[0].folders[:1])
    is_one_method = len({side.folders for side in sides}) == 1
    policy = ("policy",) if is_one_method else ()
    title = " · ".join(names)
    question = Question(measure, split, (*factors, *policy), title, chosen=chosen)
    folder = out or Path("runs") / "-".join(["compare", *(n.replace(":", "-") for n in names)])
    write_and_print_methods(read_sides(sides, question), folder, language)


def read_side(text: str, *, is_whole: bool = False) -> "Side":
    """Return the runs that one side names: a run, runs joined by commas, or a folder of runs.

    It is called by its first and last folder, whose whole path tells sides of like folders apart.

    Raises:
        EvaluationError: if a sweep has another axis than the seed.
    """
    from groupwise.evaluation.seeds import Side

    path, policy = split_run(text)
    parts = [Path(part) for part in split_joined(str(path))]
    folders = tuple(run for part in parts for run in list_runs(part))
    named = policy or (read_origin(folders[0])[1] if folders else None)
    first = "-".join(parts[0].parts) if is_whole else parts[0].resolve().name
    name = first if len(parts) == 1 else f"{first}…{parts[-1].resolve().name}"
    return Side(f"{name}:{policy}" if policy else name, folders, named)


def split_joined(text: str) -> list[str]:
    """Return the parts of a text joined by commas; a comma in the name of a folder joins none."""
    found, waiting = list[str](), ""
    for part in text.split(","):
        waiting = f"{waiting},{part}" if waiting else part
        if Path(waiting).is_dir():
            found.append(waiting)
            waiting = ""
    return [*found, *([waiting] if waiting else [])]


def list_runs(folder: Path) -> list[Path]:
    """Return the finished runs of a sweep over seeds, those in a folder, or the run itself.

    Raises:
        EvaluationError: if a sweep has another axis than the seed.
    """
    from groupwise.pipeline.sweep import read_sweep

    if (folder / "sweep.json").is_file():
        sweep = read_sweep(folder)
        others = [axis.key for axis in sweep.axes if axis.key != "seed"]
        if others:
            raise EvaluationError(
                f"{folder} is no sweep over seeds alone",
                got=f"the axes {', '.join(axis.key for axis in sweep.axes)}",
                fix="name the runs of each side, joined by commas",
            )
        return [cell.folder for cell in sweep.cells if cell.state == "done"] or [folder]
    if (folder / "manifest.json").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("[!.]*/manifest.json")) or [folder]


def write_and_print_methods(
    material: "MethodMaterial", folder: Path, language: Literal["en", "zh"]
) -> None:
    """Build and write the report of methods; print its warnings and findings.

    Raises:
        EvaluationError: if the folder holds a run, or as ``build_methods``.
    """
    from groupwise.evaluation.report.phrases import unmark_code
    from groupwise.evaluation.seeds import build_methods, tell_methods, write_methods

    check_free(folder)
    report = build_methods(material)
    html = write_methods(report, folder, language=language)
    for line in tell_methods(report, language=language):
        typer.echo(unmark_code(line))
    typer.echo(f"report: {html}")


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, whose own files would be replaced."""
    if (folder / "manifest.json").is_file():
        raise EvaluationError(f"{folder} holds a run", fix="give another --out")


def name_sources(runs: list[str]) -> list["Source"]:
    """Return the runs as systems, called by their folder, or as typed where that is not enough.

    Raises:
        EvaluationError: if a run is named twice.
    """
    from groupwise.evaluation.comparison import Source

    parsed = [split_run(run) for run in runs]
    short = [
        f"{path.resolve().name}:{policy}" if policy else path.resolve().name
        for path, policy in parsed
    ]
    names = short if len(set(short)) == len(short) else runs
    if len(set(names)) < len(names):
        raise EvaluationError("a run is named twice", got=runs, fix="name each run once")
    return [
        Source(name.replace("/", "-"), (), path, policy or read_origin(path)[1])
        for name, (path, policy) in zip(names, parsed, strict=True)
    ]


def read_origin(folder: Path) -> tuple[Path, str | None]:
    """Return the run of a folder and the policy it is about, where it is about one.

    A result of ``evaluate`` is about one policy of another folder.
    """
    manifest = folder / "manifest.json"
    origin = read_json(manifest, dict).get("evaluated", {}) if manifest.is_file() else {}
    return Path(origin.get("run", folder)).resolve(), origin.get("policy")


def split_run(run: str) -> tuple[Path, str | None]:
    """Return folder and policy of ``RUN`` or ``RUN:POLICY``."""
    folder, _, policy = run.rpartition(":")
    if not folder or Path(run).is_dir():
        return Path(run), None
    return Path(folder), policy


def split_metric(metric: str | None, *runs: Path) -> tuple[str, str]:
    """Return split and measure of ``test/accuracy``; None: what heads the report of a run.

    Raises:
        EvaluationError: if one of them is missing.
    """
    if metric is None:
        from groupwise.evaluation import read_headline

        return "test", read_headline(runs[0]).name if runs else "accuracy"
    split, _, measure = metric.partition("/")
    if not split or not measure:
        raise EvaluationError(
            "--metric is not a metric", got=repr(metric), expected="SPLIT/MEASURE: test/accuracy"
        )
    return split, measure


def write_and_print(material: "Material", folder: Path, language: Literal["en", "zh"]) -> None:
    """Build and write the report; print its warnings, findings and recommendation.

    Raises:
        EvaluationError: if the folder holds a run, whose own report would be replaced.
    """
    from groupwise.evaluation.comparison import build_comparison, tell_comparison, write_comparison
    from groupwise.evaluation.report.phrases import unmark_code

    check_free(folder)
    comparison = build_comparison(material)
    written = write_comparison(comparison, folder, language=language)
    for line in tell_comparison(comparison, language=language):
        typer.echo(unmark_code(line))
    typer.echo(f"report: {written.html}")
