"""Values that no run can use are refused by every config, wherever they stand in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from groupwise.core import Config, ConfigError, Seed, load_config


class Inner(Config):
    share: float = 0.5


class Job(Config):
    count: int = 1
    weight: float = 1.0
    large: int = Field(default=1, le=10**13)
    name: str = ""
    place: Path = Path()
    sizes: tuple[int, ...] = ()
    more: Mapping[str, Any] = {}
    seed: Seed = 0
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("weight=1e400", "weight: a number must be finite; got inf"),
        ("weight='1e400'", "weight: a number must be finite; got '1e400'"),
        ("weight=.nan", "weight: a number must be finite"),
        ("inner.share=-.inf", "inner.share: a number must be finite"),
        ("weight=1e13", "weight: a number must not be beyond 1,000,000,000,000"),
        ("count=1000000001", "count: a number must not be beyond 1,000,000,000"),
        ("count='99999999999999999999'", "count: a number must not be beyond"),
        ("count=-9999999999", "count: a number must not be beyond"),
        ("sizes=[1, 9999999999]", "sizes: a number must not be beyond"),
        ("more={a: [{b: .nan}]}", "more: a number must be finite"),
        ("more={a: 9999999999}", "more: a number must not be beyond"),
        ("large=99999999999999", "large: Input should be less than or equal to"),
        ('name="a\\0b"', "name: a text must not hold a NUL"),
        ('place="a\\0b"', "place: a text must not hold a NUL"),
        ('more={"a\\0b": 1}', "more: a text must not hold a NUL"),
        ('name="\\ud800"', "name: a text must not hold half of a surrogate pair"),
        ("seed=-1", "seed: Input should be greater than or equal to 0"),
        ("seed=4294967296", "seed: Input should be less than 4294967296"),
    ],
)
def test_they_are_refused_by_key(value: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        load_config(Job, {}, overrides=[value])
    assert f"\n  config: {problem}" in str(caught.value)


def test_what_a_run_can_use_is_taken():
    values = {
        "count": -(10**9),
        "weight": 1e12,
        "large": 10**13,
        "name": "\N{PILE OF POO}\t",
        "more": {"a": [None, True, 1e-300]},
        "seed": 2**32 - 1,
    }
    assert load_config(Job, values).model_dump(exclude_unset=True) == values


@pytest.mark.parametrize("text", ["x" * 5 * 2**20, "/dev/zero"])
def test_a_file_is_read_up_to_a_size(tmp_path: Path, text: str):
    path = Path(text) if text.startswith("/") else tmp_path / "large.yaml"
    if text.startswith("x"):
        path.write_text(text)
    with pytest.raises(ConfigError, match="is no configuration; expected at most 4 MiB"):
        load_config(Job, path)


def test_what_is_told_of_very_much_is_short():
    many = {f"key{number}": "y" * 1000 for number in range(1000)}
    for values in (many, {"count": "z" * 10**5}):
        with pytest.raises(ConfigError) as caught:
            load_config(Job, values)
        assert len(str(caught.value)) < 20_000
    with pytest.raises(ConfigError) as caught:
        load_config(Job, {}, overrides=["more=" + "[" * 3000])
    assert len(str(caught.value)) < 1000


def test_a_key_of_an_override_is_nested_no_deeper_than_yaml():
    with pytest.raises(ConfigError, match=r"expected key\.path=value"):
        load_config(Job, {}, overrides=[".".join(["more"] * 5000) + "=1"])
