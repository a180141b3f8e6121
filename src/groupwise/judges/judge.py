"""What every judge is: a versioned function from a question to a verdict, or to none.

A judge that cannot tell says so with the cause; it never guesses, and a failure is never a label.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

from groupwise.core import JudgeError, Picture, digest_json
from groupwise.inference.engine import ReportProgress
from groupwise.inference.responder import RequestCause, Usage
from groupwise.inference.shared_loop import run_on_shared_loop

NoVerdictCause = RequestCause | Literal["undecided"]
"""As of requests; ``undecided``: the votes of a panel do not decide."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is put to a judge.

    Attributes:
        texts: by the names that the judge's prompt has places for, such as ``question``,
            ``answer``, ``reference``, and ``first`` and ``second`` for a pair of answers.
        pictures: shown with the question, in order.
    """

    texts: Mapping[str, str]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge decided.

    Attributes:
        label: one of the judge's labels.
        confidence: in [0, 1]; 0 where the judge contradicted itself when the order was swapped.
        probabilities: of every label; they add up to 1. A judge that only names a label gives
            that one 1.
        judge: version of the judge.
        reason: what the judge said, for a person to read.
        usage: what this verdict cost now; nothing if it was in the cache.
        is_cached: whether no model was asked.
        is_flipped: whether the label changed with the order of options or answers.
        position_bias: largest change of a label's probability with the order, or None where
            only one order was asked.

    Raises:
        JudgeError: if the confidence or a probability is outside [0, 1], or the label has none.
    """

    label: str
    confidence: float
    probabilities: Mapping[str, float]
    judge: str
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    is_cached: bool = False
    is_flipped: bool = False
    position_bias: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a verdict."""
        if self.label not in self.probabilities:
            raise JudgeError(
                "a verdict names a label without a probability",
                got=repr(self.label),
                expected=f"one of {', '.join(self.probabilities)}",
            )
        for name, value in [("confidence", self.confidence), *self.probabilities.items()]:
            if not 0.0 <= value <= 1.0:
                raise JudgeError(
                    f"a verdict's {name} is out of range", got=value, expected="[0, 1]"
                )


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """That a judge did not decide, and why.

    Attributes:
        cause: a word to count by.
        message: for a person to read.
        judge: version of the judge.
        usage: what it cost all the same.
        num_attempts: how often the model was asked.
    """

    cause: NoVerdictCause
    message: str
    judge: str
    usage: Usage = field(default_factory=Usage)
    num_attempts: int = 0


@runtime_checkable
class Judge(Protocol):
    """Decides questions; many may be awaited at once."""

    @property
    def name(self) -> str:
        """For people: metrics and reports."""
        ...

    @property
    def version(self) -> str:
        """Digest of all that verdicts depend on beside the question."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its verdicts."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Return what the version is the digest of: kind, prompt digest, model, decoding."""
        ...

    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict, or why there is none.

        Raises:
            JudgeError: if too many questions had no verdict, or the question lacks a text.
        """
        ...


class Versioned(ABC):
    """Something whose version is the digest of its description."""

    @property
    def version(self) -> str:
        """Digest of what ``describe`` returns."""
        return self._version

    @cached_property
    def _version(self) -> str:
        return digest_json(dict(self.describe()))

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""


def judge_all(
    judge: Judge, questions: Sequence[Question], *, report_progress: ReportProgress | None = None
) -> list[Verdict | NoVerdict]:
    """Put all questions to the judge at once and return the verdicts in order.

    How many are really asked at once is the judge's own limit.

    Raises:
        JudgeError: as the judge does; the questions that are still open are given up.
    """
    return run_on_shared_loop(_judge_all(judge, questions, report_progress))


async def _judge_all(
    judge: Judge, questions: Sequence[Question], report_progress: ReportProgress | None
) -> list[Verdict | NoVerdict]:
    num_done = 0

    async def decide(question: Question) -> Verdict | NoVerdict:
        nonlocal num_done
        verdict = await judge.judge(question)
        num_done += 1
        if report_progress is not None:
            report_progress(num_done, len(questions))
        return verdict

    tasks = [asyncio.ensure_future(decide(question)) for question in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
