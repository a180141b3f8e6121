"""Real weights: how exact a GRPO step with shared prompts is beside one of stock TRL, and how fast.

The same measurement as of families with random weights (``families.py``), on SmolLM2 and on the
small model with pictures, as ``groupwise models fetch`` brings them. Beside float32 and bfloat16 a
step in float64 is compared, with the norms in float64, too: there, rounding hides nothing. Times
are of processor, on one thread, of steps that both trainers take in turn.

    python benchmarks/real_models.py --json benchmarks/results/real_models.json
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from families import measure_model
from grpo_models import Shape
from grpo_step import CPU

from groupwise.core import describe_machine, write_json
from groupwise.models.base_model import open_processor
from groupwise.models.identity import digest_base
from groupwise.models.policy import load_policy
from groupwise.models.silence import silence_libraries
from groupwise.models.sources import fetch_model

SHAPES = {
    "smollm2-135m-instruct": Shape(group_size=8, num_tokens=8, prompt_tokens=64, num_prompts=1),
    "small-vlm": Shape(group_size=8, num_tokens=8, num_prompts=1),
}


def measure(name: str, *, num_steps: int) -> dict[str, Any]:
    """Return what was measured of a model, with the digest of its weights."""
    folder = fetch_model(name)
    processor = open_processor(folder)

    def build() -> Any:
        return load_policy(folder, device=CPU).model

    found = measure_model(
        SHAPES[name],
        build,
        processor,
        num_steps=num_steps,
        device=CPU,
        has_double=True,
    )
    return {"weights": digest_base(folder), "shape": asdict(SHAPES[name]), **found}


def main() -> None:
    """Measure each model and write the file after it; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--steps", type=int, default=2, help="timed steps of each trainer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(options.json.read_text())["rows"] if options.json.is_file() else {}
    with silence_libraries():
        for name in options.models:
            rows[name] = measure(name, num_steps=options.steps)
            print(name, rows[name], flush=True)
            write_json(options.json, {"machine": describe_machine(), "rows": rows})


if __name__ == "__main__":
    main()
