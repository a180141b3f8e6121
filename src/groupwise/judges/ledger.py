"""The ledger of a judge: what was asked, what it cost, how often there was no verdict.

It stops a run whose judge fails too often: a reward of what is left would be another reward.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field, model_validator

from groupwise.core import Config, JudgeError
from groupwise.inference.responder import RequestCause, Usage
from groupwise.judges.judge import NoVerdict, Verdict


class StopSettings(Config):
    """When a judge that fails too often stops the run.

    Attributes:
        max_no_verdict_rate: share of questions without a verdict that is still accepted.
        min_questions: before this many questions there is no rate.
        window: the rate is that of the last so many questions that were not in the cache.
    """

    max_no_verdict_rate: float = Field(default=0.2, ge=0, le=1)
    min_questions: int = Field(default=20, ge=1)
    window: int = Field(default=200, ge=1)

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.window < self.min_questions:
            raise ValueError("window must be at least min_questions")
        return self


class Ledger:
    """Counts of one judge since it was made.

    Args:
        name: of the judge, for messages.
        stop: when to stop.
    """

    def __init__(self, name: str, stop: StopSettings) -> None:
        self.name = name
        self.stop = stop
        self.num_questions = 0
        self.num_cached = 0
        self.num_flipped = 0
        self.no_verdicts: Counter[str] = Counter()
        self.failed_requests: Counter[str] = Counter()
        self.usage = Usage()
        self._recent: deque[NoVerdict | None] = deque(maxlen=stop.window)

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
        if num_asked < self.stop.min_questions:
            return
        if len(failed) <= self.stop.max_no_verdict_rate * num_asked:
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
            "num_calls": self.usage.num_calls,
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "reasoning_tokens": self.usage.reasoning_tokens,
            "cost": self.usage.cost,
        }
