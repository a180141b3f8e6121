"""What every judge is: a versioned function from a question to a verdict, or to none.

A judge that cannot tell says so with the cause; it never guesses, and a failure is never a label.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field

from groupwise.core import Config, JudgeError, Picture, digest_json
from groupwise.inference.model import ReportProgress, RequestCause, Usage, run_on_shared_loop

_MIN_QUESTIONS, _WINDOW = 20, 200
NoVerdictCause = RequestCause | Literal["undecided"]
"""As of requests; ``undecided``: the votes of a panel do not decide."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is put to a judge.

    Texts are by the names that the judge's prompt has places for, such as ``question``, ``answer``,
    ``reference``, and ``first`` and ``second`` for a pair of answers. Pictures are shown in order.
    """

    texts: Mapping[str, str]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge decided.

    Raises:
        JudgeError: if the confidence or a probability is outside [0, 1], or the label has none.
    """

    label: str  # one of the judge's labels
    confidence: float  # in [0, 1]; 0 where the judge contradicted itself in the other order
    # Of every label; they add up to 1. A judge that only names a label gives that one 1.
    probabilities: Mapping[str, float]
    judge: str  # version of the judge
    reason: str = ""  # what the judge said, for a person to read
    usage: Usage = field(default_factory=Usage)  # what it cost now; nothing if it was in the cache
    is_cached: bool = False  # whether no model was asked
    is_flipped: bool = False  # whether the label changed with the order of options or answers
    # Largest change of a label's probability with the order, or None where only one was asked.
    position_bias: float | None = None

    def __post_init__(self) -> None:
        if self.label not in self.probabilities:
            known = ", ".join(self.probabilities)
            message = "a verdict names a label without a probability"
            raise JudgeError(message, got=repr(self.label), expected=f"one of {known}")
        for name, value in [("confidence", self.confidence), *self.probabilities.items()]:
            if not 0.0 <= value <= 1.0:
                message = f"a verdict's {name} is out of range"
                raise JudgeError(message, got=value, expected="[0, 1]")


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """That a judge did not decide, and why."""

    cause: NoVerdictCause  # a word to count by
    message: str  # for a person to read
    judge: str  # version of the judge
    usage: Usage = field(default_factory=Usage)  # what it cost all the same
    num_attempts: int = 0  # how often the model was asked


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

    _version = ""

    @property
    def version(self) -> str:
        """Digest of what ``describe`` returns."""
        self._version = self._version or digest_json(dict(self.describe()))
        return self._version

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""


class StopSettings(Config):
    """When a judge that fails too often stops the run.

    Attributes:
        max_no_verdict_rate: share of the last 200 questions that were not in the cache (at least
            20) without a verdict that is still accepted.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"min_questions": (20,), "window": (200,)}

    max_no_verdict_rate: float = Field(default=0.2, ge=0, le=1)


class Ledger:
    """Counts of one judge since it was made: what was asked, what it cost, and what had no verdict.

    It stops a run whose judge fails too often: a reward of what is left would be another reward.
    """

    def __init__(self, name: str, stop: StopSettings) -> None:
        self.name, self.stop = name, stop
        self.num_questions = self.num_cached = self.num_flipped = 0
        self.no_verdicts: Counter[str] = Counter()
        self.failed_requests: Counter[str] = Counter()
        self.usage = Usage()
        self._recent: deque[NoVerdict | None] = deque(maxlen=_WINDOW)

    @property
    def no_verdict_rate(self) -> float | None:
        """Share of all questions so far without a verdict; None before the first."""
        return self.no_verdicts.total() / self.num_questions if self.num_questions else None

    def count_failed_requests(self, causes: Iterable[RequestCause]) -> None:
        """Count requests that failed, repeated or not."""
        self.failed_requests.update(causes)

    def record(self, result: Verdict | NoVerdict) -> None:
        """Count the end of a question."""
        self.num_questions += 1
        self.usage += result.usage
        if isinstance(result, NoVerdict):
            self.no_verdicts[result.cause] += 1
            self._recent.append(result)
            return
        self.num_flipped += result.is_flipped
        self.num_cached += result.is_cached
        if not result.is_cached:
            self._recent.append(None)

    def check(self) -> None:
        """Refuse to go on if too many questions had no verdict.

        Raises:
            JudgeError: with the rate and the commonest cause.
        """
        failed = [result for result in self._recent if result is not None]
        num_asked = len(self._recent)
        if num_asked < _MIN_QUESTIONS or len(failed) <= self.stop.max_no_verdict_rate * num_asked:
            return
        cause, count = Counter(result.cause for result in failed).most_common(1)[0]
        message = next(result.message for result in reversed(failed) if result.cause == cause)
        raise JudgeError(
            f"the judge {self.name!r} gave no verdict on {len(failed)} of the last {num_asked} "
            f"questions ({len(failed) / num_asked:.0%}), {count} times because of {cause}: "
            f"{message.rstrip('.')}",
            expected=f"at most {self.stop.max_no_verdict_rate:.0%}",
            fix="fix that and run again: verdicts so far are kept where there is a cache",
        )

    def report(self) -> dict[str, Any]:
        """Return all counts as JSON values."""
        return {
            "num_questions": self.num_questions,
            "num_cached": self.num_cached,
            "num_flipped": self.num_flipped,
            "no_verdicts": dict(self.no_verdicts),
            "no_verdict_rate": self.no_verdict_rate,
            "failed_requests": dict(self.failed_requests),
            **asdict(self.usage),
        }


def judge_all(
    judge: Judge, questions: Sequence[Question], *, report_progress: ReportProgress | None = None
) -> list[Verdict | NoVerdict]:
    """Put all questions to the judge at once and return the verdicts in order.

    How many are really asked at once is the judge's own limit.

    Raises:
        JudgeError: as the judge does; the questions that are still open are given up.
    """
    import asyncio  # not for whoever only reads a config

    done = count(1)

    async def decide(question: Question) -> Verdict | NoVerdict:
        verdict = await judge.judge(question)
        if report_progress is not None:
            report_progress(next(done), len(questions))
        return verdict

    async def ask_all() -> list[Verdict | NoVerdict]:
        tasks = [asyncio.ensure_future(decide(question)) for question in questions]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return run_on_shared_loop(ask_all())
