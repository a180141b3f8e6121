"""What fits on a GPU by the estimate of memory, for published sizes of models; nothing is trained.

A step of GRPO in bfloat16 with two prompts a device, eight completions each: 512-token prompts and
256 new tokens, or a picture of 1280 x 720 pixels, a question and 64 new tokens. Two estimates are
beside what `benchmarks/grpo_gpu.py` measured on a GPU.

    python benchmarks/memory_fits.py --json benchmarks/results/memory_fits.json
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from grpo_gpu import JOBS
from PIL import Image
from transformers import Qwen2_5_VLConfig, Qwen2Config

from groupwise.core import Message, describe_machine, make_example, read_picture, write_json
from groupwise.models import LoraSettings, TrainableSettings, load_policy, write_tiny_policy
from groupwise.training import GrpoSettings, Place
from groupwise.training.memory.estimate import Base, MemoryEstimate, estimate_memory

MEASURED = Path(__file__).parent / "results" / "grpo_gpu.json"
_GIB = 2**30
_VISION = JOBS["image-3b"].vision


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
PICTURES = {"Qwen2.5-VL-3B": TEXT["Qwen2.5-3B"], "Qwen2.5-VL-7B": TEXT["Qwen2.5-7B"]}
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


def open_vision(sizes: Mapping[str, Any], folder: Path) -> Base:
    """Return a model with the vision tower of Qwen2.5-VL, and a processor with its patches."""
    policy = load_policy(write_tiny_policy("tiny-qwen2.5-vl", folder))
    images = policy.processor.image_processor
    images.patch_size, images.merge_size = 14, 2
    images.size = {"shortest_edge": 28 * 28, "longest_edge": 1280 * 720}
    given = policy.model.config.to_dict()
    ids = {name: value for name, value in given.items() if name.endswith("_token_id")}
    rotary = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    assert _VISION is not None
    config = Qwen2_5_VLConfig(
        text_config={**sizes, "rope_parameters": rotary},
        vision_config={**_VISION, "out_hidden_size": sizes["hidden_size"]},
        tie_word_embeddings=sizes["tie_word_embeddings"],
        **ids,
    )
    return Base(config, torch.bfloat16, policy.processor)


def ask_about_pictures(number: int, folder: Path) -> Any:
    """Return a question about so many pictures of 1280 x 720 pixels."""
    Image.new("RGB", (1280, 720)).save(folder / "screen.png")
    pictures = [read_picture(folder / "screen.png")] * number
    return make_example([Message("user", "What is it?")], cluster="a", pictures=pictures)


def _tell(found: MemoryEstimate) -> dict[str, Any]:
    gib = {name: found.sum_phase(name) / _GIB for name in found.phases}
    return {"gib": found.total / _GIB, "weights_gib": found.weights / _GIB, "phases_gib": gib}


def estimate_all(folder: Path) -> dict[str, Any]:
    """Return estimates by model, way and number of GPUs."""
    rows: dict[str, Any] = {}
    for name, sizes in {**TEXT, **PICTURES}.items():
        has_picture = name in PICTURES
        base = open_vision(sizes, folder) if has_picture else open_text(sizes)
        example = ask_about_pictures(1, folder) if has_picture else None
        more = {"max_new_tokens": 64} if has_picture else {}
        for way, changes in WAYS.items():
            for count, place in PLACES.items():
                if place.is_spread and name not in SPREAD:
                    continue
                settings = sample(place.num_processes, **changes, **more)
                prompt = base.encode(example, num_tokens=512)
                found = estimate_memory(base, prompt, settings, num_targets=0, place=place)
                rows[f"{name}|{way}|{count}"] = row = _tell(found)
                print(name, way, count, f"{row['gib']:.1f} GiB", flush=True)
    return rows


def compare_measured(folder: Path) -> dict[str, Any]:
    """Return estimates of what was measured on a GPU, beside it."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
    text, picture = JOBS["text-7b"].shape, JOBS["image-3b"].shape
    last = TrainableSettings(lora=LoraSettings(last_blocks=picture.last_blocks))
    common = {"beta": 0.04, "group_size": 8}
    cases = {
        "text-7b": (
            open_text({**TEXT["Qwen2.5-7B"], "vocab_size": 151_936}),
            None,
            sample(1, **common, prompts_per_step=1, max_new_tokens=text.num_tokens),
        ),
        "image-3b": (
            open_vision(TEXT["Qwen2.5-3B"], folder),
            ask_about_pictures(1, folder),
            sample(1, **common, max_new_tokens=picture.num_tokens, trainable=last),
        ),
    }
    found: dict[str, Any] = {}
    for name, (base, example, settings) in cases.items():
        prompt = base.encode(example, num_tokens=540)
        estimate = estimate_memory(base, prompt, settings, num_targets=0, place=PLACES["1"])
        found[name] = {**_tell(estimate), "measured_gib": measured[name]["groupwise"]["peak_gib"]}
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Estimate, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "against": compare_measured(Path(folder)),
            "rows": estimate_all(Path(folder)),
            "machine": describe_machine(),
            "command": sys.argv,
        }
    if given.json:
        write_json(given.json, found)


if __name__ == "__main__":
    main()
