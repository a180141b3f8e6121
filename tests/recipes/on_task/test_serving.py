"""The judge behind a served policy: the run's own, or one that a file names."""

from pathlib import Path

import pytest
import yaml
from PIL import Image

from groupwise.core import ConfigError, RunFolder, dump_config, read_picture
from groupwise.flow import FinishedRun, open_judge
from groupwise.judges import LogitJudge, NoVerdict, Question, judge_all
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.task import TASK

CONFIG = Path(__file__).parents[3] / "src/groupwise_recipes/on_task/configs/demo.yaml"
DEMO = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
NOBODY = {"server": {"url": "http://127.0.0.1:9/v1", "model": "judge"}}
ONCE = {"settings": {"retry": {"max_attempts": 1}}}


def make_run(folder: Path, **more: object) -> FinishedRun:
    config = OnTaskConfig.model_validate(DEMO | more)
    RunFolder(folder).write_manifest(
        recipe="on_task", config=dump_config(config), inputs={}, seed=0
    )
    return FinishedRun(folder, recipe, TASK, config)


def test_a_run_without_a_judge_has_none(tmp_path):
    assert TASK.has_screens
    assert open_judge(make_run(tmp_path), None, folder=tmp_path) is None


def test_the_runs_judge_is_asked_again_however_often_it_fails(tmp_path):
    judge = open_judge(make_run(tmp_path, judge=NOBODY | ONCE), None, folder=tmp_path)
    assert isinstance(judge, LogitJudge)
    assert judge.labels == TASK.parser(OnTaskConfig.model_validate(DEMO)).labels
    Image.new("RGB", (56, 56), "navy").save(tmp_path / "screen.png")
    shown = (read_picture(tmp_path / "screen.png"),)
    asked = [Question({"task": f"write report {number}"}, shown) for number in range(30)]
    found = judge_all(judge, asked)
    assert all(isinstance(one, NoVerdict) for one in found)
    assert isinstance(judge_all(judge, asked[:1])[0], NoVerdict)


def test_a_file_names_another_judge(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text(yaml.safe_dump(NOBODY | {"language": "zh"}))
    judge = open_judge(make_run(tmp_path), path, folder=tmp_path)
    assert isinstance(judge, LogitJudge)
    assert judge.option_texts == ("在任务上", "不在任务上")


@pytest.mark.parametrize("content", ["modell: x\n", "model: x\nserver: {url: y}\n", "- 1\n"])
def test_a_file_that_is_no_judge_is_told(tmp_path, content):
    path = tmp_path / "judge.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError):
        open_judge(make_run(tmp_path), path, folder=tmp_path)
