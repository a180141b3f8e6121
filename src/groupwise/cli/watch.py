"""``groupwise watch``: follow a run from outside, on a terminal or as plain text."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console, RenderableType

from groupwise.cli.run import Debug
from groupwise.core import RunError

if TYPE_CHECKING:
    from groupwise.evaluation.monitor import RunReader, RunState

_PLAIN_EVERY_S = 30.0
_LIVE_EVERY_S = 2.0
_STOPPED = 1
_OPEN = ("waiting", "running")


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it may come later.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one page and leave.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.2, help="Seconds between pages.", show_default="2 on a terminal, else 30"
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Training to show.",
            show_default="the one that runs, or the last",
        ),
    ] = None,
    language: Annotated[Literal["en", "zh"], typer.Option(help="Of the page's words.")] = "en",
    debug: Debug = False,
) -> None:
    """Follow a run: its steps, its training's values, and alarms. Changes nothing in it.

    Ends with 0 when the run is finished and with 1 when it was stopped before its end; Ctrl-C
    leaves, and the run goes on.
    """
    from groupwise.evaluation.monitor import RunReader

    screen = _Screen(RunReader(run), _open_console(), step, language)
    state = screen.read()
    if once and state.phase == "waiting":
        raise RunError(f"there is no run at {run}", fix="leave out --once to wait for it")
    try:
        if once:
            screen.print_page(state)
        elif screen.console.is_terminal:
            state = screen.follow_live(state, every or _LIVE_EVERY_S)
        else:
            state = screen.follow_plain(state, every or _PLAIN_EVERY_S)
    except KeyboardInterrupt:
        return
    if state.phase == "stopped":
        raise typer.Exit(_STOPPED)


def _open_console() -> Console:
    """Return the console of stdout; what it cannot encode never stops the page."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    return Console(highlight=False, markup=False, emoji=False)


@dataclass(frozen=True, slots=True)
class _Screen:
    """Reads and draws, again and again."""

    reader: "RunReader"
    console: Console
    step: str | None
    language: Literal["en", "zh"]

    def read(self) -> "RunState":
        """Return the run's state.

        Raises:
            RunError: if there can be no run, or it has no such training.
        """
        state = self.reader.read()
        names = [training.step for training in state.trainings]
        if self.step is not None and names and self.step not in names:
            raise RunError(
                f"{state.folder} has no training step {self.step!r}",
                expected=f"one of {', '.join(names)}",
            )
        return state

    def print_page(self, state: "RunState") -> None:
        """Print one page."""
        self.console.print(self._draw(state))

    def follow_plain(self, state: "RunState", every_s: float) -> "RunState":
        """Print a page every so many seconds until the run has ended; waiting is said once."""
        self.print_page(state)
        while state.phase in _OPEN:
            time.sleep(every_s)
            before, state = state, self.read()
            if (before.phase, state.phase) != ("waiting", "waiting"):
                self.console.print("-" * min(40, self.console.width))
                self.print_page(state)
        return state

    def follow_live(self, state: "RunState", every_s: float) -> "RunState":
        """Keep one page on the terminal up to date until the run has ended."""
        from rich.live import Live

        page = self._draw(state)
        with Live(page, console=self.console, auto_refresh=False, vertical_overflow="crop") as live:
            while state.phase in _OPEN:
                time.sleep(every_s)
                state = self.read()
                live.update(self._draw(state), refresh=True)
            live.vertical_overflow = "visible"
            live.refresh()
        return state

    def _draw(self, state: "RunState") -> RenderableType:
        from groupwise.cli.watch_page import render_page

        return render_page(
            state,
            width=self.console.width,
            step=self.step,
            language=self.language,
            is_ascii=self.console.options.ascii_only,
        )
