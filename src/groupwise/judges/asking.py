"""Asking a model for a reply that counts: cache first, one request for equal questions, retries."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise.inference import RequestCause, RequestError, RetrySettings, Usage, retry
from groupwise.judges.cache import ReplyCache

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
