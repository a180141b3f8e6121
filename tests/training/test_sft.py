import re

import pytest
import torch

from groupwise.core import TrainingError, read_jsonl
from groupwise.models import TrainableSettings, list_trainable, load_policy
from groupwise.training import SftRow, SftSettings, Workspace, train_sft


def train(base, examples, folder, *, targets=None, **settings):
    policy = load_policy(base)
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    targets = targets or [str(example.label) for example in examples]
    rows = [SftRow(*row) for row in zip(examples, targets, strict=True)]
    trained = train_sft(
        policy,
        lambda _: rows,
        SftSettings(**({"batch_size": 4, "epochs": 1, "warmup_share": 0.0} | settings)),
        workspace=Workspace(folder, 0),
    )
    return before, trained


def test_rows_of_metrics_and_what_trains(vision_folder, picture_examples, tmp_path, capfd):
    settings = TrainableSettings(method="full")
    before, trained = train(
        vision_folder, picture_examples, tmp_path, trainable=settings, log_every_steps=1, epochs=2
    )
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["epoch"] for row in rows] == [0.5, 1.0, 1.5, 2.0]
    documented = {"step", "epoch", "loss", "learning_rate", "grad_norm", "tokens_per_s", "step_s"}
    assert all(set(row) == documented | {"entropy", "mean_token_accuracy"} for row in rows)
    assert all(row["tokens_per_s"] > 0 and row["step_s"] > 0 for row in rows)
    after = trained.model.state_dict()
    changed = {name for name in before if not before[name].equal(after[name])}
    parameters = {name for name, _ in trained.model.named_parameters()}
    assert changed & parameters == list_trainable(trained.model)
    assert not [name for name in changed if "visual" in name]
    printed = capfd.readouterr()
    assert printed.out == ""
    *table, last = printed.err.splitlines()
    assert re.fullmatch(r"  \S+: 4 of 4 steps(?:, in \d+ s)?, loss [\d.]+", last)
    for noise in ("loss", "shards", "Loading weights", "Warning", "pin_memory"):
        assert noise not in "\n".join(table).replace("sft", "")


@pytest.mark.parametrize(
    ("kind", "smoothing"),
    [
        ("text", 0.1),
        ("vision", 0.0),
        pytest.param("text", 0.0, marks=pytest.mark.slow),
        pytest.param("vision", 0.1, marks=pytest.mark.slow),
    ],
)
def test_the_loss_is_a_mean_over_the_tokens_of_a_step(request, tmp_path, kind, smoothing):
    """Not of means over parts of it, which processes or micro-batches would have."""
    examples = request.getfixturevalue("picture_examples" if kind == "vision" else "text_examples")
    targets = ["合格" * (1 + place % 5) for place in range(8)]
    found = []
    for size in (4, 1):
        folder = tmp_path / str(size)
        train(
            request.getfixturevalue(f"{kind}_folder"),
            examples[:8],
            folder,
            targets=targets,
            batch_size=size,
            gradient_accumulation=4 // size,
            label_smoothing=smoothing,
            log_every_steps=1,
            trainable=TrainableSettings(method="full"),
        )
        found.append(read_jsonl(folder / "metrics.jsonl")[0])
    for name in ("loss", "grad_norm"):
        assert found[0][name] == pytest.approx(found[1][name], rel=2e-5)


def test_the_last_step_is_logged(text_folder, text_examples, tmp_path):
    train(text_folder, text_examples, tmp_path, epochs=3, log_every_steps=4)
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [1, 4, 6]


def test_a_training_that_breaks_down_says_so(text_folder, text_examples, tmp_path, monkeypatch):
    from trl.trainer.sft_trainer import SFTTrainer

    compute = SFTTrainer.compute_loss

    def break_down(self, *given, **named):
        loss = compute(self, *given, **named)
        return loss * float("nan") if self.state.global_step == 1 else loss

    monkeypatch.setattr(SFTTrainer, "compute_loss", break_down)
    with pytest.raises(TrainingError, match=r"broke down at step 2; got loss.* not a number"):
        train(text_folder, text_examples, tmp_path, log_every_steps=1)


def test_lora_learns_its_targets(text_folder, text_examples, tmp_path):
    before, trained = train(
        text_folder, text_examples, tmp_path, epochs=4, learning_rate=2e-3, log_every_steps=1
    )
    losses = [row["loss"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert losses[-1] < losses[0] - 0.1
    with trained.model.disable_adapter():
        base = {
            name.replace(".base_layer", ""): v for name, v in trained.model.state_dict().items()
        }
    for name, value in before.items():
        assert torch.equal(base[f"base_model.model.{name}"], value)


@pytest.mark.parametrize(
    "given", [{"warmup_steps": 2}, pytest.param({"warmup_steps": 100}, marks=pytest.mark.slow)]
)
def test_a_warmup_that_takes_all_steps_stops_it(given, text_folder, text_examples, tmp_path):
    with pytest.raises(TrainingError, match=r"never reach its peak; got .* training of 2;"):
        train(text_folder, text_examples, tmp_path, **given)
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"warmup_steps": 1},
        pytest.param({"warmup_steps": 100, "scheduler": "constant"}, marks=pytest.mark.slow),
    ],
)
def test_a_shorter_warmup_reaches_the_peak(given, text_folder, text_examples, tmp_path):
    train(text_folder, text_examples, tmp_path, learning_rate=1e-3, log_every_steps=1, **given)
    rates = [row["learning_rate"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert max(rates) == 1e-3


def test_a_training_of_one_step_has_no_warmup(text_folder, text_examples, tmp_path):
    """A share of a single step, rounded up, would be all of it."""
    train(
        text_folder,
        text_examples,
        tmp_path,
        batch_size=len(text_examples),
        epochs=1,
        learning_rate=1e-3,
        warmup_share=0.05,
        log_every_steps=1,
    )
    logged = [row for row in read_jsonl(tmp_path / "metrics.jsonl") if "learning_rate" in row]
    assert [(row["step"], row["learning_rate"]) for row in logged] == [(1, 1e-3)]


def test_checkpointing_of_an_adapter_asks_for_no_gradient_of_inputs(
    text_folder, text_examples, tmp_path
):
    _, kept = train(text_folder, text_examples, tmp_path / "kept")
    _, again = train(text_folder, text_examples, tmp_path / "again", gradient_checkpointing=True)
    assert not again.model.get_input_embeddings()._forward_hooks
    weights = again.model.state_dict()
    assert all(weights[name].equal(value) for name, value in kept.model.state_dict().items())
