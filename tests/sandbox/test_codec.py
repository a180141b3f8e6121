import collections
import datetime
import decimal
import fractions
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.sandbox.guest.channel import Channel, frame
from groupwise.sandbox.guest.codec import UnknownValueError, decode, dump, encode, load

_scalars = (
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
_keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(_keys, inner)
        | st.sets(_keys)
        | st.frozensets(_keys)
        | st.lists(inner).map(collections.deque)
        | st.dictionaries(_keys, inner).map(collections.OrderedDict)
    ),
    max_leaves=10,
)


def describe(value: object) -> str:
    """Return types and values, NaN too; sets have no order."""
    if isinstance(value, set | frozenset):
        return f"{type(value)} {sorted(map(describe, value))}"
    if isinstance(value, dict):
        return f"{type(value)} {[(describe(k), describe(v)) for k, v in value.items()]}"
    if isinstance(value, list | tuple | collections.deque):
        return f"{type(value)} {[describe(item) for item in value]}"
    return f"{type(value)} {value!r}"


@given(_values)
@example([float("nan"), float("inf"), complex("nan")])
@example({(1, "a"): {2**80, -1}, "b": (True, None)})
def test_data_comes_back_as_it_was(value: object) -> None:
    back = decode(load(dump(encode(value))))
    assert describe(back) == describe(value)


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
    assert describe(decode(load(dump(encode(value))))) == describe(value)


def test_a_message_that_is_too_long_is_refused() -> None:
    import os

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
