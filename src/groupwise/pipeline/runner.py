"""Running steps: reuse what is unchanged, continue what was interrupted, redo the rest.

A step's key is the digest of its name, settings, inputs, the digests of the outputs it uses and
the version of Groupwise. Two markers in its folder say how far it came: ``started.json`` is
written before the work and removed after it, ``step.json`` (key and output digests) is written
last. So a process may end at any point and the next one knows what to trust.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from groupwise import __version__
from groupwise.core import Say, digest_json, keep_telling, list_packages, write_json
from groupwise.pipeline.sharing import Siblings
from groupwise.pipeline.step_files import (
    DONE,
    STARTED,
    describe_now,
    digest_outputs,
    read_marker,
    wipe,
)
from groupwise.pipeline.steps import Step, StepContext, check_plan

StepState = Literal["reused", "resumed", "run", "shared", "waiting"]


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a run is.

    Attributes:
        name: the step.
        summary: what it does.
        state: ``reused`` (nothing to do), ``resumed`` (after an interruption), ``run``,
            ``shared`` (taken over from a sibling), or ``waiting`` for a sibling that does it.
        position: 1 for the first step.
        num_steps: how many there are.
        remaining: names of the steps after this one.
        duration_s: None when the step begins, seconds of this attempt when it has ended.
    """

    name: str
    summary: str
    state: StepState
    position: int
    num_steps: int
    remaining: tuple[str, ...]
    duration_s: float | None

    def describe(self) -> str:
        """Return a line for people."""
        where = f"[{self.position}/{self.num_steps}] {self.name}"
        if self.state == "waiting":
            return f"{where}: another run does this very step; waiting for it"
        if self.duration_s is None:
            what = f": {self.summary}" if self.summary else ""
            return f"{where}{what}{' (continuing)' if self.state == 'resumed' else ''}"
        left = f"; left: {', '.join(self.remaining)}" if self.remaining else ""
        return f"{where} {self.state} in {self.duration_s:.1f} s{left}"


def run_steps(
    steps: Sequence[Step],
    run_folder: Path,
    *,
    until: str | None = None,
    siblings: Siblings | None = None,
    report_progress: Callable[[StepProgress], None] = lambda _: None,
    say: Say = lambda _: None,
) -> list[StepProgress]:
    """Bring every step's folder up to date, in order.

    Folders of steps that the plan no longer has are removed, so that nothing reads them.

    Args:
        steps: the whole plan.
        run_folder: an existing folder that this process holds.
        until: the last step to run; all if None.
        siblings: runs whose finished steps are taken over where the key is the same. A step
            that also writes ``files`` into the run folder is about its own run: always done here.
        report_progress: called when a step begins (unless it is reused) and when it has ended.
        say: called with what a step says of its work while it goes on.

    Returns:
        The final progress of each step that was looked at.

    Raises:
        ValueError: if the plan is inconsistent or has no step ``until``.
    """
    check_plan(steps)
    names = [step.name for step in steps]
    num_steps = names.index(until) + 1 if until is not None else len(names)
    _remove_unplanned(run_folder, names)
    outputs: dict[str, dict[str, str]] = {}
    finished: list[StepProgress] = []
    for position, step in enumerate(steps[:num_steps], start=1):

        def tell(
            state: StepState,
            duration_s: float | None = None,
            step: Step = step,
            position: int = position,
        ) -> StepProgress:
            remaining = tuple(names[position:num_steps])
            progress = StepProgress(
                step.name, step.summary, state, position, num_steps, remaining, duration_s
            )
            report_progress(progress)
            return progress

        start_s = time.monotonic()
        key = _compute_key(step, outputs)
        state, known = _judge_step(step, key, run_folder)
        if known is None:
            _remove_files_downstream(steps, step.name, run_folder)
            used = {name: digest_json(outputs[name]) for name in step.uses}
            work = _Work(step, key, used, run_folder, state, say)
            state, known = work.do(siblings, tell)
        outputs[step.name] = known
        finished.append(tell(state, time.monotonic() - start_s))
    return finished


def judge_steps(steps: Sequence[Step], run_folder: Path) -> dict[str, StepState]:
    """Return what would become of each step: it is reused, continued or run."""
    outputs: dict[str, dict[str, str]] = {}
    states: dict[str, StepState] = {}
    for step in steps:
        states[step.name] = "run"
        if all(name in outputs for name in step.uses):
            key = _compute_key(step, outputs)
            states[step.name], known = _judge_step(step, key, run_folder)
            outputs |= {} if known is None else {step.name: known}
    return states


def are_done(steps: Sequence[Step], run_folder: Path) -> bool:
    """Return whether all steps could be reused: nothing changed and no output is damaged."""
    return set(judge_steps(steps, run_folder).values()) <= {"reused"}


def _compute_key(step: Step, outputs: dict[str, dict[str, str]]) -> str:
    return digest_json(
        {
            "name": step.name,
            "settings": step.settings,
            "inputs": dict(step.inputs),
            "uses": {name: outputs[name] for name in step.uses},
            "version": __version__,
        }
    )


def _judge_step(step: Step, key: str, run: Path) -> tuple[StepState, dict[str, str] | None]:
    """Return the step's state and, if it can be reused, the digests of its outputs."""
    folder = run / step.name
    done = read_marker(folder / DONE)
    if done is not None:
        found = digest_outputs(step, run) if done.get("key") == key else None
        is_whole = found is not None and found == done.get("outputs")
        return ("reused", found) if is_whole else ("run", None)
    started = read_marker(folder / STARTED)
    return ("resumed" if started is not None and started.get("key") == key else "run", None)


@dataclass(frozen=True, slots=True)
class _Work:
    """A step that is not done yet; ``state`` says whether an interrupted attempt is there.

    ``used`` are the digests of all outputs of each step that it uses.
    """

    step: Step
    key: str
    used: Mapping[str, str]
    run: Path
    state: StepState
    say: Say

    def do(
        self, siblings: Siblings | None, tell: Callable[[StepState], object]
    ) -> tuple[StepState, dict[str, str]]:
        if siblings is None or self.step.files:
            tell(self.state)
            return self.state, self.execute()
        with siblings.reserve(self.key, report_wait=lambda: tell("waiting")):
            taken = siblings.take_over(self.step.name, self.key, self.run)
            if taken is not None:
                return "shared", taken
            tell(self.state)
            return self.state, self.execute()

    def execute(self) -> dict[str, str]:
        step, folder = self.step, self.run / self.step.name
        is_resumed = self.state == "resumed"
        if not is_resumed:
            wipe(folder)
        (folder / DONE).unlink(missing_ok=True)
        # What an interrupted attempt has done was done with its packages.
        before = read_marker(folder / STARTED) or {}
        packages = before.get("packages") or dict(list_packages())
        started = {"key": self.key, "started_at": describe_now(), "packages": packages}
        write_json(folder / STARTED, started)
        start_s = time.monotonic()
        with keep_telling(self.say, step.name) as say:
            step.run(
                StepContext(
                    self.run,
                    folder,
                    step.name,
                    is_resumed,
                    step.uses,
                    say,
                    step.config,
                    step.inputs,
                )
            )
        marker = {
            "key": self.key,
            "outputs": digest_outputs(step, self.run),
            "duration_s": round(time.monotonic() - start_s, 3),
            "is_resumed": is_resumed,
            "finished_at": describe_now(),
            "uses": dict(self.used),
            "packages": packages,
        }
        write_json(folder / DONE, marker)
        (folder / STARTED).unlink()
        return marker["outputs"]


def _remove_unplanned(run: Path, names: Sequence[str]) -> None:
    for marker in (*run.glob(f"*/{DONE}"), *run.glob(f"*/{STARTED}")):
        if marker.parent.name not in names:
            wipe(marker.parent)


def _remove_files_downstream(steps: Sequence[Step], changed: str, run: Path) -> None:
    """Remove what people would read as the result while a step behind it is being redone."""
    stale = {changed}
    for step in steps:
        if step.name == changed or stale & set(step.uses):
            stale.add(step.name)
            for name in step.files:
                (run / name).unlink(missing_ok=True)
