"""Judges by rule whether a reasoning about a drawn scene entails its answer, be it right or wrong.

What the picture shows does not matter: only whether the answer follows from what is written. Words
count, and boxes where they lie wholly beside or above each other.

It reads the made language of ``reasoning`` and little else; of what it does not understand it
gives no verdict. It is no judge of text that was not taught here: of 80 sound cases in free words
by somebody who had not seen it, it gave a verdict on 36, and 3 of these were wrong.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from groupwise.core import DataError
from groupwise.rewards import Box, BoxParser
from groupwise_recipes.visual_reasoning.claims import (
    Claim,
    Sentences,
    is_same_thing,
    read_claim,
    read_sentences,
)

Fault = Literal["contradiction", "missing_detail", "irrelevant", "other"]
"""How reasoning fails to entail an answer; rules never say ``other``."""

# In a sentence that is not understood, these may turn around what was said before.
_DOUBT = re.compile(r"\b(?:not|no|wrong|false|however|opposite|instead|never)\b|不|错|假|相反|没有")
_BOXES = BoxParser(words=True)


@dataclass(frozen=True, slots=True)
class Entailment:
    """A verdict.

    Attributes:
        aligns: whether the reasoning entails the answer; None: no verdict, because a sentence that
            may matter is not understood.
        type: how it fails to; None if it does, or without a verdict.
        why: for a person to read.
    """

    aligns: bool | None
    type: Fault | None
    why: str


def judge_entailment(statement: str, reasoning: str, *, answer: bool) -> Entailment:
    """Return whether a reasoning entails that a statement is as true as the answer says.

    Args:
        statement: a caption of a drawn scene, in English or Chinese.
        reasoning: what stands in ``<think>``.
        answer: that the completion gives.

    Raises:
        DataError: if the statement claims no relation of two things.
    """
    asked = read_claim(statement)
    if asked is None:
        raise DataError("no relation of two things is claimed", got=statement)
    said = read_sentences(reasoning)
    findings = [truth for claim in said.claims if (truth := _compare(claim, asked)) is not None]
    reasons = {*findings, *_read_boxes(reasoning, asked)}
    says = reasons | {*said.conclusions}
    if len(says) == 2:
        return _fail("contradiction", "it says of the statement that it is true and that it is not")
    if says == {not answer}:
        return _fail("contradiction", f"by it the statement is {not answer}, not {answer}")
    unread = [
        sentence
        for sentence in said.others
        if _DOUBT.search(sentence) or (not reasons and _names(sentence, asked))
    ]
    if unread:
        return Entailment(None, None, f"it says something that is not understood: {unread[0]!r}")
    if reasons:
        return Entailment(True, None, f"by it the statement is {answer}")
    return _find_gap(said, reasoning, asked)


def _find_gap(said: Sentences, reasoning: str, asked: Claim) -> Entailment:
    """Return why a reasoning gives no reason for either answer."""
    if said.conclusions or not reasoning.strip():
        return _fail("missing_detail", "it gives no reason")
    if said.claims and not any(_is_about(claim, asked) for claim in said.claims):
        return _fail("irrelevant", "it tells another relation, or one of other things")
    if said.claims or _names(reasoning, asked):
        return _fail("missing_detail", "it leaves open whether the statement is true")
    return _fail("irrelevant", "it is about neither of the two things")


def _fail(fault: Fault, why: str) -> Entailment:
    return Entailment(False, fault, why)


def _names(reasoning: str, asked: Claim) -> bool:
    words = reasoning.casefold()
    return any(name.split()[-1] in words for name in (asked.subject, asked.other))


def _is_about(claim: Claim, asked: Claim) -> bool:
    return any(
        is_same_thing(seen.subject, asked.subject)
        and is_same_thing(seen.other, asked.other)
        and seen.relation in (asked.relation, asked.turn().relation)
        for seen in (claim, claim.turn())
    )


def _compare(claim: Claim, asked: Claim) -> bool | None:
    """Return whether a claim makes the statement true or false; None if it leaves that open."""
    for seen in (claim, claim.turn()):
        names_both = is_same_thing(seen.subject, asked.subject) and is_same_thing(
            seen.other, asked.other
        )
        if names_both and seen.relation == asked.relation:
            return not seen.is_denied
        if names_both and seen.relation == asked.turn().relation and not seen.is_denied:
            return False
    return None


def _read_boxes(reasoning: str, asked: Claim) -> Iterator[bool]:
    """Yield whether the statement holds for the boxes of its things, if they lie wholly apart."""
    boxes = [box for box in _BOXES.parse(reasoning).value or () if box is not None and box.label]
    subject, other = (
        next((box for box in boxes if is_same_thing(box.label, name)), None)
        for name in (asked.subject, asked.other)
    )
    if subject is None or other is None:
        return
    holds, fails = _order(subject, other, asked), _order(other, subject, asked)
    if holds != fails:
        yield holds


def _order(one: Box, two: Box, asked: Claim) -> bool:
    match asked.relation:
        case "left of":
            return one.x2 <= two.x1
        case "right of":
            return two.x2 <= one.x1
        case "above":
            return one.y2 <= two.y1
        case "below":
            return two.y2 <= one.y1
        case _:
            return False
