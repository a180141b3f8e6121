"""The ``groupwise`` command: its verbs, and what each kind of failure looks like.

Exit codes: 0 done, 1 a bug or a check that found errors, 2 something the user can fix,
130 stopped by Ctrl-C or SIGTERM.
"""

import atexit
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from groupwise import __version__

_STOPPED = "stopped; the same command continues where it was"
_SUMMARY = "Post-train a small language or vision-language model, and measure it honestly."
COMMANDS = {
    "new": ("run", "DIR", "write a task of your own: a config, a few rows, a reward"),
    "run": ("run", "TASK.yaml", "train and measure it; --dry-run first; again: it continues"),
    "predict": ("use", "RUN ROWS", "answer new rows with what was trained"),
    "sweep": ("run", "", "run every combination of some settings, or several seeds"),
    "compare": ("compare", "", "what differs, whether it is fair, and what to take"),
    "evaluate": ("use", "", "measure a finished policy on other labelled data"),
    "serve": ("use", "", "answer over HTTP, and keep what people say of the answers"),
    "learn": ("loop", "", "learn from what people say, and promote what is better"),
    "feedback": ("loop", "", "count, export, import and delete what people said"),
    "export": ("use", "", "write weights and model card, or rows for other trainers"),
    "audit": ("check", "", "look for what would make a result wrong, before training"),
    "judge": ("check", "", "measure how far a judge can be trusted"),
    "watch": ("watch", "", "follow a run: its steps, its training's values, alarms"),
    "doctor": ("check", "", "check versions, devices, disk and memory"),
    "models": ("check", "", "list the models that have a name here; fetch one"),
}
"""The module of each verb, its usual arguments for a newcomer's first three, and what it does."""
_MOVED = {
    "report": "compare RUN, or compare --together RUN RUN",
    "recipes": "run --list",
    "export-model": "export RUN --out DIR",
    "push": "export RUN --push OWNER/NAME",
    "verify": "learn --verify CERTIFICATE",
    "roll-back": "learn --roll-back LOOP",
    "audit data": "audit RECIPE --only data",
    "audit rewards": "audit RECIPE --only rewards",
    "judge calibrate": "judge --judge CONFIG --data FILE",
    "feedback show": "feedback DIR",
    "feedback export": "feedback DIR --export FILE",
    "feedback import": "feedback DIR --import FILE",
    "feedback delete-person": "feedback DIR --delete-person USER",
    "feedback delete-pictures": "feedback DIR --delete-pictures DAYS",
    "data": "python -m groupwise_recipes.workflows.problem_mixes",
    "biased-variants": "python -m groupwise_recipes.visual_reasoning.biased_variants",
    "judge-reasoning": "python -m groupwise_recipes.visual_reasoning.human_labels",
    "executor-stub": "python -m groupwise_recipes.workflows.executor_stub",
    "workflow-traces": "python -m groupwise_recipes.workflows.traces",
}
"""How what was a verb once is written now."""
_debug = click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks.")


class Verbs(click.Group):
    """All verbs, of which only the one that is used is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of a job."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"groupwise.cli.{COMMANDS[cmd_name][0]}"), cmd_name
        )
        for one in getattr(command, "commands", {"": command}).values():
            if _debug not in one.params:
                one.params.append(_debug)
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one screen, first what a newcomer needs."""
        first = [(f"{n} {words}", what) for n, (_, words, what) in COMMANDS.items() if words]
        rest = [(name, what) for name, (_, words, what) in COMMANDS.items() if not words]
        lines = [f"  {name:<17}{what}" for name, what in first]
        lines += ["", *(f"  {name:<17}{what}" for name, what in rest)]
        ends = "groupwise VERB --help tells all of a verb; --version prints the version."
        formatter.write("\n".join((_SUMMARY, "", *lines, "", ends, "")))


@click.command(cls=Verbs)
@click.version_option(__version__, message="groupwise %(version)s")
@click.option("--debug", is_flag=True, expose_value=False)
def app() -> None:
    """Post-train a small language or vision-language model, and measure it honestly."""


def main(command: click.Command = app) -> NoReturn:
    """Run a command line and exit: this one, or that of a system's own program."""
    # Waiting threads sleep: spinning ones make a shared machine many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _listen(_raise_interrupt)
    # Registered first, called last: what is left is Python's own end, where a signal would kill.
    atexit.register(_listen, signal.SIG_IGN)
    os.register_at_fork(after_in_child=_forget_handlers)
    code: str | int | None = 0
    try:
        if command is app:
            _check_words()
        with _join_others():
            program = "groupwise" if command is app else Path(sys.argv[0]).name
            words = sys.argv[1:] or (["--help"] if command is app else [])
            with command.make_context(program, words) as context:
                command.invoke(context)
    except KeyboardInterrupt:
        code = 130
    except SystemExit as leaving:
        code = leaving.code
    except click.exceptions.Exit as leaving:
        code = leaving.exit_code
    except click.ClickException as error:
        path = getattr(getattr(error, "ctx", None), "command_path", None)
        see = "" if path is None else f" (see {path} --help)"
        click.echo(f"error: {error.format_message()}{see}", err=True)
        code = error.exit_code
    except Exception as error:  # the outermost boundary: fixable or a bug
        if isinstance(error, BrokenPipeError) and _is_cut_off():
            sys.exit(1)
        message = describe_failure(error)
        if message is None or "--debug" in sys.argv:
            raise
        click.echo(f"error: {message}", err=True)
        code = 2
    if code == 130:
        _listen(_go_on)
        click.echo(_STOPPED, err=True)
        _listen(_leave)
    sys.exit(code)


def _join_others() -> AbstractContextManager[None]:
    """Return in what this process works if torchrun or the like has started several."""
    if (os.environ.get("WORLD_SIZE") or "1") == "1" and "LOCAL_RANK" not in os.environ:
        return nullcontext()
    from groupwise.run.distributed import join_launched

    return join_launched(trains="run" in sys.argv)


def _check_words() -> None:
    """Refuse what no file could tell of, and answer a verb of earlier versions with today's."""
    try:
        "".join(sys.argv).encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(
            f"the command line is not UTF-8, got {error.object[:80]!a}"
        ) from error
    for number in (1, 2):
        old = " ".join(sys.argv[1 : 1 + number])
        if old in _MOVED and not (number == 2 and Path(sys.argv[2]).exists()):
            new = _MOVED[old] if "python" in _MOVED[old] else f"groupwise {_MOVED[old]}"
            raise click.UsageError(f"`groupwise {old}` is written `{new}` now")


def _is_cut_off() -> bool:
    """Say whether who read the output has closed it (``| head``), and let nobody be told again."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    is_closed = any(event & select.POLLERR for _, event in poll.poll(0))
    if is_closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return is_closed


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
    if "multiprocessing" in sys.modules:  # else there are none
        for child in sys.modules["multiprocessing"].active_children():
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
