"""What share of a training step of the workflows demo its rewards take.

    groupwise run workflows --config demo --until sft --out runs/workflow-steps
    python benchmarks/workflow_steps.py runs/workflow-steps --json results.json

Trains on from that warm-up with rewards that wait for nothing, so that
their seconds are a part of the step's. In every other step programs are forked from the template;
in the steps between, each starts bubblewrap and an interpreter, as where none can be forked. The
shares are means over steps of seconds in rewards over seconds of the step, by the clock. No reply
of the stub is kept from before; a program that comes again in the training is not run again.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from groupwise.cli.main import main as groupwise
from groupwise.core import describe_machine, read_jsonl, write_json
from groupwise.rewards import RewardSet
from groupwise.sandbox import bubblewrap, cpython, template

WAYS = {"forked": template.start_guest, "apart": bubblewrap.start_guest}
WARMING = 2
SETTINGS = (
    "grpo.log_every_steps=1",
    "grpo.heldout_every_steps=1000",
    "grpo.save_every_steps=1000",
)


def train(run: Path, num_steps: int, settings: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each step the way that its programs were started, and its seconds."""
    seconds: list[tuple[str, float]] = []
    score = RewardSet.score_batch

    def timed(self: RewardSet, *args: Any, **kwargs: Any) -> Any:
        way = list(WAYS)[len(seconds) % len(WAYS)]
        cpython.start_guest = WAYS[way]
        start_s = time.monotonic()
        found = score(self, *args, **kwargs)
        seconds.append((way, time.monotonic() - start_s))
        return found

    RewardSet.score_batch = timed
    try:
        _run(run, num_steps, settings)
    finally:
        RewardSet.score_batch, cpython.start_guest = score, template.start_guest
    steps = [row for row in read_jsonl(run / "grpo" / "metrics.jsonl") if "step_s" in row]
    return [
        {"step": row["step"], "way": way, "rewards_s": spent_s, "step_s": row["step_s"]}
        for row, (way, spent_s) in zip(steps, seconds[-len(steps) :], strict=True)
    ]


def _run(run: Path, num_steps: int, settings: Sequence[str]) -> None:
    changed = (*settings, *SETTINGS, f"grpo.max_steps={num_steps}")
    given = [word for setting in changed for word in ("--set", setting)]
    words = ["run", "workflows", "--config", "demo", *given, "--until", "grpo", "--out", str(run)]
    try:
        with patch.object(sys, "argv", ["groupwise", *words]):
            groupwise()
    except SystemExit as end:
        if end.code:
            raise


def main() -> None:
    """Train, print the shares, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--set", action="append", default=[], help="a setting of the given run")
    parser.add_argument("--num-steps", type=int, default=42)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(given.run, copy, ignore=shutil.ignore_patterns("executor.sqlite*"))
        steps = train(copy, given.num_steps, given.set)[WARMING:]
    found = {
        way: {
            "share": statistics.mean(
                one["rewards_s"] / one["step_s"] for one in steps if one["way"] == way
            ),
            "rewards_s": statistics.mean(one["rewards_s"] for one in steps if one["way"] == way),
            "num_steps": sum(one["way"] == way for one in steps),
        }
        for way in WAYS
    }
    print(found)
    if given.json:
        write_json(given.json, {"ways": found, "steps": steps, **describe_machine()})


if __name__ == "__main__":
    main()
