"""What people say of served answers: ``groupwise feedback``, and ``learn`` from it."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from groupwise.cli import options
from groupwise.cli.options import PATH, option
from groupwise.core import ConfigError, DataError, load_config

if TYPE_CHECKING:
    from groupwise.feedback import FeedbackStore
    from groupwise.learning.certificate import Certificate, Measured
    from groupwise.learning.loop import LogLine

PERSON_KEY_VARIABLE = "GROUPWISE_PERSON_KEY"
_DAY_S = 86_400.0
_MIN_KEY_LENGTH = 16
_PICTURES = "/data/local-files/?d="  # where Label Studio serves files of its machine
_POLL_S, _RELOAD_S = 10.0, 300.0


def read_person_key() -> bytes:
    """Return the key of the digests under which people are kept."""
    key = os.environ.get(PERSON_KEY_VARIABLE, "")
    if len(key) < _MIN_KEY_LENGTH:
        raise ConfigError(
            f"{PERSON_KEY_VARIABLE} is not set to a secret of {_MIN_KEY_LENGTH} characters or more",
            fix="users are kept as digests with this key; set it, and keep it",
        )
    return key.encode()


def make_store(folder: Path, url: str | None, *, max_items: int = 10_000) -> "FeedbackStore":
    """Return the store in a folder, which is made if it is not there."""
    try:
        from groupwise.feedback import FeedbackStore
    except ImportError as error:
        fix = "pip install 'groupwise[learn]'"
        raise ConfigError(f"feedback needs {error.name}", fix=fix) from error
    return FeedbackStore(folder, url, max_items=max_items)


@contextmanager
def _open_store(folder: Path, url: str | None) -> "Iterator[FeedbackStore]":
    """Give the store in a folder that is there, and close it."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    store = make_store(folder, url)
    try:
        yield store
    finally:
        store.close()


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@option("--export written FILE", "Write answers and what people said of them.", type=PATH)
@option(
    "--format form",
    "Of --export: JSONL of what was said, what teaches most first; or Label Studio's tasks "
    "of all answers.",
    type=click.Choice(["jsonl", "label-studio"]),
    default="jsonl",
)
@option(
    "--import taken FILE",
    "Take labels of an export of Label Studio, JSON; those that are known change nothing.",
    type=PATH,
)
@option(
    "--delete-person person USER",
    "Delete all that a user said, and list the versions that were trained on it.",
)
@option(
    "--delete-pictures days DAYS",
    "Delete the pictures of answers older than that; what was answered and said stays.",
    type=click.FloatRange(min=0),
)
@options.url
def feedback(
    folder: Path,
    written: Path | None,
    form: str,
    taken: Path | None,
    person: str | None,
    days: float | None,
    url: str | None,
) -> None:
    """Count what people said of served answers, by version; or export, import or delete it.

    DIR is the server's feedback.folder.
    """
    if sum(one is not None for one in (written, taken, person, days)) > 1:
        raise ConfigError("--export, --import and what deletes are given one at a time")
    key = read_person_key() if taken is not None or person is not None else b""
    with _open_store(folder, url) as store:
        if written is not None:
            _export(store, written, form)
        elif taken is not None:
            _import(store, taken, key)
        elif person is not None:
            from groupwise.feedback import name_person

            gone = store.delete_person(name_person(person, key))
            click.echo(f"{gone.num_labels:,} labels deleted")
            for version in gone.versions:
                click.echo(f"trained on some of them: {version}")
        elif days is not None:
            num_gone = store.delete_pictures(time.time() - days * _DAY_S)
            click.echo(f"{num_gone:,} pictures deleted")
        else:
            _count(store)


def _count(store: "FeedbackStore") -> None:
    """Count answers, labels, corrections and disagreements, by version."""
    items, silent = store.list_items(), store.list_unlabelled()
    table = Table("version", "answers", "confirmed", "corrected", "disagreed on", box=None)
    versions = Counter(one.version for one in silent)
    versions.update(item.shown.version for item in items)
    for version, num_answers in sorted(versions.items()):
        own = [item for item in items if item.shown.version == version]
        corrected = sum(item.is_correction for item in own)
        disagreed = sum(item.label is None for item in own)
        numbers = (num_answers, len(own) - corrected - disagreed, corrected, disagreed)
        table.add_row(version, *(f"{number:,}" for number in numbers))
    Console(width=100).print(table)


def _export(store: "FeedbackStore", path: Path, form: str) -> None:
    from groupwise.feedback import order_by_priority, write_items, write_label_studio

    items = store.list_items()
    if form == "jsonl":
        undecided = [item for item in items if item.label is None]
        write_items(path, [*order_by_priority(items), *undecided])
        click.echo(f"{path}: {len(items):,} items, {len(undecided):,} of them disagreed on")
    else:
        shown = [*(item.shown for item in items), *store.list_unlabelled()]
        write_label_studio(path, shown, address=_PICTURES)
        click.echo(f"{path}: {len(shown):,} tasks")


def _import(store: "FeedbackStore", path: Path, key: bytes) -> None:
    from groupwise.feedback import name_person, read_label_studio

    num_new, unknown = 0, list[str]()
    for answer, person, label in read_label_studio(path):
        try:
            num_new += store.say(answer, name_person(person, key), label)
        except DataError:
            unknown.append(answer)
    click.echo(f"{num_new:,} new labels")
    if unknown:
        raise DataError(
            f"{len(unknown):,} labels are of answers that are not kept (any more), such as "
            f"{unknown[0]!r}; the others were taken"
        )


@click.command()
@click.argument("run", metavar="[RUN[:POLICY]]", required=False)
@option("--out LOOP", "The folder of the loop.", type=PATH)
@option("--feedback DIR", "The server's feedback.folder.", type=PATH)
@options.url
@option("--serve server URL", "Server of the loop, told of a new version.")
@option("--now", "Do one round with what there is, then end.", is_flag=True)
@options.settings
@option("--dry-run", "Say where the loop stands; train nothing.", is_flag=True)
@option(
    "--verify certificate CERTIFICATE",
    "Instead: go from labels and answers to the verdict of a round's certificate.json again; "
    "with --feedback, look up the labels, too.",
    type=PATH,
)
@option(
    "--roll-back loop LOOP",
    "Instead: serve again what was served before the present version.",
    type=PATH,
)
@options.allow_judge
def learn(
    run: str | None,
    out: Path | None,
    feedback: Path | None,
    url: str | None,
    server: str | None,
    now: bool,
    settings: Sequence[str],
    dry_run: bool,
    certificate: Path | None,
    loop: Path | None,
) -> None:
    """Learn from what people say of a served run, round by round, and promote what is better.

    Serve the loop with `groupwise serve LOOP`. A round begins with every 100 new labels; a version
    is served only with a certificate that it is better. After any end the same command goes on.
    """
    if sum(one is not None for one in (certificate, loop, run)) != 1:
        raise ConfigError("give a run that is served, or --verify, or --roll-back")
    if certificate is not None:
        _verify(certificate, feedback, url)
    elif loop is not None:
        from groupwise.learning.loop import Loop

        _tell(Loop(loop).roll_back(), server)
    elif run is None or out is None or feedback is None:
        raise ConfigError("learning needs --out for the loop and --feedback, the server's folder")
    else:
        with _open_store(feedback, url) as store:
            _learn(run, out, store, settings, server, now=now, is_dry=dry_run)


def _learn(
    run: str,
    out: Path,
    store: "FeedbackStore",
    settings: Sequence[str],
    server: str | None,
    *,
    now: bool,
    is_dry: bool,
) -> None:
    from groupwise.learning.loop import begin_loop, read_loop_settings
    from groupwise.learning.rounds import Learner, choose_next
    from groupwise.learning.settings import LoopSettings

    resolved = load_config(LoopSettings, read_loop_settings(out), overrides=settings)
    folder, policy = options.split_run(run)
    loop = begin_loop(out, folder, resolved, policy=policy)
    with loop.lock():
        say, report = options.say_of_step, options.print_progress
        learner = Learner(loop, store, say=say, report_progress=report)
        _tell(learner.settle(), server)
        while True:
            standing = learner.look_up()
            what = choose_next(standing, loop.settings, is_wanted=now)
            if is_dry or (now and what == "wait"):
                last = standing.certificate
                click.echo(
                    f"{standing.num_rounds:,} rounds; last candidate: "
                    f"{f'{last.candidate}, {last.promotion.verdict}' if last else 'none yet'}; "
                    f"{standing.num_new:,} new labels, {standing.num_new_sessions:,} new sessions "
                    f"that test; next: {what}"
                )
                return
            promotion = learner.advance(what)
            if what != "wait" and (found := learner.look_up().certificate) is not None:
                _print_certificate(found)
            _tell(promotion, server)
            if now:
                return
            time.sleep(_POLL_S if what == "wait" else 0)


def _verify(certificate: Path, feedback: Path | None, url: str | None) -> None:
    """Go the way from labels and answers to the verdict of a certificate again."""
    from groupwise.learning.certificate import verify

    if feedback is None:
        found = verify(certificate, None)
    else:
        with _open_store(feedback, url) as store:
            found = verify(certificate, store)
    _print_certificate(found.certificate)
    for problem in found.problems:
        click.echo(f"wrong: {problem}")
    if found.num_withdrawn:
        num = f"{found.num_withdrawn:,} of {len(found.certificate.labels):,} labels"
        click.echo(f"{num} were withdrawn: it can't be replayed")
    if found.problems or found.num_withdrawn:
        raise click.exceptions.Exit(1)
    click.echo("it holds")


def _print_certificate(certificate: "Certificate") -> None:
    """Print verdict and evidence for people."""
    found = certificate.promotion
    click.echo(
        f"candidate {certificate.candidate}: {found.verdict}\n"
        f"  sessions that test: {_compare(certificate.asked)}; evidence of a gain "
        f"{found.better:.3g} of {1 / found.level:.3g}, gain at least "
        f"{100 * found.corrected_low:+.1f}\n"
        f"  held-out set: {_compare(certificate.held_out)}; p of a loss of "
        f"{100 * found.margin:g} points or more: {found.not_worse:.2g} of {found.level:.2g}"
    )


def _compare(measured: "Measured") -> str:
    if measured.served is None or measured.candidate is None:
        return "none"
    return (
        f"{100 * measured.served:.1f} % -> {100 * measured.candidate:.1f} % "
        f"(n = {measured.num_items:,} in {measured.num_sessions:,} sessions)"
    )


def _tell(line: "LogLine | None", server: str | None) -> None:
    """Say what is served now, and let the server of the loop load it."""
    if line is None:
        return
    click.echo(f"{line.event}: {line.policy} of {line.run} ({line.version[:19]}) is served now")
    if server is None:
        return
    import httpx2

    token = os.environ.get(options.TOKEN_VARIABLE)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx2.post(f"{server.rstrip('/')}/v1/reload", headers=headers, timeout=_RELOAD_S)
    except httpx2.HTTPError as error:
        next_time = "it serves the new version when it starts next"
        options.say(f"{server} could not be told ({error}); {next_time}")
        return
    if answer.is_error:
        options.say(f"{server} does not load it: {answer.text[:300]}")
