"""Every recipe that trains with GRPO is handed over by the same code; others say why not."""

import shutil
from pathlib import Path
from runpy import run_path

import pytest
from handed_over import open_own_rewards
from recipe_runs import TINY_SCENES, RecipeJob

import groupwise_recipes
from groupwise.core import Completion, ConfigError, load_config
from groupwise.data import read_examples
from groupwise.flow import FinishedRun, export_for_trainer, open_run
from groupwise.pipeline import find_config, find_recipe

_TEMPLATES = Path(groupwise_recipes.__file__).parent / "task" / "templates"
_GROUPS = {
    "data.drawn.num_groups": 64,
    "data.drawn.width": 112,
    "data.drawn.height": 84,
    "data.teach_share": 0.3,
    "data.warmup_share": 0.15,
    "data.validation_share": 0.1,
    "data.test_share": 0.25,
    "teach.epochs": 3,
    "teach.photos_per_epoch": 48,
    "teach.reading_per_epoch": 8,
}
JOBS = {
    "a task with a reward of its own": (
        RecipeJob("task", {}, "task.yaml"),
        "prepare",
    ),
    "visual_reasoning": (RecipeJob("visual_reasoning", TINY_SCENES, "grounding"), "prepare"),
    "group_qc": (RecipeJob("group_qc", _GROUPS), "stage_b_data"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_the_plugin_pays_what_the_run_pays(name: str, tmp_path: Path, monkeypatch) -> None:
    job, stage = JOBS[name]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(_TEMPLATES / "labels", tmp_path, dirs_exist_ok=True)
    shutil.copy(_TEMPLATES / "shared" / "rewards.py", tmp_path)
    done = job.run(tmp_path / "run", "--until", stage)
    assert done.returncode == 0, done.stderr
    export_for_trainer(open_run(tmp_path / "run"), tmp_path / "verl", "verl")
    compute = run_path(str(tmp_path / "verl" / "plugin.py"))["compute_score"]
    own = open_own_rewards(tmp_path / "run", tmp_path / "own")
    asked = read_examples(tmp_path / "verl" / "examples.jsonl")
    assert asked
    for example in asked[:20]:
        for text in (str(example.label), "nothing that is an answer"):
            given = {"example_id": example.id}
            got = compute("x", text, example.label, extra_info=given)["score"]
            assert got == own.score(example, Completion(text)).value


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        ("demo_selection", "demo_selection trains no model with GRPO that verl could"),
        ("workflows", "cannot be built again elsewhere: their executor is a stub"),
    ],
)
def test_what_cannot_be_handed_over_is_said_in_one_sentence(
    recipe: str, why: str, tmp_path: Path
) -> None:
    found = find_recipe(recipe)
    assert found.task is not None
    config = load_config(found.load_config_type(), find_config(found, "demo"))
    run = FinishedRun(tmp_path, found, found.task(), config)
    with pytest.raises(ConfigError, match=why) as caught:
        export_for_trainer(run, tmp_path / "out", "verl")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
