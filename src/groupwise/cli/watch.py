"""``groupwise watch``: follow a run from outside, on a terminal or as plain text."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from groupwise.cli.run import Debug
from groupwise.core import GroupwiseError, RunError, load_config
from groupwise.pipeline import find_recipe
from groupwise.pipeline.reward_audit import plan_steps

if TYPE_CHECKING:
    from groupwise.evaluation.monitor import RunReader, RunState

_PLAIN_EVERY_S = 30.0
_LIVE_EVERY_S = 2.0
_STOPPED = 1


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

    reader = RunReader(run)
    if once and reader.read_manifest() is None:
        raise RunError(f"there is no run at {run}", fix="leave out --once to wait for it")
    console = _open_console()
    screen = _Screen(reader, console, step=step, language=language)
    try:
        if once:
            state = screen.print_page()
        elif console.is_terminal:
            state = screen.follow_live(every or _LIVE_EVERY_S)
        else:
            state = screen.follow_plain(every or _PLAIN_EVERY_S)
    except KeyboardInterrupt:
        return
    if state.phase == "stopped":
        raise typer.Exit(_STOPPED)


def plan_names(reader: "RunReader") -> Sequence[str]:
    """Return the names of all steps of a run, empty if they cannot be told here.

    The manifest has them, or else the recipe that made the run is asked.
    """
    manifest = reader.read_manifest()
    if manifest is None:
        return ()
    if "steps" in manifest:
        return tuple(manifest["steps"])
    try:
        recipe = find_recipe(manifest["recipe"])
        config = load_config(recipe.load_config_type(), manifest["config"])
        return tuple(step.name for step in plan_steps(recipe, config, reader.folder))
    except (GroupwiseError, OSError):
        return ()


def _open_console() -> Console:
    """Return the console of stdout; what it cannot encode never stops the page."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    return Console(highlight=False, markup=False, emoji=False)


class _Screen:
    """Reads and draws, again and again."""

    def __init__(
        self,
        reader: "RunReader",
        console: Console,
        *,
        step: str | None,
        language: Literal["en", "zh"],
    ) -> None:
        self.reader = reader
        self.step = step
        self.is_planned = False
        self.console = console
        self.language: Literal["en", "zh"] = language

    def print_page(self) -> "RunState":
        """Print the page of this moment and return what it shows."""
        state = self._read()
        self.console.print(self._draw(state))
        return state

    def follow_plain(self, every_s: float) -> "RunState":
        """Print a page every so many seconds until the run has ended; waiting is said once."""
        state = self.print_page()
        while state.phase in ("waiting", "running"):
            time.sleep(every_s)
            if state.phase == "waiting" and self._read().phase == "waiting":
                continue
            self.console.print("-" * min(40, self.console.width))
            state = self.print_page()
        return state

    def follow_live(self, every_s: float) -> "RunState":
        """Keep one page on the terminal up to date until the run has ended."""
        from rich.live import Live

        state = self._read()
        with Live(
            self._draw(state),
            console=self.console,
            auto_refresh=False,
            vertical_overflow="crop",
        ) as live:
            while state.phase in ("waiting", "running"):
                time.sleep(every_s)
                state = self._read()
                live.update(self._draw(state), refresh=True)
            live.vertical_overflow = "visible"
            live.refresh()
        return state

    def _read(self) -> "RunState":
        if not self.is_planned and self.reader.read_manifest() is not None:
            self.reader.planned = tuple(plan_names(self.reader))
            self.is_planned = True
        state = self.reader.read()
        self._check_step(state)
        return state

    def _check_step(self, state: "RunState") -> None:
        names = [training.step for training in state.trainings]
        if self.step is not None and names and self.step not in names:
            raise RunError(
                f"{state.folder} has no training step {self.step!r}",
                expected=f"one of {', '.join(names)}",
            )

    def _draw(self, state: "RunState"):
        from groupwise.cli.watch_page import render_page

        return render_page(
            state,
            width=self.console.width,
            step=self.step,
            language=self.language,
            is_ascii=self.console.options.ascii_only,
        )
