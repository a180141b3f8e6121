"""The ``groupwise`` command: its verbs, and what each kind of failure looks like.

Exit codes: 0 done, 1 a bug or a check that found errors, 2 something the user can fix,
130 stopped by Ctrl-C or SIGTERM.
"""

import errno
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from groupwise import __version__
from groupwise.cli.verbs import VerbGroup

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_DISK_WORDS = ("No space left on device", "PytorchStreamWriter failed", "os error 28")

app = typer.Typer(
    name="groupwise",
    cls=VerbGroup,
    help="Post-train a small language or vision-language model, and measure it honestly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"groupwise {__version__}")
        raise typer.Exit


@app.callback()
def set_up(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of all errors.")] = False,
) -> None:
    """Post-train a small language or vision-language model, and measure it honestly."""


def main() -> NoReturn:
    """Run the command line and exit."""
    # Waiting threads sleep: spinning ones make a shared machine many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    signal.signal(signal.SIGTERM, _raise_interrupt)
    # Worker processes are ended by SIGTERM too: that is no interruption of the run.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    code: str | int | None = 0
    try:
        app()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as leaving:
        code = leaving.code
    except Exception as error:  # the outermost boundary: fixable or a bug
        message = describe_failure(error)
        if message is None or "--debug" in sys.argv:
            raise
        typer.echo(f"error: {message}", err=True)
        code = 2
    if code == 130:
        typer.echo("stopped; the same command continues where it was", err=True)
    sys.exit(code)


def describe_failure(error: BaseException) -> str | None:
    """Return the sentence for a failure that the user can fix, or None for a bug."""
    from groupwise.core import GroupwiseError

    if isinstance(error, GroupwiseError):
        return str(error)
    if _is_disk_full(error):
        return "the disk is full; free some space (or use --out on another disk) and run it again"
    return None


def _is_disk_full(error: BaseException | None) -> bool:
    """Look through the chain of causes: libraries wrap the system's error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL_DISK:
            return True
        if any(words in str(error) for words in _FULL_DISK_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
