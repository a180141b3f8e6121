"""How fast GRPO samples by each way to vLLM, and how far its log-probabilities are from training's.

    python benchmarks/vllm_modes.py --json build/vllm_modes.json

A few updates of LoRA on a text model with random weights: with Transformers, and with vLLM in the
process. Each runs in a process of its own; one that fails says why in its row. It has not run on a
GPU yet.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from grpo_gpu import JOBS, TINY_JOBS, build_policy, find_device

from groupwise.core import (
    Completion,
    Example,
    Message,
    Score,
    describe_machine,
    make_example,
    read_jsonl,
    write_json,
)
from groupwise.models.policy import load_policy
from groupwise.models.trainable import LoraSettings, TrainableSettings
from groupwise.rewards import RewardSet
from groupwise.training.checkpoints import Workspace
from groupwise.training.grpo import train_grpo
from groupwise.training.settings import GrpoSettings, VllmSettings

MODES: Mapping[str, dict[str, Any] | None] = {
    "transformers": None,
    "colocate": {"gpu_memory_share": 0.4},
}
NUM_STEPS, NUM_PROMPTS, GROUP_SIZE, NUM_TOKENS = 4, 4, 8, 128


class Scatter:
    """A reward without sense."""

    name = "scatter"

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return a value that differs between completions."""
        return Score(sum(completion.token_ids) % 97 / 96)


def measure_mode(mode: str, base: Path, dtype: str, folder: Path) -> dict[str, Any]:
    """Return medians of the updates after the first."""
    given = MODES[mode]
    asked = [[Message("user", f"Tell me about the number {n}.")] for n in range(64)]
    settings = GrpoSettings(
        max_steps=NUM_STEPS,
        prompts_per_step=NUM_PROMPTS,
        group_size=GROUP_SIZE,
        max_new_tokens=NUM_TOKENS,
        log_every_steps=1,
        trainable=TrainableSettings(lora=LoraSettings(rank=16)),
        vllm=None if given is None else VllmSettings(**given),
    )
    train_grpo(
        load_policy(base, dtype=dtype),
        [make_example(prompt, cluster=str(n)) for n, prompt in enumerate(asked)],
        RewardSet({"scatter": (Scatter(), 1.0)}),
        settings,
        workspace=Workspace(folder, 0),
    )
    rows = read_jsonl(folder / "metrics.jsonl")[1:]
    gaps = [row["logprob_gap"] for row in rows if "logprob_gap" in row]
    return {
        "tokens_per_s": median(row["tokens_per_s"] for row in rows),
        "step_s": median(row["step_s"] for row in rows),
        "logprob_gap": max(gaps, default=None),
    }


def _measure_apart(mode: str, base: Path, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--dtype", options.dtype, "--only", mode, str(base)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or ["no output"]
    return {"failed": lines[-1]} if done.returncode else json.loads(lines[-1])


def main() -> None:
    """Measure all modes; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs=2, metavar=("MODE", "BASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only:
            mode, base = options.only
            print(json.dumps(measure_mode(mode, Path(base), options.dtype, folder)))
            return
        job = (TINY_JOBS if options.tiny else JOBS)["text-7b"]
        dtype = getattr(torch, options.dtype)
        model, tokenizer = build_policy(job, device=find_device(), dtype=dtype)
        model.unload().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        del model
        rows: dict[str, Any] = {}
        for mode in MODES:
            rows[mode] = _measure_apart(mode, folder, options)
            print(mode, rows[mode], flush=True)
            if options.json:
                write_json(options.json, {"rows": rows, **describe_machine()})


if __name__ == "__main__":
    main()
