"""The demo by one process and by two: completions, log-probabilities, and where they end.

Each run is ``groupwise run`` of ``on_task``'s demo, whose first updates of GRPO are written down.
All have the same data. ``same_start`` takes over the SFT of the run by one process, so that GRPO
begins with the same weights; ``whole`` trains everything by two. Running it again goes on.

    python benchmarks/processes.py --out runs/processes --json benchmarks/results/processes.json
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from groupwise.core import append_jsonl, describe_machine, read_jsonl, write_json
from groupwise_recipes.on_task.task import OnTask

NUM_STEPS = 5
POLICIES = ("sft", "sft_control", "grpo")
_RECORD = "PROCESSES_RECORD"

Row = Mapping[str, Any]


class Recorded(OnTask):
    """The demo; its processes write down what they score in the first updates."""


def _record(score: Any, folder: Path) -> Any:
    import torch

    def score_and_write(self: Any, model: Any, ids: Any, mask: Any, size: int, **named: Any) -> Any:
        found = score(self, model, ids, mask, size, **named)
        step = self.state.global_step
        if step < NUM_STEPS and torch.is_grad_enabled() and self.model.training:
            for row, is_token, scores in zip(ids, mask.bool(), found[0], strict=True):
                own = scores[is_token[-size:]].tolist()
                line = {"step": step, "ids": row[is_token].tolist(), "log_probs": own}
                append_jsonl(folder / f"scored-{os.environ.get('RANK', '0')}.jsonl", line)
        return found

    return score_and_write


if _RECORD in os.environ:
    from groupwise.training.fast.trainer import FastGRPOTrainer

    owner: Any = FastGRPOTrainer
    own_score = owner._get_per_token_logps_and_entropies
    owner._get_per_token_logps_and_entropies = _record(own_score, Path(os.environ[_RECORD]))


def run_demo(
    folder: Path, *, processes: int, until: str = "evaluate", shared_with: Path | None = None
) -> list[Row]:
    """Run the demo into ``folder``; return what was scored, in an order of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    config = files("groupwise_recipes.on_task") / "configs" / "demo.yaml"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else ()), "-m", "groupwise"]
    command += ["run", "processes:Recorded"]
    command += ["--config", str(config), "--out", str(folder / "run"), "--until", until]
    command += ["--set", "grpo.entropy_bonus=0"]
    if shared_with is not None:
        command += ["--share-with", str(shared_with)]
    ways = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environ = {"PYTHONPATH": os.pathsep.join(ways), _RECORD: str(folder.resolve())}
    subprocess.run(command, check=True, env={"OMP_NUM_THREADS": "1", **os.environ, **environ})
    rows = [row for path in folder.glob("scored-*.jsonl") for row in read_jsonl(path)]
    return sorted(rows, key=lambda row: (row["step"], row["ids"], row["log_probs"]))


def compare_steps(rows: list[Row], others: list[Row]) -> list[dict[str, Any]]:
    """Return, for each update, how many completions are the same and how far apart they score."""
    found: list[dict[str, Any]] = []
    for step in range(NUM_STEPS):
        one, two = ([row for row in side if row["step"] == step] for side in (rows, others))
        pairs = [(a, b) for a, b in zip(one, two, strict=True) if a["ids"] == b["ids"]]
        gaps = [
            abs(first - second)
            for a, b in pairs
            for first, second in zip(a["log_probs"], b["log_probs"], strict=True)
        ]
        row = {"step": step + 1, "rows": len(one), "same": len(pairs), "max_logp_diff": max(gaps)}
        found.append(row)
    return found


def read_accuracies(run: Path) -> dict[str, float]:
    """Return the share of test items that each trained policy gets right."""
    rows = json.loads((run / "evaluate" / "metrics.json").read_text(encoding="utf-8"))
    found = {row["name"]: row["value"] for row in rows}
    return {name: found[f"{name}/accuracy"] for name in POLICIES}


def main() -> None:
    """Run both and write the file; see the module's docstring."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    data, one, start, whole = (given.out / name for name in ("data", "one", "start", "whole"))
    run_demo(data, processes=1, until="baselines")
    run_demo(one, processes=1, until="sft", shared_with=data)
    of_start = run_demo(start, processes=2, shared_with=one)
    steps = compare_steps(run_demo(one, processes=1), of_start)
    run_demo(whole, processes=2, shared_with=data)
    runs = {"one": one, "same_start": start, "whole": whole}
    accuracy = {name: read_accuracies(folder / "run") for name, folder in runs.items()}
    write_json(given.json, {"machine": describe_machine(), "steps": steps, "accuracy": accuracy})
    print(json.dumps({"steps": steps, "accuracy": accuracy}, indent=1))


if __name__ == "__main__":
    main()
