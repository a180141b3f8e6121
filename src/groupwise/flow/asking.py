"""Opening a policy and asking it, always under greedy decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    Completion,
    DataError,
    Example,
    ProgressLine,
    TrainingError,
    derive_seed,
)
from groupwise.evaluation.predictions import Prediction, read_predictions, write_predictions
from groupwise.flow.policies import LENIENT
from groupwise.inference.local import LocalModel, time_answers
from groupwise.inference.model import Sampling
from groupwise.models.policy import Policy, load_policy
from groupwise.pipeline import StepContext
from groupwise.rewards import Parsed, read_leniently

if TYPE_CHECKING:
    from groupwise.flow.task import Task


def open_policy(config: Any, name: str | Path) -> Policy:
    """Load a policy as ``model`` says; an adapter brings its base along."""
    model = config.model
    return load_policy(
        name, dtype=model.dtype, max_pixels=model.max_pixels, quantization=model.quantization
    )


@cache
def _take_greedily(max_new_tokens: int) -> Sampling:
    return Sampling(max_new_tokens=max_new_tokens)


def answer_greedily(
    policy: Policy, config: Any, examples: Sequence[Example], **named: Any
) -> list[Completion]:
    """Return a policy's greedy answers; ``report_progress`` may be given by name."""
    engine = LocalModel(policy, batch_size=config.evaluation.batch_size)
    sampling = _take_greedily(config.grpo.max_new_tokens)
    return [found for [found] in engine.generate(examples, sampling=sampling, **named)]


def make_ask(policy: Policy, config: Any) -> Callable[..., list[str]]:
    """Return an ``Ask`` of a policy; ``report_progress`` may be given by name."""

    def ask(examples: Sequence[Example], **named: Any) -> list[str]:
        return [found.text for found in answer_greedily(policy, config, examples, **named)]

    return ask


def check_heldout(
    task: Task[Any], policy: Policy, examples: Sequence[Example], config: Any, *, run: Path
) -> Mapping[str, float]:
    """Return the task's own measures, the share of invalid answers and, with labels, accuracy.

    ``commonest`` is the share of the items that get the commonest answer, ``majority`` that of the
    commonest truth, where there are truths.

    The first value is the one that a checkpoint is chosen by: the task's headline measure where it
    is measured here and more of it is better, else accuracy, else the first of the task's own.
    """
    answers = answer_greedily(policy, config, examples)
    texts = [answer.text for answer in answers]
    found = task.read_answers(config, run, examples, texts)
    num_items, own = len(examples), task.list_measures(config)
    scores = task.score_answers(config, run, examples, answers)
    values = {
        **{
            name: fmean(one[name] for one in scores if name in one)
            for name in dict.fromkeys(name for one in scores for name in one)
        },
        "invalid": sum(one.label is None for one in found) / num_items,
        **task.measure_heldout(config, examples, texts),
        "commonest": _count_commonest(one.label for one in found) / num_items,
        "n": num_items,
    }
    if any(example.label is not None for example in examples):
        right = [a.label == b.label for a, b in zip(found, examples, strict=True)]
        values["accuracy"] = sum(right) / num_items
        values["majority"] = _count_commonest(one.label for one in examples) / num_items
    preferred = (task.headline, "accuracy", *(one.name for one in own))
    lower = [one.name for one in own if not one.is_higher_better]
    chosen_by = next((n for n in preferred if n in values and n not in lower), None)
    if chosen_by is None:
        raise TrainingError(
            f"none of {num_items} held-out answers has a value by which to choose",
            got=f"no value of {', '.join(one.name for one in own)}",
            fix="let the first measure return a number for every answer",
        )
    return {chosen_by: values[chosen_by], **values}


def _count_commonest(labels: Iterable[str | None]) -> int:
    counts = Counter(label for label in labels if label is not None)
    return max(counts.values(), default=0)


_REFUSED = "could not be asked"

Answer = Callable[..., Sequence[Completion]]
"""Returns a policy's answers to questions; ``report_progress`` may be given by name."""


def ask_policy(
    task: Task[Any],
    policy: Policy,
    examples: Sequence[Example],
    context: StepContext,
    *,
    name: str,
    answer: Answer | None = None,
) -> list[Prediction]:
    """Return a policy's predictions.

    Args:
        task: of the recipe.
        policy: who is asked.
        examples: what is asked.
        context: of the step.
        name: of the policy in predictions.
        answer: how it answers; None: greedily, each label with its probability, and the first
            items are asked one by one and timed.

    Returns:
        One for each example, in order; one that the policy's processor does not take has no
        answer, and says why.
    """
    ask = partial(_ask_taken, task, policy, context=context, name=name, answer=answer)
    try:
        return ask(examples)
    except DataError:
        refused = LocalModel(policy).explain_refused(examples)
        taken = [one for one in examples if one.id not in refused]
        if not refused or not taken:
            raise
    first, why = next(iter(refused.items()))
    counted = f"{len(refused)} of {len(examples)} {task.things}"
    context.say(f"{counted} {_REFUSED}, such as {first}: {why}")
    asked = iter(ask(taken))
    found: list[Prediction] = []
    for one in examples:
        if one.id not in refused:
            found.append(next(asked))
            continue
        # Scored as an empty answer is.
        [scores] = task.score_answers(context.config, context.run, [one], [Completion("", ())])
        nothing = Parsed(None, f"{_REFUSED} ({refused[one.id]})")
        found.append(_predict(one, name, nothing, scores=scores))
    return found


def predict_each(
    policies: Iterable[str], ask: Callable[[str], Iterable[Prediction]], *, folder: Path
) -> list[Prediction]:
    """Return the predictions of policies, each asked once and kept in ``<policy>.jsonl``.

    So a step that is killed between two policies does not ask the first one again.
    """
    found: list[Prediction] = []
    for policy in policies:
        path = folder / f"{policy}.jsonl"
        if not path.exists():
            write_predictions(path, ask(policy))
        found += read_predictions(path)
    return found


def _predict(example: Example, name: str, found: Parsed, **others: Any) -> Prediction:
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=name,
        label=example.label,
        predicted=found.label,
        reason=found.reason,
        pictures=tuple(str(picture.path) for picture in example.pictures),
        picture_digests=tuple(picture.digest for picture in example.pictures),
        fields=dict(example.fields),
        **{"text": "", "probabilities": None, "latency_s": None, **others},
    )


def _ask_taken(
    task: Task[Any],
    policy: Policy,
    examples: Sequence[Example],
    *,
    context: StepContext,
    name: str,
    answer: Answer | None,
) -> list[Prediction]:
    config = context.config
    progress = ProgressLine(f"{task.things} answered by {name}", context.say)
    say = answer or partial(answer_greedily, policy, config)
    said = say(examples, report_progress=progress)
    texts = [one.text for one in said]
    probed = task.probe(config, make_ask(policy, config), examples, texts)
    scored = task.score_answers(config, context.run, examples, said)
    answers = task.read_answers(config, context.run, examples, texts)
    labels = () if answer else task.parser(config).labels
    shares = share_labels(policy, examples, answers, labels=labels, config=config)
    latencies = time_answers(
        policy,
        examples,
        sampling=Sampling(max_new_tokens=config.grpo.max_new_tokens),
        num_timed=0 if answer else config.evaluation.num_latency_items,
    )
    return [
        _predict(
            example,
            name,
            found,
            text=text,
            probabilities=None if found.label is None else share,
            latency_s=latency_s,
            scores={**one, **two},
        )
        for example, text, found, share, latency_s, one, two in zip(
            examples, texts, answers, shares, latencies, probed, scored, strict=True
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
    taken = [
        (example, one)
        for example, one in zip(examples, asked, strict=True)
        if not one.reason.startswith(_REFUSED)
    ]
    bare = [Parsed(None, "not answered yet")] * len(taken)
    known = [example for example, _ in taken]
    shares = share_labels(policy, known, bare, labels=parser.labels, config=config)
    refused = [replace(one, policy=LENIENT) for one in asked if one.reason.startswith(_REFUSED)]
    return refused + [
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
        for (example, one), share in zip(taken, shares, strict=True)
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
    engine = LocalModel(policy, batch_size=config.evaluation.batch_size)
    prefixes = [answer.prefix for answer in answers]
    return engine.label_probabilities(examples, labels=labels, leads=prefixes)


def draw_items(examples: Sequence[Example], config: Any) -> list[Example]:
    """Return ``evaluation.num_items`` of the test items in their order, or all of them."""
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
