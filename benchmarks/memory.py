"""Estimated memory against the bytes that tensors of real trainings hold, on the CPU.

Each row is a training of two steps or more by ``train_sft`` or ``train_grpo``, with small models of
random weights whose activations dominate; every tensor that an operation returns is counted for as
long as it is held, and the peak of each phase is kept. Estimates are made beforehand from the
configuration.

    python benchmarks/memory.py --json benchmarks/results/memory.json
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from grpo_models import Sizes, _build_vl, _use_real_patches
from PIL import Image
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
from held_bytes import HeldBytes

from groupwise.core import (
    Example,
    Message,
    Score,
    describe_machine,
    make_example,
    read_picture,
    write_json,
)
from groupwise.models import (
    LoraSettings,
    Policy,
    TrainableSettings,
    load_policy,
    silence_libraries,
    write_tiny_policy,
)
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    Place,
    SftRow,
    SftSettings,
    TrainerSettings,
    Workspace,
    train_grpo,
    train_sft,
)
from groupwise.training.memory.estimate import Base, estimate_memory
from groupwise.training.settings import SpeedSettings

CPU = Place("cpu")
FULL = TrainableSettings(method="full")
VISION = TrainableSettings(method="full", freeze_vision=False, freeze_aligner=False)
LORA = TrainableSettings()
LAST = TrainableSettings(lora=LoraSettings(last_blocks=1))
PICTURES = Sizes(num_layers=4, hidden_size=256, vision_layers=3, vision_size=128, side=224)
ANSWER = "a hand turns the screw and the light goes on " * 3


@dataclass(frozen=True)
class Job:
    """A training.

    Attributes:
        settings: of it.
        prompt_tokens: about as many in a text prompt; None: a picture and a question.
        sizes: of a text model, beside the usual ones here.
        kind: type of a text model.
        dtype: of its weights.
    """

    settings: TrainerSettings
    prompt_tokens: int | None = 100
    sizes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kind: str = "qwen2"
    dtype: str = "float32"


def sample(**changes: Any) -> GrpoSettings:
    """Return settings of GRPO with two prompts of four completions."""
    usual = {
        "prompts_per_step": 2,
        "group_size": 4,
        "max_new_tokens": 32,
        "warmup_share": 0,
        "entropy_bonus": 0,
        "trainable": LORA,
        "max_steps": 2,
    }
    return GrpoSettings(**(usual | changes))


def teach(**changes: Any) -> SftSettings:
    """Return settings of SFT with four rows a step."""
    return SftSettings(**({"batch_size": 4, "warmup_share": 0, "trainable": LORA} | changes))


PLAIN = SpeedSettings(shared_prefix="off")
WINDOWS = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2}
JOBS = {
    "SFT, LoRA": Job(teach()),
    "SFT, all weights": Job(teach(trainable=FULL), prompt_tokens=300),
    "SFT, checkpointing": Job(teach(gradient_checkpointing=True), prompt_tokens=300),
    "SFT, label smoothing": Job(teach(label_smoothing=0.1), sizes={"vocab_size": 8_000}),
    "SFT, bfloat16": Job(teach(), dtype="bfloat16"),
    "SFT, picture": Job(teach(), prompt_tokens=None),
    "SFT, picture, all weights": Job(teach(trainable=VISION), prompt_tokens=None),
    "SFT, picture, checkpointing": Job(teach(gradient_checkpointing=True), prompt_tokens=None),
    "GRPO, LoRA": Job(sample()),
    "GRPO, all weights": Job(sample(trainable=FULL)),
    "GRPO, picture": Job(sample(max_new_tokens=8), prompt_tokens=None),
    "GRPO, LoRA, checkpointing": Job(sample(gradient_checkpointing=True)),
    "GRPO, long prompt": Job(sample(max_new_tokens=8), prompt_tokens=300),
    "GRPO, long completions": Job(sample(max_new_tokens=96, trainable=FULL), prompt_tokens=40),
    "GRPO, plain passes": Job(sample(trainable=FULL, speed=PLAIN)),
    "GRPO, picture, vision trains": Job(
        sample(max_new_tokens=8, trainable=VISION), prompt_tokens=None
    ),
    "GRPO, all weights, KL": Job(sample(trainable=FULL, beta=0.04)),
    "GRPO, LoRA on the last block, KL": Job(sample(trainable=LAST, beta=0.04)),
    "GRPO, wide MLP": Job(sample(trainable=FULL), sizes={"intermediate_size": 2048}),
    "GRPO, large vocabulary": Job(sample(), sizes={"vocab_size": 40_000}),
    "GRPO, bfloat16": Job(sample(max_new_tokens=16), dtype="bfloat16"),
    "GRPO, Gemma 3": Job(sample(), kind="gemma3_text", sizes={"head_dim": 32, **WINDOWS}),
    "GRPO, Qwen3": Job(sample(), kind="qwen3", sizes={"head_dim": 64}),
    "GRPO, two micro-batches": Job(sample(gradient_accumulation=2, trainable=FULL)),
    "GRPO, picture, checkpointing": Job(
        sample(max_new_tokens=8, gradient_checkpointing=True), prompt_tokens=None
    ),
}


def write_policy(job: Job, folder: Path) -> Policy:
    """Write a model of random weights, and load it as a training does."""
    tiny = "tiny-qwen2" if job.prompt_tokens else "tiny-qwen2.5-vl"
    policy = load_policy(write_tiny_policy(tiny, folder / "tiny"))
    if job.prompt_tokens:
        model = _build_text(policy, job)
    else:
        model = _build_vl(policy, PICTURES)
        _use_real_patches(policy.processor.image_processor, PICTURES.side)
    model.generation_config = policy.model.generation_config
    model.save_pretrained(folder / "base")
    policy.processor.save_pretrained(folder / "base")
    policy = load_policy(folder / "base", dtype=job.dtype)
    # A policy that has learned nothing would say them where there is no picture; and the estimate
    # is of completions at full length.
    names = ("image_token_id", "video_token_id")
    banned = [value for n in names if (value := getattr(policy.model.config, n, None)) is not None]
    policy.model.generation_config.suppress_tokens = [*banned, *policy.end_token_ids]
    return policy


def _build_text(policy: Policy, job: Job) -> Any:
    given = policy.model.config
    usual = {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": given.vocab_size,
        "pad_token_id": given.pad_token_id,
        "eos_token_id": given.eos_token_id,
        "bos_token_id": None,
        "tie_word_embeddings": True,
    }
    config = AutoConfig.for_model(job.kind, **(usual | dict(job.sizes)))
    return AutoModelForCausalLM.from_config(config)


def make_examples(job: Job, policy: Policy, folder: Path) -> list[Example]:
    """Return eight prompts of about the same length: batches have padding."""
    return [_make_example(place, job, policy, folder) for place in range(8)]


def _make_example(place: int, job: Job, policy: Policy, folder: Path) -> Example:
    if job.prompt_tokens is None:
        side = PICTURES.side
        noise = np.random.default_rng(place).integers(0, 256, (side, side, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{place}.png")
        pictures = [read_picture(folder / f"{place}.png")]
        return make_example([Message("user", "What is it?")], cluster=str(place), pictures=pictures)
    text = f"{place} "
    while len(policy.tokenizer(text)["input_ids"]) < job.prompt_tokens - place:
        text += "ab "
    return make_example([Message("user", text)], cluster=str(place))


def draw_scores() -> Iterator[Score]:
    """Return rewards none of which is the mean of its group: every row is trained on."""
    golden, place = 0.6180339887, 0
    while True:
        yield Score(place * golden % 1)
        place += 1


def measure(job: Job) -> dict[str, Any]:
    """Return estimated and counted bytes of a training by phase."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, silence_libraries():
        folder = Path(name)
        policy = write_policy(job, folder)
        examples = make_examples(job, policy, folder)
        longest = max(examples, key=lambda one: len(policy.render_prompt(one)))
        num_tokens = len(policy.tokenizer(policy.render_prompt(longest))["input_ids"])
        num_targets = len(policy.tokenizer(ANSWER)["input_ids"]) + 1
        base = Base(policy.model.config, policy.model.dtype, policy.processor)
        prompt = base.encode(longest, num_tokens=num_tokens)
        found = estimate_memory(base, prompt, job.settings, num_targets=num_targets, place=CPU)
        held = HeldBytes(policy.model)
        with held.watch():
            _train(policy, examples, job.settings, Workspace(folder / "work", 0))
    estimated = {phase: found.sum_phase(phase) for phase in found.phases}
    return {
        "weights": found.weights,
        "phases": {
            phase: {"estimated": size, "counted": held.peaks[phase]}
            for phase, size in estimated.items()
        },
        "estimated": found.total,
        "counted": max(held.peaks.values()),
    }


def _train(
    policy: Policy, examples: Sequence[Example], settings: TrainerSettings, workspace: Workspace
) -> None:
    if isinstance(settings, SftSettings):
        rows = [SftRow(example, ANSWER) for example in examples]
        train_sft(policy, lambda _: rows, settings, workspace=workspace)
        return
    assert isinstance(settings, GrpoSettings)
    scores = draw_scores()
    rewards = RewardSet({"drawn": (lambda *_: next(scores), 1.0)})
    train_grpo(policy, examples, rewards, settings, workspace=workspace)


def main() -> None:
    """Measure the jobs that are asked for, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help="jobs whose names have this in them")
    given = parser.parse_args()
    rows: dict[str, Any] = {}
    for name, job in JOBS.items():
        if given.only and given.only not in name:
            continue
        rows[name] = row = measure(job)
        parts = ", ".join(
            f"{phase} {one['estimated'] / one['counted'] - 1:+.1%} of {one['counted'] >> 20}"
            for phase, one in row["phases"].items()
        )
        print(f"{name}: {row['estimated'] / row['counted'] - 1:+.1%} ({parts})", flush=True)
        if given.json:
            found = {"rows": rows, "machine": describe_machine(), "command": sys.argv}
            write_json(given.json, found)


if __name__ == "__main__":
    main()
