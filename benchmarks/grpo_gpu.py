"""Stock TRL against Groupwise on the GPU of this machine, with random weights.

Each trainer runs in a process of its own, with the same weights, prompts and seeds; one that fails
says why in its row. "Of peak" are the operations that a step cannot do without, the same for both,
over its time and over the measured rate of matrix products. "Recorded" is Groupwise that launches
the kernels of a token at once (``speed.decoding_graph``). With ``--tiny`` the models are tiny and a
CPU will do: that shows that the script runs and nothing else.

    python benchmarks/grpo_gpu.py --json benchmarks/results/grpo_gpu.json
    python benchmarks/grpo_gpu.py --tiny
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import trl
from grpo_floor import count_needed_flops, measure_flops_per_s
from grpo_models import Shape, add_lora, make_rows
from grpo_runner import Runner
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from groupwise.core import describe_machine, write_json
from groupwise.models.policy import load_policy
from groupwise.models.silence import silence_libraries
from groupwise.models.tiny import write_tiny_policy
from groupwise.training.settings import SpeedSettings

NUM_WARM_UP = 2
KINDS = ("trl", "groupwise", "recorded")


@dataclass(frozen=True)
class Job:
    """One row of the table.

    Attributes:
        shape: of the training.
        text: sizes of the language blocks, as in the model's configuration.
        vision: sizes of the vision tower; None for a text model.
        picture: width and height in pixels.
    """

    shape: Shape
    text: Mapping[str, Any]
    vision: Mapping[str, Any] | None = None
    picture: tuple[int, int] = (1280, 720)


def _describe_text(
    hidden: int, inner: int, heads: int, *, keys: int, blocks: int
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "num_hidden_layers": blocks,
        "max_window_layers": blocks,
        "layer_types": None,
        "vocab_size": 151_936,
        "initializer_range": 0.02,
    }


def _describe_vision(
    hidden: int, inner: int, heads: int, *, blocks: int, out: int
) -> dict[str, Any]:
    return {
        "depth": blocks,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_heads": heads,
        "out_hidden_size": out,
        "fullatt_block_indexes": list(range(blocks // 4 - 1, blocks, max(1, blocks // 4))),
        "patch_size": 14,
        "spatial_merge_size": 2,
        "window_size": 112,
        "tokens_per_second": 2,
    }


_TINY = _describe_text(128, 256, 2, keys=1, blocks=4) | {"vocab_size": 2_048}
_IMAGE = Shape(group_size=8, num_tokens=16, last_blocks=4, num_prompts=2)
_TEXT = Shape(group_size=8, num_tokens=64, prompt_tokens=512, num_prompts=1)
_TEXT_7B = _describe_text(3584, 18_944, 28, keys=4, blocks=28)
_LONG = Shape(group_size=8, num_tokens=128, prompt_tokens=512, num_prompts=4)
# Sizes as published for Qwen2.5-VL-3B, Qwen2.5-1.5B and Qwen2.5-7B.
JOBS = {
    "image-3b": Job(
        _IMAGE,
        _describe_text(2048, 11_008, 16, keys=2, blocks=36) | {"tie_word_embeddings": True},
        _describe_vision(1280, 3420, 16, blocks=32, out=2048),
    ),
    "text-1.5b": Job(
        _LONG,
        _describe_text(1536, 8960, 12, keys=2, blocks=28) | {"tie_word_embeddings": True},
    ),
    "text-7b": Job(_TEXT, _TEXT_7B),
    "text-7b, 2 prompts": Job(replace(_TEXT, num_prompts=2), _TEXT_7B),
}
TINY_JOBS = {
    "image-3b": Job(
        Shape(group_size=4, num_tokens=4, last_blocks=2),
        _TINY | {"tie_word_embeddings": True},
        _describe_vision(64, 128, 2, blocks=4, out=128),
        picture=(224, 112),
    ),
    "text-7b": Job(Shape(group_size=4, num_tokens=4, prompt_tokens=32), _TINY),
}


def build_policy(job: Job, *, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a PEFT model with random weights on ``device``, and its processor."""
    with tempfile.TemporaryDirectory() as folder:
        base = "tiny-qwen2" if job.vision is None else "tiny-qwen2.5-vl"
        tiny = load_policy(write_tiny_policy(base, Path(folder)))
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with device:
        model = _build_model(job, tiny.model.config)
    torch.set_default_dtype(torch.float32)
    model.generation_config = tiny.model.generation_config
    if job.vision is not None:
        image = tiny.processor.image_processor
        image.patch_size, image.merge_size = 14, 2
        image.size = {"shortest_edge": 28 * 28, "longest_edge": 4096 * 28 * 28}
    num_layers = job.text["num_hidden_layers"]
    return add_lora(model, job.shape, num_layers=num_layers), tiny.processor


def _build_model(job: Job, base: Any) -> Any:
    if job.vision is None:
        return Qwen2ForCausalLM(Qwen2Config(**(base.to_dict() | job.text)))
    size = job.text["hidden_size"] // job.text["num_attention_heads"] // 8
    rotary = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2 * size, size, size]}
    text = base.text_config.to_dict() | job.text | {"rope_parameters": rotary}
    ids = {name: value for name, value in base.to_dict().items() if name.endswith("_token_id")}
    tied = job.text["tie_word_embeddings"]
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=text, vision_config=job.vision, tie_word_embeddings=tied, **ids
        )
    )


def find_device() -> torch.device:
    """Return the GPU, or else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def measure_job(kind: str, job: Job, *, num_steps: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return median step time, peak memory of the device and operations of one step."""
    device = find_device()
    policy = build_policy(job, device=device, dtype=dtype)
    tokenizer = getattr(policy[1], "tokenizer", policy[1])
    rows = make_rows(
        job.shape, tokenizer, num_steps=NUM_WARM_UP + num_steps, picture_size=job.picture
    )
    speed = None if kind == "trl" else SpeedSettings(decoding_graph=kind == "recorded")
    runner = Runner(job.shape, policy, rows, speed=speed, device=device)
    for number in range(NUM_WARM_UP):
        runner.step(seed=number)
    first_peak = read_peak_gib(device)
    for number in range(num_steps):
        runner.step(seed=NUM_WARM_UP + number)
    return {
        "step_s": statistics.median(runner.steps.total_s[NUM_WARM_UP:]),
        "steps_s": runner.steps.total_s[NUM_WARM_UP:],
        "sampling_s": statistics.median(runner.steps.sampling_s[NUM_WARM_UP:]),
        "peak_gib": read_peak_gib(device),
        "first_peak_gib": first_peak,
        "needed_flops": count_needed_flops(runner.trainer, job.shape, job.picture),
        "fell_back": runner.has_fallen_back(),
        **runner.list_noise(),
    }


def read_peak_gib(device: torch.device) -> float | None:
    """Return the most that was allocated since the last call; None on a CPU."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return peak


def measure_peak_flops_per_s(dtype: torch.dtype) -> float:
    """Return the rate of matrix products of this machine, in operations per second."""
    return measure_flops_per_s(8192 if torch.cuda.is_available() else 512, dtype, find_device())


def describe_hardware() -> str:
    """Return one line: the device and the libraries."""
    libraries = f"torch {torch.__version__}, trl {trl.__version__}"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {libraries}"
    return (
        f"CPU {platform.machine()}, {torch.get_num_threads()} threads, {libraries}: no GPU number"
    )


def measure_apart(kind: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a fresh process measured, or why it failed."""
    command = [sys.executable, __file__, "--only", kind, name, "--steps", str(options.steps)]
    command += ["--dtype", options.dtype, *(["--tiny"] if options.tiny else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or ["no output"]
    return {"failed": lines[-1]} if done.returncode else json.loads(lines[-1])


def write_row(name: str, found: Sequence[Mapping[str, Any]], peak: float) -> str:
    """Return one row of the Markdown table; what failed has its reason in place of its time.

    Args:
        name: of the shape.
        found: of ``KINDS``, in their order.
        peak: operations per second.
    """
    stock, fast, _ = found
    is_whole = "failed" not in stock and "failed" not in fast
    ratio = f"{stock['step_s'] / fast['step_s']:.1f}" if is_whole else "-"
    times, memory, shares = zip(*(_write_cells(one, peak) for one in found), strict=True)
    return "| " + " | ".join([name, *times, ratio, *memory[:2], *shares[:2]]) + " |"


def _write_cells(found: Mapping[str, Any], peak: float) -> tuple[str, str, str]:
    if "failed" in found:
        return found["failed"].split(". ")[0], "-", "-"
    time = f"{found['step_s']:.3f}" + (" (fell back)" if found["fell_back"] else "")
    memory = "-" if found["peak_gib"] is None else f"{found['peak_gib']:.1f}"
    return time, memory, f"{100 * found['needed_flops'] / found['step_s'] / peak:.1f} %"


HEADER = """\
| shape | TRL s | Groupwise s | recorded s | ratio | TRL GiB | Groupwise GiB | TRL of peak | Groupwise of peak |
|---|---|---|---|---|---|---|---|---|"""  # noqa: E501


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print a table; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="tiny models, for a test on a CPU")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each trainer")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--shapes", nargs="+", choices=JOBS, help="of the table; all")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    jobs = TINY_JOBS if options.tiny else JOBS
    dtype = getattr(torch, options.dtype)
    if options.only:
        kind, name = options.only
        with silence_libraries():
            print(json.dumps(measure_job(kind, jobs[name], num_steps=options.steps, dtype=dtype)))
        return
    if not (options.tiny or torch.cuda.is_available()):
        raise SystemExit("no GPU here; --tiny runs tiny models on the CPU")
    peak = measure_peak_flops_per_s(dtype)
    print(
        f"{describe_hardware()}; matrix products {peak / 1e12:.3g} TFLOP/s\n\n{HEADER}", flush=True
    )
    rows: dict[str, dict[str, Any]] = {}
    for name in [name for name in jobs if name in (options.shapes or jobs)]:
        found = rows[name] = {}
        for kind in KINDS:
            found[kind] = measure_apart(kind, name, options)
            if options.json:
                values = {"dtype": options.dtype, "peak_flops_per_s": peak, "rows": rows}
                write_json(options.json, {**values, "machine": describe_machine()})
        print(write_row(name, list(found.values()), peak), flush=True)


if __name__ == "__main__":
    main()
