"""How often the stub is right: by operator and kind of problem, which is finer than its type."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from groupwise.core import Config
from groupwise_recipes.workflows.problem_sets import Problem

Kind = Literal["math_short", "math_long", "code", "qa_numbers", "qa_knowledge"]
Share = Annotated[float, Field(ge=0, le=1)]
Shares = Mapping[Kind, Share]

_LONG = 150
_NUMBER = re.compile(r"\d")


def find_kind(problem: Problem) -> Kind:
    """Return the kind of a problem.

    Long is more than 150 characters, of which one that is not ASCII counts as three; a question
    with numbers has two digits.
    """
    if problem.problem_type == "code":
        return "code"
    if problem.problem_type == "math":
        length = sum(1 if character.isascii() else 3 for character in problem.problem)
        return "math_long" if length > _LONG else "math_short"
    return "qa_numbers" if len(_NUMBER.findall(problem.problem)) >= 2 else "qa_knowledge"


def _by_kind(*shares: float) -> Shares:
    kinds: tuple[Kind, ...] = ("math_short", "math_long", "code", "qa_numbers", "qa_knowledge")
    return dict(zip(kinds, shares, strict=True))


class Abilities(Config):
    """Probabilities in [0, 1]; the defaults let no single program be the best for all types.

    Attributes:
        solve: of a right answer, by operator and kind of problem.
        systematic: share of the errors in ``solve`` that are the same however often it is asked;
            the others scatter, so that a vote helps.
        crash: that the first program of ``programmer`` raises an error.
        fix: that ``revise`` and the repairs of ``test`` make a wrong solution right; half as
            often without feedback.
        keep: that ``revise`` leaves a right solution right.
        sees_right, sees_wrong: that ``review`` recognises a right and a wrong solution.
        vote: that ``sc_ensemble`` names the commonest answer, else any letter.
        extract: that ``format`` takes out the answer rather than leaving the text as it is.
        judge: that a verdict is right.
        reasoning_tokens: that a reply of an operator costs beside its text.
    """

    solve: Mapping[str, Shares] = Field(
        default={
            "custom": _by_kind(0.4, 0.25, 0.3, 0.35, 0.75),
            "answer_generate": _by_kind(0.5, 0.6, 0.25, 0.65, 0.5),
            "programmer": _by_kind(0.85, 0.35, 0.05, 0.3, 0.1),
            "code_generate": _by_kind(0.02, 0.02, 0.5, 0.02, 0.02),
        }
    )
    systematic: Shares = Field(default=_by_kind(0.3, 0.3, 0.4, 0.5, 0.5))
    crash: Share = 0.15
    fix: Shares = Field(default=_by_kind(0.5, 0.4, 0.55, 0.45, 0.6))
    keep: Share = 0.95
    sees_right: Shares = Field(default=_by_kind(0.9, 0.85, 0.75, 0.85, 0.9))
    sees_wrong: Shares = Field(default=_by_kind(0.7, 0.6, 0.5, 0.6, 0.75))
    vote: Share = 0.95
    extract: Share = 0.98
    judge: Share = 0.97
    reasoning_tokens: Mapping[str, Annotated[int, Field(ge=0)]] = Field(
        default={
            "custom": 20,
            "answer_generate": 80,
            "programmer": 120,
            "code_generate": 100,
            "sc_ensemble": 40,
            "test": 100,
            "review": 60,
            "revise": 80,
            "format": 10,
        }
    )
