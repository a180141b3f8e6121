"""The whole way of the grounding study, tiny."""

from pathlib import Path

import pytest
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import RecipeJob

from groupwise.core import read_json
from groupwise.evaluation import read_predictions

TINY = {
    "data.drawn.num_pairs": 30,
    "data.drawn.num_test_pairs": 6,
    "sft.epochs": 1,
    "sft.batch_size": 4,
    "grpo.max_steps": 2,
    "grpo.prompts_per_step": 2,
    "grpo.group_size": 2,
    "evaluation.num_latency_items": 1,
    "evaluation.num_heldout_items": 4,
}


def test_a_reward_without_the_answer_is_refused(tmp_path: Path) -> None:
    job = RecipeJob("visual_reasoning", {**TINY, "rewards.accuracy": 0}, "grounding")
    done = job.run(tmp_path / "run", "--until", "audit_rewards")
    assert done.returncode == 2
    assert "the reward audit found" in done.stderr


@pytest.mark.slow
def test_every_policy_is_measured_by_its_boxes(tmp_path: Path) -> None:
    run = RecipeJob("visual_reasoning", TINY, "grounding").finish(tmp_path / "run")
    assert list_done(run) == list_all_steps("visual_reasoning", tmp_path)
    found = read_predictions(run / "evaluate" / "predictions.jsonl")
    assert {"sft", "sft_control", "grpo", "other_scene", "majority"} <= {o.policy for o in found}
    assert all("box_iou" in one.scores for one in found if one.policy in ("sft", "other_scene"))
    assert all(one.pair for one in found)
    named = {row["name"] for row in read_json(run / "evaluate" / "metrics.json", list)}
    assert {"other_scene/box_iou", "other_scene/alignment", "grpo/pair_accuracy"} <= named
