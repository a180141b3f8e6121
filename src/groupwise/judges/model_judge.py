"""What all judges that ask a model share: prompt, version, cache, retries, ledger."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

from groupwise.core import Config, Example, Message, digest_json, make_example
from groupwise.inference.responder import RequestCause, RequestError, Responder, Usage
from groupwise.inference.server_settings import RetrySettings, retry
from groupwise.inference.shared_loop import on_shared_loop
from groupwise.judges.cache import ReplyCache
from groupwise.judges.judge import NoVerdict, Question, Verdict, Versioned
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.prompt import JudgePrompt

Reply = Mapping[str, Any]
"""What is kept of a model's reply: JSON values."""
Attempt = Callable[[], Awaitable[tuple[Reply, Usage]]]
"""One request; raises RequestError where there is no reply that counts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How asking ended.

    Attributes:
        result: the reply, or the error of the last attempt.
        usage: of all attempts made for this outcome.
        failures: causes of the failed attempts, in order.
        is_cached: whether nothing was asked for this outcome.
    """

    result: Reply | RequestError
    usage: Usage = field(default_factory=Usage)
    failures: tuple[RequestCause, ...] = ()
    is_cached: bool = False


@dataclass(slots=True)
class _Open:
    """A question in flight and how many wait for it."""

    task: asyncio.Task[Outcome]
    num_waiting: int = 0


class Asker:
    """Asks each question once; belongs to one event loop.

    Args:
        cache: where replies are kept; None: nowhere.
        settings: how failed requests are repeated.
    """

    def __init__(self, *, cache: ReplyCache | None, settings: RetrySettings) -> None:
        self.cache = cache
        self.settings = settings
        self._open: dict[str, _Open] = {}

    async def ask(self, key: str, attempt: Attempt) -> Outcome:
        """Return the reply under ``key``: kept, being fetched already, or fetched now.

        Who joins a question in flight pays nothing for it.
        """
        known = self.cache.get(key) if self.cache is not None else None
        if known is not None:
            return Outcome(known, is_cached=True)
        joined = key in self._open
        if not joined:
            self._open[key] = _Open(asyncio.ensure_future(self._fetch(key, attempt)))
        outcome = await self._wait(key, self._open[key])
        return (
            outcome if not joined else replace(outcome, usage=Usage(), failures=(), is_cached=True)
        )

    async def _wait(self, key: str, question: _Open) -> Outcome:
        """Wait with others; a question that nobody waits for any more is given up."""
        question.num_waiting += 1
        try:
            return await asyncio.shield(question.task)
        finally:
            question.num_waiting -= 1
            if question.num_waiting == 0:
                question.task.cancel()
                if self._open.get(key) is question:
                    del self._open[key]

    async def _fetch(self, key: str, attempt: Attempt) -> Outcome:
        failed: list[RequestError] = []
        usage = Usage()
        try:
            result, usage = await retry(attempt, self.settings, on_failure=failed.append)
            if self.cache is not None:
                self.cache.put(key, result)
        except RequestError as error:
            result = error
        usage = sum((failure.usage for failure in failed), usage)
        return Outcome(result, usage, tuple(failure.cause for failure in failed))


_READING = 1
"""To be raised when replies are read in another way, so that kept ones are not."""


class JudgeSettings(Config):
    """How a judge asks; it does not change what a verdict is, so it is not in the version.

    Attributes:
        retry: of requests that failed or whose reply does not count.
        stop: when too many questions have no verdict.
    """

    retry: RetrySettings = RetrySettings()
    stop: StopSettings = StopSettings()


class ModelJudge(Versioned):
    """A judge that puts a prompt to a model.

    Args:
        responder: what answers.
        prompt: with places for the question's texts.
        labels: of the verdicts, at least two.
        name: for people.
        settings: how it asks; None: the defaults.
        cache: where replies are kept.
    """

    def __init__(
        self,
        responder: Responder,
        prompt: JudgePrompt,
        *,
        labels: Sequence[str],
        name: str,
        settings: JudgeSettings | None,
        cache: ReplyCache | None,
    ) -> None:
        self.responder = responder
        self.prompt = prompt
        self.name = name
        self.labels = tuple(labels)
        self.cache = cache
        settings = settings or JudgeSettings()
        self.ledger = Ledger(name, settings.stop)
        self._asker = Asker(cache=cache, settings=settings.retry)

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        return {
            "kind": type(self).__name__,
            "reading": _READING,
            "prompt": self.prompt.digest,
            "labels": list(self.labels),
            **self.responder.identity,
        }

    def put_on(self, responder: Responder, settings: JudgeSettings) -> Self:
        """Return the same judge on another model, without a cache."""
        judge = copy(self)
        judge.responder, judge.cache = responder, None
        judge.ledger = Ledger(self.name, settings.stop)
        judge._asker = Asker(cache=None, settings=settings.retry)
        vars(judge).pop("_version", None)
        return judge

    def report(self) -> dict[str, object]:
        """Return the counts so far, with name and version of the judge and the cache's hit rate."""
        hit_rate = self.cache.hit_rate if self.cache is not None else None
        counts = self.ledger.report()
        return {"judge": self.name, "version": self.version, **counts, "cache_hit_rate": hit_rate}

    @on_shared_loop
    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict, or why there is none.

        Raises:
            JudgeError: if too many questions had no verdict, or the question lacks a text.
        """
        self.ledger.check()
        result = await self._decide(question)
        self.ledger.record(result)
        self.ledger.check()
        return result

    @abstractmethod
    async def _decide(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict on one question."""

    async def _ask(self, example: Example, attempt: Attempt) -> Outcome:
        """Ask once for equal prompts and pictures under this judge's version."""
        outcome = await self._asker.ask(digest_json([self.version, example.id]), attempt)
        self.ledger.count_failed_requests(outcome.failures)
        return outcome

    def _give_up(self, outcomes: Sequence[Outcome], error: RequestError) -> NoVerdict:
        """Return that there is no verdict because of ``error``, with what asking had cost."""
        return NoVerdict(
            error.cause,
            str(error),
            self.version,
            sum((outcome.usage for outcome in outcomes), Usage()),
            sum(len(outcome.failures) for outcome in outcomes),
        )


def build_example(text: str, question: Question) -> Example:
    """Return a rendered prompt with the question's pictures as something to ask a model."""
    return make_example([Message("user", text)], cluster="judge", pictures=question.pictures)
