"""Without a sandbox: values and messages of its two sides, its tasks, and what is said of none."""

import asyncio
import collections
import datetime
import decimal
import fractions
import json
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.core import ConfigError, load_config
from groupwise.sandbox import Described, Limits, explain_missing, run_python
from groupwise.sandbox.cpython import Output, read_verdict
from groupwise.sandbox.guest.channel import Channel, frame
from groupwise.sandbox.guest.codec import UnknownValueError, decode, dump, encode, load
from groupwise.sandbox.guest.tasks import Group, Tasks, Waiting
from groupwise.sandbox.guest.values import describe, read_value, simplify, write_value
from groupwise.sandbox.host_functions import HostFunctions

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
_keys = st.integers() | st.text("ab") | st.tuples(st.integers(), st.text("ab"))
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.dictionaries(_keys, inner)
        | st.sets(_keys, max_size=1)  # of more, another order would have another repr
        | st.frozensets(_keys, max_size=1)
    ),
    max_leaves=10,
)


def cross(value: object) -> Any:
    return read_value(load(dump(write_value(value))))


@given(_values)
def test_plain_values_cross_as_they_are(value: object) -> None:
    back = cross(value)
    assert (type(back), back, repr(back)) == (type(value), value, repr(value))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(10**5000, id="an integer too long to write"),
        pytest.param("a" * (1 << 21), id="a long text"),
        pytest.param([0] * 20_000, id="a long list"),
        pytest.param({2**61 * n - n: 0 for n in range(1, 500)}, id="keys with one hash"),
        "\ud800",
        *(
            range(3),
            bytearray(b"a"),
            math,
            object(),
            len,
            Exception("no"),
            type("P", (int,), {})(3),
        ),
    ],
)
def test_anything_else_is_described(value: object) -> None:
    back = cross([value])
    whole = back if isinstance(back, Described) else back[0]
    assert isinstance(whole, Described)
    assert whole == cross([value] if whole is back else value)
    assert whole not in (value, [value], "", None, whole.text)


def test_a_description_says_what_it_was() -> None:
    assert repr(describe(range(3))) == "<range: range(0, 3)>"
    assert repr(cross([0] * 20_000)) == "<list: of 20000>"
    assert repr(cross({1: [object]})) == "{1: [<type: <class 'object'>>]}"
    nested: list[Any] = []
    nested.append(nested)
    assert repr(cross(nested)) == "<list: of 1>"


def test_keys_that_a_description_would_merge_are_not_merged() -> None:
    class Same:
        def __repr__(self) -> str:
            return "same"

    assert cross({Same(), Same()}) == Described("set", "of 2")
    assert cross({Same(): 1}) == {Described("Same", "same"): 1}


class Rude:
    def __repr__(self) -> str:
        raise SystemExit


def test_a_description_that_raises_is_empty() -> None:
    assert cross(Rude()) == Described("object", "")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["1/0", "1e30000000", "nan", "0x" + "f" * 9000, "\ud800", "Decimal"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*"tszdifbcnxTroe?", "ok", "", "error"]), inner, max_size=2
        )
    ),
    max_leaves=8,
)
_FORGED: list[Any] = [
    {"x": ["decimal", "Decimal", "zz"]},
    {"x": ["fractions", "Fraction", "1/0"]},
    {"x": ["fractions", "Fraction", "1e30000000"]},
    {"x": ["datetime", "timedelta", [1e308, 0, 0]]},
    {"x": ["datetime", "datetime", "2020-13-45"]},
    {"c": [{"i": "0x" + "f" * 1000}, 0]},
    {"i": 3},
    {"b": 3},
    {"s": [[1]]},
    {"d": [1]},
    {"?": [1, 2]},
    {"?": []},
    {},
    {"t": [], "s": []},
    [[[[]]]] * 20_000,
]


def nest(depth: int) -> Any:
    message: Any = 0
    for _ in range(depth):
        message = [message]
    return message


@given(_json)
@example({"f": "0" * 5000})
def test_a_malformed_value_is_refused_or_plain(message: Any) -> None:
    try:
        value = read_value(message)
    except ValueError:
        return
    assert repr(simplify(value)) == repr(value)
    assert repr(read_value(load(dump(write_value(value))))) == repr(value)


@pytest.mark.parametrize("message", [*_FORGED, nest(200), nest(20_000)])
def test_a_forged_value_is_refused_at_once(message: Any) -> None:
    with pytest.raises(ValueError, match="value"):
        read_value(message)


@pytest.mark.fuzz
@given(st.dictionaries(st.sampled_from(["status", "value", "error", "message", "in_tests"]), _json))
@example({"status": "passed", "value": {"x": ["decimal", "Decimal", "zz"]}})
@example({"status": ["passed"]})
@example({"status": "failed", "error": {"a": 1}, "message": "\ud800"})
def test_every_verdict_ends_in_a_result(verdict: dict[str, Any]) -> None:
    result = read_verdict(verdict, Output(1024))
    assert result.status == (verdict.get("status") if result.status != "crashed" else "crashed")
    f"{result.message}{result.error}".encode()


@pytest.mark.parametrize("status", ["passed", "won", None, [], {}, nest(500)])
def test_only_known_statuses_are_taken(status: Any) -> None:
    expected = status if status == "passed" else "crashed"
    assert read_verdict({"status": status}, Output(1024)).status == expected


@pytest.mark.parametrize(
    "data", [b"NaN", b'{"ok": Infinity}', b"[" * 100_000, b"1" * 5000, b"\xff", b"", b"1 2"]
)
def test_what_is_no_message_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        load(data)


async def _call(args: Any) -> Any:
    return await HostFunctions({"f": lambda *args: 1}, max_calls=1).call("f", args, {})


def test_arguments_of_host_functions_may_have_any_depth() -> None:
    assert asyncio.run(_call([nest(20_000)])).error == "TypeError"


_scalars_codec = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary()
    | st.dates()
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | st.timedeltas()
    | st.decimals()
    | st.fractions()
    | st.sampled_from([int, str, bool, float, list, dict, range])
)
_keys_codec = st.integers() | st.text() | st.tuples(st.integers(), st.text())
_values_codec = st.recursive(
    _scalars_codec,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(_keys_codec, inner)
        | st.sets(_keys_codec)
        | st.frozensets(_keys_codec)
        | st.lists(inner).map(collections.deque)
        | st.dictionaries(_keys_codec, inner).map(collections.OrderedDict)
    ),
    max_leaves=10,
)


def describe_codec(value: object) -> str:
    """Return types and values, NaN too; sets have no order."""
    if isinstance(value, set | frozenset):
        return f"{type(value)} {sorted(map(describe_codec, value))}"
    if isinstance(value, dict):
        return f"{type(value)} {[(describe_codec(k), describe_codec(v)) for k, v in value.items()]}"
    if isinstance(value, list | tuple | collections.deque):
        return f"{type(value)} {[describe_codec(item) for item in value]}"
    return f"{type(value)} {value!r}"


@given(_values_codec)
@example([float("nan"), float("inf"), complex("nan")])
@example({(1, "a"): {2**80, -1}, "b": (True, None)})
def test_data_comes_back_as_it_was(value: object) -> None:
    back = decode(load(dump(encode(value))))
    assert describe_codec(back) == describe_codec(value)


@pytest.mark.parametrize("value", ["\ud800", {"o": 1}, {"t": [1]}, [{"x": ["os", "system", "ls"]}]])
def test_data_that_looks_like_something_else_stays_data(value: object) -> None:
    assert decode(load(dump(encode(value)))) == value


@pytest.mark.parametrize(
    "value",
    [
        collections.Counter("aab"),
        decimal.Decimal("1.50"),
        fractions.Fraction(1, 3),
        datetime.time(1, 2),
        range(1, 9, 2),
        bytearray(b"ab"),
        pytest.param(10**5000, id="huge"),
    ],
)
def test_values_of_the_standard_library_come_back(value: object) -> None:
    assert decode(load(dump(encode(value)))) == value


class Counter(dict[str, int]):
    """Another one than that of collections."""


@pytest.mark.parametrize("value", [object(), len, Counter, Counter(a=1), iter([]), Exception()])
def test_what_is_no_data_is_refused(value: object) -> None:
    with pytest.raises(UnknownValueError):
        encode([value])


@pytest.mark.parametrize(
    "message",
    [
        {"x": ["os", "system", "true"]},
        {"x": ["collections", "namedtuple", 1]},
        {"n": ["A; import os", ["x"], [1]]},
        {"n": ["A", ["x y"], [1]]},
        {"o": 3},
        {"i": "zz"},
        {"t": 3},
        {"d": [[[1], 2]]},
        {"q": 1},
    ],
)
def test_a_forged_value_is_an_error_and_nothing_more(message: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode(load(dump(message)))


@given(st.binary(max_size=40) | st.text('0159-.eE[]{}:,"tfnsbd', max_size=12).map(str.encode))
@example(b'{"t":[1,"a"]}')
@example(b"{}")
def test_noise_is_refused_or_plain_data(noise: bytes) -> None:
    try:
        message = load(noise)
        value = decode(message)
    except (ValueError, TypeError, LookupError):
        return
    assert message == json.loads(noise)
    assert describe_codec(decode(load(dump(encode(value))))) == describe_codec(value)


def test_a_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        frame("a" * (1 << 26))
    reading, writing = os.pipe()
    try:
        os.write(writing, b"\xff\xff\xff\xff")
        with pytest.raises(ValueError, match="too long"):
            Channel(reading, writing).receive()
    finally:
        os.close(reading)
        os.close(writing)


def test_only_types_of_plain_values_are_known():
    class Own(int):
        pass

    Own.__name__ = "int"
    with pytest.raises(UnknownValueError):
        encode(Own)
    with pytest.raises(ValueError, match="eval"):
        decode({"T": "eval"})


@pytest.fixture
def looked_for_again() -> Iterator[None]:
    explain_missing.cache_clear()
    yield
    explain_missing.cache_clear()


@pytest.mark.usefixtures("looked_for_again")
@pytest.mark.parametrize(
    ("has_program", "words"),
    [
        (False, "apt-get install -y bubblewrap"),
        (True, "No permissions to create new namespace"),
    ],
)
def test_without_a_sandbox_nothing_is_run_unsafely(
    has_program: bool, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if has_program:
        fake = tmp_path / "bwrap"
        fake.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin" if has_program else "")
    refused = run_python("print('ran')")
    assert (refused.status, refused.stdout) == ("refused", "")
    assert words in refused.message


def test_limits_are_a_config() -> None:
    assert load_config(Limits, {"timeout_s": 1}).timeout_s == 1.0
    with pytest.raises(ConfigError, match="timeout_s"):
        load_config(Limits, {"timeout_s": 0})


# A plan: a call, an error, steps after each other, or plans at the same time.
PLANS = st.recursive(
    st.sampled_from(["call", "raise"]),
    lambda plans: st.tuples(
        st.sampled_from(["steps", "gather", "gather, errors too"]), st.lists(plans, max_size=4)
    ),
    max_leaves=12,
)


async def carry_out(plan: Any, call: Callable[[], Awaitable[Any]], gather: Any) -> Any:
    if plan == "call":
        return type(await call()).__name__
    if plan == "raise":
        raise LookupError("planned")
    kind, plans = plan
    parts = [carry_out(part, call, gather) for part in plans]
    if kind == "steps":
        try:
            return [await part for part in parts]
        except LookupError:
            return "caught"
        finally:
            for part in parts:
                part.close()
    errors_too = kind == "gather, errors too"
    return [str(value) for value in await gather(*parts, return_exceptions=errors_too)]


def run(plan: Any, *, receive: Callable[[int], Any]) -> Any:
    numbers = iter(range(1000))

    async def call() -> Any:
        return await Waiting(next(numbers))

    return Tasks(receive).run(carry_out(plan, call, Group))


@given(plan=PLANS)
def test_results_are_those_of_asyncio(plan: Any):
    def attempt(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except LookupError as error:
            return repr(error)

    async def call() -> Any:
        return await asyncio.sleep(0, 1)

    async def whole() -> Any:
        return await carry_out(plan, call, asyncio.gather)

    expected = attempt(lambda: asyncio.run(whole()))
    assert attempt(lambda: run(plan, receive=lambda number: number)) == expected


@given(plan=PLANS)
def test_a_call_is_answered_after_all_before_it(plan: Any):
    answered: list[int] = []
    with suppress(LookupError):
        run(plan, receive=lambda number: answered.append(number) or number)
    assert answered == sorted(answered)


def test_what_is_no_call_cannot_be_awaited():
    class Other:
        def __await__(self) -> Any:
            yield 7

    async def wait() -> str:
        try:
            await Other()
        except RuntimeError as error:
            return str(error)
        return ""

    assert Tasks(lambda number: number).run(wait()).startswith("only operators")
