"""Answers of a finished run as what is taught."""

import shutil
from pathlib import Path

import pytest
from recipe_runs import TINY_SCENES, RecipeJob

from groupwise.core import (
    ConfigError,
    DataError,
    Example,
    Message,
    digest_file,
    load_config,
    make_example,
    read_json,
    write_json,
)
from groupwise.data import read_examples
from groupwise.training import SftRow
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.task import TASK
from groupwise_recipes.visual_reasoning.traces import add_trace, find_traced, teach_traces

CONFIGS = Path(__file__).parents[3] / "src/groupwise_recipes/visual_reasoning/configs"
TINY = {**TINY_SCENES, "data.drawn.num_pairs": 40, "sft.epochs": 3}
FULL = {"sft.trainable.method": "full", "grpo.trainable.method": "full"}


@pytest.fixture
def examples() -> list[Example]:
    """Three statements with a trace of each grade; the last is cut off."""
    asked = [
        make_example([Message("user", text)], cluster=text, label="True")
        for text in ("a", "b", "c")
    ]
    right, wrong = (QUESTION_PARSER.write(label) for label in ("True", "False"))
    return [
        add_trace(asked[0], right, is_finished=True),
        add_trace(asked[1], wrong, is_finished=True),
        add_trace(asked[2], "Well", is_finished=False),
    ]


def test_traces_are_taught_all_or_the_correct_ones(examples: list[Example]) -> None:
    right, wrong = (QUESTION_PARSER.write(label) for label in ("True", "False"))
    first = SftRow(examples[0], right)
    assert teach_traces(examples, kept="correct") == [first]
    assert teach_traces(examples, kept="all") == [
        first,
        SftRow(examples[1], wrong),
        SftRow(examples[2], "Well", is_finished=False),
    ]


def test_without_a_correct_trace_nothing_is_taught(examples: list[Example]) -> None:
    with pytest.raises(DataError, match=r"no trace is correct; got 2 traces"):
        teach_traces(examples[1:], kept="correct")


def test_a_run_without_a_finished_grpo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "grpo" / "policy").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"sft\.traces is no run with a finished GRPO"):
        find_traced(tmp_path)
    (tmp_path / "grpo" / "step.json").touch()
    assert find_traced(tmp_path) == tmp_path / "grpo" / "policy"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a finished GRPO; only to be read."""
    out = tmp_path_factory.mktemp("traced") / "source"
    done = RecipeJob("visual_reasoning", {**TINY, **FULL}, "prompts").run(out, "--until", "grpo")
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_virtual_tokens_are_taught_the_traces_of_a_run(source: Path, tmp_path: Path) -> None:
    settings = {
        **TINY,
        "sft.traces": source,
        "sft.traces_kept": "all",
        "model.base": source / "sft" / "policy",
        "sft.trainable.method": "prompt",
        "sft.epochs": 1,
    }
    done = RecipeJob("visual_reasoning", settings, "prompts").run(
        tmp_path / "taught", "--until", "sft"
    )
    assert done.returncode == 0, done.stderr
    prepared = tmp_path / "taught" / "prepare"
    counts = read_json(prepared / "traces.json", dict)
    warmup = read_examples(prepared / "warmup.jsonl")
    assert sum(counts.values()) == len(warmup) == len(teach_traces(warmup, kept="all"))
    parts = read_json(tmp_path / "taught" / "sft" / "trainable.json", list)
    assert {row["part"] for row in parts if row["num_trainable"]} == {"virtual tokens"}


@pytest.mark.slow
def test_traces_are_known_by_what_they_say_and_not_by_where_they_lie(
    source: Path, tmp_path: Path
) -> None:
    """As of other data: the digest of the warm-up is compared, and the path is not."""
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(source, copy)

    def prepare(name: str, run: Path) -> tuple[object, object]:
        settings = [f"{key}={value}" for key, value in {**TINY, "sft.traces": run}.items()]
        config = load_config(VisualConfig, CONFIGS / "prompts.yaml", overrides=settings)
        TASK.prepare(config, tmp_path / name)
        return digest_file(tmp_path / name / "warmup.jsonl"), TASK.inputs(config)

    once = prepare("once", source)
    assert prepare("again", copy) == once
    manifest = read_json(copy / "manifest.json", dict)
    del manifest["digest"]
    manifest["config"]["grpo"]["max_new_tokens"] = 3
    write_json(copy / "manifest.json", manifest)
    assert prepare("shorter", copy)[0] != once[0]
