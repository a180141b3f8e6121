from pathlib import Path
from typing import Any

import pytest

from groupwise.core import ConfigError, dump_config, load_config
from groupwise.rewards import ChoiceParser, LabelParser, TextParser
from groupwise_recipes.task.config import TaskConfig

GIVEN: dict[str, Any] = {
    "model": {"base": "tiny-qwen2", "max_pixels": 784},
    "data": {"files": "rows.csv", "columns": {"prompt": "问题", "answer": "答案"}},
    "answer": {"kind": "labels", "labels": ["好评", "差评"]},
    "grpo": {},
}
BARE = {"files": "a.csv", "columns": {"prompt": "q"}}


def load(**values: Any) -> TaskConfig:
    return load_config(TaskConfig, {**GIVEN, **values})


def test_the_answer_has_the_parser_of_its_kind():
    assert isinstance(load().answer, LabelParser)
    assert isinstance(load(answer={"kind": "choice", "num_options": 3}).answer, ChoiceParser)


def test_rewards_are_names_weights_or_more():
    assert load().rewards["correct"].weight == 1
    assert list(load(rewards=["correct", "format"]).rewards) == ["correct", "format"]
    parts = load(rewards={"correct": 2, "rewards.py:f": {"weight": 0.5, "kind": "shaping"}}).rewards
    assert (parts["correct"].weight, parts["rewards.py:f"].kind) == (2, "shaping")


def test_files_are_found_beside_the_configuration(tmp_path: Path):
    (tmp_path / "task.yaml").write_text(
        "recipe: task\nmodel: {base: tiny-qwen2, max_pixels: 784}\ngrpo: {}\n"
        "data: {files: rows.csv, columns: {prompt: 问题, answer: 答案}}\n"
        "answer: {kind: text}\nrewards: {奖励.py:f: 1}\n",
        encoding="utf-8",
    )
    config = load_config(TaskConfig, tmp_path / "task.yaml")
    assert config.data.files == {"train": (str(tmp_path / "rows.csv"),)}
    assert list(config.rewards) == [f"{tmp_path / '奖励.py'}:f"]
    assert load_config(TaskConfig, dump_config(config)) == config


MINIMAL = {**{name: GIVEN[name] for name in ("data", "answer")}, "model": {"base": "tiny-qwen2"}}


def test_what_suits_a_pretrained_base_is_chosen_where_nothing_is_said():
    config = load_config(TaskConfig, MINIMAL)
    assert config.sft is not None
    assert (config.sft.learning_rate, config.grpo.learning_rate) == (2e-4, 1e-4)
    assert config.grpo.max_new_tokens == 24
    assert load_config(TaskConfig, dump_config(config)) == config


def test_all_weights_take_shorter_steps_than_an_adapter():
    full = {"trainable": {"method": "full"}}
    config = load(sft=full, grpo=full)
    assert config.sft is not None
    assert (config.sft.learning_rate, config.grpo.learning_rate) == (1e-5, 1e-6)
    assert load(grpo={**full, "learning_rate": 3e-4}).grpo.learning_rate == 3e-4


def test_what_is_said_stands():
    config = load(sft=None, grpo={"max_new_tokens": 5})
    assert config.sft is None
    assert config.grpo.max_new_tokens == 5


@pytest.mark.parametrize("answer", [{"kind": "maths"}, {"kind": "number", "tags": ["think", "n"]}])
def test_an_answer_behind_a_way_to_it_gets_room_and_is_not_taught_alone(answer: dict[str, Any]):
    config = load(answer=answer)
    assert config.sft is None
    assert config.grpo.max_new_tokens == 256


def test_a_wrong_setting_is_one_problem_and_not_two():
    with pytest.raises(ConfigError) as refused:
        load(grpo={"trainable": {"method": "lorra"}})
    assert str(refused.value).startswith("1 problem(s)")


def test_an_answer_is_a_text_where_there_is_no_reference():
    given = {name: value for name, value in GIVEN.items() if name != "answer"}
    bare = load_config(TaskConfig, {**given, "data": BARE, "rewards": ["a.py:f"]})
    assert isinstance(bare.answer, TextParser)
    assert load_config(TaskConfig, dump_config(bare)) == bare
    with pytest.raises(ConfigError, match=r"answer is needed: it says how data\.columns\.answer"):
        load_config(TaskConfig, given)
