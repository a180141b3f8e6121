"""The baselines, evaluate and report steps."""

from collections.abc import Sequence

from groupwise.core import DataError, Example, ProgressLine, Say, derive_seed
from groupwise.data import list_near_examples, read_examples
from groupwise.evaluation import (
    Prediction,
    compare_pairs,
    compute_metrics,
    mark_near_duplicates,
    predict_each,
    predict_majority,
    predict_picture_only,
    predict_text_only,
    read_predictions,
    write_evaluation,
    write_predictions,
)
from groupwise.inference import LocalEngine, Sampling, time_answers
from groupwise.models import Policy
from groupwise.pipeline import StepContext
from groupwise_recipes.on_task.conditions import TRAINED, describe_conditions
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.policies import find_base, open_policy

SPLIT = "test"
COMPARED = (
    ("sft", "grpo"),
    ("sft_same_labels", "grpo"),
    ("prompt", "grpo"),
    ("text_only", "grpo"),
    ("picture_only", "grpo"),
)


def run_baselines(config: OnTaskConfig, context: StepContext) -> None:
    """Predict without the policy, and with the untrained policy by prompting."""
    prepared = context.output_of("prepare")
    train = read_examples(prepared / "train.jsonl")
    test = draw_items(read_examples(prepared / f"{SPLIT}.jsonl"), config)
    found: list[Prediction] = []
    for predict in (predict_majority, predict_text_only, predict_picture_only):
        found += predict(train, test, split=SPLIT, seed=config.seed)
    policy = open_policy(config, find_base(config, context.run))
    found += ask_policy(policy, test, config, name="prompt", say=context.say)
    write_predictions(context.folder / "predictions.jsonl", found)


def run_evaluation(config: OnTaskConfig, context: StepContext) -> None:
    """Ask every trained policy, and measure and compare all of them."""
    test = draw_items(read_examples(context.output_of("prepare") / f"{SPLIT}.jsonl"), config)
    found = read_predictions(context.output_of("baselines") / "predictions.jsonl")

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, context.output_of(name) / "policy")
        return ask_policy(policy, test, config, name=name, say=context.say)

    found += predict_each(TRAINED, ask, folder=context.folder)
    labels = config.answer.labels
    near = list_near_examples(context.output_of("audit"), test, split=SPLIT)
    found, near_slice = mark_near_duplicates(found, near)
    slices = (*_list_slices(test), *near_slice)
    metrics = compute_metrics(found, labels=labels, seed=config.seed, slices=slices)
    write_evaluation(
        context.folder,
        found,
        metrics=metrics,
        comparisons=compare_pairs(found, COMPARED, split=SPLIT, seed=config.seed),
        conditions=describe_conditions(config, context, test),
    )


def draw_items(examples: Sequence[Example], config: OnTaskConfig) -> list[Example]:
    """Return ``evaluation.num_items`` of the examples in their order, or all of them.

    Each has its place by the seed and its id, so fewer are always among more.

    Raises:
        DataError: if there are not so many.
    """
    num_items = config.evaluation.num_items
    if num_items is None:
        return list(examples)
    if num_items > len(examples):
        raise DataError(
            f"the {SPLIT} split has fewer items than evaluation.num_items asks for",
            got=num_items,
            expected=f"at most {len(examples)}",
        )
    places = [derive_seed(config.seed, "item", example.id) for example in examples]
    chosen = sorted(range(len(examples)), key=places.__getitem__)[:num_items]
    return [examples[index] for index in sorted(chosen)]


def ask_policy(
    policy: Policy, examples: Sequence[Example], config: OnTaskConfig, *, name: str, say: Say
) -> list[Prediction]:
    """Ask a policy under greedy decoding; the first items are asked one by one and timed."""
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    progress = ProgressLine(f"questions answered by {name}", say)
    replies = engine.generate(examples, sampling=sampling, report_progress=progress)
    texts = [found.text for [found] in replies]
    answers = [config.answer.parse(text) for text in texts]
    shares = engine.label_probabilities(
        examples, labels=config.answer.labels, leads=[answer.prefix for answer in answers]
    )
    latencies = time_answers(
        policy, examples, sampling=sampling, num_timed=config.evaluation.num_latency_items
    )
    return [
        Prediction(
            example_id=example.id,
            group=example.group,
            split=SPLIT,
            policy=name,
            label=str(example.label),
            predicted=answer.label,
            reason=answer.reason,
            text=text,
            probabilities=None if answer.label is None else share,
            latency_s=latency_s,
            pictures=tuple(str(picture.path) for picture in example.pictures),
            fields=dict(example.fields),
        )
        for example, text, answer, share, latency_s in zip(
            examples, texts, answers, shares, latencies, strict=True
        )
    ]


def _list_slices(examples: Sequence[Example]) -> tuple[str, ...]:
    wanted = ("language", "difficulty")
    return tuple(name for name in wanted if all(name in e.fields for e in examples))
