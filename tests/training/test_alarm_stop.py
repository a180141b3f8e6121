"""A training that teaches nothing ends with what was seen, and goes on from there if asked to."""

import pytest

from groupwise.core import Score, TrainingError, read_json, read_jsonl
from groupwise.evaluation.monitor import History
from groupwise.flow.training import describe_stop
from groupwise.models import LoraSettings, TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, SftRow, SftSettings, Workspace, train_grpo, train_sft

LORA = TrainableSettings(method="lora", lora=LoraSettings(rank=4, last_blocks=1))
SHARED = {"trainable": LORA, "log_every_steps": 1, "warmup_share": 0}


class Looks:
    """One answer to everything, at every look."""

    def __call__(self):
        return {"accuracy": 0.5, "commonest": 1.0, "majority": 0.5, "n": 96}


def teach(base, examples, folder, *, learning_rate=1e-7, find_stop=describe_stop, **asked):
    """24 steps of SFT, at a rate that teaches nothing unless another is given."""
    policy = load_policy(base)
    rows = [SftRow(example, "an answer that it does not know") for example in examples[:4]]
    settings = SftSettings(batch_size=2, epochs=12, learning_rate=learning_rate, **SHARED, **asked)
    looks = Looks() if asked else None
    train_sft(
        policy,
        lambda _: rows,
        settings,
        workspace=Workspace(folder, 0),
        check_heldout=looks,
        find_stop=find_stop,
    )
    return [p.detach() for p in policy.model.parameters() if p.requires_grad]


def test_sft_that_teaches_nothing_stops_at_half_and_goes_on_to_the_same_weights(
    taught_text_folder, text_examples, tmp_path
):
    given = taught_text_folder, text_examples
    with pytest.raises(TrainingError) as stopped:
        teach(*given, tmp_path / "stopped")
    said = str(stopped.value)
    assert said.startswith("stopped was stopped at step 20 of 24: the loss is not falling: ")
    assert "raise sft.learning_rate" in said
    assert "--set stop_on_alarm=false goes on from here" in said
    rows = read_jsonl(tmp_path / "stopped" / "metrics.jsonl")
    assert rows[-1]["step"] == 20
    assert read_json(tmp_path / "stopped" / "progress.json", dict)["num_steps"] == 24

    with pytest.raises(TrainingError) as again:
        teach(*given, tmp_path / "stopped")
    assert str(again.value) == said
    assert read_jsonl(tmp_path / "stopped" / "metrics.jsonl") == rows

    found = teach(*given, tmp_path / "stopped", find_stop=None)
    whole = teach(*given, tmp_path / "whole", find_stop=None)
    assert all(a.equal(b) for a, b in zip(found, whole, strict=True))
    one, other = (History(read_jsonl(tmp_path / n / "metrics.jsonl")) for n in ("stopped", "whole"))
    assert one.read("loss") == other.read("loss")


def test_sft_that_learns_is_not_stopped(taught_text_folder, text_examples, tmp_path):
    teach(taught_text_folder, text_examples, tmp_path, learning_rate=1e-2)
    loss = [row["loss"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert len(loss) == 24
    assert loss[-1] < loss[0]


def test_looks_with_one_answer_to_everything_stop_it(taught_text_folder, text_examples, tmp_path):
    with pytest.raises(TrainingError, match="held-out items got one and the same answer"):
        teach(
            taught_text_folder, text_examples, tmp_path, learning_rate=1e-2, heldout_every_steps=5
        )


def reward(base, examples, folder, *, steps, earned):
    settings = GrpoSettings(
        epochs=20, max_steps=steps, prompts_per_step=2, group_size=2, max_new_tokens=2, **SHARED
    )
    train_grpo(
        load_policy(base),
        examples,
        RewardSet({"ids": (earned, 1.0)}),
        settings,
        workspace=Workspace(folder, 0),
        find_stop=describe_stop,
    )


@pytest.mark.parametrize("steps", [32, pytest.param(30, marks=pytest.mark.slow)])
def test_grpo_that_earns_nothing_stops_before_its_last_step(
    steps, taught_text_folder, text_examples, tmp_path
):
    """Two groups a step: sixty of them are thirty steps, of which the last one stops nothing."""
    given = taught_text_folder, text_examples, tmp_path
    if steps == 30:
        reward(*given, steps=steps, earned=lambda *_: Score(0.0))
        assert read_json(tmp_path / "budget.json", dict)["num_steps"] == 30
        return
    with pytest.raises(TrainingError, match="step 30 of 32: in none of the 60 groups so far"):
        reward(*given, steps=steps, earned=lambda *_: Score(0.0))
