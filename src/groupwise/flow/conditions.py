"""What the numbers of a run depend on, for whoever compares it with another one."""

from collections.abc import Sequence
from typing import Any

from groupwise.core import Example, digest_json, dump_config
from groupwise.evaluation import (
    METRIC_VERSIONS,
    Conditions,
    describe_examples,
    describe_rows,
    digest_prompts,
    digest_weights,
)
from groupwise.flow.task import Task, read_splits
from groupwise.inference import Sampling
from groupwise.models import find_weights, open_processor
from groupwise.pipeline import StepContext


def describe_conditions(
    task: Task[Any], context: StepContext, test: Sequence[Example]
) -> Conditions:
    """Return the conditions of a run whose policies were asked about ``test``."""
    config, data = context.config, context.output_of(task.data_stage)
    splits = {**read_splits(data, "train", "validation"), "test": list(test)}
    warmup = data / "warmup.jsonl"
    base = task.find_base(config, context.run)
    processor = open_processor(base)
    tokenizer = getattr(processor, "tokenizer", processor)
    return Conditions(
        data={
            **({"warmup": describe_rows(warmup)} if warmup.is_file() else {}),
            **{name: describe_examples(rows) for name, rows in splits.items()},
        },
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=digest_json(processor.chat_template),
        tokenizer=digest_json(tokenizer.backend_tokenizer.to_str()),
        base_weights=digest_weights(find_weights(base)),
        decoding=dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=task.describe_parser(config),
        normalizer=None,
        metrics=METRIC_VERSIONS,
        measures=task.measures,
    )
