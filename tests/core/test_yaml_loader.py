"""YAML from strangers: it is a value of a bounded size, or a YAML error that says where."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core.yaml_loader import parse_yaml

HEAPS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("? [1, 2]\n: 3", "a key is a list or a section"),
        ("? {a: b}\n: 3", "a key is a list or a section"),
        ("n: " + "9" * 5000, "a number of 5000 digits"),
        ("[" * 5000 + "]" * 5000, "more than 64 levels"),
        ("[" * 1000, "more than 64 levels"),
        ("{a: " * 3000, "more than 64 levels"),
        ("- " * 5000, "more than 64 levels"),
        ("\n".join(" " * level + "a:" for level in range(1000)), "more than 64 levels"),
        ("&a [*a]", "more than 64 levels"),
        ("&a {b: *a}", "more than 64 levels"),
        ("a: &a {<<: *a}", "more than 64 levels"),
        (HEAPS, "more than 200000 values"),
        ("!!int abc", "'abc' is no int"),
        ("!!int ''", "'' is no int"),
        ("!!float abc", "'abc' is no float"),
        ("!!bool abc", "'abc' is no bool"),
        ("!!null abc", "'abc' is no null"),
        ("!!map [a]", "expected a mapping"),
        ("!!map a", "expected a mapping"),
        ("!!seq a", "expected a sequence"),
        ("!!str [a]", "expected a scalar"),
        ("!!timestamp abc", "could not determine a constructor"),
        ("!!binary zzz", "could not determine a constructor"),
        ("!!set {a, b}", "could not determine a constructor"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ('"\\UFFFFFFFF"', "out of range"),
        ('"\\U00110000"', "out of range"),
        ("%YAML 1." + "9" * 5000 + "\n---\na", "out of range"),
        ("a: \0", "special characters are not allowed"),
    ],
)
def test_what_no_config_has_is_a_yaml_error(text: str, problem: str):
    with pytest.raises(yaml.YAMLError, match=problem):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["2020-13-45", "2020-01-01", "2020-01-01T25:99:99", "=", "0x10"])
def test_dates_and_the_like_are_texts(text: str):
    """As in YAML 1.2: an impossible date is a text like any other."""
    assert parse_yaml(text) == text


def test_aliases_and_merges_are_written_out():
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\nsame: {<<: {a: 1}, a: 2}"
    found = parse_yaml(text + "\nlist: [*base, *base]")
    assert found["own"] == {"a": 1, "b": 3}
    assert found["same"] == {"a": 2}
    assert found["list"] == [{"a": 1, "b": 2}] * 2


_PIECES = st.sampled_from(
    [
        "[",
        "]",
        "{",
        "}",
        ": ",
        ", ",
        "- ",
        "? ",
        "\n",
        "&a ",
        "*a",
        "!!int ",
        "!!map ",
        "<<",
        "a",
        "1",
    ]
)


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_any_pieces_of_yaml_are_a_value_or_a_yaml_error(text: str):
    try:
        parse_yaml(text)
    except yaml.YAMLError:
        return
