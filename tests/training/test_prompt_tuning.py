"""Prompt tuning in SFT and GRPO: nothing but the vectors of the virtual tokens changes."""

import pytest
import torch

from groupwise.core import ConfigError, Score, TrainingError, load_config, read_json, read_jsonl
from groupwise.models import Policy, PromptSettings, TrainableSettings, list_trainable, load_policy
from groupwise.models.virtual_tokens import find_vectors
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    SftRow,
    SftSettings,
    Workspace,
    grpo_trainer,
    train_grpo,
    train_sft,
)
from groupwise.training.settings import SpeedSettings

PROMPT = TrainableSettings(method="prompt", prompt=PromptSettings(num_tokens=5))
KINDS = {"text": "taught_text_folder", "picture": "taught_folder"}


class Scatter:
    name = "scatter"

    def __call__(self, example, completion):
        return Score((sum(completion.token_ids) % 7) / 6, invalid=False)


@pytest.fixture(params=["text", pytest.param("picture", marks=pytest.mark.slow)])
def asked(request):
    """A taught folder, and what it is asked."""
    return request.getfixturevalue(KINDS[request.param]), request.getfixturevalue(
        f"{request.param}_examples"
    )


def sft(base, examples, folder, **settings):
    values = {"batch_size": 4, "epochs": 4, "learning_rate": 3e-2, "warmup_share": 0.0}
    rows = [SftRow(example, "no" if example.label == "yes" else "yes") for example in examples]
    settings = SftSettings(**(values | {"trainable": PROMPT, "log_every_steps": 1} | settings))
    return train_sft(load_policy(base), lambda _: rows, settings, workspace=Workspace(folder, 0))


def grpo(base, examples, folder, **settings):
    values = {
        "prompts_per_step": 4,
        "group_size": 4,
        "max_new_tokens": 4,
        "temperature": 2.0,
        "learning_rate": 1e-2,
        "warmup_share": 0.0,
        "log_every_steps": 1,
        "trainable": PROMPT,
    }
    return train_grpo(
        load_policy(base),
        examples,
        RewardSet({"scatter": (Scatter(), 1.0)}),
        GrpoSettings(**(values | settings)),
        workspace=Workspace(folder, 0),
    )


def check_base(trained: Policy, base):
    """Every weight of the base is in the trained policy as it was, byte for byte."""
    own = {
        name.replace("base_model.model.", "").replace("base_layer.", ""): value
        for name, value in trained.model.state_dict().items()
    }
    expected = load_policy(base).model.state_dict()
    assert all(own[name].equal(value) for name, value in expected.items())
    assert [name for name, _ in trained.model.named_parameters() if ".ref" in name] == []


def test_sft_changes_the_vectors_alone(asked, tmp_path):
    base, examples = asked
    trained = sft(base, examples, tmp_path)
    check_base(trained, base)
    [name] = list_trainable(trained.model)
    assert name.endswith("trainable_tokens_delta.default")
    losses = [row["loss"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_grpo_changes_the_vectors_alone(asked, tmp_path):
    base, examples = asked
    start = sft(base, examples, tmp_path / "sft", epochs=1)
    start.save(tmp_path / "start")
    trained = grpo(tmp_path / "start", examples, tmp_path / "grpo", beta=0.1)
    check_base(trained, base)
    assert not torch.equal(find_vectors(trained.model), find_vectors(start.model))
    check = read_json(tmp_path / "grpo" / "on_policy.json", dict)
    assert check["max_log_ratio"] <= check["tolerance"]
    kls = [row["kl"] for row in read_jsonl(tmp_path / "grpo" / "metrics.jsonl") if "kl" in row]
    assert kls[0] < 1e-6 < kls[-1]


@pytest.mark.slow
def test_grpo_gives_a_policy_without_them_virtual_tokens(asked, tmp_path):
    base, examples = asked
    trained = grpo(base, examples, tmp_path / "grpo", beta=0.1)
    check_base(trained, base)
    assert len(find_vectors(trained.model)) == 5


@pytest.mark.slow
def test_a_reference_without_the_vectors_is_noticed(taught_text_folder, text_examples, tmp_path):
    start = sft(taught_text_folder, text_examples, tmp_path / "sft", epochs=1)
    start.save(tmp_path / "start")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_trainer, "_complete_reference", lambda _: None)
        with pytest.raises(TrainingError, match="on-policy check failed"):
            grpo(tmp_path / "start", text_examples, tmp_path / "grpo", beta=0.1)


@pytest.mark.slow
def test_shared_prompts_give_the_same_vectors_as_plain_passes(asked, tmp_path):
    base, examples = asked
    plain = SpeedSettings(
        shared_prefix="off", trunk_cache=False, vision_once=False, prefill_once=False
    )
    found = [
        find_vectors(grpo(base, examples, tmp_path / name, beta=0.1, speed=speed).model)
        for name, speed in {"plain": plain, "fast": SpeedSettings(shared_prefix="on")}.items()
    ]
    embedding = load_policy(base).model.get_input_embeddings().weight
    assert min((embedding - vector).abs().amax(1).min() for vector in found[0]) > 1e-4
    assert torch.allclose(found[0], found[1], atol=1e-4)


@pytest.mark.slow
def test_a_killed_training_goes_on_with_its_vectors(taught_text_folder, text_examples, tmp_path):
    whole = sft(taught_text_folder, text_examples, tmp_path / "whole", save_every_steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupwise.training.sft.remove_checkpoints", stop)
        with pytest.raises(KeyboardInterrupt):
            sft(taught_text_folder, text_examples, tmp_path / "killed", save_every_steps=4)
    last = max((tmp_path / "killed").glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
    for path in last.iterdir():
        path.unlink()
    again = sft(taught_text_folder, text_examples, tmp_path / "killed", save_every_steps=4)
    assert torch.equal(find_vectors(again.model), find_vectors(whole.model))


def stop(_):
    raise KeyboardInterrupt


def test_vllm_is_refused():
    values = {"trainable": {"method": "prompt"}, "vllm": {}}
    with pytest.raises(ConfigError, match="vllm takes no vectors of virtual tokens"):
        load_config(GrpoSettings, values)
