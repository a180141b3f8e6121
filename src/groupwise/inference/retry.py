"""Trying again: exponential backoff with jitter, and as long as the server asked to wait."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import Field

from groupwise.core import Config
from groupwise.inference.failures import RequestError

T = TypeVar("T")


class RetrySettings(Config):
    """How often and how patiently a request is repeated.

    Attributes:
        max_attempts: the first one included.
        base_delay_s: before the second attempt; it doubles with every further one.
        max_delay_s: the longest delay that doubling leads to.
        max_retry_after_s: a server that asks to wait longer than this is not asked again.
    """

    max_attempts: int = Field(default=4, ge=1)
    base_delay_s: float = Field(default=0.5, ge=0)
    max_delay_s: float = Field(default=30.0, ge=0)
    max_retry_after_s: float = Field(default=120.0, ge=0)

    def choose_delay(self, num_failures: int, retry_after_s: float | None) -> float:
        """Return the seconds to wait after so many failures: half of it is jitter."""
        longest = min(self.max_delay_s, self.base_delay_s * 2.0 ** min(num_failures - 1, 60))
        return max(random.uniform(longest / 2, longest), retry_after_s or 0.0)


async def retry(
    attempt: Callable[[], Awaitable[T]],
    settings: RetrySettings,
    *,
    on_failure: Callable[[RequestError], None] = lambda _: None,
) -> T:
    """Await ``attempt()`` until it succeeds and return its result.

    Raises:
        RequestError: the last one, after the last attempt or if repeating cannot help.
    """
    for number in range(1, settings.max_attempts + 1):
        try:
            return await attempt()
        except RequestError as error:
            on_failure(error)
            is_too_long = (error.retry_after_s or 0.0) > settings.max_retry_after_s
            if not error.is_retryable or is_too_long or number == settings.max_attempts:
                raise
            await asyncio.sleep(settings.choose_delay(number, error.retry_after_s))
    raise AssertionError("there is at least one attempt")
