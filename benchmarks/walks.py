"""How many functions of ours one job passes: a run, a completion, a served row; and what it opens.

    python benchmarks/walks.py --json build/walks.json

The run is that of a task of one's own (``groupwise new --tiny``: 120 rows, a tiny model) with ten
GRPO steps, by the command line; what ``train_grpo`` does of it is told apart. The completion has
three rewards, one of them a function. The row is asked of the run by HTTP. Counted are functions of
the packages ``groupwise*``, without comprehensions and bodies of modules and classes: how many are
entered, in how many files, and how often. Each job is a process of its own; all of its threads
count, and processes that it starts do not. Of an input it is counted how often it is opened to
read, and of all text how often it is given to ``csv.reader``.
"""

import argparse
import csv
import dis
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx2

import groupwise
from groupwise.core import describe_machine, write_json

INPUTS = ("task.yaml", "messages.csv", "rewards.py")
TRAINING = "train_grpo"


class Walk:
    """Counts what this process enters and opens from ``start`` on."""

    def __init__(self) -> None:
        self.home = str(Path(groupwise.__file__).parents[1] / "groupwise")
        self.codes: dict[int, tuple[CodeType, int]] = {}
        self.depth = 0
        self.reset()

    def reset(self) -> None:
        """Forget all counts."""
        self.calls, self.trained = Counter[int](), Counter[int]()
        self.opened, self.num_parsed = Counter[str](), 0

    def start(self) -> None:
        """Count from now on, in threads that begin later, too."""
        sys.addaudithook(self._hear)
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[0], str) and given[1] in (None, "r", "rb"):
            name = os.path.basename(given[0])
            self.opened[name] += name in INPUTS

    def _see(self, frame: FrameType, event: str, given: Any) -> None:
        if event == "c_call":
            self.num_parsed += given is csv.reader
        if event not in ("call", "return"):
            return
        code, key = frame.f_code, id(frame.f_code)
        if key not in self.codes:
            self.codes[key] = code, self._find_start(code)  # it is kept, so that an id has one code
        first = self.codes[key][1]
        if first < 0:
            return
        if code.co_name == TRAINING:
            self.depth += 1 if event == "call" else -1
        if event == "call" and frame.f_lasti <= first:  # not where a generator goes on
            self.calls[key] += 1
            self.trained[key] += self.depth > 0

    def _find_start(self, code: CodeType) -> int:
        """Return where a function of ours begins; -1: it is none."""
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name[0] != "<"
        if not (is_function and code.co_filename.startswith(self.home)):
            return -1
        return next((one.offset for one in dis.Bytecode(code) if one.opname == "RESUME"), 0)

    def describe(self) -> dict[str, Any]:
        """Return what was counted, in all and of the training."""
        found, trained = self._sum(self.calls), self._sum(+self.trained)
        inputs = {"opened": dict(+self.opened), "csv_parsed": self.num_parsed}
        return {**found, **inputs, "trained": trained}

    def _sum(self, calls: Counter[int]) -> dict[str, int]:
        codes = {key: self.codes[key][0] for key in calls}
        parses = sum(calls[key] for key, code in codes.items() if code.co_name == "parse")
        files = len({code.co_filename for code in codes.values()})
        found = {"functions": len(calls), "files": files, "calls": calls.total()}
        return {**found, "parses": parses}


def walk_command(words: list[str], out: Path, *, is_served: bool) -> None:
    """Run the command line; write what was counted at its end, or since the last SIGUSR1."""
    (command,) = entry_points(group="console_scripts", name="groupwise")
    walk = Walk()

    def tell(*_: Any) -> None:
        write_json(out, walk.describe())
        walk.reset()

    if is_served:
        signal.signal(signal.SIGUSR1, tell)
    sys.argv = ["groupwise", *words]
    walk.start()
    try:
        command.load()()
    except SystemExit as leaving:
        if leaving.code:
            raise
    sys.setprofile(None)
    tell()


def walk_completion(out: Path) -> None:
    """Score a completion twice; write what the second time took."""
    from groupwise.core import Completion, Message, Score, make_example
    from groupwise.rewards import AnswerFormat, LabelMatch, LabelParser, RewardSet

    def brevity(_: Any, completion: Completion) -> Score:
        return Score(min(1.0, 12 / (len(completion.text) + 1)))

    parser = LabelParser(labels=("billing", "delivery", "fault"))
    parts = {"correct": LabelMatch(parser), "format": AnswerFormat(parser), "brevity": brevity}
    rewards = RewardSet({name: (part, 1.0) for name, part in parts.items()})
    example = make_example([Message("user", "Where is my parcel?")], cluster="a", label="delivery")
    walk = Walk()
    for _ in range(2):
        walk.reset()
        walk.start()
        scores = rewards.score_batch([example], [Completion("delivery")])
        sys.setprofile(None)
    assert scores[0].value is not None
    write_json(out, walk.describe())


def start(out: Path, kind: str, *words: object) -> "subprocess.Popen[bytes]":
    """Start this file as a process of its own, which writes what it counts."""
    environ = os.environ | {"WALK": f"{kind}:{out}"}
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, env=environ, stdout=sys.stderr)


def wait_for(process: "subprocess.Popen[bytes]", out: Path, *, ready: str = "") -> dict[str, Any]:
    """Return what a process writes, or wait until its server is ready."""
    while not out.is_file():
        if process.poll():
            raise SystemExit(f"{process.args} failed")
        if ready:
            with suppress(httpx2.TransportError):
                if httpx2.get(ready).status_code == 200:
                    return {}
        time.sleep(0.1)
    found = json.loads(out.read_text(encoding="utf-8"))
    out.unlink()
    return found


def walk_served(run: Path, out: Path) -> dict[str, Any]:
    """Return the counts of that row, of five asked one by one, that has the fewest calls."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    url, found = f"http://127.0.0.1:{port}", list[dict[str, Any]]()
    process = start(out, "served", "serve", run, "--set", f"port={port}")
    try:
        wait_for(process, out, ready=f"{url}/readyz")
        for number in range(6):  # the first finds everything cold
            row = {"message": f"Where is my parcel {number}?"}
            httpx2.post(f"{url}/v1/predict", json={"row": row}, timeout=120).raise_for_status()
            time.sleep(0.5)  # what follows an answer is its own, too
            process.send_signal(signal.SIGUSR1)
            found.append(wait_for(process, out))
    finally:
        process.terminate()
        process.wait()
    return min(found[1:], key=lambda one: one["calls"])


def walk_all(folder: Path) -> dict[str, Any]:
    """Return the counts of every job, done in an empty folder."""
    run, out = folder / "run", folder / "walk.json"
    given = (
        "run",
        folder / "task" / "task.yaml",
        "--set",
        "grpo.max_steps=10",
        "--set",
        "sft.epochs=4",
    )
    wait_for(start(out, "command", "new", folder / "task", "--tiny"), out)
    found = {
        "dry_run": wait_for(start(out, "command", *given, "--dry-run"), out),
        "run": wait_for(start(out, "command", *given, "--out", run), out),
        "completion": wait_for(start(out, "completion"), out),
        "served_row": walk_served(run, out),
    }
    trained = {job: counts.pop("trained") for job, counts in found.items()}
    return {**found, "ten_grpo_steps": trained["run"]}


def main() -> None:
    """Count, and write the results."""
    kind, _, out = os.environ.get("WALK", "").partition(":")
    if kind == "completion":
        return walk_completion(Path(out))
    if kind:
        return walk_command(sys.argv[1:], Path(out), is_served=kind == "served")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = walk_all(Path(name))
    print(json.dumps(found, indent=2))
    if given.json:
        write_json(given.json, {**found, "machine": describe_machine()})
    return None


if __name__ == "__main__":
    main()
