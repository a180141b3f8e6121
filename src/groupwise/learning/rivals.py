"""Rivals of a candidate: they know what it was taught, and nothing was trained for them.

Today people put corrections into the prompt, or look them up. A candidate that is not better than
that was not worth its training.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core import Example, Message
from groupwise.data import read_examples
from groupwise.evaluation import Prediction, predict_each
from groupwise.evaluation.baselines import read_text
from groupwise.feedback import read_items
from groupwise.flow import Task, ask_policy, make_ask, open_policy
from groupwise.learning.memory import Memory
from groupwise.learning.nearness import Nearness
from groupwise.learning.rival_results import USED
from groupwise.learning.round import LEARNED
from groupwise.learning.rows import ORIGIN
from groupwise.models import Policy
from groupwise.models.prompts import make_token_counter
from groupwise.pipeline import StepContext
from groupwise.training import SftRow

RULES = "Right answers to earlier questions:"
Write = Callable[[Example, Sequence[SftRow]], Example]


def ask_rivals(
    task: Task[Any],
    context: StepContext,
    examples: Sequence[Example],
    served: Sequence[Prediction],
) -> list[Prediction]:
    """Return what the rivals that the config names answer.

    Args:
        task: of the round.
        context: of the stage that asks; predictions are kept in its folder.
        examples: questions of sessions that test.
        served: what the served version answers to them, in the same order.
    """
    config = context.config
    learned = read_learned(context.output_of("prepare"))

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, config.model.base)
        if name == "memory":
            others = read_examples(context.output_of("prepare") / "validation.jsonl")
            known = [*learned, *others[: config.evaluation.num_heldout_items]]
            texts = make_ask(policy, config)(known)
            said = [one.label for one in task.read_answers(config, context.run, known, texts)]
            memory = Memory(learned, known[len(learned) :], said, margin=config.margin)
            return memory.answer(examples, served)
        rows = task.control(config, learned, make_ask(policy, config))(0)
        write = write_turns if name == "nearest" else write_rules
        prompts = _fill_prompts(policy, config, rows, examples, write)
        answers = ask_policy(task, policy, [one for one, _ in prompts], context, name=name)
        return [
            _restore(answer, example, num)
            for example, answer, (_, num) in zip(examples, answers, prompts, strict=True)
        ]

    names = dict.fromkeys(config.rivals if examples else ())
    return predict_each(names, ask, folder=context.folder)


def read_learned(prepared: Path) -> list[Example]:
    """Return what the candidate was taught of people's words: each item once, without variants."""
    known = {item.shown.id for item in read_items(prepared / LEARNED)}
    first: dict[str, Example] = {}
    for one in read_examples(prepared / "train.jsonl"):
        if (origin := str(one.fields.get(ORIGIN))) in known:
            first.setdefault(origin, one)
    return list(first.values())


def write_turns(asked: Example, shown: Sequence[SftRow]) -> Example:
    """Return a question behind others, as turns with their right answers."""
    system = [turn for turn in asked.prompt if turn.role == "system"]
    turns = [
        turn
        for row in shown
        for turn in (*_skip_system(row.example), Message("assistant", row.target))
    ]
    return replace(asked, prompt=(*system, *turns, *_skip_system(asked)))


def write_rules(asked: Example, shown: Sequence[SftRow]) -> Example:
    """Return a question whose last turn begins with lines of words and labels, no pictures."""
    lines = dict.fromkeys(
        f"{' '.join(read_text(row.example).split())} → {row.example.label}" for row in shown
    )
    if not lines:
        return asked
    *before, last = asked.prompt
    rules = "\n".join([RULES, *lines]) + "\n\n"
    return replace(asked, prompt=(*before, Message(last.role, (rules, *last.parts))))


def count_fitting(
    asked: Example,
    shown: Sequence[SftRow],
    *,
    write: Write,
    count_tokens: Callable[[Example], int],
    limit: int,
) -> int:
    """Return how many rows, the first ones, fit into a prompt of at most ``limit`` tokens."""

    def measure(num: int) -> int:
        return count_tokens(write(asked, shown[:num]))

    high = 1  # so that no prompt is much longer than what fits
    while high < len(shown) and measure(high) <= limit:
        high *= 2
    sizes = range(min(high, len(shown)) + 1)
    return max(0, bisect_right(sizes, limit, key=measure) - 1)


def _fill_prompts(
    policy: Policy,
    config: Any,
    rows: Sequence[SftRow],
    examples: Sequence[Example],
    write: Write,
) -> list[tuple[Example, int]]:
    """Return prompts with the nearest rows that fit, the very nearest last, and how many fit."""
    count = make_token_counter(policy.processor, has_vision=policy.has_vision)
    limits = [config.data.budget.max_prompt_tokens]
    if policy.max_tokens is not None:
        limits.append(policy.max_tokens - config.grpo.max_new_tokens)
    orders = Nearness([row.example for row in rows]).measure(examples).argsort(kind="stable")
    found: list[tuple[Example, int]] = []
    for example, order in zip(examples, orders, strict=True):
        nearest = [rows[int(place)] for place in order]
        num = count_fitting(example, nearest, write=write, count_tokens=count, limit=min(limits))
        found.append((write(example, nearest[:num][::-1]), num))
    return found


def _restore(answer: Prediction, asked: Example, num_used: int) -> Prediction:
    """Return a prediction with the pictures of its own question alone."""
    return replace(
        answer,
        pictures=tuple(str(picture.path) for picture in asked.pictures),
        picture_digests=tuple(picture.digest for picture in asked.pictures),
        fields=_note(answer, num_used),
    )


def _note(answer: Prediction, num_used: int) -> dict[str, Any]:
    return {**answer.fields, USED: num_used}


def _skip_system(example: Example) -> list[Message]:
    return [turn for turn in example.prompt if turn.role != "system"]
