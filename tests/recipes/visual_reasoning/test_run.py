"""The whole way of the grounding study, tiny."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from faulty_server import MODEL, Fault, FaultyServer
from made_once import make_once
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import TINY_SCENES as TINY
from recipe_runs import RecipeJob
from statement_sets import draw_two

from groupwise.core import read_json, write_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.models import write_tiny_policy


@pytest.mark.slow
def test_a_reward_without_the_answer_is_refused(tmp_path: Path) -> None:
    job = RecipeJob("visual_reasoning", {**TINY, "rewards.accuracy": 0}, "grounding")
    done = job.run(tmp_path / "run", "--until", "audit_rewards")
    assert done.returncode == 2
    assert "the reward audit found" in done.stderr


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the study; only to be read."""
    job = RecipeJob("visual_reasoning", TINY, "grounding")
    return make_once("scenes", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"


@pytest.mark.slow
def test_every_policy_is_measured_by_its_boxes(scenes: Path, tmp_path: Path) -> None:
    run = scenes
    assert list_done(run) == list_all_steps("visual_reasoning", tmp_path)
    found = read_predictions(run / "evaluate" / "predictions.jsonl")
    assert {"sft", "sft_control", "grpo", "other_scene", "majority"} <= {o.policy for o in found}
    assert all("box_iou" in one.scores for one in found if one.policy in ("sft", "other_scene"))
    assert all(one.pair for one in found)
    named = {row["name"] for row in read_json(run / "evaluate" / "metrics.json", list)}
    assert {"other_scene/box_iou", "other_scene/alignment", "grpo/pair_accuracy"} <= named
    assert "sft_control/alignment" not in named
    assert "Does the reasoning entail the answer?" in (run / "report.md").read_text()


@pytest.mark.slow
def test_a_policy_is_measured_on_labelled_rows_of_somebody_else(
    scenes: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    known = next(one for one in read_examples(scenes / "prepare" / "train.jsonl"))
    rows: list[dict[str, Any]] = [
        {"picture": str(known.pictures[0].path), "text": "A cup is left of a box.", "answers": True}
    ]
    for number in range(5):
        draw_two(tmp_path / f"{number}.png", number, is_left=True)
        told = {"picture": f"{number}.png", "text": f"The cup {number} is left of the box."}
        rows.append({**told, "answers": "True" if number % 2 else [False], "relation": "left of"})
    rows += [{**rows[1]}, {"picture": "0.png", "text": "No answer."}]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    done = command_line("evaluate", scenes, "rows.jsonl", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "8 rows, 6 asked" in done.stdout
    assert "not used: 1 no column answers" in done.stderr
    assert "not used: 1 repeats another row" in done.stderr
    assert "seen in training: 1 rows" in done.stdout
    sizes = {
        row["name"]: row["n"] for row in read_json(tmp_path / "out/evaluate/metrics.json", list)
    }
    assert sizes["grpo/accuracy"] == sizes["majority/accuracy"] == 6
    assert sizes["grpo/accuracy[seen_in_training=no]"] == 5
    # Rows have no boxes, and rules judge the words of drawn scenes alone.
    assert not any("box_iou" in name or "alignment" in name for name in sizes)
    page = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    [left] = [line for line in page.splitlines() if "what these rows cannot tell" in line]
    assert "IoU of boxes in the reasoning" in left
    assert "Reasoning entails the answer" in left
    assert "Pair accuracy" in left


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A judge whose third reply to a question is a verdict, after two that are none.

    It counts by question: which of those asked at once comes first is chance.
    """
    asked: Counter[str] = Counter()

    def answer(request: dict[str, Any]) -> Fault:
        question = json.dumps(request["messages"])
        asked[question] += 1
        return Fault(("aligned", "{}", FAULTY)[(asked[question] - 1) % 3])

    server = FaultyServer(answer)
    yield server
    server.close()


FAULTY = '{"aligns": false, "type": "other", "why": "so"}'


@pytest.mark.slow
def test_a_model_judges_what_is_rewarded_and_what_is_measured(
    server: FaultyServer, tmp_path: Path
) -> None:
    judged = {
        "sft.targets": "words",
        "rewards.box_iou": 0,
        "rewards.alignment": 0.2,
        "alignment.judge": "model",
        "alignment.model.server": json.dumps({"url": server.url, "model": MODEL}),
        "alignment.settings.retry.base_delay_s": 0.001,
    }
    job = RecipeJob("visual_reasoning", {**TINY, **judged}, "grounding")
    run = job.finish(tmp_path / "run")
    found = read_predictions(run / "evaluate" / "predictions.jsonl")
    said = [one.fields["entailment"] for one in found if "entailment" in one.fields]
    assert {one["type"] for one in said if one["aligns"] is False} == {"other"}
    assert all(one["type"] is None for one in said if one["aligns"] is None)
    assert all(
        ("alignment" in o.scores) == (o.fields["entailment"]["aligns"] is not None)
        for o in found
        if "entailment" in o.fields
    )
    assert f"by the model `{MODEL} at {server.url}`" in (run / "report.md").read_text()
    assert read_json(run / "grpo" / "judge.json", dict)["judge"] == "entailment judge"


@pytest.mark.slow
def test_a_model_in_this_process_that_cannot_judge_is_told_with_counts(tmp_path: Path) -> None:
    judged = {
        "sft.targets": "words",
        "rewards.box_iou": 0,
        "alignment.judge": "model",
        "alignment.model.model": write_tiny_policy("tiny-qwen2", tmp_path / "judge"),
        "alignment.sampling.max_new_tokens": 8,
    }
    run = RecipeJob("visual_reasoning", {**TINY, **judged}, "grounding").finish(tmp_path / "run")
    found = read_predictions(run / "evaluate" / "predictions.jsonl")
    said = [one.fields["entailment"] for one in found if "entailment" in one.fields]
    assert said
    assert {one["aligns"] for one in said} == {None}
    assert not any("alignment" in one.scores for one in found)
    [other] = [row for row in read_table(run) if row[0] == "Another scene's boxes"]
    assert other[2:5] == ["0 / 0", "0", "12"]


def read_table(run: Path) -> list[list[str]]:
    """Return the rows of the report's table on alignment."""
    page = (run / "report.md").read_text()
    part = page.split("Does the reasoning entail the answer?")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip(" *") for cell in line.strip("| ").split("|")] for line in lines]


@pytest.mark.slow
def test_grpo_can_start_from_the_base(tmp_path: Path) -> None:
    settings = {name: value for name, value in TINY.items() if not name.startswith("sft.")}
    job = RecipeJob(
        "visual_reasoning", {**settings, "sft": "null", "vision_epochs": 0}, "grounding"
    )
    run = job.finish(tmp_path / "run")
    assert not (run / "prepare" / "warmup.jsonl").exists()
    source = read_json(run / "prepare" / "source.json", dict)
    splits = [
        read_examples(run / "prepare" / f"{n}.jsonl") for n in ("train", "validation", "test")
    ]
    assert sum(map(len, splits)) == source["num_rows"]
    listed = {one.name: one.inapplicable for one in read_policies(run).listed}
    assert listed["grpo"] == listed["prompt"] == ()
    assert listed["majority"] == ("alignment",)
