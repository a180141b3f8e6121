"""``groupwise compare``: runs side by side, with paired statistics behind a fairness gate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groupwise.cli.run import Debug
from groupwise.core import EvaluationError, read_json

if TYPE_CHECKING:
    from groupwise.evaluation.comparison import Material, Source

Metric = Annotated[str, typer.Option("--metric", metavar="SPLIT/MEASURE", help="What is compared.")]
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
            metavar="RUN[:POLICY]...", help="Two or more finished runs, or results of `evaluate`."
        ),
    ],
    *,
    metric: Metric = "test/accuracy",
    factors: Factors = None,
    language: ReportLanguage = "en",
    out: Annotated[Path | None, choose_report_folder("runs/compare-<run>-<run>")] = None,
    debug: Debug = False,
) -> None:
    """Compare finished runs: what differs, whether it is fair, and what to take.

    The last policy that all runs have is compared, unless RUN:POLICY names another.
    """
    from groupwise.evaluation.comparison import Question, read_sources

    if len(runs) < 2:
        raise EvaluationError("a comparison needs two runs", got=runs, fix="name another run")
    sources = name_sources(runs)
    split, measure = split_metric(metric)
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


def split_metric(metric: str) -> tuple[str, str]:
    """Return split and measure of ``test/accuracy``.

    Raises:
        EvaluationError: if one of them is missing.
    """
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

    if (folder / "manifest.json").is_file():
        raise EvaluationError(f"{folder} holds a run", fix="give another --out")
    comparison = build_comparison(material)
    written = write_comparison(comparison, folder, language=language)
    for line in tell_comparison(comparison, language=language):
        typer.echo(line)
    typer.echo(f"report: {written.html}")
