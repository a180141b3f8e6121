"""Model families: how exact a step with shared prompts is and what it saves, or why it is plain.

Every model has random weights in the form of its Transformers config. Stock TRL and Groupwise start
from the same weights and are stepped in turn with the same seed. Differences are those of the first
step: of a reference log-probability, and of the gradient. Times are of processor, not of a clock,
since other work may share the machine: medians of steps after the first. Families of text are
stepped with LoRA on all blocks, then (``long``) with a longer prompt and LoRA on the last block;
families with pictures with one picture. A family that is not asked for keeps the row that the file
has, and what is not measured is kept, too: ``--measure exact`` leaves the times alone, so that it
can run beside other work.

In bfloat16 plain passes differ, too. Log-probabilities are held against the limit of the trainer's
own comparison, and the gradient's distance from float32's against twice the one that a plain step
in bfloat16 has; the weights are the same, rounded to bfloat16, and so are the completions.

    python benchmarks/families.py --json benchmarks/results/families.json
    python benchmarks/families.py --measure exact --json benchmarks/results/families.json
    python benchmarks/families.py --families Qwen3-MoE --json benchmarks/results/families.json
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MethodType
from typing import Any
from unittest.mock import patch

import torch
import trl.trainer.utils
from grpo_models import Shape, Sizes, add_lora, make_rows
from grpo_runner import Runner
from grpo_step import CPU, NUM_WARM_UP, compare_first_step
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.core import describe_machine, write_json
from groupwise.models.policy import load_policy
from groupwise.models.silence import silence_libraries
from groupwise.models.tiny import write_tiny_policy
from groupwise.models.trainable import count_blocks
from groupwise.training.fast.support import find_backbone, find_obstacle
from groupwise.training.settings import SpeedSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
import vision_families

SHAPES = {
    "text": Shape(group_size=8, num_tokens=8, prompt_tokens=256, num_prompts=1),
    "long": Shape(group_size=8, num_tokens=8, prompt_tokens=1024, num_prompts=1, last_blocks=1),
    "pictures": Shape(group_size=8, num_tokens=8, num_prompts=1, last_blocks=1),
}
SIZES = Sizes(num_layers=2, hidden_size=96)
PICTURE_SIZES = vision_families.Sizes(
    hidden=192, vision_hidden=192, blocks=4, vision_blocks=6, head=48, patch=14, side=224, window=64
)
NUM_STEPS = 3
_WINDOW = 64
_ROTARY = {"rope_type": "default", "rope_theta": 1e4}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
_ALTERNATING = {
    "sliding_window": _WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}
_LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 24,
    "rope_parameters": _ROTARY | {"partial_rotary_factor": 1.0, "mrope_section": [4, 4, 4]},
}
_TWO_ROTARY = {"rope_parameters": {name: _ROTARY for name in _ALTERNATING["layer_types"]}}

# The type of a config, and what makes a model one of the family beside the sizes that all have.
FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Mistral, windows": ("mistral", {"sliding_window": _WINDOW}),
    "Gemma 3": ("gemma3_text", _ALTERNATING | _TWO_ROTARY),
    "gpt-oss": ("gpt_oss", _ALTERNATING | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen3-MoE": ("qwen3_moe", _EXPERTS),
    "Qwen3.5": ("qwen3_5_text", _LINEAR),
    "GLM-4": ("glm4", {}),
    "GLM": ("glm", {}),
    "Mistral": ("mistral", {"sliding_window": None}),
    "Llama": ("llama", {}),
    "Qwen2": ("qwen2", {}),
    "Qwen3": ("qwen3", {}),
    "Qwen2, windows": ("qwen2", _ALTERNATING | {"use_sliding_window": True}),
    "Gemma 2": ("gemma2", _ALTERNATING),
    "Phi-3": ("phi3", {}),
}

VISION_FAMILIES = {
    "Qwen2-VL": "qwen2_vl",
    "Qwen2.5-VL": "qwen2_5_vl",
    "Qwen3-VL": "qwen3_vl",
    "Qwen3.5 with pictures": "qwen3_5_vl",
    "Gemma 3 with pictures": "gemma3_vl",
    "SmolVLM": "smolvlm",
    "Idefics3": "idefics3",
    "LLaVA": "llava",
    "LLaVA-NeXT": "llava_next",
    "LLaVA-OneVision": "llava_onevision",
    "InternVL": "internvl",
}
UNTESTED = {"Qwen3-VL-MoE": "exact in the tests, no step was timed"}
NAMES = (*FAMILIES, *VISION_FAMILIES)
PARTS = ("exact", "speed")
# Real words of the tiny tokenizer; none of them ends a completion or stands for a picture.
_SAID = range(10, 200)


def build_model(kind: str, changes: Mapping[str, Any], tokenizer: Any) -> Any:
    """Return a model of a family with random weights, without an adapter."""
    torch.manual_seed(0)
    size = SIZES.hidden_size
    described: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": size,
        "intermediate_size": size * 8 // 3,
        "num_hidden_layers": SIZES.num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": size // 4,
        "max_position_embeddings": 2048,
        "rope_parameters": _ROTARY,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "router_aux_loss_coef": 0.0,  # with an auxiliary loss of experts nothing is shared
    }
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**described, **changes}))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def measure_family(
    name: str, tokenizer: Any, device: torch.device, *, has_speed: bool = True
) -> dict[str, Any]:
    """Return differences and times of a family, or why its prompts are not shared."""
    options = {"num_steps": NUM_STEPS if has_speed else 0, "device": device}
    if name in VISION_FAMILIES:
        prepared = _prepare_pictures(VISION_FAMILIES[name], tokenizer)
        return measure_model(SHAPES["pictures"], *prepared, **options)

    def build() -> Any:
        return build_model(*FAMILIES[name], tokenizer)

    found, long = (
        measure_model(SHAPES[kind], build, tokenizer, **options) for kind in ("text", "long")
    )
    return found if "fallback" in found else found | {"long": long}


def _prepare_pictures(family: str, tokenizer: Any) -> tuple[Callable[[], Any], Any]:
    """Return what builds a model with pictures, and its processor."""
    processor = vision_families.make_processor(family, tokenizer, PICTURE_SIZES)

    def build() -> Any:
        torch.manual_seed(0)
        return vision_families.make_model(family, processor, PICTURE_SIZES)

    return build, processor


def measure_model(
    shape: Shape,
    build: Callable[[], Any],
    processor: Any,
    *,
    num_steps: int,
    device: torch.device,
    has_double: bool = False,
) -> dict[str, Any]:
    """Return differences and times of a model, or why its prompts are not shared.

    Args:
        shape: of the job.
        build: returns the model without an adapter.
        processor: of it.
        num_steps: that are timed, after one that is compared; 0: none.
        device: of the model.
        has_double: compare a step in float64, too.
    """
    first = build()
    obstacle, num_layers = find_obstacle(find_backbone(first)), count_blocks(first)
    if obstacle is not None:
        return {"fallback": obstacle}
    tokenizer = getattr(processor, "tokenizer", processor)
    rows = make_rows(
        shape, tokenizer, num_steps=NUM_STEPS + NUM_WARM_UP, picture_size=SIZES.picture_size
    )

    def make(speed: SpeedSettings | None, *types: torch.dtype) -> Runner:
        model = build()
        for dtype in types:
            model = model.to(dtype)
        model = add_adapter(model, shape, num_layers=num_layers).to(device)
        if types == (torch.float64,):
            compute_in_double(model)
        return Runner(shape, (model, processor), rows, speed=speed, device=device)

    on = SpeedSettings(shared_prefix="on")
    found: dict[str, Any] = time_in_turn(make(None), make(on), num_steps=num_steps)
    if has_double:
        double = torch.float64
        with patch.object(trl.trainer.utils, "_ChunkedLogProbFunction", ExactHead):
            found["float64"] = time_in_turn(make(None, double), make(on, double), num_steps=0)
    half, whole = torch.bfloat16, torch.float32
    auto = SpeedSettings(shared_prefix="auto")  # what is too far off is to be seen, not to stop
    return found | {
        "bfloat16": compare_rounding(make(None, half, whole), make(None, half), make(auto, half))
    }


def add_adapter(model: Any, shape: Shape, *, num_layers: int) -> Any:
    """Return the model with the same LoRA each time, all of whose weights have a gradient."""
    torch.manual_seed(0)
    model = add_lora(model, shape, num_layers=num_layers)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # with zeros there, what comes before would have none
                weight.normal_(std=0.02)
    return model


class ExactHead:
    """Log-probabilities in the type of the weights: TRL's head computes them in float32 always."""

    @staticmethod
    def apply(
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        temperature: float,
        *others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, None, None, None]:
        """Return the log-probabilities and entropies of tokens, as TRL's head does."""
        said = torch.nn.functional.linear(hidden, weight, bias).div(temperature).log_softmax(-1)
        entropies = -(said.exp() * said).sum(-1)
        return said.gather(-1, labels[:, None])[:, 0], entropies, None, None, None


def compute_in_double(model: Any) -> None:
    """Let norms compute in float64, too, which they leave for float32 in every other precision."""

    def normalize(self: Any, hidden: torch.Tensor) -> torch.Tensor:
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.variance_epsilon))

    model.to(torch.float64)
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = MethodType(normalize, module)


def time_in_turn(plain: Runner, shared: Runner, *, num_steps: int) -> dict[str, float]:
    """Step both in turn; return differences of the first step and CPU seconds of the others."""
    spent: dict[Runner, list[float]] = {plain: [], shared: []}
    differences: dict[str, float] = {}
    for number in range(num_steps + NUM_WARM_UP):
        for runner, seconds in spent.items():
            started = time.process_time()
            runner.step(seed=number)
            seconds.append(time.process_time() - started)
        differences = differences or compare_first_step(plain, shared)
    if not num_steps:
        return differences
    plain_s, shared_s = (statistics.median(one[NUM_WARM_UP:]) for one in spent.values())
    return {**differences, "plain_s": plain_s, "shared_s": shared_s, "ratio": plain_s / shared_s}


def compare_rounding(exact: Runner, plain: Runner, shared: Runner) -> dict[str, Any]:
    """Step all three with the same completions; return what bfloat16 does to a shared step.

    Args:
        exact: plain passes in float32.
        plain: the same in bfloat16.
        shared: the other trainer in bfloat16; it falls back if it finds itself too far off.
    """
    rng = random.Random(0)
    said = [rng.choices(_SAID, k=exact.shape.num_tokens) for _ in range(exact.shape.group_size)]
    gradients, logps = [], []
    for runner in (exact, plain, shared):
        runner.trainer._generate_single_turn = lambda *_, **__: (said, None)
        runner.step(seed=0)
        gradients.append(runner.read_gradient().double())
        logps.append(runner.rollout["ref_per_token_logps"].double())
    whole, *rounded = gradients
    plain_grad, shared_grad = (float((one - whole).norm() / whole.norm()) for one in rounded)
    found = shared.list_noise()
    is_close = not shared.has_fallen_back() and shared_grad <= 2 * plain_grad
    for name, one in zip(("plain", "shared"), logps[1:], strict=True):
        off = (one - logps[0]).abs()
        found |= {f"{name}_logp_max": float(off.max()), f"{name}_logp_mean": float(off.mean())}
    return {**found, "plain_grad": plain_grad, "shared_grad": shared_grad, "is_close": is_close}


def main() -> None:
    """Measure families and write the file after each; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--families", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--measure", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--device", type=torch.device, default=CPU)
    options = parser.parse_args()
    torch.set_num_threads(1)
    has_speed = "speed" in options.measure
    before = json.loads(options.json.read_text()) if options.json.is_file() else {"rows": {}}
    rows = {name: before["rows"].get(name, {"untested": "not run"}) for name in NAMES}
    rows |= {name: {"untested": why} for name, why in UNTESTED.items()}
    failed: list[str] = []
    with silence_libraries(), tempfile.TemporaryDirectory() as folder:
        tokenizer = load_policy(write_tiny_policy("tiny-qwen2", Path(folder))).processor
        for name in options.families:
            try:
                found = measure_family(name, tokenizer, options.device, has_speed=has_speed)
            except (SystemExit, RuntimeError) as fault:  # of this family; the others go on
                failed.append(name)
                found = {"untested": f"failed: {str(fault).splitlines()[0]}"}
            rows[name] = found if has_speed else keep_times(rows[name], found)
            print(name, rows[name], flush=True)
            shapes = {kind: asdict(shape) for kind, shape in SHAPES.items()}
            machine = {"machine" if has_speed else "exact_machine": describe_machine()}
            write_json(options.json, before | machine | {"shapes": shapes, "rows": rows})
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def keep_times(before: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new row with the times of the former one, where both share prompts."""
    times = {name: before[name] for name in ("plain_s", "shared_s", "ratio") if name in before}
    row = {**(times if "fallback" not in found else {}), **found}
    if "long" in found:
        row["long"] = keep_times(before.get("long", {}), found["long"])
    return row


if __name__ == "__main__":
    main()
