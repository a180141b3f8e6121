"""Whatever a program writes, on whichever channel, ends in a result, soon and in little memory."""

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sandbox_host import SHORT, needs_bubblewrap, read_host_state

from groupwise.sandbox import Limits, run_python, run_python_async
from groupwise.sandbox.calls import Caller
from groupwise.sandbox.guest.channel import Channel, frame
from groupwise.sandbox.host_functions import HostFunctions

# Every message of the program is one that was, now and then, changed somewhere or made up.
FUZZ = """
import os, random, sys
draw = random.Random({seed})
frame = sys._getframe()
while "server" not in frame.f_locals: frame = frame.f_back
server, calls = frame.f_locals["server"], frame.f_locals["calls"]
odd = [None, True, -1, 1 << 80, 1e999, "", "\\ud800", "o", "__class__", [], {{}}, [[]] * 9]
odd += [{{"o": 0}}, {{"l": [0]}}, {{"x": ["decimal", "Decimal", "zz"]}}, {{"E": 0}}, {{"k": -1}}]
odd += [{{"&": [3]}}, {{"m": "os"}}]
words = "ok error callback get after held handle printed environment args kwargs number".split()
def spoil(value):
    if draw.random() < {share}: return draw.choice(odd)
    if type(value) is list: return [spoil(item) for item in value]
    if type(value) is dict:
        value = {{key: spoil(item) for key, item in value.items()}}
        if draw.random() < {share}: value[draw.choice(words)] = draw.choice(odd)
    return value
def wrap(channel):
    send = type(channel).send
    def send_spoiled(message):
        if draw.random() < {share} / 4: os.write(channel.writing, draw.randbytes(20))
        try: send(channel, spoil(message))
        except (TypeError, ValueError): send(channel, draw.choice(odd[:6]))
    channel.send = send_spoiled
wrap(server.channel)
wrap(calls)
class Box(list):
    def __init__(self, *items): super().__init__(items); self.held = [1]
    def __eq__(self, other): return True
def make(x): return Box(x, {{x}}, ask(x), ValueError(x))
def apply(f, x): return f(x) + [x]
"""
TESTS = """
import contextlib, io, os
os.environ["A"] = "b"
with contextlib.redirect_stdout(io.StringIO()):
    for n in range(5):
        box = make(n)
        items = [n]
        apply(lambda x: [x], items)
        assert box.held == [1] and len(box) == 4 and str(box) and items == [n]
raise ZeroDivisionError
"""


@needs_bubblewrap
@pytest.mark.parametrize("share", [0.002, 0.02, 0.2])
def test_spoiled_messages_end_in_a_result_that_is_no_pass(share: float) -> None:
    async def run_all() -> list[Any]:
        async def ask(x: Any) -> Any:
            return x

        limits = Limits(timeout_s=2, memory_mib=192)
        return await asyncio.gather(
            *(
                run_python_async(
                    FUZZ.format(seed=seed, share=share),
                    tests=TESTS,
                    functions={"ask": ask},
                    limits=limits,
                )
                for seed in range(12)
            )
        )

    before = read_host_state()
    for seed, result in enumerate(asyncio.run(run_all())):
        assert result.status in ("failed", "crashed", "timeout", "memory"), (seed, result)
        f"{result.message}{result.error}{result.stdout}".encode()
    assert read_host_state().resident_mib < before.resident_mib + 64


async def answer(data: bytes, functions: dict[str, Any], *, max_calls: int = 50) -> bytes:
    """Return what is answered to what a program writes, until nothing more is read of it."""
    end, inside = socket.socketpair()
    inside.setblocking(False)
    host = HostFunctions(functions, max_calls=max_calls)
    with end, inside:
        answers = asyncio.ensure_future(Caller(end, host).answer_all())
        await asyncio.get_running_loop().sock_sendall(inside, data)
        inside.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(answers, 20)
        await host.close()
        said = b""
        while part := inside.recv(1 << 20):
            said += part
        return said


_calls = st.fixed_dictionaries(
    {
        "number": st.one_of(st.integers(), st.booleans(), st.text(max_size=3)),
        "name": st.sampled_from(["f", "g", "__class__", "", 3]),
        "args": st.lists(st.integers() | st.text(max_size=3), max_size=3) | st.none(),
        "kwargs": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    }
)


@settings(max_examples=50)
@given(st.lists(_calls.map(frame) | st.binary(max_size=20), max_size=5).map(b"".join))
@example(b"\xff\xff\xff\xff")
@example(b"\x00\x00\x00\x02[]")
@example(b"\x00\x01\x00\x00" + b"[" * (1 << 16))
@example(b"\x00\x00\x17\x70" + b"1" * 6000)
def test_calls_of_any_form_are_answered_or_no_longer_read(data: bytes) -> None:
    asyncio.run(answer(data, {"f": lambda *args: list(args)}))


def test_calls_at_work_together_are_bounded() -> None:
    """20 calls of 4 MiB took 2.9 GB, and everything else waited for 10 s."""
    num_at_work = most_at_work = num_turns = 0

    async def work(_: str) -> None:
        nonlocal num_at_work, most_at_work
        num_at_work += 1
        most_at_work = max(most_at_work, num_at_work)
        await asyncio.sleep(0.01)
        num_at_work -= 1

    async def count_turns() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        large = {"number": 1, "name": "work", "args": ["a" * (1 << 21)], "kwargs": {}}
        turns = asyncio.ensure_future(count_turns())
        await answer(frame(large) * 20, {"work": work})
        turns.cancel()

    asyncio.run(run())
    assert 1 < most_at_work <= 5
    assert num_turns > 20


@pytest.mark.parametrize(
    ("args", "num_calls", "most_answers"),
    [
        pytest.param([[]] * 30_000, 1, 0, id="parts"),
        pytest.param(["a" * (1 << 22)], 1, 0, id="length"),
        pytest.param(["a" * 1000], 100, 63, id="all together"),
    ],
)
def test_a_program_that_sends_too_much_is_not_listened_to(
    args: list[Any], num_calls: int, most_answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "groupwise.sandbox.calls._MAX_ALL_BYTES", 1 << (16 if num_calls > 1 else 26)
    )
    num_called = 0

    async def count(*_: Any) -> None:  # no thread, which may begin late
        nonlocal num_called
        num_called += 1

    data = frame({"number": 1, "name": "count", "args": args, "kwargs": {}}) * num_calls

    async def run() -> None:
        try:
            await answer(data, {"count": count}, max_calls=1000)
        except BrokenPipeError:
            return

    asyncio.run(run())
    # The last ones had not begun when it was closed.
    assert most_answers - 3 <= num_called <= most_answers


@needs_bubblewrap
def test_a_program_that_is_not_listened_to_does_not_wait() -> None:
    functions = {"count": lambda *_: 1}
    result = run_python("count([[]] * 30_000)", functions=functions, limits=SHORT)
    assert (result.status, result.error) == ("failed", "EOFError")


def test_a_message_that_is_too_deep_is_refused() -> None:
    ends = socket.socketpair()
    with ends[0], ends[1]:
        fine, deep = [[[1], 2], *[[]] * 20], [[[[1]]], *[[]] * 20]
        for message in (fine, deep):
            ends[0].sendall(frame(message))
        number = ends[1].fileno()
        channel = Channel(number, number, max_depth=4)
        assert channel.receive() == fine
        with pytest.raises(ValueError, match="too deep"):
            channel.receive()
