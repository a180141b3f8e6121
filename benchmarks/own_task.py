"""A task of one's own in which word order decides, over seeds, and an easy one beside it.

A work record lists twelve steps, and in every one power is cut, power is switched on, and the cover
is opened; it is in order if there was no power when the cover was opened. Which words there are
says nothing. Few rows have a target for the warm-up, and the others have a label alone. In the easy
set one word decides.

    python benchmarks/own_task.py --runs build/own_task --json benchmarks/results/own_task.json

Finished runs in the folder are reused.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STEPS = [
    *("登记", "清点工具", "测温", "拍照", "贴标签"),
    *("通知值班", "检查风扇", "更换滤网", "擦拭灰尘", "核对编号"),
]
CUT, ON, OPEN = "断电", "送电", "开盖"
NUM_OTHERS = 9
CONFIG = """\
recipe: task
model: {base: tiny-qwen2, max_pixels: 784}
data:
  files: %s
  columns:
    prompt: |
      开盖时必须没有电。作业记录：{{ 步骤 }}。合规还是违规？
    answer: 结论
    target: 示范
    cluster: 工单
  shares: {train: 0.64, validation: 0.06, test: 0.3}
  budget: {max_prompt_tokens: 160}
answer: {kind: labels, labels: [合规, 违规]}
rewards: {correct: 1.0, format: 0.1}
sft: {epochs: 12, batch_size: 16, learning_rate: 1e-3, trainable: {method: full}}
grpo:
  epochs: 1
  prompts_per_step: 16
  group_size: 8
  max_new_tokens: 4
  learning_rate: 1e-4
  trainable: {method: full}
evaluation: {batch_size: 64}
"""


def write_rows(path: Path, *, is_easy: bool, num_rows: int = 1800) -> None:
    """Write records; about one in eight has a target for the warm-up."""
    rng = random.Random(7)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["工单", "步骤", "结论", "示范"])
        for number in range(num_rows):
            is_right = rng.random() < 0.5
            steps = draw_steps(rng)
            while is_right != ("测温" in steps if is_easy else is_without_power(steps)):
                steps = draw_steps(rng)
            label = "合规" if is_right else "违规"
            target = label if rng.random() < 0.13 else ""
            writer.writerow([f"W{number:04d}", "；".join(steps), label, target])


def draw_steps(rng: random.Random) -> list[str]:
    """Return a record: all three steps with power and cover among others, in any order."""
    steps = [*rng.sample(STEPS, NUM_OTHERS), CUT, ON, OPEN]
    rng.shuffle(steps)
    return steps


def is_without_power(steps: Sequence[str]) -> bool:
    """Return whether power was cut, and not switched on again, when the cover was opened."""
    cut, on, opened = (steps.index(step) for step in (CUT, ON, OPEN))
    return cut < opened and not cut < on < opened


def run(folder: Path, name: str, seed: int) -> Path:
    """Run a config of the folder with a seed; return the run folder."""
    out = folder / "runs" / f"{name}-{seed}"
    if not (out / "report.html").is_file():
        command = [sys.executable, "-m", "groupwise.cli", "run", str(folder / f"{name}.yaml")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [*command, "--set", f"seed={seed}", "--out", str(out)], check=True, env=environment
        )
    return out


def read_result(out: Path) -> dict[str, Any]:
    """Return each policy's accuracy and what GRPO is above the others by, with intervals."""
    metrics = json.loads((out / "evaluate" / "metrics.json").read_text(encoding="utf-8"))
    comparisons = json.loads((out / "evaluate" / "comparisons.json").read_text(encoding="utf-8"))
    return {
        "n": metrics[0]["n"],
        "accuracy": {
            row["name"].partition("/")[0]: [row["value"], row["low"], row["high"]]
            for row in metrics
            if row["name"].endswith("/accuracy")
        },
        "grpo_above": {
            row["policy_a"]: [row["difference"], row["low"], row["high"]] for row in comparisons
        },
    }


def main() -> None:
    """Run what is not there yet, and write all results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name, seeds in (("hard", range(given.seeds)), ("easy", range(1))):
        write_rows(given.runs / f"{name}.csv", is_easy=name == "easy")
        (given.runs / f"{name}.yaml").write_text(CONFIG % f"{name}.csv", encoding="utf-8")
        results |= {f"{name}-{seed}": read_result(run(given.runs, name, seed)) for seed in seeds}
    given.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps(results, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
