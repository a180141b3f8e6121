"""The files of the tables: rows that the commands fill, and typed-in values that are refused."""

import shlex
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import ConfigError, dump_config, flatten_settings, load_config
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.study_tables import (
    NAMES,
    Row,
    StudyTable,
    Wanted,
    fits_any,
    read_tables,
)

CONFIGS = Path(__file__).parents[4] / "src/groupwise_recipes/visual_reasoning/configs"
TABLES = {table.name: table for table in read_tables()}
REL3D = (
    "data.drawn=null",
    "data.rel3d.path=r",
    "data.spatialsense.path=s",
    "data.spatialsense.splits={test: test}",
)
AOKVQA = ("data.drawn=null", "data.aokvqa.path=a", "data.drivingvqa.path=d")


def find(table: StudyTable, name: str) -> Row:
    return next(row for row in table.rows if row.name == name)


def resolve(config: str, *overrides: str) -> dict[str, Any]:
    """Return the settings of a config as the manifest of its run has them."""
    loaded = load_config(VisualConfig, CONFIGS / f"{config}.yaml", overrides=overrides)
    return dict(flatten_settings(dump_config(loaded)))


def list_studies(settings: dict[str, Any]) -> list[str]:
    return [name for name, table in TABLES.items() if fits_any(table.runs, settings)]


@pytest.mark.parametrize("name", ["bias", "prompts"])
def test_real_configs_are_of_their_study(name: str) -> None:
    assert list_studies(resolve(f"{name}-qwen2.5-vl-3b")) == [name]


@pytest.mark.parametrize(
    ("config", "overrides", "row", "others"),
    [
        ("transfer", ("sft.epochs=2",), "sft_2", ("grpo_aug", "sft_ss", "sft_50")),
        ("transfer", ("inputs=[boxes]",), "grpo_aug", ("grpo", "base", "sft_2")),
        (
            "transfer",
            ("data.rel3d=null", "data.spatialsense.splits={train: train, test: test}"),
            "sft_ss",
            ("sft_2", "grpo", "base"),
        ),
        ("grounding", ("sft.epochs=10",), "sft_10", ("sft_1", "sft_other")),
        ("grounding", ("rewards.box_iou=0",), "grpo_format", ("grpo_accuracy", "grpo_iou")),
    ],
)
def test_runs_on_published_sets_fill_the_rows_of_their_arms(
    config: str, overrides: tuple[str, ...], row: str, others: tuple[str, ...]
) -> None:
    sets = REL3D if config == "transfer" else AOKVQA
    settings = resolve(f"{config}-qwen2.5-vl-3b", *sets, *overrides)
    table = TABLES[config]
    assert list_studies(settings) == [config]
    assert fits_any(find(table, row).where, settings)
    assert not any(fits_any(find(table, other).where, settings) for other in others)


def list_readme_runs(readme: Path) -> Iterator[dict[str, Any]]:
    """Yield the settings of every run that the commands of the section on tables make."""
    section = readme.read_text(encoding="utf-8").split("tables/*.yaml")[1]
    for line in section.splitlines():
        if not line.startswith(("    groupwise run ", "    groupwise sweep ")):
            continue
        words = shlex.split(line)
        given = list(pairwise(words))
        fixed = [value for key, value in given if key == "--set"]
        axes = [value.partition("=") for key, value in given if key == "--grid"]
        (config,) = [value for key, value in given if key == "--config"]
        for values in product(*(values.split(",") for _, _, values in axes)):
            varied = [f"{key}={one}" for (key, _, _), one in zip(axes, values, strict=True)]
            yield resolve(config, *fixed, *varied)


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_commands_of_the_readme_fill_every_row_of_every_table(name: str) -> None:
    runs = list(list_readme_runs(CONFIGS.parent / name))
    empty = [
        (table.name, row.name)
        for table in TABLES.values()
        for row in table.rows
        if not any(fits_any(table.runs, one) and fits_any(row.where, one) for one in runs)
    ]
    # A row that only stands where a run is there needs no command.
    assert [one for one in empty if not find(TABLES[one[0]], one[1]).is_extra] == []
    assert all(len(list_studies(one)) == 1 for one in runs)


def test_trained_on_textured_scenes_is_not_grounding_out_of_the_domain() -> None:
    assert list_studies(resolve("grounding", "data.drawn.style=textured")) == []


@pytest.mark.parametrize(
    ("wanted", "fitting", "unfit"),
    [
        ({"any_of": [1, None]}, [{"a": 1}, {}, {"a": None}], [{"a": 2}, {"a": 0}]),
        ({"none_of": [[]]}, [{"a": ["x"]}, {}], [{"a": []}]),
        ({"given": True}, [{"a": 0}, {"a.b": 1}], [{}, {"a": None}, {"ab": 1}, {"a.b": None}]),
        ({"given": False}, [{}, {"a": None}], [{"a.b": 1}]),
    ],
)
def test_what_settings_have_to_be(
    wanted: dict[str, Any], fitting: list[dict[str, Any]], unfit: list[dict[str, Any]]
) -> None:
    asked = Wanted(**wanted)
    assert all(asked.fits(one, "a") for one in fitting)
    assert not any(asked.fits(one, "a") for one in unfit)


@pytest.mark.parametrize("table", TABLES.values(), ids=NAMES)
def test_names_are_known_and_stand_once(table: StudyTable) -> None:
    rows, columns = ([one.name for one in listed] for listed in (table.rows, table.columns))
    assert len({*rows}) == len(rows)
    assert len({*columns}) == len(columns)
    typed = {name for row in table.rows for name in row.published}
    assert typed <= {*columns}
    assert {name for pair in table.pairs for name in pair} <= {*rows}


def test_a_published_value_is_a_share_in_percent() -> None:
    table = TABLES["alignment"].model_dump(mode="json")
    table["rows"][0]["published"] = {"accuracy": {"value": 101}}
    with pytest.raises(ConfigError, match="less than or equal to 100"):
        load_config(StudyTable, table)


def test_every_title_is_in_both_languages() -> None:
    for name in NAMES:
        table = TABLES[name]
        named = [table, *table.rows, *table.columns]
        assert all(one.title["en"] and one.title["zh"] for one in named)
        assert any("\u4e00" <= letter <= "\u9fff" for letter in table.lead["zh"])
