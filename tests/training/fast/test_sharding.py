"""Where FSDP2 spreads weights over processes prompts are shared, and training is the same."""

from pathlib import Path

import grpo_sharded
import pytest
import torch
from grpo_pairs import measure_difference
from grpo_processes import load_policies, train
from made_once import make_once
from trl.distributed import DistributedBackend

from groupwise.core import TrainingError
from groupwise.training.settings import SpeedSettings

from .test_two_processes import read_outcomes, run_together

_QUICK = ("full", "pictures")
_SLOW = ("last", "all", "untied", "vision", "rounds", "reference", "dead", "again")
_NUM_STEPS = 5
_OF_FOUR = ("all", "full", "pictures", "vision")


@pytest.fixture(scope="module")
def folders(text_folder, vision_folder):
    return text_folder, vision_folder


def train_by(num_processes, names, folders, out):
    """Return outcomes of cases by name, each trained by the same processes."""
    program = Path(grpo_sharded.__file__)
    run_together([program, *folders, out, out, *names], folder=out, num_processes=num_processes)
    return read_outcomes(names, out)


@pytest.fixture(scope="module")
def two(folders, tmp_path_factory):
    names = [*_QUICK, *(f"{name}{grpo_sharded.COPIED}" for name in _QUICK)]
    made = make_once("sharded", tmp_path_factory, lambda to: train_by(2, names, folders, to))
    return read_outcomes(names, made)


def train_alone(name, folders, work):
    policies = load_policies(folders[0], work, folders[1])
    return train(policies, grpo_sharded.CASES[name], work, num_processes=1)


def assert_is_what_one_trains(name, found, folders, work):
    alone = train_alone(name, folders, work)
    assert found["wrapped"].startswith("FSDP")
    assert all(found["shares"])
    assert found["said"] == alone["said"]
    losses, own = (one["losses"].view(_NUM_STEPS, -1).mean(1) for one in (found, alone))
    assert losses.tolist() == pytest.approx(own.tolist(), abs=1e-6)
    for own, gradients in zip(alone["gradients"], found["gradients"], strict=True):
        assert measure_difference(own, gradients) < 1e-5
    gaps = [(alone["weights"][n] - weight).abs().max() for n, weight in found["weights"].items()]
    assert len(gaps) == len(alone["weights"])
    assert max(gaps) < 1e-6


def assert_are_equal(found, copied):
    """With their weights in each of them, the same processes train the same, to the last bit."""
    assert copied["wrapped"] == "DistributedDataParallel"
    assert found["said"] == copied["said"]
    for gradients, others in zip(found["gradients"], copied["gradients"], strict=True):
        assert gradients.keys() == others.keys()
        assert all(torch.equal(gradients[name], others[name]) for name in gradients)


@pytest.mark.parametrize("name", _QUICK)
def test_two_train_what_one_trains(name, two, folders, tmp_path):
    assert_is_what_one_trains(name, two[name], folders, tmp_path)
    assert_are_equal(two[name], two[f"{name}{grpo_sharded.COPIED}"])


def test_each_holds_a_part_of_what_trains(two):
    held, copied = two["full"]["bytes"], two[f"full{grpo_sharded.COPIED}"]["bytes"]
    assert len(held) == 2
    assert sum(held) == copied[0] == copied[1]
    assert max(held) < 0.6 * copied[0]


@pytest.mark.slow
def test_whatever_trains(folders, tmp_path):
    for name, found in train_by(2, _SLOW, folders, tmp_path).items():
        assert_is_what_one_trains(name, found, folders, tmp_path)


@pytest.mark.slow
def test_adapters_with_checkpointing_train_the_same_by_each_launcher(folders, tmp_path):
    names = ("lora-again", "vision-again")
    found = train_by(
        2, [*names, *(f"{name}{grpo_sharded.COPIED}" for name in names)], folders, tmp_path
    )
    for name in names:
        assert_is_what_one_trains(name, found[name], folders, tmp_path)
        assert_are_equal(found[name], found[f"{name}{grpo_sharded.COPIED}"])
    kept = train_alone("all", folders, tmp_path)
    for own, gradients in zip(kept["gradients"], found["lora-again"]["gradients"], strict=True):
        assert measure_difference(own, gradients) < 1e-5


@pytest.mark.slow
def test_four_train_what_one_trains(folders, tmp_path):
    for name, found in train_by(4, _OF_FOUR, folders, tmp_path).items():
        assert_is_what_one_trains(name, found, folders, tmp_path)


@pytest.mark.slow
def test_processes_with_fewer_passes_take_part_in_the_others(folders, tmp_path):
    names = ["uneven", f"uneven{grpo_sharded.COPIED}"]
    found = train_by(4, names, folders, tmp_path)
    for own, other in zip(*(found[name]["gradients"] for name in names), strict=True):
        assert measure_difference(own, other) < 1e-5


def test_fsdp1_computes_every_prompt(pairs, grpo, monkeypatch):
    own = DistributedBackend.__init__

    def start(self, accelerator):
        own(self, accelerator)
        self.fsdp_version = 1

    monkeypatch.setattr(DistributedBackend, "__init__", start)
    with pytest.warns(UserWarning, match="spread over processes by FSDP1; FSDP2 allows"):
        stepped = pairs.make(speed=SpeedSettings())
    assert not stepped.trainer._shares
    with pytest.raises(TrainingError, match="spread over processes by"):
        pairs.make(speed=SpeedSettings(shared_prefix="on"))
