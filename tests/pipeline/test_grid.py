"""How axes are typed, which cells they span, and what the cells are called."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ConfigError, parse_yaml
from groupwise.pipeline.grid import Axis, list_coordinates, name_cell, parse_axes

_TEXT = st.text(st.characters(max_codepoint=0xD7FF), max_size=5)


def read(text: str) -> tuple[str, ...]:
    (axis,), problems = parse_axes([text])
    assert problems == []
    return axis.values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,2,3", ("1", "2", "3")),
        ("a.b= 0.10 , 1e-5", ("0.1", "1e-05")),
        ("a=on-task,任务", ("on-task", "任务")),
        ("a=[1, 2],[3],null", ("[1, 2]", "[3]", "null")),
        ("a={b: [1,2], c: 3},true", ('{"b": [1, 2], "c": 3}', "true")),
        ("a=\"x,y\",'1'", ("x,y", '"1"')),
        ("a=it's,b's", ("it's", "b's")),
        ("a=['x,y',z],'it''s, too'", ('["x,y", "z"]', "it's, too")),
        ("a=.inf,2024-01-01", (".inf", "2024-01-01")),
        ("a=x=y,z", ("x=y", "z")),
    ],
)
def test_values_are_yaml_cut_at_the_outer_commas(text: str, values: tuple[str, ...]):
    assert read(text) == values


@given(
    st.lists(
        st.one_of(st.integers(), st.booleans(), st.none(), _TEXT, st.floats(0, 1)),
        min_size=1,
        max_size=4,
        unique_by=repr,
    )
)
def test_a_coordinate_reads_as_the_value_that_was_typed(values: list[object]):
    typed = ",".join(json.dumps(value) for value in values)
    assert [parse_yaml(text) for text in read(f"a={typed}")] == values


@pytest.mark.parametrize(
    ("grids", "settings", "words"),
    [
        (["a"], [], "expected key.path=value"),
        (["=1"], [], "expected key.path=value"),
        (["a..b=1"], [], "expected key.path=value"),
        (["a=1,,2"], [], "a value is empty"),
        (["a="], [], "a value is empty"),
        (["a=1,2,1"], [], "the value 1 appears twice"),
        (["a=0.1,0.10"], [], "the value 0.1 appears twice"),
        (["a=[1"], [], "is no YAML value"),
        (["a=1", "a=2"], [], "another axis"),
        (["a.b=1", "a={b: 2}"], [], "another axis"),
        (["a=1"], ["a=2"], "it is in --set, too"),
        (["a.b=1"], ["a={b: 2}"], "it is in --set, too"),
    ],
)
def test_mistakes_are_told(grids: list[str], settings: list[str], words: str):
    _, (problem,) = parse_axes(grids, settings=settings)
    assert words in problem


def test_a_grid_that_no_sweep_could_hold_is_refused():
    axes = [Axis(key, tuple(map(str, range(5000)))) for key in "ab"]
    with pytest.raises(ConfigError, match="got 25000000 cells; expected at most 10000"):
        list_coordinates(axes)


def test_all_mistakes_come_at_once():
    _, problems = parse_axes(["a=1,1", "b=[", "c"], settings=["a=3"])
    assert len(problems) == 4


def test_keys_that_only_look_alike_are_fine():
    assert parse_axes(["a.b=1", "a.bc=1"], settings=["a.c=1"])[1] == []


def test_the_last_axis_varies_fastest():
    cells = list_coordinates([Axis("a", ("1", "2")), Axis("b", ("x", "y"))])
    assert [cell["a"] + cell["b"] for cell in cells] == ["1x", "1y", "2x", "2y"]


class TestNames:
    def test_plain_ones_say_all(self):
        name = name_cell({"grpo.beta": "0.12", "seed": "3", "label": "任务"})
        assert name == "grpo.beta=0.12,seed=3,label=任务"

    @given(st.dictionaries(st.text("ab", min_size=1, max_size=3), st.text(max_size=200)))
    def test_any_is_a_safe_name_of_a_folder(self, coordinates: dict[str, str]):
        name = name_cell(coordinates)
        assert len(name.encode()) <= 130
        assert not set(name) & set("/\\\0\n :*?\"<>|'")

    def test_long_and_unsafe_ones_stay_apart(self):
        one, other = ({"a": "x" * 300 + end} for end in "yz")
        assert name_cell(one) != name_cell(other)
        assert name_cell({"a": "b/c"}) != name_cell({"a": "b:c"})
