"""What the numbers of a run depend on, for whoever compares it with another one."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.core import Example, digest_json, dump_config
from groupwise.data import read_examples
from groupwise.evaluation import (
    METRIC_VERSIONS,
    USUAL_LINEAGE,
    USUAL_READS,
    Conditions,
    Measure,
    count_grpo_budget,
    count_steps,
    describe_examples,
    describe_rewards,
    digest_prompts,
    digest_weights,
)
from groupwise.inference import Sampling
from groupwise.models import find_weights, open_processor
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.policies import find_base
from groupwise_recipes.group_qc.stage_b import choose_few, make_label_rows
from groupwise_recipes.group_qc.verdicts import (
    CONTRACT,
    FALSE_ALARMS,
    MISSED,
    OBEYED,
    TWO_LINES,
)

TRAINED = ("sft", "sft_same_labels", "grpo")
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("model", "data", "teach", "summaries"),
    "baselines": (),
    "sft": ("model", "sft"),
    "sft_same_labels": ("model", "sft", "grpo"),
    "grpo": ("model", "rewards", "grpo", "evaluation"),
}

MEASURES = (
    Measure(MISSED, "Missed defects", "漏检率", is_higher_better=False),
    Measure(FALSE_ALARMS, "False alarms", "误报率", is_higher_better=False),
    Measure(OBEYED, "Obeys orders", "听从描述中的命令", is_higher_better=False),
    Measure(TWO_LINES, "Two lines", "两行格式"),
)
"""What this recipe measures beside what every recipe does."""


def describe_conditions(
    config: GroupQcConfig, context: StepContext, test: Sequence[Example]
) -> Conditions:
    """Return the conditions of a run whose policies were asked about ``test``."""
    data = context.output_of("stage_b_data")
    names = ("warmup", "train", "validation")
    splits = {name: read_examples(data / f"{name}.jsonl") for name in names}
    splits["test"] = list(test)
    base = find_base(config, context.run)
    processor = open_processor(base)
    return Conditions(
        data={name: describe_examples(rows) for name, rows in splits.items()},
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=digest_json(processor.chat_template),
        tokenizer=digest_json(processor.tokenizer.backend_tokenizer.to_str()),
        base_weights=digest_weights(find_weights(base)),
        decoding=dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=dict(CONTRACT),
        normalizer=None,
        judge=None,
        metrics=METRIC_VERSIONS,
        rewards=describe_rewards(config.rewards.by_name),
        budget=_count_budget(config, context, processor.tokenizer, splits),
        lineage=USUAL_LINEAGE,
        reads=USUAL_READS,
        sections=_SECTIONS,
        measures=MEASURES,
    )


def _count_budget(
    config: GroupQcConfig,
    context: StepContext,
    tokenizer: Any,
    splits: Mapping[str, Sequence[Example]],
) -> dict[str, dict[str, float]]:
    """Count steps, rows or completions, and the tokens that were trained on."""
    sft, same_labels, grpo = (context.output_of(name) for name in TRAINED)
    few = choose_few(splits["warmup"], config.sft.num_groups, seed=config.seed)
    targets = [row.target for row in make_label_rows(few)(0)]
    encoded = tokenizer(targets, add_special_tokens=False)["input_ids"]
    return {
        "sft": {
            "num_steps": count_steps(sft / "metrics.jsonl"),
            "num_samples": config.sft.epochs * len(few),
            "num_tokens": config.sft.epochs * sum(len(ids) + 1 for ids in encoded),
        },
        "sft_same_labels": {
            "num_steps": count_steps(same_labels / "metrics.jsonl"),
            "num_samples": config.grpo.epochs * len(splits["train"]),
        },
        "grpo": count_grpo_budget(grpo, gradient_accumulation=config.grpo.gradient_accumulation),
    }
