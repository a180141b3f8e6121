"""What the numbers of a run depend on, for whoever compares it with another one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.core import Example, digest_json, dump_config
from groupwise.data import read_examples
from groupwise.evaluation import (
    METRIC_VERSIONS,
    USUAL_LINEAGE,
    USUAL_READS,
    Conditions,
    count_grpo_budget,
    count_steps,
    describe_examples,
    describe_rewards,
    describe_rows,
    digest_prompts,
    digest_weights,
)
from groupwise.inference import Sampling
from groupwise.models import find_weights, open_processor
from groupwise.pipeline import StepContext
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.policies import find_base
from groupwise_recipes.on_task.screens import read_warmup
from groupwise_recipes.on_task.warmup import make_warmup_rows

TRAINED = ("sft", "sft_same_labels", "grpo")
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
    base = find_base(config, context.run)
    processor = open_processor(base)
    warmup = describe_rows(prepared / "warmup.jsonl")
    return Conditions(
        data={"warmup": warmup, **{n: describe_examples(rows) for n, rows in splits.items()}},
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=digest_json(processor.chat_template),
        tokenizer=digest_json(processor.tokenizer.backend_tokenizer.to_str()),
        base_weights=digest_weights(find_weights(base)),
        decoding=dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=dump_config(config.answer),
        normalizer=None,
        judge=_read_judge(config, context),
        metrics=METRIC_VERSIONS,
        rewards=_list_rewards(config),
        budget=_count_budget(config, context, processor.tokenizer, num_train=len(splits["train"])),
        lineage=USUAL_LINEAGE,
        reads=USUAL_READS,
        sections=_SECTIONS,
    )


def _read_judge(config: OnTaskConfig, context: StepContext) -> str | None:
    if config.judge is None:
        return None
    report = json.loads((context.output_of("grpo") / "judge.json").read_text("utf-8"))
    return report["version"]


def _list_rewards(config: OnTaskConfig) -> dict[str, Any]:
    """Return the weights that count, as shares; a part that is not there has none."""
    given = config.rewards.model_dump(exclude={"visual_verifier"})
    if config.judge is None:
        del given["judge"]
    return describe_rewards(given)


def _count_budget(
    config: OnTaskConfig, context: StepContext, tokenizer: Any, *, num_train: int
) -> dict[str, dict[str, float]]:
    """Count steps, rows or completions, and the tokens that were trained on."""
    sft, same_labels, grpo = (context.output_of(name) for name in TRAINED)
    return {
        "sft": {
            "num_steps": count_steps(sft / "metrics.jsonl"),
            **_count_targets(config, context, tokenizer),
        },
        "sft_same_labels": {
            "num_steps": count_steps(same_labels / "metrics.jsonl"),
            "num_samples": config.grpo.epochs * num_train,
        },
        "grpo": count_grpo_budget(grpo, gradient_accumulation=config.grpo.gradient_accumulation),
    }


def _count_targets(config: OnTaskConfig, context: StepContext, tokenizer: Any) -> dict[str, int]:
    rows = make_warmup_rows(read_warmup(context.output_of("prepare")), config)
    taught = [row for epoch in range(config.sft.epochs) for row in rows(epoch)]
    encoded = tokenizer([row.target for row in taught], add_special_tokens=False)["input_ids"]
    num_ends = sum(row.is_finished for row in taught)
    return {"num_samples": len(taught), "num_tokens": sum(map(len, encoded)) + num_ends}
