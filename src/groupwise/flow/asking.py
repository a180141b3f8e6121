"""Opening a policy and asking it, always under greedy decoding."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example, ProgressLine, derive_seed
from groupwise.evaluation import Prediction
from groupwise.flow.task import Task
from groupwise.inference import LocalEngine, Sampling, time_answers
from groupwise.models import Policy, load_policy
from groupwise.pipeline import StepContext
from groupwise.rewards import Parsed, read_leniently

LENIENT = "prompt_lenient"


def open_policy(config: Any, name: str | Path) -> Policy:
    """Load a policy as ``model`` says; an adapter brings its base along."""
    model = config.model
    return load_policy(
        name, dtype=model.dtype, max_pixels=model.max_pixels, quantization=model.quantization
    )


def make_ask(policy: Policy, config: Any) -> Callable[..., list[str]]:
    """Return an ``Ask`` of a policy; ``report_progress`` may be given by name."""
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)

    def ask(examples: Sequence[Example], **named: Any) -> list[str]:
        replies = engine.generate(examples, sampling=sampling, **named)
        return [found.text for [found] in replies]

    return ask


def check_heldout(
    task: Task[Any], policy: Policy, examples: Sequence[Example], config: Any, *, run: Path
) -> Mapping[str, float]:
    """Return accuracy, the share of invalid answers and the task's own measures.

    ``commonest`` is the share of the items that get the commonest answer, ``majority`` that of the
    commonest truth.

    The first value is the one that a checkpoint is chosen by: the task's headline measure where it
    is measured here and more of it is better, else accuracy.
    """
    texts = make_ask(policy, config)(examples)
    found = task.read_answers(config, run, examples, texts)
    hits = sum(one.label == example.label for one, example in zip(found, examples, strict=True))
    num_items = len(examples)
    values = {
        "accuracy": hits / num_items,
        "invalid": sum(one.label is None for one in found) / num_items,
        **task.measure_heldout(config, examples, texts),
        "commonest": _count_commonest(one.label for one in found) / num_items,
        "majority": _count_commonest(example.label for example in examples) / num_items,
        "n": num_items,
    }
    lower = [one.name for one in task.measures if not one.is_higher_better]
    is_headline = task.headline in values and task.headline not in lower
    chosen_by = task.headline if is_headline else "accuracy"
    return {chosen_by: values[chosen_by], **values}


def _count_commonest(labels: Iterable[str | None]) -> int:
    counts = Counter(label for label in labels if label is not None)
    return max(counts.values(), default=0)


def ask_policy(
    task: Task[Any], policy: Policy, examples: Sequence[Example], context: StepContext, *, name: str
) -> list[Prediction]:
    """Return a policy's predictions; the first items are asked one by one and timed."""
    config = context.config
    labels, ask = task.parser(config).labels, make_ask(policy, config)
    progress = ProgressLine(f"{task.things} answered by {name}", context.say)
    texts = ask(examples, report_progress=progress)
    scores = task.probe(config, ask, examples, texts)
    answers = task.read_answers(config, context.run, examples, texts)
    shares = share_labels(policy, examples, answers, labels=labels, config=config)
    latencies = time_answers(
        policy,
        examples,
        sampling=Sampling(max_new_tokens=config.grpo.max_new_tokens),
        num_timed=config.evaluation.num_latency_items,
    )
    return [
        Prediction(
            example_id=example.id,
            cluster=example.cluster,
            split="test",
            policy=name,
            label=str(example.label),
            predicted=answer.label,
            reason=answer.reason,
            text=text,
            probabilities=None if answer.label is None else share,
            latency_s=latency_s,
            pictures=tuple(str(picture.path) for picture in example.pictures),
            picture_digests=tuple(picture.digest for picture in example.pictures),
            fields=dict(example.fields),
            scores=own,
        )
        for example, text, answer, share, latency_s, own in zip(
            examples, texts, answers, shares, latencies, scores, strict=True
        )
    ]


def read_again(
    task: Task[Any],
    policy: Policy,
    examples: Sequence[Example],
    asked: Sequence[Prediction],
    config: Any,
) -> list[Prediction]:
    """Return an untrained policy's predictions, as well as it can be understood.

    Nobody has taught it the form of an answer: it says the label that its text names, and where
    that names none, or several, the label that it finds likeliest. Nothing for open answers.
    """
    parser = task.parser(config)
    if not parser.labels:
        return []
    bare = [Parsed(None, "not answered yet")] * len(examples)
    shares = share_labels(policy, examples, bare, labels=parser.labels, config=config)
    return [
        replace(
            one,
            policy=LENIENT,
            predicted=read_leniently(parser, one.text, example)
            or max(share, key=share.__getitem__),
            reason="",
            probabilities=share,
            latency_s=None,
            scores={},
        )
        for example, one, share in zip(examples, asked, shares, strict=True)
        if share is not None
    ]


def share_labels(
    policy: Policy,
    examples: Sequence[Example],
    answers: Sequence[Parsed],
    *,
    labels: Sequence[str],
    config: Any,
) -> Sequence[Mapping[str, float] | None]:
    """Return the labels' probabilities behind what a policy said before; None for open answers."""
    if not labels:
        return [None] * len(examples)
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    prefixes = [answer.prefix for answer in answers]
    return engine.label_probabilities(examples, labels=labels, leads=prefixes)


def draw_items(examples: Sequence[Example], config: Any) -> list[Example]:
    """Return ``evaluation.num_items`` of the test items in their order, or all of them.

    Raises:
        DataError: if there are not so many.
    """
    num_items = config.evaluation.num_items
    if num_items is None:
        return list(examples)
    if num_items > len(examples):
        raise DataError(
            "the test split has fewer items than evaluation.num_items asks for",
            got=num_items,
            expected=f"at most {len(examples)}",
        )
    return choose_items(examples, config.seed, num_items)


def choose_items(examples: Sequence[Example], seed: int, num_items: int) -> list[Example]:
    """Return so many items in their order, or all of them where there are no more.

    Each has its place by the seed and its id, so fewer are always among more.
    """
    places = [derive_seed(seed, "item", example.id) for example in examples]
    chosen = sorted(range(len(examples)), key=places.__getitem__)[:num_items]
    return [examples[index] for index in sorted(chosen)]
