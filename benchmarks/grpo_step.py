"""A GRPO step of Groupwise against one of stock TRL, in the same run.

Both trainers start from the same weights and are stepped in turn with the same seed, so they
sample the same completions; the medians of their step times are compared. Memory is that of a
fresh process each: the growth of its resident set during a step. In bfloat16 rounding alone makes
them sample other completions sooner or later, so the results are not compared beyond what the
fast trainer compares itself: its passes with plain ones, and plain ones with each other.

    python benchmarks/grpo_step.py --json results.json
    python benchmarks/grpo_step.py --shapes image-short --dtype bfloat16 --json results.json
    python benchmarks/grpo_step.py --shapes image-short --curves curves.json
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from grpo_floor import count_needed_flops, measure_flops_per_s
from grpo_models import Shape, Sizes, build_policy, make_rows
from grpo_runner import Runner, Steps

from groupwise.models.policy import project_patches_fast
from groupwise.models.silence import silence_libraries
from groupwise.training.settings import SpeedSettings

SHAPES = {
    "image-short": Shape(group_size=8, num_tokens=16, last_blocks=2),
    "image-short-g16": Shape(group_size=16, num_tokens=16, last_blocks=2),
    "image-all-layers": Shape(group_size=8, num_tokens=16),
    "text": Shape(group_size=8, num_tokens=64, prompt_tokens=512),
    "text-long": Shape(group_size=8, num_tokens=256, prompt_tokens=64),
}
NUM_WARM_UP = 1
NUM_MEMORY_STEPS = 3


CPU = torch.device("cpu")


def make_runner(
    kind: str, shape: Shape, sizes: Sizes, *, num_steps: int, dtype: torch.dtype = torch.float32
) -> Runner:
    """Return a trainer on a policy as its user would load it."""
    model, processor = build_policy(shape, sizes, dtype=dtype)
    if kind == "fast":
        project_patches_fast(model)  # as load_policy does
    tokenizer = getattr(processor, "tokenizer", processor)
    rows = make_rows(shape, tokenizer, num_steps=num_steps, picture_size=sizes.picture_size)
    speed = SpeedSettings(shared_prefix="on") if kind == "fast" else None
    return Runner(shape, (model, processor), rows, speed=speed, device=CPU)


def measure_shape(
    shape: Shape, sizes: Sizes, *, num_steps: int, dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    """Step both trainers in turn and return what was measured."""
    total = num_steps + NUM_WARM_UP
    stock, fast = (
        make_runner(kind, shape, sizes, num_steps=total, dtype=dtype) for kind in ("stock", "fast")
    )
    differences: dict[str, float] = {}
    for number in range(total):
        for runner in (stock, fast):
            runner.step(seed=number)
        if number == 0 and dtype == torch.float32:
            differences = compare_first_step(stock, fast)
    result = {f"parent_{name}": value for name, value in _summarise(stock.steps).items()}
    result |= _summarise(fast.steps)
    flops_per_s = measure_flops_per_s(1024, dtype, CPU)
    floor_s = count_needed_flops(fast.trainer, shape, sizes.picture_size) / flops_per_s
    ratio = result["parent_step_s"] / result["step_s"]
    return {"ratio": ratio, **result, **differences, **fast.list_noise(), "floor_s": floor_s}


def _summarise(steps: Steps) -> dict[str, float]:
    return {
        "step_s": statistics.median(steps.total_s[NUM_WARM_UP:]),
        "sampling_s": statistics.median(steps.sampling_s[NUM_WARM_UP:]),
    }


def compare_first_step(stock: Runner, fast: Runner) -> dict[str, float]:
    """Return differences of the first step, in which both have the same weights.

    Raises:
        SystemExit: if they did not sample the same completions.
    """
    ids = stock.rollout["completion_ids"], fast.rollout["completion_ids"]
    if not torch.equal(*ids):
        raise SystemExit("the trainers did not sample the same completions")
    one, other = stock.read_gradient(), fast.read_gradient()
    logps = stock.rollout["ref_per_token_logps"] - fast.rollout["ref_per_token_logps"]
    return {
        "max_logp_diff": float(logps.abs().max()),
        "max_grad_rel": float((one - other).norm() / one.norm()),
    }


def compare_memory(name: str) -> dict[str, float]:
    """Return the growth of both trainers' memory in a step, in MiB, and its ratio."""
    fast, stock = (measure_memory(kind, name) for kind in ("fast", "stock"))
    return {"memory_mib": fast, "parent_memory_mib": stock, "memory_ratio": fast / stock}


def measure_memory(kind: str, name: str) -> float:
    """Return the growth of a fresh process's peak memory in a step, the median of three, in MiB."""
    command = [sys.executable, __file__, "--memory-of", kind, "--shapes", name]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.splitlines()[-1])


def _measure_own_growth(kind: str, shape: Shape, sizes: Sizes) -> float:
    runner = make_runner(kind, shape, sizes, num_steps=1 + NUM_MEMORY_STEPS)
    runner.step(seed=0)  # the first one also compares with the plain pass
    return statistics.median(_measure_growth(runner, 1 + n) for n in range(NUM_MEMORY_STEPS))


def _measure_growth(runner: Runner, seed: int) -> float:
    """Return by how much one step's peak is above what is held before it, in MiB."""
    runner.forget_round()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = _read_status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    runner.step(seed=seed)
    return (_read_status("VmHWM") - before) / 1024


def _read_status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def measure_curves(sizes: Sizes, path: Path) -> None:
    """Add step times against the group size and the prompt's length to those in a file."""
    curves: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    for kind, size, shape in list_curve_points():
        points = curves.setdefault(kind, {})
        if str(size) not in points:
            points[str(size)] = measure_shape(shape, sizes, num_steps=3)
            path.write_text(json.dumps(curves, indent=1) + "\n")
            print(kind, size, f"{points[str(size)]['ratio']:.1f}", flush=True)


def list_curve_points() -> list[tuple[str, int, Shape]]:
    """Return kind, size and shape of every point, one prompt a step each."""
    image = replace(SHAPES["image-short"], num_prompts=1)
    text = replace(SHAPES["text"], num_prompts=1, num_tokens=16)
    return [
        *(("group_size", size, replace(image, group_size=size)) for size in (2, 4, 8, 16, 32)),
        *(
            ("prompt_tokens", length, replace(text, prompt_tokens=length))
            for length in (64, 128, 256, 512, 1024)
        ),
        *(("pictures", count, replace(image, num_pictures=count)) for count in (1, 2, 4)),
    ]


def print_row(name: str, result: dict[str, float]) -> None:
    """Print one row of the Markdown table."""
    cells = [format(result[key], form) if key in result else "-" for key, form in COLUMNS.values()]
    print("| " + " | ".join([name, *cells]) + " |", flush=True)


COLUMNS = {
    "TRL s": ("parent_step_s", ".2f"),
    "of it sampling": ("parent_sampling_s", ".2f"),
    "Groupwise s": ("step_s", ".2f"),
    " of it sampling": ("sampling_s", ".2f"),
    "ratio": ("ratio", ".1f"),
    "memory": ("memory_ratio", ".2f"),
    "Δlogp": ("max_logp_diff", ".0e"),
    "Δgrad": ("max_grad_rel", ".0e"),
    "shared - plain": ("shared_diff", ".0e"),
    "plain - plain": ("plain_diff", ".0e"),
    "tolerance": ("tolerance", ".0e"),
    "floor s": ("floor_s", ".2f"),
}
HEADER = (
    "| shape | " + " | ".join(map(str.strip, COLUMNS)) + " |\n|---" + "|---" * len(COLUMNS) + "|"
)
PARTS = ("time", "memory")


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each trainer")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--json", type=Path, help="add the results to those there")
    parser.add_argument("--curves", type=Path, help="growth curves only, into this file")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--measure", nargs="+", choices=("time", "memory"), default=PARTS)
    parser.add_argument("--memory-of", choices=("stock", "fast"), help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    for path in filter(None, (options.json, options.curves)):
        path.parent.mkdir(parents=True, exist_ok=True)
    sizes = Sizes()
    with silence_libraries():
        if options.memory_of:
            print(_measure_own_growth(options.memory_of, SHAPES[options.shapes[0]], sizes))
        elif options.curves:
            measure_curves(sizes, options.curves)
        else:
            _measure_all(options, sizes)


def _measure_all(options: argparse.Namespace, sizes: Sizes) -> None:
    print(HEADER, flush=True)
    has_results = options.json is not None and options.json.is_file()
    results: dict[str, dict[str, float]] = (
        json.loads(options.json.read_text()) if has_results else {}
    )
    is_whole = options.dtype == "float32"
    for name in options.shapes:
        row = name if is_whole else f"{name} {options.dtype}"
        found = results.setdefault(row, {})
        if "time" in options.measure:
            dtype = getattr(torch, options.dtype)
            found |= measure_shape(SHAPES[name], sizes, num_steps=options.steps, dtype=dtype)
        if "memory" in options.measure and is_whole:
            found |= compare_memory(name)
        print_row(row, found)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
