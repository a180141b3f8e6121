"""What a first run costs with a real model on a CPU: the dry run, memory, and the first GRPO step.

680 short rows of a task of labels and SmolLM2-135M-Instruct in float32. The dry run is a process of
its own, whose CPU time is told. Each training is one, too, of a few steps on one thread: its
estimated memory, the most that its process took, and CPU seconds of its steps.

    python benchmarks/first_run.py --base FOLDER --json benchmarks/results/first_run.json
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from groupwise.core import Message, Score, describe_machine, make_example, write_json, write_jsonl

TEAMS = {
    "billing": ("my invoice", "a refund", "the price", "a double payment"),
    "delivery": ("my parcel", "the courier", "a late box", "the address"),
    "fault": ("the screen", "a broken lid", "the battery", "a loud fan"),
}
OPENINGS = ("Please look at", "I ask again about", "Who helps with", "Nobody answers about")
TIMES = ("since Monday", "for two weeks", "as of today", "since my last call", "again")
ENDS = ("Thanks.", "It is urgent.", "", "I have waited long enough.")
ASKED = "Which team should read this message: billing, delivery or fault?\n"
NUM_ROWS, NUM_STEPS = 680, 3
STEPS = {"sft": {"batch_size": 8}, "grpo": {"prompts_per_step": 4, "group_size": 8}}
JOBS = tuple(itertools.product(STEPS, ("lora", "full")))


def make_rows() -> list[dict[str, str]]:
    """Return rows with a message and its team, no two alike."""
    found = [
        {"message": f"{opening} {thing} {when}. {end}".strip(), "team": team}
        for team, things in TEAMS.items()
        for opening, thing, when, end in itertools.product(OPENINGS, things, TIMES, ENDS)
    ]
    random.Random(0).shuffle(found)
    return found[:NUM_ROWS]


def describe_trainable(method: str) -> dict[str, Any]:
    """Return what trains: all weights, or LoRA of rank 16 on every linear layer."""
    return {"method": method, "lora": {"rank": 16, "alpha": 32}}


def measure_dry_run(base: Path) -> dict[str, float]:
    """Return CPU and wall-clock seconds of a dry run."""
    stage = {"trainable": describe_trainable("lora")}
    task = {
        "recipe": "task",
        "seed": 0,
        "model": {"base": str(base), "max_pixels": 12_544},
        "data": {
            "files": "rows.jsonl",
            "columns": {"prompt": ASKED + "{{ message }}", "answer": "team", "target": "team"},
        },
        "answer": {"kind": "labels", "labels": list(TEAMS)},
        "sft": {**STEPS["sft"], **stage},
        "grpo": {**STEPS["grpo"], **stage, "max_new_tokens": 8},
    }
    with tempfile.TemporaryDirectory() as name:
        write_jsonl(Path(name, "rows.jsonl"), make_rows())
        Path(name, "task.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")
        command = [sys.executable, "-m", "groupwise.cli", "run", f"{name}/task.yaml", "--dry-run"]
        start_s = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit("the dry run failed")
    cpu_s = used.ru_utime + used.ru_stime
    return {"cpu_s": round(cpu_s, 2), "wall_s": round(time.monotonic() - start_s, 2)}


def train(base: Path, kind: str, method: str) -> dict[str, Any]:
    """Train a few steps in this process; return MiB and CPU seconds."""
    import transformers

    from groupwise.core.memory import read_memory
    from groupwise.models.policy import load_policy
    from groupwise.models.settings import ModelSettings
    from groupwise.models.sources import find_outline
    from groupwise.models.trainable import TrainableSettings
    from groupwise.rewards import RewardSet
    from groupwise.run.preview import Batch, Place, estimate_memory
    from groupwise.training.checkpoints import Workspace
    from groupwise.training.grpo import train_grpo
    from groupwise.training.settings import GrpoSettings, SftRow, SftSettings
    from groupwise.training.sft import train_sft

    steps_s = _time_steps(transformers.Trainer)
    policy, rows = load_policy(base), make_rows()[: 8 * NUM_STEPS]
    asked = [[Message("user", ASKED + row["message"])] for row in rows]
    examples = [make_example(turns, cluster=str(place)) for place, turns in enumerate(asked)]
    longest = max(len(policy.tokenizer(policy.render_prompt(one))["input_ids"]) for one in examples)
    answer = max(len(policy.tokenizer(team)["input_ids"]) + 1 for team in TEAMS)
    usual = {"warmup_share": 0, "trainable": TrainableSettings(**describe_trainable(method))}
    with tempfile.TemporaryDirectory() as name:
        workspace = Workspace(Path(name), 0)
        if kind == "sft":
            settings = SftSettings(**STEPS[kind], **usual, epochs=1)
            taught = [SftRow(one, row["team"]) for one, row in zip(examples, rows, strict=True)]
            train_sft(policy, lambda _: taught, settings, workspace=workspace)
        else:
            settings = GrpoSettings(**STEPS[kind], **usual, max_new_tokens=8, max_steps=NUM_STEPS)
            drawn = random.Random(0)
            rewards = RewardSet({"drawn": (lambda *_: Score(drawn.random()), 1.0)})
            train_grpo(policy, examples, rewards, settings, workspace=workspace)
    used, outline = read_memory(), find_outline(base)
    assert used is not None
    assert outline is not None
    model = ModelSettings(base=str(base), max_pixels=784)
    batch, place = Batch(longest, answer), Place("cpu")
    estimate = estimate_memory(outline, model, settings, batch=batch, place=place)
    first, second, *others = steps_s
    return {
        "estimated_mib": estimate.total >> 20,
        "used_mib": used.peak_mib,
        "steps_cpu_s": [round(one, 2) for one in steps_s],
        "first_over_later": round(first / (sum(steps_s[1:]) / len(steps_s[1:])), 2),
        # What a progress line says after two steps, and what came.
        "left_after_two_steps_cpu_s": [round(second * len(others), 2), round(sum(others), 2)],
    }


def _time_steps(trainer: Any) -> list[float]:
    """Return where CPU seconds of each step will stand, sampling and checks included."""
    step, found = trainer.training_step, []

    def time_step(*given: Any, **named: Any) -> Any:
        start_s = time.process_time()
        try:
            return step(*given, **named)
        finally:
            found.append(time.process_time() - start_s)

    trainer.training_step = time_step
    return found


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(train(given.base, *given.job)))
        return
    found: dict[str, Any] = {"num_rows": NUM_ROWS, "dry_run": measure_dry_run(given.base)}
    print(found["dry_run"], flush=True)
    found["trainings"] = {}
    for kind, method in JOBS:
        command = [sys.executable, __file__, "--base", str(given.base), "--job", kind, method]
        ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = json.loads(ended.stdout.splitlines()[-1])
        found["trainings"][f"{kind}, {method}"] = row
        print(kind, method, row, flush=True)
    found |= {"machine": describe_machine(), "command": sys.argv}
    if given.json:
        write_json(given.json, found)


if __name__ == "__main__":
    main()
