"""``groupwise learn``, ``verify`` and ``roll-back``: rounds of learning beside a server."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.feedback import open_store
from groupwise.cli.predict import FinishedRun
from groupwise.cli.run import AllowJudge, Debug, Settings, print_progress, say, say_of_step
from groupwise.cli.serve import TOKEN_VARIABLE
from groupwise.core import load_config

if TYPE_CHECKING:
    from groupwise.learning.certificate import Certificate, Measured
    from groupwise.learning.loop import LogLine
    from groupwise.learning.rounds import Standing

_POLL_S, _RELOAD_S = 10.0, 300.0
LoopFolder = Annotated[Path, typer.Argument(metavar="LOOP", help="The folder of a loop.")]
Feedback = Annotated[Path, typer.Option(metavar="DIR", help="The server's feedback.folder.")]
Url = Annotated[
    str | None, typer.Option("--url", help="The server's feedback.url, for PostgreSQL.")
]
Server = Annotated[
    str | None,
    typer.Option("--serve", metavar="URL", help="Server of the loop, told of a new version."),
]


def learn(
    run: FinishedRun,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="LOOP", help="The folder of the loop.")],
    feedback: Feedback,
    url: Url = None,
    server: Server = None,
    now: Annotated[
        bool, typer.Option("--now", help="Do one round with what there is, then end.")
    ] = False,
    settings: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where the loop stands; train nothing.")
    ] = False,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Learn from what people say of a served run, round by round, and promote what is better.

    Serve the loop with `groupwise serve LOOP`. A round begins with every 100 new labels; a version
    is served only with a certificate that it is better. After any end the same command goes on.
    """
    store = open_store(feedback, url)
    from groupwise.learning.loop import begin_loop, read_loop_settings
    from groupwise.learning.rounds import Learner, choose_next
    from groupwise.learning.settings import LoopSettings

    resolved = load_config(LoopSettings, read_loop_settings(out), overrides=settings or [])
    folder, policy = split_run(run)
    loop = begin_loop(out, folder, resolved, policy=policy)
    with loop.lock():
        learner = Learner(loop, store, say=say_of_step, report_progress=print_progress)
        tell(learner.settle(), server)
        while True:
            standing = learner.look_up()
            what = choose_next(standing, loop.settings, is_wanted=now)
            if dry_run or (now and what == "wait"):
                typer.echo(f"{describe_standing(standing)}; next: {what}")
                break
            promotion = learner.advance(what)
            if what != "wait":
                show(learner.look_up())
            tell(promotion, server)
            if now:
                break
            time.sleep(_POLL_S if what == "wait" else 0)
    store.close()


def verify(
    certificate: Annotated[Path, typer.Argument(help="A certificate.json in its round's folder.")],
    *,
    feedback: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The server's feedback.folder: look up the labels, too."),
    ] = None,
    url: Url = None,
    debug: Debug = False,
) -> None:
    """Go the way from labels and answers to the verdict of a certificate again."""
    from groupwise.learning.certificate import verify as verify_certificate

    store = None if feedback is None else open_store(feedback, url)
    found = verify_certificate(certificate, store)
    if store is not None:
        store.close()
    typer.echo(describe_certificate(found.certificate))
    for problem in found.problems:
        typer.echo(f"wrong: {problem}")
    if found.num_withdrawn:
        num = len(found.certificate.labels)
        typer.echo(
            f"{found.num_withdrawn:,} of {num:,} labels were withdrawn: it can't be replayed"
        )
    if found.problems or found.num_withdrawn:
        raise typer.Exit(1)
    typer.echo("it holds")


def roll_back(loop: LoopFolder, *, server: Server = None, debug: Debug = False) -> None:
    """Serve again what was served before the present version."""
    from groupwise.learning.loop import Loop

    line = Loop(loop).roll_back()
    tell(line, server)


def show(standing: "Standing") -> None:
    """Print what came of a round."""
    if standing.certificate is not None:
        typer.echo(describe_certificate(standing.certificate))


def describe_standing(standing: "Standing") -> str:
    """Return what a loop waits for."""
    last = standing.certificate
    verdict = "none yet" if last is None else f"{last.candidate}, {last.promotion.verdict}"
    return (
        f"{standing.num_rounds:,} rounds; last candidate: {verdict}; "
        f"{standing.num_new:,} new labels, {standing.num_new_sessions:,} new sessions that test"
    )


def describe_certificate(certificate: "Certificate") -> str:
    """Return verdict and evidence in lines for people."""
    found = certificate.promotion
    need = 1 / found.level
    return "\n".join(
        (
            f"candidate {certificate.candidate}: {found.verdict}",
            f"  sessions that test: {_compare(certificate.asked)}; evidence of a gain "
            f"{found.better:.3g} of {need:.3g}, gain at least {100 * found.corrected_low:+.1f}",
            f"  held-out set: {_compare(certificate.held_out)}; p of a loss of "
            f"{100 * found.margin:g} points or more: {found.not_worse:.2g} of {found.level:.2g}",
        )
    )


def _compare(measured: "Measured") -> str:
    if measured.served is None or measured.candidate is None:
        return "none"
    return (
        f"{100 * measured.served:.1f} % -> {100 * measured.candidate:.1f} % "
        f"(n = {measured.num_items:,} in {measured.num_sessions:,} sessions)"
    )


def tell(line: "LogLine | None", server: str | None) -> None:
    """Say what is served now, and let the server of the loop load it."""
    if line is None:
        return
    typer.echo(f"{line.event}: {line.policy} of {line.run} ({line.version[:19]}) is served now")
    if server is None:
        return
    import httpx2

    token = os.environ.get(TOKEN_VARIABLE)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx2.post(f"{server.rstrip('/')}/v1/reload", headers=headers, timeout=_RELOAD_S)
    except httpx2.HTTPError as error:
        say(f"{server} could not be told ({error}); it serves the new version when it starts next")
        return
    if answer.is_error:
        say(f"{server} does not load it: {answer.text[:300]}")
