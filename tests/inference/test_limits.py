import asyncio

import pytest

from groupwise.inference import server_settings
from groupwise.inference.server_settings import LimitSettings, RequestLimiter


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when somebody sleeps."""
    now = [100.0]
    sleep = asyncio.sleep

    async def pass_time(duration_s):
        now[0] += duration_s
        await sleep(0)

    monkeypatch.setattr(server_settings, "_now", lambda: now[0])
    monkeypatch.setattr(server_settings.asyncio, "sleep", pass_time)
    return now


def list_starts(clock, num_requests, *, pause_s=None, **given):
    """Return when each of so many requests was admitted."""

    async def ask_all():
        limiter = RequestLimiter(LimitSettings(**given))
        starts = []

        async def ask():
            async with limiter.admit():
                starts.append(clock[0])
                if pause_s is not None and len(starts) == 1:
                    limiter.pause(pause_s)

        for _ in range(num_requests):
            await ask()
        return starts

    return asyncio.run(ask_all())


def test_starts_are_spaced(clock):
    starts = list_starts(clock, 4, max_per_second=2)
    assert starts == [100.0, 100.5, 101.0, 101.5]


def test_without_a_rate_nothing_waits(clock):
    assert list_starts(clock, 4) == [100.0] * 4


def test_nothing_starts_in_a_pause(clock):
    assert list_starts(clock, 3, pause_s=7.0) == [100.0, 107.0, 107.0]


def test_only_so_many_are_admitted_at_once():
    async def crowd():
        limiter = RequestLimiter(LimitSettings(max_concurrency=3))
        inside = [0, 0]

        async def ask():
            async with limiter.admit():
                inside[0] += 1
                inside[1] = max(inside)
                await asyncio.sleep(0)
                inside[0] -= 1

        await asyncio.gather(*(ask() for _ in range(20)))
        return inside[1]

    assert asyncio.run(crowd()) == 3
