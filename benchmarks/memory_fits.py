"""What fits on a GPU by the estimate of memory, for published sizes of models; nothing is trained.

A step of GRPO in bfloat16 with two prompts a device, eight completions each: 512-token prompts in a
chat template and 256 new tokens. One estimate is beside what `benchmarks/grpo_gpu.py` measured.

    python benchmarks/memory_fits.py --json benchmarks/results/memory_fits.json
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from grpo_gpu import JOBS
from transformers import Qwen2Config

from groupwise.core import describe_machine, write_json
from groupwise.models import TrainableSettings
from groupwise.training import GrpoSettings, Place
from groupwise.training.memory.estimate import Base, MemoryEstimate, estimate_memory

MEASURED = Path(__file__).parent / "results" / "grpo_gpu.json"
_GIB = 2**30


def _describe_text(
    hidden: int, inner: int, heads: int, *, keys: int, blocks: int, tied: bool = False
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "num_hidden_layers": blocks,
        "max_window_layers": blocks,
        "vocab_size": 151_936 if tied else 152_064,
        "tie_word_embeddings": tied,
    }


# As published.
TEXT = {
    "Qwen2.5-1.5B": _describe_text(1536, 8960, 12, keys=2, blocks=28, tied=True),
    "Qwen2.5-3B": _describe_text(2048, 11_008, 16, keys=2, blocks=36, tied=True),
    "Qwen2.5-7B": _describe_text(3584, 18_944, 28, keys=4, blocks=28),
}
FULL = TrainableSettings(method="full")
WAYS: dict[str, dict[str, Any]] = {
    "all weights, checkpointing": {"trainable": FULL, "gradient_checkpointing": True},
    "LoRA": {},
    "LoRA, checkpointing": {"gradient_checkpointing": True},
}
SPREAD = ("Qwen2.5-7B",)
PLACES = {"1": Place("cuda"), "8, FSDP2": Place("cuda", 8, is_spread=True)}


def sample(num_processes: int, **changes: Any) -> GrpoSettings:
    """Return settings of GRPO with two prompts in each process."""
    usual = {"prompts_per_step": 2 * num_processes, "group_size": 8, "entropy_bonus": 0}
    return GrpoSettings(**(usual | {"max_new_tokens": 256} | changes))


def open_text(sizes: Mapping[str, Any]) -> Base:
    """Return a text model that is not loaded."""
    return Base(Qwen2Config(**sizes), torch.bfloat16)


def _tell(found: MemoryEstimate) -> dict[str, Any]:
    gib = {name: found.sum_phase(name) / _GIB for name in found.phases}
    return {"gib": found.total / _GIB, "weights_gib": found.weights / _GIB, "phases_gib": gib}


def estimate(sizes: Mapping[str, Any], settings: GrpoSettings, place: Place) -> dict[str, Any]:
    """Return what a step holds whose prompts have 512 tokens and a chat template."""
    base = open_text(sizes)
    prompt = base.encode(None, num_tokens=540)
    return _tell(estimate_memory(base, prompt, settings, num_targets=0, place=place))


def estimate_all() -> dict[str, Any]:
    """Return estimates by model, way and number of GPUs."""
    rows: dict[str, Any] = {}
    for name, sizes in TEXT.items():
        for way, changes in WAYS.items():
            for count, place in PLACES.items():
                if not place.is_spread or name in SPREAD:
                    settings = sample(place.num_processes, **changes)
                    rows[f"{name}|{way}|{count}"] = row = estimate(sizes, settings, place)
                    print(name, way, count, f"{row['gib']:.1f} GiB", flush=True)
    return rows


def compare_measured() -> dict[str, Any]:
    """Return the estimate of what was measured on a GPU, beside it."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]["text-7b"]["groupwise"]
    num_new = JOBS["text-7b"].shape.num_tokens
    settings = sample(1, beta=0.04, prompts_per_step=1, max_new_tokens=num_new)
    row = estimate({**TEXT["Qwen2.5-7B"], "vocab_size": 151_936}, settings, PLACES["1"])
    return {"text-7b": {**row, "measured_gib": measured["peak_gib"]}}


def main() -> None:
    """Estimate, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {
        "against": compare_measured(),
        "rows": estimate_all(),
        "machine": describe_machine(),
        "command": sys.argv,
    }
    if given.json:
        write_json(given.json, found)


if __name__ == "__main__":
    main()
