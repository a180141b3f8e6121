"""Configs: every problem at once, in words that say what to write instead."""

import json
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from groupwise.core import Config, ConfigError, dump_config, flatten_settings, load_config
from groupwise.core.yaml_loader import parse_yaml


class Optimiser(Config):
    learning_rate: float = Field(1e-3, gt=0)
    num_steps: int = 10


class Job(Config):
    name: str
    mode: Literal["on", "off"] = "on"
    folds: tuple[int, ...] = (0, 1)
    optimiser: Optimiser = Optimiser()
    extra: Optimiser | None = None


def load(tmp_path: Path, text: str, *overrides: str) -> Job:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(Job, path, overrides=overrides)


def fail(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    return str(caught.value)


def test_values_defaults_and_overrides(tmp_path: Path):
    text = "name: 任务\nmode: off\noptimiser: {learning_rate: 1e-5}\n"
    job = load(tmp_path, text, "optimiser.num_steps=3", "folds=[2, 3]", "extra.num_steps=1")
    assert (job.name, job.mode, job.folds) == ("任务", "off", (2, 3))
    assert job.optimiser == Optimiser(learning_rate=1e-5, num_steps=3)
    assert job.extra == Optimiser(num_steps=1)


def test_the_resolved_config_loads_as_the_same(tmp_path: Path):
    job = load(tmp_path, "name: x\nextra: {num_steps: 4}\n")
    assert load_config(Job, dump_config(job)) == job
    assert dump_config(job)["optimiser"] == {"learning_rate": 0.001, "num_steps": 10}


def test_a_config_cannot_be_changed(tmp_path: Path):
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path, "name: x").name = "y"


def test_overrides_do_not_change_the_source():
    source = {"name": "x", "optimiser": {"num_steps": 1}}
    load_config(Job, source, overrides=["optimiser.num_steps=2"])
    assert source == {"name": "x", "optimiser": {"num_steps": 1}}


def test_all_problems_come_at_once_with_file_and_key(tmp_path: Path):
    text = "optimser: {}\noptimiser: {learning_rate: -1, num_step: 2}\nfolds: [a]\nmode: sideways\n"
    message = fail(tmp_path, text)
    lines = message.splitlines()
    assert lines[0] == "6 problem(s) in the configuration:"
    assert all(line.startswith(f"  {tmp_path / 'job.yaml'}: ") for line in lines[1:])
    for expected in (
        "name: missing",
        "optimser: unknown key; did you mean 'optimiser'? (allowed: extra, folds, mode,",
        "optimiser.num_step: unknown key; did you mean 'num_steps'?",
        "optimiser.learning_rate: Input should be greater than 0; got -1",
        "mode: Input should be 'on' or 'off'; got 'sideways'",
        "folds.0: Input should be a valid integer",
    ):
        assert expected in message


def test_unknown_key_of_an_optional_section_names_the_nearest(tmp_path: Path):
    assert "extra.num_step: unknown key; did you mean 'num_steps'?" in fail(
        tmp_path, "name: x\nextra: {num_step: 1}"
    )


def test_a_validator_speaks_for_itself():
    class Pair(Config):
        low: int
        high: int

        def model_post_init(self, context: object) -> None:
            if self.low > self.high:
                raise ValueError("low is above high; swap them")

    with pytest.raises(ConfigError, match=r"config: low is above high; swap them$"):
        load_config(Pair, {"low": 2, "high": 1})


def test_unreadable_files(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*No such file"):
        load_config(Job, tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*decode"):
        load_config(Job, tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("on", "off", "yes", "no", "On", "OFF", "y", "n")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("1e-5", 1e-5),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-0.5e+2", -50.0),
        ("+3", 3),
        ("012", "012"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("1.2.3", "1.2.3"),
        ("'on'", "on"),
        ("通过", "通过"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object):
    found = parse_yaml(text)
    assert (found, type(found)) == (value, type(value))


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abcxyz_", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_VALUES)
def test_json_is_read_as_it_was_written(value: object):
    assert parse_yaml(json.dumps(value, ensure_ascii=False)) == value


@given(st.text())
def test_any_text_is_a_value_or_a_yaml_error(text: str):
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        return
    assert not isinstance(value, yaml.Node)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_override_is_applied_or_refused_in_words(key: str, value: str):
    try:
        loaded = load_config(Job, {"name": "x"}, overrides=[f"{key}={value}"])
    except ConfigError:
        return
    assert isinstance(loaded, Job)


def test_settings_are_flat_and_empty_sections_stay():
    config = {"a": {"b": 1, "c": {"d": None}}, "e": [1, 2], "f": {}}
    flat = [("x/a.b", 1), ("x/a.c.d", None), ("x/e", [1, 2]), ("x/f", {})]
    assert list(flatten_settings(config, "x/")) == flat
