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
    describe_rows,
    digest_prompts,
    digest_weights,
)
from groupwise.inference import Sampling
from groupwise.models import find_local_config, load_processor
from groupwise.pipeline import StepContext
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.policies import find_base
from groupwise_recipes.on_task.screens import read_warmup
from groupwise_recipes.on_task.warmup import make_warmup_rows

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
    "prepare": ("model", "data", "answer"),
    "baselines": (),
    "sft": ("model", "answer", "sft"),
    "sft_same_labels": ("model", "answer", "sft", "grpo"),
    "grpo": ("model", "answer", "rewards", "judge", "grpo", "evaluation"),
}


def describe_conditions(
    config: OnTaskConfig, context: StepContext, test: Sequence[Example]
) -> Conditions:
    """Return the conditions of a run whose policies were asked about ``test``."""
    prepared = context.output_of("prepare")
    splits = {name: read_examples(prepared / f"{name}.jsonl") for name in ("train", "validation")}
    splits["test"] = list(test)
    processor = _load_processor(config, context.run)
    warmup = describe_rows(prepared / "warmup.jsonl")
    return Conditions(
        data={"warmup": warmup, **{n: describe_examples(rows) for n, rows in splits.items()}},
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=digest_json(processor.chat_template),
        tokenizer=digest_json(processor.tokenizer.backend_tokenizer.to_str()),
        base_weights=digest_weights(_find_weights(config, context.run)),
        decoding=dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=dump_config(config.answer),
        normalizer=None,
        judge=_read_judge(config, context),
        metrics=METRIC_VERSIONS,
        rewards=_list_rewards(config),
        budget=_count_budget(config, context, processor.tokenizer, num_train=len(splits["train"])),
        lineage=_LINEAGE,
        reads=_READS,
        sections=_SECTIONS,
    )


def _load_processor(config: OnTaskConfig, run: Path) -> Any:
    base = find_base(config, run)
    return load_processor(
        base, model_type=getattr(find_local_config(base), "model_type", ""), has_vision=True
    )


def _find_weights(config: OnTaskConfig, run: Path) -> Path:
    """Return the folder of the base's weights: its own, or the one in the local cache."""
    base = find_base(config, run)
    if Path(base).is_dir():
        return Path(base)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(base), local_files_only=True))


def _read_judge(config: OnTaskConfig, context: StepContext) -> str | None:
    if config.judge is None:
        return None
    return _read(context.output_of("grpo") / "judge.json")["version"]


def _list_rewards(config: OnTaskConfig) -> dict[str, Any]:
    """Return the weights that count, as shares; a part that is not there has none."""
    given = config.rewards.model_dump(exclude={"visual_verifier"})
    if config.judge is None:
        del given["judge"]
    total = sum(given.values())
    return {name: {"weight": weight / total} for name, weight in given.items()}


def _count_budget(
    config: OnTaskConfig, context: StepContext, tokenizer: Any, *, num_train: int
) -> dict[str, dict[str, float]]:
    """Count steps, rows or completions, and the tokens that were trained on."""
    logs = {name: context.output_of(name) / "metrics.jsonl" for name in _LINEAGE["grpo"]}
    same_labels = context.output_of("sft_same_labels") / "metrics.jsonl"
    resolved = _read(context.output_of("grpo") / "resolved.json")
    rows_per_pass = resolved["generation_batch_size"] / resolved["steps_per_generation"]
    per_step = rows_per_pass * config.grpo.gradient_accumulation / resolved["num_iterations"]
    return {
        "sft": {
            "num_steps": count_steps(logs["sft"]),
            **_count_targets(config, context, tokenizer),
        },
        "sft_same_labels": {
            "num_steps": count_steps(same_labels),
            "num_samples": config.grpo.epochs * num_train,
        },
        "grpo": {
            "num_steps": count_steps(logs["grpo"]),
            "num_samples": round(count_steps(logs["grpo"]) * per_step),
            "num_tokens": count_sampled_tokens(logs["grpo"], samples_per_step=per_step),
        },
    }


def _count_targets(config: OnTaskConfig, context: StepContext, tokenizer: Any) -> dict[str, int]:
    rows = make_warmup_rows(read_warmup(context.output_of("prepare")), config)
    taught = [row for epoch in range(config.sft.epochs) for row in rows(epoch)]
    encoded = tokenizer([row.target for row in taught], add_special_tokens=False)["input_ids"]
    num_ends = sum(row.is_finished for row in taught)
    return {"num_samples": len(taught), "num_tokens": sum(map(len, encoded)) + num_ends}


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
