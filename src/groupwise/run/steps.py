"""Steps: what a run is made of, and which of them are reused, continued or done again.

A step is one folder of outputs and everything that those depend on. Its key is the digest of its
name, settings, inputs, the digests of the outputs it uses and the version of Groupwise. Two markers
in its folder say how far it came: ``started.json`` is written before the work and removed after it,
``step.json`` (key and output digests) is written last. So a process may end at any point and the
next one knows what to trust.

Steps made with other versions of libraries are reused all the same: most releases change nothing,
and a training of days is not redone for them. But whoever starts the run and whoever reads its
results is told.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from groupwise import __version__, core
from groupwise.core import STEP_DONE as DONE
from groupwise.core import DataError, RunError, Say

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is told when it runs.

    ``is_resumed``: an earlier attempt with the same key was interrupted and its files are still in
    ``folder``; otherwise ``folder`` is empty.
    """

    run: Path  # the run folder
    folder: Path  # where this step writes, ``run/<name>``; it exists
    name: str
    is_resumed: bool
    uses: tuple[str, ...] = ()  # names of the steps whose outputs may be read
    say: Say = lambda _: None  # tells people how far the step is
    config: Any = None  # the settings that the step declares; reading any other one raises
    # The digests of what it reads from outside.
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])

    def output_of(self, step: str) -> Path:
        """Return the folder of a step listed in ``uses``.

        A ValueError if it is not listed, because its changes would then go unnoticed.
        """
        if step not in self.uses:
            raise ValueError(f"step {self.name!r} reads {step!r} but does not list it in uses")
        return self.run / step


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a recipe.

    ``run`` does the work; it is called with the folder empty, or as an interrupted attempt left it.
    ``inputs`` is what it reads from outside, known by content: digests of files and of source code,
    commits of models, by the setting or module that names them.
    """

    name: str  # lower case letters, digits and underscores; also the name of its folder
    run: Callable[[StepContext], None]
    uses: tuple[str, ...] = ()  # names of earlier steps whose outputs it reads
    settings: Any = None  # the JSON value of the settings it depends on
    config: Any = None  # what its work is given of the config: these settings and no others
    reads: tuple[str, ...] = ()  # paths of the config that it depends on
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: str = ""  # what it does, a clause for people
    files: tuple[str, ...] = ()  # that it also writes into the run folder itself (a report)

    def make_context(
        self, run: Path, *, is_resumed: bool, say: Say = lambda _: None
    ) -> StepContext:
        """Return what its work is told in a run folder."""
        told = (is_resumed, self.uses, say, self.config, self.inputs)
        return StepContext(run, run / self.name, self.name, *told)


def describe_plan(steps: Sequence[Step]) -> dict[str, dict[str, list[str]]]:
    """Return what each step depends on: settings it ``reads``, steps it ``uses``, ``inputs``."""
    return {
        step.name: {"reads": [*step.reads], "uses": [*step.uses], "inputs": sorted(step.inputs)}
        for step in steps
    }


def check_plan(steps: Sequence[Step]) -> None:
    """Refuse a plan that cannot be run in its order."""
    seen: set[str] = set()
    for step in steps:
        if not _NAME.fullmatch(step.name) or step.name in seen:
            raise ValueError(f"step name {step.name!r} is malformed or appears twice")
        unknown = sorted(set(step.uses) - seen)
        if unknown:
            raise ValueError(f"step {step.name!r} uses {unknown}, which do not stand before it")
        seen.add(step.name)


AUDIT_REWARDS = "audit_rewards"
"""The step between data and training that looks for what the rewards should not pay for."""
StepState = Literal["reused", "resumed", "run", "shared", "waiting"]

_STARTED = "started.json"
_CACHES = (".sqlite", ".sqlite-wal", ".sqlite-shm")
# Written once and never changed in place, and large; all else is copied from another run.
_LINKED = (".safetensors", ".bin", ".png", ".jpg", ".jpeg")


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a run is: at step ``position`` of ``num_steps``, from 1, with those ``remaining``.

    ``state`` is ``reused`` (nothing to do), ``resumed`` (after an interruption), ``run``,
    ``shared`` (taken over from another run), or ``waiting`` for another run that does it.
    ``duration_s`` is None when the step begins, seconds of this attempt when it has ended.
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


@dataclass(frozen=True, slots=True)
class Siblings:
    """The runs directly in a folder, whose finished steps may be taken over by the very same key.

    A key is locked while a run does its step, so that two runs beside one another never do the
    same work: the second waits and takes over what the first made. A RunError if the folder is
    itself a run, or a file.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Refuse what cannot hold runs: no step would ever be found there."""
        if self.folder.is_file() or core.RunFolder(self.folder).manifest_path.is_file():
            raise RunError(
                "runs can only be shared from a folder of runs",
                got=f"{self.folder}, which is {'a file' if self.folder.is_file() else 'a run'}",
                fix=f"give {self.folder.absolute().parent}",
            )

    @contextmanager
    def reserve(self, key: str, *, report_wait: Callable[[], object]) -> Generator[None]:
        """Hold a step's key among all runs here; wait, and say so, while another run holds it."""
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        descriptor = core.take_lock(locks / key, busy=report_wait)
        try:
            yield
        finally:
            os.close(descriptor)

    def take_over(self, name: str, key: str, run: Path) -> dict[str, str] | None:
        """Bring the outputs of the step ``name`` from another run that finished it with ``key``.

        What was copied is digested and compared with the other run's marker before it counts, and
        it appears in ``run`` with its marker at once. Returns the digests of the outputs, or None
        if no other run has them whole.
        """
        stage = run / f".{name}.taken"
        for path in sorted(self.folder.glob(f"*/{name}/{DONE}")):
            donor = path.parent.parent
            if donor.resolve() == run.resolve():
                continue
            marker = _read_marker(path) or {}
            _wipe(stage)
            is_it = marker.get("key") == key and "outputs" in marker
            if is_it and _copy_outputs(marker, donor, name, stage):
                _wipe(run / name)
                os.replace(stage, run / name)
                return marker["outputs"]
        _wipe(stage)
        return None


def _copy_outputs(marker: dict[str, Any], donor: Path, name: str, stage: Path) -> bool:
    """Copy what a marker lists, and the marker; return whether it is whole."""
    for path, digest in marker["outputs"].items():
        target = stage / Path(path).relative_to(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                if target.suffix not in _LINKED:
                    raise OSError
                os.link(donor / path, target)
            except OSError:  # or another disk, or one without links
                shutil.copyfile(donor / path, target)
        except FileNotFoundError:
            return False
        if core.digest_file(target) != digest:
            return False
    core.write_json(stage / DONE, {**marker, "taken_from": donor.name})
    return True


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

    Folders of steps that the plan no longer has are removed, so that nothing reads them. ``steps``
    are the whole plan, ``run_folder`` an existing folder that this process holds, ``until`` the
    last step to run; None: all. Finished steps of ``siblings`` are taken over where the key is the
    same; but one that also writes ``files`` into the run folder is about its own run: always done
    here. ``report_progress`` is called when a step begins (unless it is reused) and when it has
    ended, ``say`` with what a step says of its work. Returns the final progress of each step that
    was looked at; a ValueError if the plan is inconsistent or has no step ``until``.
    """
    check_plan(steps)
    names = [step.name for step in steps]
    num_steps = names.index(until) + 1 if until is not None else len(names)
    for marker in (*run_folder.glob(f"*/{DONE}"), *run_folder.glob(f"*/{_STARTED}")):
        if marker.parent.name not in names:
            _wipe(marker.parent)
    outputs: dict[str, dict[str, str]] = {}
    finished: list[StepProgress] = []
    for position, step in enumerate(steps[:num_steps], start=1):

        def tell(
            state: StepState,
            duration_s: float | None = None,
            step: Step = step,
            position: int = position,
        ) -> StepProgress:
            left = tuple(names[position:num_steps])
            told = (step.name, step.summary, state, position, num_steps, left, duration_s)
            report_progress(progress := StepProgress(*told))
            return progress

        start_s = time.monotonic()
        key = _compute_key(step, outputs)
        state, known = _judge_step(step, key, run_folder)
        if known is None:
            # What people would read as the result goes while a step behind it is being redone.
            stale = {step.name}
            for one in steps[position - 1 :]:
                if stale & {one.name, *one.uses}:
                    stale.add(one.name)
                    for name in one.files:
                        (run_folder / name).unlink(missing_ok=True)
            others = None if step.files else siblings
            waits = partial(tell, "waiting")
            with nullcontext() if others is None else others.reserve(key, report_wait=waits):
                known = None if others is None else others.take_over(step.name, key, run_folder)
                if known is not None:
                    state = "shared"
                else:
                    tell(state)
                    used = {name: core.digest_json(outputs[name]) for name in step.uses}
                    is_resumed = state == "resumed"
                    known = _execute(step, key, used, run_folder, is_resumed=is_resumed, say=say)
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
    return core.digest_json(
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
    done = _read_marker(run / step.name / DONE)
    if done is not None:
        found = _digest_outputs(step, run) if done.get("key") == key else None
        is_whole = found is not None and found == done.get("outputs")
        return ("reused", found) if is_whole else ("run", None)
    started = _read_marker(run / step.name / _STARTED)
    return ("resumed" if started is not None and started.get("key") == key else "run", None)


def _execute(
    step: Step, key: str, used: dict[str, str], run: Path, *, is_resumed: bool, say: Say
) -> dict[str, str]:
    """Do a step's work between its markers, and return the digests of its outputs.

    ``used`` are the digests of all outputs of each step that it uses.
    """
    folder = run / step.name
    if not is_resumed:
        _wipe(folder)
    (folder / DONE).unlink(missing_ok=True)
    # What an interrupted attempt has done was done with its packages.
    before = _read_marker(folder / _STARTED) or {}
    packages = before.get("packages") or dict(core.list_packages())
    started = {"key": key, "started_at": describe_now(), "packages": packages}
    core.write_json(folder / _STARTED, started)
    start_s = time.monotonic()
    with core.keep_telling(say, step.name) as told:
        step.run(step.make_context(run, is_resumed=is_resumed, say=told))
    marker = {
        "key": key,
        "outputs": _digest_outputs(step, run),
        "duration_s": round(time.monotonic() - start_s, 3),
        "is_resumed": is_resumed,
        "finished_at": describe_now(),
        "uses": used,
        "packages": packages,
    }
    core.write_json(folder / DONE, marker)
    (folder / _STARTED).unlink()
    return marker["outputs"]


def _digest_outputs(step: Step, run: Path) -> dict[str, str]:
    """Return digests by path.

    Markers, checkpoints, torn temporary files and kept replies do not count: SQLite writes these
    once more when their file is closed, which may be after the step's end.
    """
    folder = run / step.name
    found = [run / name for name in step.files if (run / name).is_file()]
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_marker = len(parts) == 1 and parts[0] in (DONE, _STARTED)
        is_torn = path.name.startswith(".") and path.suffix == ".part"
        is_checkpoint = any(part.startswith("checkpoint-") for part in parts)
        if not (is_marker or is_torn or is_checkpoint or path.suffix in _CACHES):
            found += [path] if path.is_file() else []
    return {path.relative_to(run).as_posix(): core.digest_file(path) for path in sorted(found)}


def _read_marker(path: Path) -> dict[str, Any] | None:
    """Return a marker's values, or None if it is missing or torn."""
    try:
        return core.read_json(path, dict)
    except DataError:
        return None


def _wipe(folder: Path) -> None:
    """Empty a folder; the markers go first, so that half a folder is never taken for a whole."""
    for marker in (DONE, _STARTED):
        (folder / marker).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def mark_done(folder: Path) -> None:
    """Say that a folder is whole whose work no plan depends on."""
    marker = {"finished_at": describe_now(), "packages": dict(core.list_packages())}
    core.write_json(folder / DONE, marker)


def describe_now() -> str:
    """Return the time as it stands in markers."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def find_other_packages(run: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Return a row by package, ``then``, ``now`` and the ``steps`` made then, and a line of it.

    Groupwise itself is not among them: another version of it redoes every step.
    """
    found: dict[str, dict[str, Any]] = {}
    now = core.list_packages()
    for path in sorted([*run.glob(f"[!.]*/{DONE}"), *run.glob(f"[!.]*/{_STARTED}")]):
        then = (_read_marker(path) or {}).get("packages", {})
        for name in sorted({*then, *now} - {"groupwise"} if then else ()):
            if then.get(name) != now.get(name):
                row = found.setdefault(name, {"then": [], "now": now.get(name), "steps": []})
                row["then"] += [] if then.get(name) in row["then"] else [then.get(name)]
                row["steps"] += [] if path.parent.name in row["steps"] else [path.parent.name]
    changes = [
        f"{name} was {', '.join(version or 'not there' for version in row['then'])} and is "
        f"{row['now'] or 'not there'}"
        for name, row in found.items()
    ]
    steps = sorted({step for row in found.values() for step in row["steps"]})
    told = f"libraries changed since {', '.join(steps)}: {'; '.join(changes)}; what is reused "
    told += "of these steps was made with the former (a new --out makes all with the present ones)"
    return found, told if found else ""
