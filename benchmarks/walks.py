"""How many functions of ours one job passes: a run, a completion, a served row; and what it opens.

    python benchmarks/walks.py --json build/walks.json

The run is that of a task of one's own (``groupwise new --tiny``: 120 rows, a tiny model) with ten
GRPO steps; what ``train_grpo`` does of it is told apart. The completion has three rewards, one of
them a function. The row is asked of the run by HTTP. Counted are functions of the packages
``groupwise*``, without comprehensions and bodies of modules and classes: how many are entered, in
how many files, and how often. All threads of a job count, processes that it starts do not. Of an
input it is told how often it is opened to read, and how often ours give text to ``csv.reader``.
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

INPUTS, TRAINING = ("task.yaml", "messages.csv", "rewards.py"), "train_grpo"


class Walk:
    """Counts what this process enters from ``start`` on, and what it opens."""

    def __init__(self) -> None:
        self.home = str(Path(groupwise.__file__).parents[1] / "groupwise")
        self.codes, self.depth = dict[int, tuple[CodeType, int]](), 0

    def reset(self) -> None:
        """Forget all counts."""
        self.calls, self.trained = Counter[int](), Counter[int]()
        self.opened, self.num_parsed = Counter[str](), 0

    def start(self) -> None:
        """Count from now on, in threads that begin later, too."""
        self.reset()
        sys.addaudithook(self._hear)
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[0], str) and given[1] in (None, "r", "rb"):
            self.opened[os.path.basename(given[0])] += 1

    def _see(self, frame: FrameType, event: str, given: Any) -> None:
        if event == "c_call" and given is csv.reader:
            self.num_parsed += frame.f_code.co_filename.startswith(self.home)
        if event not in ("call", "return"):
            return
        code, key = frame.f_code, id(frame.f_code)
        if key not in self.codes:
            self.codes[key] = code, self._find_start(code)  # it is kept, so that an id has one code
        if code.co_name == TRAINING:
            self.depth += 1 if event == "call" else -1
        # Not where a generator goes on.
        if event == "call" and frame.f_lasti <= self.codes[key][1]:
            self.calls[key] += 1
            self.trained[key] += self.depth > 0

    def _find_start(self, code: CodeType) -> int:
        """Return where a function of ours begins; -1: it is none."""
        is_own = code.co_filename.startswith(self.home) and code.co_name[0] != "<"
        if is_own and code.co_flags & inspect.CO_OPTIMIZED:
            return next((one.offset for one in dis.Bytecode(code) if one.opname == "RESUME"), 0)
        return -1

    def describe(self) -> dict[str, Any]:
        """Return what was counted, in all and of the training."""
        opened = {n: self.opened[n] for n in INPUTS if n in self.opened}
        found = {**self._sum(self.calls), "opened": opened, "csv_parsed": self.num_parsed}
        return {**found, "trained": self._sum(+self.trained)}

    def _sum(self, calls: Counter[int]) -> dict[str, int]:
        codes = {key: self.codes[key][0] for key in calls}
        parses = sum(calls[key] for key, code in codes.items() if code.co_name == "parse")
        found = {"functions": len(calls), "calls": calls.total(), "parses": parses}
        return {**found, "files": len({code.co_filename for code in codes.values()})}


def walk_command(out: Path) -> None:
    """Run the command line; write what was counted at its end, and at SIGUSR1 since the last."""
    walk = Walk()

    def tell(*_: Any) -> None:
        write_json(out, walk.describe())
        walk.reset()

    signal.signal(signal.SIGUSR1, tell)
    walk.start()
    try:
        entry_points(group="console_scripts")["groupwise"].load()()
    finally:  # it ends by SystemExit
        sys.setprofile(None)
        tell()


def walk_completion() -> dict[str, Any]:
    """Score a completion twice; return what the second time took."""
    from groupwise.core import Completion, Message, Score, make_example
    from groupwise.rewards import AnswerFormat, LabelMatch, LabelParser, RewardSet

    parser = LabelParser(labels=("billing", "delivery", "fault"))
    parts = [LabelMatch(parser), AnswerFormat(parser), lambda *_: Score(0.5)]
    rewards = RewardSet({f"part_{n}": (part, 1.0) for n, part in enumerate(parts)})
    example = make_example([Message("user", "Where is my parcel?")], cluster="a", label="delivery")
    walk = Walk()
    for _ in range(2):
        walk.start()
        rewards.score_batch([example], [Completion("delivery")])
        sys.setprofile(None)
    return walk.describe()


def start(out: Path, *words: object) -> "subprocess.Popen[bytes]":
    """Start a command of ours in a process of its own, which writes what it counts."""
    command, environ = [sys.executable, __file__, *map(str, words)], {"WALK": str(out)}
    return subprocess.Popen(command, env=os.environ | environ, stdout=sys.stderr)


def walk_served(run: Path, out: Path) -> dict[str, Any]:
    """Return the counts of that row, of five asked one by one, that has the fewest calls."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    process, found = start(out, "serve", run, "--set", f"port={port}"), []
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        for number in range(7):  # the first waits for the server, the second finds it cold
            row = {"message": f"Where is my parcel {number}?"}
            while process.poll() is None:
                with suppress(httpx2.TransportError):
                    if client.post("/v1/predict", json={"row": row}).is_success:
                        break
                time.sleep(1)
            time.sleep(0.5)  # what follows an answer is its own, too
            out.unlink(missing_ok=True)
            process.send_signal(signal.SIGUSR1)
            while process.poll() is None and not out.is_file():
                time.sleep(0.1)
            found.append(json.loads(out.read_text(encoding="utf-8")))
    process.terminate()
    process.wait()
    return min(found[2:], key=lambda one: one["calls"])


def walk_all(folder: Path) -> dict[str, Any]:
    """Return the counts of every job, done in an empty folder."""
    task, run, out = folder / "task", folder / "run", folder / "walk.json"
    given = ("run", task / "task.yaml", "--set", "grpo.max_steps=10", "--set", "sft.epochs=4")

    def walk(*words: object) -> dict[str, Any]:
        if start(out, *words).wait():
            raise SystemExit(f"{words} failed")
        return json.loads(out.read_text(encoding="utf-8"))

    walk("new", task, "--tiny")
    found = {
        "dry_run": walk(*given, "--dry-run"),
        "run": walk(*given, "--out", run),
        "completion": walk_completion(),
        "served_row": walk_served(run, out),
    }
    trained = {job: counts.pop("trained") for job, counts in found.items()}
    return {**found, "ten_grpo_steps": trained["run"]}


def main() -> None:
    """Count, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    path = parser.parse_args().json
    with tempfile.TemporaryDirectory() as name:
        found = walk_all(Path(name))
    print(json.dumps(found, indent=2))
    if path:
        write_json(path, {**found, "machine": describe_machine()})


if __name__ == "__main__":
    if "WALK" in os.environ:
        walk_command(Path(os.environ["WALK"]))
    else:
        main()
