"""The ``groupwise`` command: its verbs, and what each kind of failure looks like.

Exit codes: 0 done, 1 a bug or a check that found errors, 2 something the user can fix,
130 stopped by Ctrl-C or SIGTERM.
"""

import atexit
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from groupwise import __version__
from groupwise.cli.verbs import VerbGroup

_STOPPED = "stopped; the same command continues where it was"

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
    _listen(_raise_interrupt)
    # Registered first, called last: what is left is Python's own end, where a signal would kill.
    atexit.register(_listen, signal.SIG_IGN)
    os.register_at_fork(after_in_child=_forget_handlers)
    code: str | int | None = 0
    try:
        _check_words()
        with _join_others():
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
        _listen(_go_on)
        typer.echo(_STOPPED, err=True)
        _listen(_leave)
    sys.exit(code)


def _join_others() -> AbstractContextManager[None]:
    """Return in what this process works if torchrun or the like has started several."""
    if (os.environ.get("WORLD_SIZE") or "1") == "1" and "LOCAL_RANK" not in os.environ:
        return nullcontext()
    from groupwise.flow.distributed import join_launched

    return join_launched(trains="run" in sys.argv)


def _check_words() -> None:
    """Refuse what no file could tell of."""
    from groupwise.core import ConfigError

    try:
        "".join(sys.argv).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("the command line is not UTF-8", got=ascii(error.object[:80])) from error


def describe_failure(error: BaseException) -> str | None:
    """Return the sentence for a failure that the user can fix, or None for a bug."""
    from groupwise.core import GroupwiseError, describe_disk

    if isinstance(error, GroupwiseError):
        return str(error)
    refused = describe_disk(error, Path())
    return None if refused is None else f"{refused}."


def _raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Stop in order; whoever asks again does not wait for that."""
    _listen(_end_at_once)
    raise KeyboardInterrupt


def _end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End as a kill would: at any moment, what is written is whole and can be continued."""
    os.write(2, f"{_STOPPED}\n".encode())
    _leave(number, frame)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once when it was told already that the process stops."""
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(130)


def _go_on(number: int, frame: FrameType | None) -> None:
    """Finish the sentence."""


def _listen(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Take Ctrl-C, unless whoever started this process keeps it from it, and SIGTERM."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)


def _forget_handlers() -> None:
    """Let a worker process end by SIGTERM: that is no interruption of the run."""
    _listen(signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
