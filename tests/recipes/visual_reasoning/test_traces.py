"""Answers of a finished run as what is taught."""

from pathlib import Path

import pytest
from recipe_runs import RecipeJob

from groupwise.core import (
    ConfigError,
    DataError,
    Example,
    Message,
    make_example,
    read_json,
    write_jsonl,
)
from groupwise.data import read_examples
from groupwise.training import SftRow
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.traces import find_traced, teach_traces

TINY = {
    "data.drawn.num_pairs": 40,
    "data.drawn.num_test_pairs": 6,
    "sft.epochs": 3,
    "sft.batch_size": 4,
    "grpo.max_steps": 2,
    "grpo.prompts_per_step": 2,
    "grpo.group_size": 2,
    "evaluation.num_latency_items": 1,
    "evaluation.num_heldout_items": 4,
}


@pytest.fixture
def examples(tmp_path: Path) -> list[Example]:
    """Three statements with a trace of each grade; the last is cut off."""
    found = [
        make_example([Message("user", text)], cluster=text, label="True")
        for text in ("a", "b", "c")
    ]
    texts = [QUESTION_PARSER.write("True"), QUESTION_PARSER.write("False"), "Well"]
    grades = zip(found, texts, ("correct", "wrong", "invalid"), strict=True)
    rows = [
        {"id": one.id, "text": text, "is_finished": grade != "invalid", "grade": grade}
        for one, text, grade in grades
    ]
    write_jsonl(tmp_path / "traces.jsonl", rows)
    return found


def test_traces_are_taught_all_or_the_correct_ones(tmp_path: Path, examples: list[Example]) -> None:
    right, wrong = (QUESTION_PARSER.write(label) for label in ("True", "False"))
    first = SftRow(examples[0], right)
    assert teach_traces(examples, tmp_path, kept="correct") == [first]
    assert teach_traces(examples, tmp_path, kept="all") == [
        first,
        SftRow(examples[1], wrong),
        SftRow(examples[2], "Well", is_finished=False),
    ]


def test_without_a_correct_trace_nothing_is_taught(tmp_path: Path, examples: list[Example]) -> None:
    with pytest.raises(DataError, match=r"no trace is correct; got 2 traces"):
        teach_traces(examples[1:], tmp_path, kept="correct")


def test_a_run_without_a_finished_grpo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "grpo" / "policy").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"sft\.traces is no run with a finished GRPO"):
        find_traced(tmp_path)
    (tmp_path / "grpo" / "step.json").touch()
    assert find_traced(tmp_path) == tmp_path / "grpo" / "policy"


@pytest.mark.slow
def test_virtual_tokens_are_taught_the_traces_of_a_run(tmp_path: Path) -> None:
    source = RecipeJob("visual_reasoning", TINY, "prompts")
    done = source.run(tmp_path / "source", "--until", "grpo")
    assert done.returncode == 0, done.stderr
    settings = {"sft.traces": tmp_path / "source", "sft.traces_kept": "all"}
    prompt = {
        "model.base": tmp_path / "source" / "sft" / "policy",
        "sft.trainable.method": "prompt",
    }
    taught = RecipeJob(
        "visual_reasoning", {**TINY, **settings, **prompt, "sft.epochs": 1}, "prompts"
    )
    done = taught.run(tmp_path / "taught", "--until", "sft")
    assert done.returncode == 0, done.stderr
    prepared = tmp_path / "taught" / "prepare"
    counts = read_json(prepared / "traces.json", dict)
    warmup = read_examples(prepared / "warmup.jsonl")
    assert sum(counts.values()) == len(warmup) == len(teach_traces(warmup, prepared, kept="all"))
    parts = read_json(tmp_path / "taught" / "sft" / "trainable.json", list)
    assert {row["part"] for row in parts if row["num_trainable"]} == {"virtual tokens"}
