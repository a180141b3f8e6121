"""Judges by rule whether a reasoning about a drawn scene entails its answer, be it right or wrong.

What the picture shows does not matter: only whether the answer follows from what is written. Words
count (``claims``), and boxes where they lie wholly beside or above each other. A verdict is only
given where every sentence that may matter was understood.

Other people wrote five sets of cases in free words before they had seen the judge, each set for
the judge of its day. At first sight it gave a verdict on 36 of the 80 sound cases of the first set,
3 of them wrong; of the second set on 45 of 120, 7 of them wrong, and it found 34 of 70
contradictions; of the third set on 51 of 60, 2 of them wrong, and it found 33 of 36; of the fourth
on 111 of 150, 3 of them wrong, and it found 84 of 110. These have been read since to extend it.
The fifth has not: 149 of 200, none wrong, and 73 of 90 contradictions found. No faulty case of any
set was ever called aligned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core import DataError
from groupwise.rewards import Box, BoxParser
from groupwise_recipes.visual_reasoning.claims import Claim, Reading, read_claim
from groupwise_recipes.visual_reasoning.wording import find_name

Fault = Literal["contradiction", "missing_detail", "irrelevant", "other"]
"""How reasoning fails to entail an answer; rules never say ``other``."""

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
    """Return whether a reasoning entails that a statement is as true as the answer says."""
    asked = read_claim(statement)
    if asked is None:
        raise DataError("no relation of two things is claimed", got=statement)
    said = Reading(asked)
    said.read(reasoning)
    told = {*_find_truths(said.claims, asked)}
    reasons = told | {*_read_boxes(reasoning, asked)}
    if said.unread:
        return _abstain(f"it says something that is not understood: {said.unread!r}")
    if len(reasons) != 1 and said.may_correct_itself:
        return _abstain("it may correct itself")
    if len(told) == 2 and not said.is_whole:
        return _abstain("it says both, and not all of it is understood")
    if reasons and {*_find_truths(said.hints, asked)} - reasons:
        return _abstain("it tells a place that does not fit what it says")
    says = reasons | {*said.conclusions} | {*(said.remarks if reasons else ())}
    if len(says) == 2:
        return _fail("contradiction", "it says of the statement that it is true and that it is not")
    if says == {not answer}:
        return _fail("contradiction", f"by it the statement is {not answer}, not {answer}")
    if reasons:
        return Entailment(True, None, f"by it the statement is {answer}")
    return _find_gap(said, asked)


def _find_gap(said: Reading, asked: Claim) -> Entailment:
    """Return why a reasoning gives no reason for either answer."""
    if said.is_about_nothing:
        return _fail("irrelevant", "it is about neither of the two things")
    sides = {name for one in said.claims for name in (one.subject, one.other)}
    is_chain = {asked.subject, asked.other} < sides
    if not said.is_whole or said.places or said.remarks or is_chain:
        return _abstain("it says something that is not understood")
    if said.claims and not any(_is_about(claim, asked) for claim in said.claims):
        return _fail("irrelevant", "it tells another relation, or one of other things")
    return _fail("missing_detail", "it leaves open whether the statement is true")


def _abstain(why: str) -> Entailment:
    return Entailment(None, None, why)


def _fail(fault: Fault, why: str) -> Entailment:
    return Entailment(False, fault, why)


def _is_about(claim: Claim, asked: Claim) -> bool:
    return any(
        seen.subject == asked.subject
        and seen.other == asked.other
        and seen.relation in (asked.relation, asked.turn().relation)
        for seen in (claim, claim.turn())
    )


def _find_truths(claims: Sequence[Claim], asked: Claim) -> Iterator[bool]:
    """Yield what claims make of the statement, without those that leave it open."""
    for claim in claims:
        truth = _compare(claim, asked)
        if truth is not None:
            yield truth


def _compare(claim: Claim, asked: Claim) -> bool | None:
    """Return whether a claim makes the statement true or false; None if it leaves that open."""
    for seen in (claim, claim.turn()):
        names_both = (seen.subject, seen.other) == (asked.subject, asked.other)
        if names_both and seen.relation == asked.relation:
            return not seen.is_denied
        if names_both and seen.relation == asked.turn().relation and not seen.is_denied:
            return False
    return None


def _read_boxes(reasoning: str, asked: Claim) -> Iterator[bool]:
    """Yield whether the statement holds for the boxes of its things, if they lie wholly apart."""
    boxes = [box for box in _BOXES.parse(reasoning).value or () if box is not None and box.label]
    names = (asked.subject, asked.other)
    subject, other = (
        next((box for box in boxes if find_name(box.label, names) == name), None) for name in names
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
