"""Warm-up rows of on_task: which decisions are taught, and what an unlabelled row gives away."""

from dataclasses import replace

import pytest

from groupwise.core import Completion, load_config
from groupwise.data import Screenshot, load_screenshots
from groupwise.pipeline import find_recipe
from groupwise.training import SftRow
from groupwise_drawn.desktops import write_desktops
from groupwise_recipes.on_task.config import LABELS, OnTaskConfig
from groupwise_recipes.on_task.prompt import make_warmup_rows
from groupwise_recipes.on_task.rewards import make_rewards

CONFIG = find_recipe("on_task").config_folder / "demo.yaml"


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> list[Screenshot]:
    root = tmp_path_factory.mktemp("screens")
    write_desktops(root, num_sessions=60, screens_per_session=1, seed=5, size=(160, 120))
    return list(load_screenshots(root).screens)


def list_rows(screens: list[Screenshot], share: float, epoch: int = 0) -> list[SftRow]:
    config = load_config(OnTaskConfig, CONFIG, overrides=[f"sft.labelled_share={share}"])
    return list(make_warmup_rows(screens, config)(epoch))


def list_labelled(rows: list[SftRow]) -> set[str]:
    return {row.example.cluster for row in rows if row.is_finished}


def test_the_same_share_of_sessions_is_labelled_in_every_epoch(screens):
    labelled = [list_labelled(list_rows(screens, 0.3, epoch)) for epoch in range(3)]
    assert labelled[0] == labelled[1] == labelled[2]
    assert 8 <= len(labelled[0]) <= 28


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 60)])
def test_limits_of_the_labelled_share(screens, share, expected):
    assert len(list_labelled(list_rows(screens, share))) == expected


def test_an_unlabelled_row_is_the_labelled_one_up_to_its_label(screens):
    for bare, whole in zip(list_rows(screens, 0), list_rows(screens, 1), strict=True):
        assert bare.example == whole.example
        assert whole.target == f"{bare.target} {whole.example.label}"
        assert not any(label in bare.target for label in LABELS)


def test_without_names_every_decision_is_taught(screens):
    unnamed = [replace(screen, activity=None) for screen in screens[:20]]
    unnamed = [replace(s, task=f"task {n}") for n, s in enumerate(unnamed)]
    rows = list_rows(unnamed, 0)
    assert rows
    assert all(row.is_finished and row.target in LABELS for row in rows)


def test_labels_are_words_of_the_config_and_what_is_paid_for(screens):
    words = ["answer.labels=[在任务上, 不在任务上]", "answer.describe=[屏幕, 任务]"]
    question = "prompt=任务：{{ task }}。屏幕在任务上还是不在任务上？"
    config = load_config(OnTaskConfig, CONFIG, overrides=[*words, question, "sft.labelled_share=1"])
    rows = make_warmup_rows(screens, config)(0)
    known = make_warmup_rows(screens, load_config(OnTaskConfig, CONFIG))(0)
    assert {row.example.label for row in rows} == {"在任务上", "不在任务上"}
    for row, same in zip(rows, known, strict=True):
        assert (row.example.label == "在任务上") == (same.example.label == "on-task")
        task, [asked] = row.example.fields["task"], row.example.prompt
        assert asked.text == f"任务：{task}。屏幕在任务上还是不在任务上？"
        assert config.answer.parse(row.target).label == row.example.label
        right = make_rewards(config).score(row.example, Completion(row.target))
        assert right.value == 1.0
