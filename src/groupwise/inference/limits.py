"""Limits on what a server is asked: how much at once, how often, and not while it rests."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic import Field

from groupwise.core import Config


class LimitSettings(Config):
    """Limits of one server, shared by all who ask it.

    Attributes:
        max_concurrency: requests at once.
        max_per_second: requests started in a second; None: any number.
    """

    max_concurrency: int = Field(default=16, ge=1)
    max_per_second: float | None = Field(default=None, gt=0)


class RequestLimiter:
    """Holds requests back; belongs to one event loop."""

    def __init__(self, settings: LimitSettings) -> None:
        self._places = asyncio.Semaphore(settings.max_concurrency)
        self._gap_s = 1.0 / settings.max_per_second if settings.max_per_second else 0.0
        self._next_start = 0.0

    @asynccontextmanager
    async def admit(self) -> AsyncGenerator[None]:
        """Wait for a place and for the turn; starts are spaced evenly."""
        async with self._places:
            await self._wait_for_turn()
            yield

    def pause(self, duration_s: float) -> None:
        """Start nothing for so many seconds from now."""
        self._next_start = max(self._next_start, _now() + duration_s)

    async def _wait_for_turn(self) -> None:
        while (delay := self._next_start - _now()) > 0:
            await asyncio.sleep(delay)
        self._next_start = max(self._next_start, _now()) + self._gap_s


def _now() -> float:
    return asyncio.get_running_loop().time()
