"""One training after another, on the policy that the first was given."""

import pytest
from peft import LoraConfig, get_peft_model

from groupwise.core import ModelError, RewardError, Score
from groupwise.models import LoraSettings, TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, SftRow, SftSettings, Workspace, train_grpo, train_sft

LORA = TrainableSettings(lora=LoraSettings(rank=2, alpha=4, modules=("q_proj",)))


class Scatter:
    name = "scatter"

    def __init__(self, fails):
        self.fails = fails

    def __call__(self, example, completion):
        if self.fails:
            raise ZeroDivisionError
        return Score((sum(completion.token_ids) % 7) / 6)


@pytest.fixture
def train(text_examples, tmp_path):
    def run(policy, stage, *, fails=False):
        workspace = Workspace(tmp_path / stage, 0)
        if stage == "sft":
            rows = [SftRow(example, str(example.label)) for example in text_examples]
            settings = SftSettings(trainable=LORA, batch_size=4, learning_rate=1e-2)
            return train_sft(policy, lambda _: rows, settings, workspace=workspace)
        settings = GrpoSettings(
            trainable=LORA,
            prompts_per_step=4,
            group_size=2,
            max_new_tokens=4,
            max_steps=1,
            warmup_share=0.0,
            beta=0.1,
        )
        rewards = RewardSet({"scatter": (Scatter(fails), 1.0)})
        return train_grpo(policy, text_examples, rewards, settings, workspace=workspace)

    return run


def test_the_policy_that_was_given_is_the_one_that_is_trained(train, text_folder, tmp_path):
    """It can be trained again, switched to its base and saved, as what was returned can."""
    policy = load_policy(text_folder)
    base = {name: value.clone() for name, value in policy.model.state_dict().items()}
    returned = train(policy, "sft")
    with pytest.raises(RewardError, match="scatter"):
        train(policy, "stopped", fails=True)
    assert train(policy, "grpo") is returned
    train(policy, "grpo again")
    with policy.adapter_off():
        assert set(policy.model.peft_config) == {"default"}
    policy.save(tmp_path / "saved")
    again = load_policy(tmp_path / "saved").model.state_dict()
    assert {name for name in again if "lora_B" in name and again[name].any()}
    kept = policy.model.unload().state_dict()
    assert all(kept[name].equal(value) for name, value in base.items())


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_model_inside_another_is_refused(train, text_folder, stage):
    policy = load_policy(text_folder)
    get_peft_model(policy.model, LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(ModelError, match=r"is inside a PEFT model; got Qwen2"):
        train(policy, stage)
