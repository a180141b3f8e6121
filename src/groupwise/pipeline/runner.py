"""Running steps: reuse what is unchanged, continue what was interrupted, redo the rest.

A step's key is the digest of its name, settings, inputs, the digests of the outputs it uses and
the version of Groupwise. Two markers in its folder say how far it came: ``started.json`` is
written before the work and removed after it, ``step.json`` (key and output digests) is written
last. So a process may end at any point and the next one knows what to trust.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from groupwise import __version__
from groupwise.core import digest_file, digest_json, write_json
from groupwise.pipeline.steps import Step, StepContext, check_plan

StepState = Literal["reused", "resumed", "run"]

_DONE = "step.json"
_STARTED = "started.json"


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a run is.

    Attributes:
        name: the step.
        summary: what it does.
        state: ``reused`` (nothing to do), ``resumed`` (after an interruption) or ``run``.
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


def run_steps(
    steps: Sequence[Step],
    run_folder: Path,
    *,
    until: str | None = None,
    report_progress: Callable[[StepProgress], None] = lambda _: None,
) -> list[StepProgress]:
    """Bring every step's folder up to date, in order.

    Folders of steps that the plan no longer has are removed, so that nothing reads them.

    Args:
        steps: the whole plan.
        run_folder: an existing folder that this process holds.
        until: the last step to run; all if None.
        report_progress: called when a step begins (unless it is reused) and when it has ended.

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
        key = _compute_key(step, outputs)
        state, known = _judge_step(step, key, run_folder)

        def tell(
            duration_s: float | None,
            step: Step = step,
            state: StepState = state,
            position: int = position,
        ) -> StepProgress:
            remaining = tuple(names[position:num_steps])
            progress = StepProgress(
                step.name, step.summary, state, position, num_steps, remaining, duration_s
            )
            report_progress(progress)
            return progress

        start_s = time.monotonic()
        if known is None:
            tell(None)
            _remove_files_downstream(steps, step.name, run_folder)
            known = _execute(step, key, run_folder, is_resumed=state == "resumed")
        outputs[step.name] = known
        finished.append(tell(time.monotonic() - start_s))
    return finished


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
    done = _read_marker(folder / _DONE)
    if done is not None:
        found = _digest_outputs(step, run) if done.get("key") == key else None
        is_whole = found is not None and found == done.get("outputs")
        return ("reused", found) if is_whole else ("run", None)
    started = _read_marker(folder / _STARTED)
    return ("resumed" if started is not None and started.get("key") == key else "run", None)


def _read_marker(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _execute(step: Step, key: str, run: Path, *, is_resumed: bool) -> dict[str, str]:
    folder = run / step.name
    if not is_resumed:
        _wipe(folder)
    (folder / _DONE).unlink(missing_ok=True)
    write_json(folder / _STARTED, {"key": key, "started_at": _now()})
    start_s = time.monotonic()
    step.run(StepContext(run, folder, step.name, is_resumed, step.uses))
    marker = {
        "key": key,
        "outputs": _digest_outputs(step, run),
        "duration_s": round(time.monotonic() - start_s, 3),
        "is_resumed": is_resumed,
        "finished_at": _now(),
    }
    write_json(folder / _DONE, marker)
    (folder / _STARTED).unlink()
    return marker["outputs"]


def _wipe(folder: Path) -> None:
    """Empty a folder; the markers go first, so that half a folder is never taken for a whole."""
    for marker in (_DONE, _STARTED):
        (folder / marker).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _digest_outputs(step: Step, run: Path) -> dict[str, str]:
    """Return digests by path; markers, checkpoints and torn temporary files do not count."""
    folder = run / step.name
    paths = [path for path in folder.rglob("*") if path.is_file() and _is_output(path, folder)]
    paths += [run / name for name in step.files if (run / name).is_file()]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in sorted(paths)}


def _is_output(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    is_marker = len(parts) == 1 and parts[0] in (_DONE, _STARTED)
    is_torn = path.name.startswith(".") and path.suffix == ".part"
    return not (is_marker or is_torn or any(part.startswith("checkpoint-") for part in parts))


def _remove_unplanned(run: Path, names: Sequence[str]) -> None:
    for marker in (*run.glob(f"*/{_DONE}"), *run.glob(f"*/{_STARTED}")):
        if marker.parent.name not in names:
            _wipe(marker.parent)


def _remove_files_downstream(steps: Sequence[Step], changed: str, run: Path) -> None:
    """Remove what people would read as the result while a step behind it is being redone."""
    stale = {changed}
    for step in steps:
        if step.name == changed or stale & set(step.uses):
            stale.add(step.name)
            for name in step.files:
                (run / name).unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
