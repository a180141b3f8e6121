from types import SimpleNamespace

import pytest
import torch

from groupwise.core import Score, TrainingError, read_jsonl
from groupwise.models import TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, Workspace, score_alone, train_grpo
from groupwise.training.grpo_trainer import find_temperature, set_temperature

RISING = {"temperature": 2.0, "temperature_warmup": {"start": 0.5, "steps": 2}}


class Scatter:
    name = "scatter"

    def __init__(self):
        self.asked = []

    def __call__(self, example, completion):
        self.asked.append((example, completion.token_ids))
        return Score((sum(completion.token_ids) % 7) / 6)


def train(base, examples, folder, **settings):
    policy, reward = load_policy(base), Scatter()
    values = {
        "prompts_per_step": 4,
        "group_size": 2,
        "max_new_tokens": 4,
        "learning_rate": 1e-9,
        "log_every_steps": 1,
        "warmup_share": 0.0,
        "trainable": TrainableSettings(method="full"),
    }
    train_grpo(
        policy,
        examples,
        RewardSet({"scatter": (reward, 1.0)}),
        GrpoSettings.model_validate(values | settings),
        workspace=Workspace(folder, 0),
    )
    return policy, reward, [row for row in read_jsonl(folder / "metrics.jsonl") if "loss" in row]


def test_it_rises_in_a_straight_line_and_stays():
    settings = GrpoSettings.model_validate(RISING)
    assert [find_temperature(settings, step=n) for n in range(4)] == [0.5, 1.25, 2.0, 2.0]
    assert find_temperature(GrpoSettings(temperature=0.7), step=5) == 0.7


@pytest.mark.parametrize(
    ("beta", "speed"),
    [
        (0.1, "auto"),
        *(
            pytest.param(*which, marks=pytest.mark.slow)
            for which in ((0.1, "off"), (0.0, "auto"), (0.0, "off"))
        ),
    ],
)
def test_each_round_is_scored_at_the_temperature_that_it_was_sampled_at(
    taught_text_folder, text_examples, tmp_path, monkeypatch, speed, beta
):
    from groupwise.training.fast.trainer import FastGRPOTrainer

    scored = []

    def keep(trainer, model, ids, *rest, **named):
        found = compute(trainer, model, ids, *rest, **named)
        scored.append((trainer.temperature, found[0].detach().clone()))
        return found

    compute = FastGRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(FastGRPOTrainer, "_get_per_token_logps_and_entropies", keep)
    policy, reward, rows = train(
        taught_text_folder,
        text_examples,
        tmp_path,
        **RISING,
        epochs=2,
        beta=beta,
        speed={"shared_prefix": speed},
    )
    assert [row["temperature"] for row in rows] == pytest.approx([0.5, 1.25, 2.0, 2.0])
    # The rate is next to nothing, so the policy of every round is the one at hand.
    for number, temperature in enumerate((0.5, 1.25)):
        asked = reward.asked[8 * number : 8 * number + 8]
        passes = [found for given, found in scored if given == temperature]
        assert passes
        for got, row in ((got, row) for p in passes for got, row in zip(p, asked, strict=True)):
            wanted = torch.as_tensor(score_alone(policy, *row, temperature=temperature))
            torch.testing.assert_close(got[: len(wanted)], wanted, atol=1e-3, rtol=1e-3)


def test_what_is_sampled_depends_on_it(taught_text_folder, text_examples, tmp_path):
    _, cold, _ = train(
        taught_text_folder,
        text_examples,
        tmp_path / "cold",
        temperature=2.0,
        temperature_warmup={"start": 1e-3, "steps": 1},
    )
    groups: dict[str, set[tuple[int, ...]]] = {}
    for example, ids in cold.asked[:8]:
        groups.setdefault(example.id, set()).add(tuple(ids))
    assert {len(found) for found in groups.values()} == {1}  # next to greedy
    assert len({tuple(ids) for _, ids in cold.asked[8:]}) > 4


def test_a_trainer_with_another_head_is_refused():
    class Model:
        def forward(self):
            return None

    accelerator = SimpleNamespace(unwrap_model=lambda model: model)
    trainer = SimpleNamespace(
        temperature=1.0, model=Model(), ref_model=None, accelerator=accelerator
    )
    with pytest.raises(TrainingError, match="temperature_warmup"):
        set_temperature(trainer, 0.5)


def test_training_ends_after_so_many_steps(taught_text_folder, text_examples, tmp_path):
    _, _, rows = train(taught_text_folder, text_examples, tmp_path, epochs=9, max_steps=3)
    assert [(row["step"], row["epoch"]) for row in rows] == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert rows[-1]["learning_rate"] < rows[0]["learning_rate"] / 2


@pytest.mark.slow
def test_the_epochs_end_it_before(taught_text_folder, text_examples, tmp_path):
    _, _, rows = train(taught_text_folder, text_examples, tmp_path, epochs=1, max_steps=99)
    assert [row["epoch"] for row in rows] == [0.5, 1.0]
