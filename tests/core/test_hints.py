"""Names that nobody knows: the nearest one is found, also by what others call it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Config, ConfigError, describe_unknown, find_nearest, load_config
from groupwise.core.hints import _OTHER_NAMES
from groupwise.data import TableSettings
from groupwise.training import GrpoSettings, SftSettings


class Job(Config):
    data: TableSettings | None = None
    sft: SftSettings = SftSettings()
    grpo: GrpoSettings = GrpoSettings()


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("grpo.num_generations=8", "'group_size'"),
        ("grpo.lr=1e-5", "'learning_rate'"),
        ("grpo.per_device_train_batch_size=4", "'prompts_per_step'"),
        ("sft.per_device_train_batch_size=4", "'batch_size'"),
        ("grpo.trainable.lora.r=4", "'rank'"),
        ("num_generations=8", "'grpo.group_size'"),
        ("lr=1", "'sft.learning_rate' or 'grpo.learning_rate'"),
        ("grpo.beta_kl=1", "'beta'"),
        ("grpo.max_completion_length=8", "'max_new_tokens'"),
        ("grpo.num_train_epochs=8", "'epochs'"),
        ("sft.gradient_accumulation_steps=8", "'gradient_accumulation'"),
        ("data.train_file=rows.csv", "'files'"),
        ("data.system_prompt=Be brief", "'system'"),
        ("data.columns.question=q", "'prompt'"),
        ("data.columns.label=q", "'answer'"),
        ("data.columns.images=q", "'pictures'"),
        ("grpo.group_sise=8", "'group_size'"),
    ],
)
def test_settings_are_known_by_their_names_elsewhere(override: str, meant: str):
    with pytest.raises(ConfigError) as caught:
        load_config(Job, {}, overrides=[override])
    assert f"unknown key; did you mean {meant}?" in str(caught.value)


def test_no_setting_has_two_of_these_names():
    names = [(ours, name) for ours, others in _OTHER_NAMES.items() for name in others]
    assert len(set(names)) == len(names)
    assert not {name for _, name in names} & set(_OTHER_NAMES)


@given(st.lists(st.text(max_size=8)), st.text(max_size=8))
def test_what_is_suggested_is_known(known: list[str], name: str):
    near = find_nearest(name, known)
    assert near is None or near in known
    if name in known:
        assert near == name


def test_the_sentence():
    assert describe_unknown("recipe", "tinny", ["on_task", "tiny"]) == (
        "there is no recipe 'tinny'; did you mean 'tiny'? (there are: on_task, tiny)"
    )
    assert describe_unknown("step", "x", []) == "there is no step 'x' (there are: none)"
