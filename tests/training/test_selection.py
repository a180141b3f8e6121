"""Looks at validation choose the checkpoint, end the training, and are written down."""

import json

import pytest

from groupwise.core import Score, TrainingError, read_json, read_jsonl
from groupwise.models import LoraSettings, TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    SftRow,
    SftSettings,
    ValidationSettings,
    Workspace,
    train_grpo,
    train_sft,
)

LORA = TrainableSettings(method="lora", lora=LoraSettings(rank=4, last_blocks=1))
FULL = TrainableSettings(method="full")


class Looks:
    """Gives values one after the other, and remembers the weights that it was shown."""

    def __init__(self, values, measure="accuracy"):
        self.values = list(values)
        self.measure = measure
        self.seen = []

    def __call__(self):
        trained = (p for p in self.policy.model.parameters() if p.requires_grad)
        self.seen.append([p.detach().clone() for p in trained])
        value = self.values.pop(0)
        if isinstance(value, Exception):
            raise value
        return {
            self.measure: value,
            "accuracy": 1 - value if self.measure == "f1" else value,
            "n": 12,
        }


def train(kind, base, examples, folder, looks, *, trainable=LORA, save_every_steps=None, **asked):
    """Four steps with a look at each, unless they are told otherwise; return what trained."""
    settings = {
        "learning_rate": 1e-2,
        "epochs": 1,
        "warmup_share": 0,
        "trainable": trainable,
        "save_every_steps": save_every_steps,
    }
    if "heldout_every_steps" in asked:
        settings |= asked
    else:
        settings["validation"] = ValidationSettings(**({"every_steps": 1} | asked))
    policy = load_policy(base)
    workspace = Workspace(folder, 0)
    if looks is not None:
        looks.policy = policy
    if kind == "sft":
        rows = [SftRow(example, str(example.label)) for example in examples]
        settings = SftSettings(batch_size=2, **settings)
        train_sft(policy, lambda _: rows, settings, workspace=workspace, check_heldout=looks)
    else:
        settings = GrpoSettings(prompts_per_step=2, group_size=2, max_new_tokens=4, **settings)
        rewards = RewardSet({"ids": (lambda _, c: Score((sum(c.token_ids) % 7) / 6), 1.0)})
        train_grpo(policy, examples, rewards, settings, workspace=workspace, check_heldout=looks)
    return [p.detach() for p in policy.model.parameters() if p.requires_grad]


def is_same(one, other):
    return all(a.equal(b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("kind", "trainable"),
    [
        ("sft", LORA),
        pytest.param("grpo", LORA, marks=pytest.mark.slow),
        pytest.param("grpo", FULL, marks=pytest.mark.slow),
    ],
    ids=["sft", "lora", "full"],
)
def test_the_best_look_is_kept(kind, trainable, taught_text_folder, text_examples, tmp_path):
    looks = Looks([0.2, 0.7, 0.5, 0.7])
    found = train(kind, taught_text_folder, text_examples, tmp_path, looks, trainable=trainable)
    assert [is_same(found, seen) for seen in looks.seen] == [False, True, False, False]
    assert json.loads((tmp_path / "selection.json").read_text()) == {
        "select": "best",
        "chosen_by": "accuracy",
        "kept_step": 2,
        "last_step": 4,
        "num_items": 12,
        "looks": [{"step": n, "accuracy": a} for n, a in ((1, 0.2), (2, 0.7), (3, 0.5), (4, 0.7))],
    }
    budget = json.loads((tmp_path / "budget.json").read_text())
    assert (budget["num_steps"], budget["num_looks"]) == (4, 4)
    assert budget["num_validation_items"] == 12
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize("kind", ["sft", pytest.param("grpo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("select", ["best", pytest.param("last", marks=pytest.mark.slow)])
def test_it_stops_when_no_look_is_better(kind, select, taught_text_folder, text_examples, tmp_path):
    looks = Looks([0.5, 0.5, 0.4, 1.0])
    given = taught_text_folder, text_examples, tmp_path, looks
    found = train(kind, *given, patience=2, select=select)
    assert len(looks.seen) == 3
    assert is_same(found, looks.seen[0 if select == "best" else 2])
    budget = json.loads((tmp_path / "budget.json").read_text())
    assert (budget["num_steps"], budget["num_samples"]) == (3, 6 if kind == "sft" else 12)
    assert max(row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")) == 3


def test_one_that_goes_on_after_a_crash_chooses_the_same(
    taught_text_folder, text_examples, tmp_path
):
    """Of the looks before the crash, too; those of steps that are done again count once."""
    given = taught_text_folder, text_examples
    whole = train("sft", *given, tmp_path / "whole", Looks([0.2, 0.7, 0.5, 0.6]))
    looks = Looks([0.2, 0.7, RuntimeError("torn"), 0.5, 0.6])
    with pytest.raises(RuntimeError, match="torn"):
        train("sft", *given, tmp_path / "torn", looks, save_every_steps=1)
    found = train("sft", *given, tmp_path / "torn", looks, save_every_steps=1)
    assert is_same(found, whole)
    one, other = ((tmp_path / name / "selection.json").read_text() for name in ("whole", "torn"))
    assert one == other


def test_the_first_value_of_a_look_decides(taught_text_folder, text_examples, tmp_path):
    given = taught_text_folder, text_examples, tmp_path
    looks = Looks([0.2, 0.7, RuntimeError("torn"), 0.5, 0.6], "f1")
    with pytest.raises(RuntimeError, match="torn"):
        train("sft", *given, looks, save_every_steps=1)
    found = train("sft", *given, looks, save_every_steps=1)
    assert is_same(found, looks.seen[1])
    record = json.loads((tmp_path / "selection.json").read_text())
    assert (record["chosen_by"], record["kept_step"]) == ("f1", 2)
    assert record["looks"][0] == {"step": 1, "f1": 0.2}


@pytest.mark.parametrize("kind", ["sft", pytest.param("grpo", marks=pytest.mark.slow)])
def test_looks_that_choose_nothing_change_nothing(
    kind, taught_text_folder, text_examples, tmp_path
):
    given, looks = (kind, taught_text_folder, text_examples), Looks([0.2, 0.7, 0.5])
    looked = train(*given, tmp_path / "looked", looks, heldout_every_steps=3)
    alone = train(*given, tmp_path / "alone", looks, heldout_every_steps=None)
    assert is_same(looked, alone)
    rows = read_jsonl(tmp_path / "looked" / "metrics.jsonl")
    seen = [(row["step"], row["heldout/accuracy"]) for row in rows if "heldout/n" in row]
    assert seen == [(3, 0.2), (4, 0.7)]
    one, other = (read_json(tmp_path / name / "budget.json", dict) for name in ("looked", "alone"))
    assert one == other
    assert not (tmp_path / "looked" / "selection.json").exists()


@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_there_is_nothing_to_look_at(kind, taught_text_folder, text_examples, tmp_path):
    with pytest.raises(TrainingError, match="there is no validation split"):
        train(kind, taught_text_folder, text_examples, tmp_path, None)


@pytest.mark.parametrize("settings", [SftSettings, GrpoSettings])
def test_looks_are_asked_for_in_one_way(settings):
    with pytest.raises(ValueError, match="leave heldout_every_steps out"):
        settings(heldout_every_steps=2, validation=ValidationSettings(every_steps=2))
