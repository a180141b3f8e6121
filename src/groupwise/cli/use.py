"""What a finished run is used for: ``groupwise predict``, ``evaluate``, ``export``, ``serve``."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from groupwise.cli import options
from groupwise.cli.options import PATH, option, print_drops, say, split_run
from groupwise.core import ConfigError, ProgressLine, load_config

if TYPE_CHECKING:
    from groupwise.run.predict import FinishedRun

_ROWS_AT_ONCE = 8
_MAX_SHOWN = 10


@click.command()
@click.argument("run", metavar="RUN[:POLICY]")
@click.argument("rows", metavar="FILE|FOLDER", type=PATH)
@option("--out FILE", "JSONL of answers.", type=PATH, required=True)
@options.allow_judge
def predict(run: str, rows: Path, out: Path) -> None:
    """Answer every row of a file or folder. Running it again continues: answers are kept.

    POLICY is one of the run's: grpo, sft, prompt, … The rows have the columns of the recipe's data,
    or are its folder. Exits with 1 if there is no answer at all.
    """
    from groupwise.run.predict import open_run, predict_rows

    folder, policy = split_run(run)
    shown = ProgressLine("rows", say)
    how: Any = {"out": out, "policy": policy, "batch_size": _ROWS_AT_ONCE, "report_progress": shown}
    summary = predict_rows(open_run(folder), rows, **how)
    answers, people = summary.answers, summary.for_people
    kept = f" ({summary.num_kept} from before)" if summary.num_kept else ""
    counts = ", ".join(f"{name} {count}" for name, count in sorted(answers.items()))
    if len(answers) > _MAX_SHOWN:
        counts = f"{sum(answers.values())} answered"
    click.echo(f"{summary.num_rows} rows{kept}: {counts or 'no answer at all'}")
    if summary.num_again:
        say(f"{summary.num_again} not asked: the same command tries them again")
    reasons = sorted(summary.failures.items(), key=lambda pair: -pair[1])
    for reason, count in reasons[:_MAX_SHOWN]:
        say(f"no answer: {count} {reason}")
    if people:
        more = ", …" if len(people) > _MAX_SHOWN else ""
        click.echo(f"{len(people)} for a person: {', '.join(people[:_MAX_SHOWN])}{more}")
    print_drops(summary.drops)
    click.echo(f"answers: {out}")
    if not answers:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("run", metavar="RUN[:POLICY]")
@click.argument("data", metavar="FILE|FOLDER", type=PATH)
@option("--out DIR", "A new folder.", type=PATH, required=True)
@options.allow_judge
def evaluate(run: str, data: Path, out: Path) -> None:
    """Measure a finished policy on other labelled data, as its run measured it.

    POLICY is one of the run's: sft, prompt, grpo/checkpoint-40, … The data has labelled rows as the
    recipe's data has them. The folder has scored items, a report, and what of the data training has
    seen; `compare` takes it beside runs and other such folders. Running it again continues.
    """
    from groupwise.cli.run import print_headline
    from groupwise.run.evaluating import evaluate_on
    from groupwise.run.predict import open_run

    folder, policy = split_run(run)
    found = evaluate_on(open_run(folder), data, out=out, policy=policy, say=say)
    click.echo(f"{found.num_rows:,} rows, {found.num_rows - found.drops.total:,} asked")
    print_drops(found.drops)
    for finding in (*found.audit.errors, *found.audit.warnings):
        say(f"{finding.level}: {finding.message}")
    if found.num_seen:
        click.echo(f"seen in training: {found.num_seen:,} rows; the report has both numbers")
    print_headline(out)
    click.echo(f"report: {out / 'report.html'}")


@click.command()
@click.argument("run", metavar="RUN[:POLICY]")
@option(
    "--format file_format",
    "model: adapter, merged weights and model card; chat: prompts of --rows; verl, swift: a "
    "folder for a training with it.",
    type=click.Choice(["model", "chat", "verl", "swift"]),
    default="model",
)
@option("--rows FILE|FOLDER", "For chat: rows as `predict` takes them.", type=PATH)
@option("--out FILE_OR_DIR", "A file for chat, else a new folder.", type=PATH)
@option(
    "--push OWNER/NAME",
    "Upload a model to this repository of the hub instead: weights and card, no row of the "
    "data. The hub is that of HF_ENDPOINT, the token that of HF_TOKEN.",
)
@option("--private", "With --push, if the repository is new.", is_flag=True)
@option("--dry-run", "With --push: say what would go up; upload nothing.", is_flag=True)
def export(
    run: str,
    file_format: str,
    rows: Path | None,
    out: Path | None,
    push: str | None,
    private: bool,
    dry_run: bool,
) -> None:
    """Write the model of a run for others, or what other tools need to train on its rows.

    POLICY is one of the run's, such as sft or grpo/checkpoint-40; without it, that which the report
    is about. With --format chat: the prompts of new rows, as messages that any chat API takes. With
    --format verl or swift: the rows and rewards of GRPO, and a script that trains on them there.
    """
    from groupwise.run.predict import open_run

    folder, policy = split_run(run)
    if (file_format == "chat") != (rows is not None):
        raise ConfigError("--format chat and --rows go together")
    if (push is None) == (out is None) or (push is not None and file_format != "model"):
        raise ConfigError("give either --out, or --push for a model")
    if policy is not None and file_format in ("verl", "swift"):
        raise ConfigError(f"--format {file_format} takes a run", got=f"its policy {policy}")
    opened = open_run(folder)
    if push is not None:
        _push(opened, policy, push, is_private=private, is_dry=dry_run)
        return
    assert out is not None
    if rows is not None:
        from groupwise.run.predict import write_prompts

        click.echo(f"{write_prompts(opened, rows, out=out, policy=policy)} prompts")
        click.echo(f"written: {out}")
        return
    from groupwise.run.export import export_for_trainer, export_run

    if file_format == "model":
        exported = export_run(opened, out, policy=policy)
        if exported.adapter is not None:
            click.echo(f"adapter: {exported.adapter} (base: {exported.base})")
        click.echo(
            f"merged: {exported.merged} ({exported.dtype}, as the base), log-probabilities within "
            f"{exported.max_difference:.1g} of the policy's; rounding alone gives "
            f"{exported.noise:.1g}"
        )
        if exported.quantization is not None:
            stands = "merged has what these bits stand for"
            click.echo(f"its base is in {exported.quantization}: {stands}")
        click.echo("\n".join([f"card: {out / 'README.md'}", *exported.list_commands()]))
        return
    trainer: Any = file_format
    done = export_for_trainer(opened, out, trainer)
    click.echo(", ".join(f"{count} rows of {name}" for name, count in done.num_rows.items()))
    for reason, count in done.drops.counts.items():
        click.echo(f"left out: {count} ({reason})")
    for path in done.files:
        click.echo(f"written: {path}")
    if opened.config.sft is not None:
        click.echo(f"start: groupwise export {opened.folder}:sft --out {out / 'model'}")


def _push(
    run: "FinishedRun", policy: str | None, name: str, *, is_private: bool, is_dry: bool
) -> None:
    from groupwise.run.export import check_pushable, export_run, list_uploads, upload

    check_pushable(run, policy)
    with TemporaryDirectory() as folder:
        export_run(run, Path(folder) / "model", policy=policy)
        files = list_uploads(Path(folder) / "model")
        for place, path in files.items():
            click.echo(f"{path.stat().st_size:>13,} bytes  {place}")
        if is_dry:
            click.echo("nothing was uploaded")
            return
        click.echo(f"uploaded: {upload(files, name, is_private=is_private)}")


@click.command()
@click.argument("run", metavar="RUN[:POLICY]|LOOP")
@options.settings
@options.dry_run
@options.allow_judge
def serve(run: str, settings: Sequence[str], dry_run: bool) -> None:
    """Serve a finished run: POST /v1/predict, /healthz, /readyz, /metrics, /docs.

    A folder with served.json (a loop) serves what that names, and POST /v1/reload looks there
    again. With --set feedback.folder=DIR answers are kept there, POST /v1/feedback takes what
    people say of them, and the page /review asks them. Settings are given with --set, such as
    --set port=9000 or --set max_waiting=32. If the variable GROUPWISE_TOKEN is set, askers must
    send it as a bearer token.
    """
    try:
        from groupwise.serving.server import serve as serve_source
    except ImportError as error:
        fix = "pip install 'groupwise[serve]'"
        raise ConfigError(f"serving needs {error.name}", fix=fix) from error
    from groupwise.run.predict import find_source, open_judge
    from groupwise.serving import ServeSettings
    from groupwise.serving.bench import Screens

    token = os.environ.get(options.TOKEN_VARIABLE)
    given = {} if token is None else {"token": token}
    folder, policy = split_run(run)
    resolved = load_config(ServeSettings, given, overrides=list(settings))
    source = find_source(folder, policy)
    uploads, own, served = folder / "serving", resolved.screens, source.run.recipe.name
    screens = None
    if source.run.task.has_screens:
        is_asked = own.ask_judge_below > 0
        judge = open_judge(source.run, own.judge, folder=uploads) if is_asked else None
        screens = Screens(judge=judge)
    elif own.judge is not None:
        raise ConfigError(f"screens.judge is set, but {served} has no screens to label")
    if dry_run:
        source.open()
    guarded = "with a token" if resolved.token else "without a token"
    click.echo(f"{served} of {run} on http://{resolved.host}:{resolved.port}, {guarded}")
    if dry_run:
        click.echo("ready: nothing was served")
        return
    desk = None
    if resolved.feedback is not None:
        from groupwise.cli.loop import make_store, read_person_key
        from groupwise.learning.loop import find_loop
        from groupwise.serving.feedback import Desk
        from groupwise.serving.settings import AskedSettings

        kept = resolved.feedback
        if (loop := find_loop(folder)) is not None:  # people are asked about what tests it
            share, num = loop.settings.test_share, loop.settings.asked_per_session
            asked = AskedSettings(seed=loop.settings.seed, test_share=share, per_session=num)
            review = kept.review.model_copy(update={"asked": asked})
            kept = kept.model_copy(update={"review": review})
            resolved = resolved.model_copy(update={"feedback": kept})
        key = read_person_key()
        desk = Desk(make_store(kept.folder, kept.url, max_items=kept.max_items), key=key)
    serve_source(source, resolved, folder=uploads, desk=desk, screens=screens)
    click.echo("stopped")
