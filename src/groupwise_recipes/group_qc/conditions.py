"""What the numbers of a run depend on, for whoever compares it with another one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, digest_json, dump_config
from groupwise.data import read_examples
from groupwise.evaluation import (
    METRIC_VERSIONS,
    Conditions,
    count_sampled_tokens,
    count_steps,
    describe_examples,
    digest_prompts,
    digest_weights,
)
from groupwise.inference import Sampling
from groupwise.models import find_local_config, load_processor
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.policies import find_base
from groupwise_recipes.group_qc.stage_b import choose_few, make_label_rows
from groupwise_recipes.group_qc.verdicts import CONTRACT

_LINEAGE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("majority", "text_only", "picture_only"), ("baselines",)),
    "prompt": (),
    "sft": ("sft",),
    "sft_same_labels": ("sft", "sft_same_labels"),
    "grpo": ("sft", "grpo"),
}
_READS: Mapping[str, tuple[str, ...]] = {
    "baselines": ("train",),
    "sft": ("warmup",),
    "sft_same_labels": ("train",),
    "grpo": ("train", "validation"),
    "evaluate": ("test",),
}
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("model", "data", "teach", "summaries"),
    "baselines": (),
    "sft": ("model", "sft"),
    "sft_same_labels": ("model", "sft", "grpo"),
    "grpo": ("model", "rewards", "grpo", "evaluation"),
}


def describe_conditions(
    config: GroupQcConfig, context: StepContext, test: Sequence[Example]
) -> Conditions:
    """Return the conditions of a run whose policies were asked about ``test``."""
    data = context.output_of("stage_b_data")
    names = ("warmup", "train", "validation")
    splits = {name: read_examples(data / f"{name}.jsonl") for name in names}
    splits["test"] = list(test)
    base = find_base(config, context.run)
    model_type = getattr(find_local_config(base), "model_type", "")
    processor = load_processor(base, model_type=model_type, has_vision=True)
    return Conditions(
        data={name: describe_examples(rows) for name, rows in splits.items()},
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=digest_json(processor.chat_template),
        tokenizer=digest_json(processor.tokenizer.backend_tokenizer.to_str()),
        base_weights=digest_weights(_find_weights(base)),
        decoding=dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=dict(CONTRACT),
        normalizer=None,
        judge=None,
        metrics=METRIC_VERSIONS,
        rewards=_list_rewards(config),
        budget=_count_budget(config, context, processor.tokenizer, splits),
        lineage=_LINEAGE,
        reads=_READS,
        sections=_SECTIONS,
    )


def _find_weights(base: str | Path) -> Path:
    """Return the folder of the base's weights: its own, or the one in the local cache."""
    if Path(base).is_dir():
        return Path(base)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(base), local_files_only=True))


def _list_rewards(config: GroupQcConfig) -> dict[str, Any]:
    """Return the weights that count, as shares."""
    given = config.rewards.by_name
    total = sum(given.values())
    return {name: {"weight": weight / total} for name, weight in given.items()}


def _count_budget(
    config: GroupQcConfig,
    context: StepContext,
    tokenizer: Any,
    splits: Mapping[str, Sequence[Example]],
) -> dict[str, dict[str, float]]:
    """Count steps, rows or completions, and the tokens that were trained on."""
    logs = {
        name: context.output_of(name) / "metrics.jsonl"
        for name in ("sft", "sft_same_labels", "grpo")
    }
    resolved = json.loads((context.output_of("grpo") / "resolved.json").read_text("utf-8"))
    rows_per_pass = resolved["generation_batch_size"] / resolved["steps_per_generation"]
    per_step = rows_per_pass * config.grpo.gradient_accumulation / resolved["num_iterations"]
    few = choose_few(splits["warmup"], config.sft.num_groups, seed=config.seed)
    targets = [row.target for row in make_label_rows(few)(0)]
    encoded = tokenizer(targets, add_special_tokens=False)["input_ids"]
    return {
        "sft": {
            "num_steps": count_steps(logs["sft"]),
            "num_samples": config.sft.epochs * len(few),
            "num_tokens": config.sft.epochs * sum(len(ids) + 1 for ids in encoded),
        },
        "sft_same_labels": {
            "num_steps": count_steps(logs["sft_same_labels"]),
            "num_samples": config.grpo.epochs * len(splits["train"]),
        },
        "grpo": {
            "num_steps": count_steps(logs["grpo"]),
            "num_samples": round(count_steps(logs["grpo"]) * per_step),
            "num_tokens": count_sampled_tokens(logs["grpo"], samples_per_step=per_step),
        },
    }
