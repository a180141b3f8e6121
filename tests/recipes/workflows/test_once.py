"""Equal work is done once, however many ask, and given up when nobody waits."""

import asyncio

import pytest

from groupwise_recipes.workflows.once import Once


class Work:
    """Counts how often it is begun and ended; it waits until it is let go."""

    def __init__(self) -> None:
        self.num_begun = self.num_ended = 0
        self.go = asyncio.Event()

    async def do(self) -> int:
        self.num_begun += 1
        await self.go.wait()
        self.num_ended += 1
        return self.num_begun


@pytest.mark.parametrize("is_kept", [True, False])
def test_who_asks_meanwhile_shares_and_later_ones_only_what_is_kept(is_kept: bool):
    async def ask() -> tuple[list[int], int]:
        once, work = Once[int](lambda _: is_kept), Work()
        asking = [asyncio.ensure_future(once.get("a", work.do)) for _ in range(3)]
        await asyncio.sleep(0)
        work.go.set()
        return await asyncio.gather(*asking), await once.get("a", work.do)

    assert asyncio.run(ask()) == ([1, 1, 1], 1 if is_kept else 2)


def test_work_is_given_up_with_the_last_who_waits():
    async def ask() -> tuple[int, int, int]:
        once, work = Once[int](lambda _: True), Work()
        asking = [asyncio.ensure_future(once.get("a", work.do)) for _ in range(2)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        work.go.set()
        first = await asking[1]
        work.go.clear()
        late = asyncio.ensure_future(once.get("b", work.do))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        work.go.set()
        await asyncio.sleep(0.01)
        return first, work.num_begun, work.num_ended

    assert asyncio.run(ask()) == (1, 2, 1)


def test_all_who_wait_hear_of_an_error_and_the_next_tries_again():
    async def ask() -> tuple[list[object], int]:
        once = Once[int](lambda _: True)

        async def fail() -> int:
            raise LookupError

        async def succeed() -> int:
            return 7

        asking = [once.get("a", fail) for _ in range(2)]
        return await asyncio.gather(*asking, return_exceptions=True), await once.get("a", succeed)

    errors, value = asyncio.run(ask())
    assert [type(error) for error in errors] == [LookupError, LookupError]
    assert value == 7


def test_the_oldest_go_first():
    async def ask() -> list[int]:
        once = Once[int](lambda _: True, max_kept=2)

        async def number(value: int) -> int:
            return value

        for key in ("a", "b", "c"):
            await once.get(key, lambda: number(1))
        return [await once.get(key, lambda: number(2)) for key in ("c", "b", "a")]

    assert asyncio.run(ask()) == [1, 1, 2]
