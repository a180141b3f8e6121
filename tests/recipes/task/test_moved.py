"""The same task in another folder is the same task: nothing is done again, nothing confounds."""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from plan_keys import list_changed, read_keys
from run_folders import VARIED, make_run
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.core import dump_config, list_effects, load_config
from groupwise.evaluation.fairness import check_fairness, read_facts
from groupwise.pipeline.reward_audit import plan_steps
from groupwise_recipes.task.config import TaskConfig
from groupwise_recipes.task.recipe import recipe


@pytest.mark.parametrize("kind", ["labels", "checker", "pictures"])
def test_the_same_task_elsewhere_is_the_same(tmp_path: Path, kind: str) -> None:
    new = ["new", str(tmp_path / "one" / "task"), "--kind", kind, "--tiny"]
    assert CliRunner().invoke(app, new).exit_code == 0
    shutil.copytree(tmp_path / "one", tmp_path / "two" / "moved")
    folders = [tmp_path / "one" / "task", tmp_path / "two" / "moved" / "task"]
    plans, runs = [], []
    for folder, answers in zip(folders, ("one", "two"), strict=True):
        config = load_config(TaskConfig, folder / "task.yaml")
        steps = plan_steps(recipe, config, tmp_path / "run")
        plans.append(read_keys(steps))
        values = {
            "manifest.json:config": dump_config(config),
            "manifest.json:effects": {k: asdict(v) for k, v in list_effects(TaskConfig).items()},
            "manifest.json:inputs": {k: v for step in steps for k, v in step.inputs.items()},
        }
        varied = {k: v for k, v in VARIED.items() if answers == "two" and "beta" not in k}
        runs.append(make_run(tmp_path / "runs" / answers, {**varied, **values}, answers=answers))
    # What is written names pictures where they lie, so that has to be written again.
    has_pictures = kind == "pictures"
    assert bool(list_changed(*plans)) == has_pictures
    verdict = check_fairness([read_facts(run) for run in runs])
    assert {one.name for one in verdict.confounding} == {"budget/grpo.num_tokens"}


def test_another_function_of_that_name_counts(tmp_path: Path) -> None:
    new = ["new", str(tmp_path / "task"), "--kind", "labels", "--tiny"]
    assert CliRunner().invoke(app, new).exit_code == 0
    plans = []
    for _ in range(2):
        config = load_config(TaskConfig, tmp_path / "task" / "task.yaml")
        plans.append(read_keys(plan_steps(recipe, config, tmp_path / "run")))
        with (tmp_path / "task" / "rewards.py").open("a") as file:
            file.write("\nMORE = 1\n")
    assert {"grpo", "audit_rewards"} <= list_changed(*plans)
