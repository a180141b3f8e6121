"""Two processes compute what one computes, also where FSDP2 spreads the weights."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpo_processes
import grpo_sharded
import pytest
import torch
from grpo_pairs import measure_difference
from grpo_processes import CASES, NUM_STEPS, load_policies, train
from made_once import make_once
from trl.distributed import DistributedBackend

from groupwise.core import TrainingError
from groupwise.training.settings import SpeedSettings

_PROGRAM = Path(grpo_processes.__file__)
_TIMEOUT_S = 200
_QUICK = ("dapo-last-split", "dapo-last-dead")
_FAULTY = "dapo-last-faulty"
_SAMPLED = "dapo-last-sampled"


def train_by_two(names, text_folder, out):
    """Return outcomes of cases by name, each trained by the same two processes."""
    run_together([_PROGRAM, text_folder, out, out, *names], folder=out)
    return read_outcomes(names, out)


def read_outcomes(names, out):
    return {name: torch.load(out / f"{name}.pt") for name in names}


@pytest.fixture(scope="module")
def two(text_folder, tmp_path_factory):
    """What two processes made of the quick cases: they are started once for all."""
    names = [*_QUICK, _FAULTY, _SAMPLED]
    made = make_once("two", tmp_path_factory, lambda to: train_by_two(names, text_folder, to))
    return read_outcomes(names, made)


def run_together(command, *, folder, num_processes=2, **variables):
    """Run a program as processes that talk over the loopback; all end with this call."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(num_processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    logs = [folder / f"{rank}.log" for rank in range(num_processes)]
    children = []
    for rank, log in enumerate(logs):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        with log.open("w") as stream:
            children.append(
                subprocess.Popen(
                    [sys.executable, *map(str, command)],
                    env={**os.environ, **shared, **own},
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    try:
        codes = [child.wait(timeout=_TIMEOUT_S) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    assert codes == [0] * num_processes, "\n".join(log.read_text()[-3000:] for log in logs)


def assert_agree(grpo, one, other):
    assert len(one["gradients"]) == len(other["gradients"]) > 0
    for gradient, same in zip(one["gradients"], other["gradients"], strict=True):
        assert grpo.measure_difference(gradient, same) < 1e-5
    assert grpo.measure_difference(one["weights"], other["weights"]) < 1e-5
    (counts,) = one["counts"]
    # Of rows that are skipped only shared passes know.
    kept = [name for name in counts[0] if name != "num_skipped_rows" or all(other["shares"])]
    assert [[_pick(row, kept) for row in own] for own in other["counts"]] == 2 * [
        [_pick(row, kept) for row in counts]
    ]
    assert counts[0]["num_groups"] > 0  # a round that is used again has none of its own


def _pick(row, names):
    return {name: row[name] for name in names if name in row}


def check(found, *, grpo, text_folder, folder):
    policies = load_policies(text_folder, folder)
    for name in found:
        alone = train(policies, CASES[name], folder, num_processes=1)
        assert_agree(grpo, alone, found[name])
        num_dead = sum(row.get("num_dead_groups", 0) for row in alone["counts"][0])
        case = CASES[name]
        assert num_dead == NUM_STEPS * case.num_dead // case.group_size


def test_a_group_over_both_and_a_dead_half(grpo, two, text_folder, tmp_path):
    found = {name: two[name] for name in _QUICK}
    check(found, grpo=grpo, text_folder=text_folder, folder=tmp_path)


def test_both_fall_back_where_one_sees_a_fault(grpo, two, text_folder, tmp_path):
    """The fault is in the second process alone; a single process has none of it."""
    found = two[_FAULTY]
    assert found["shares"] == [False, False]
    alone = train(load_policies(text_folder, tmp_path), CASES[_FAULTY], tmp_path, num_processes=1)
    assert alone["shares"] == [True]
    assert_agree(grpo, alone, found)


def test_two_sample_what_one_samples(grpo, two, text_folder, tmp_path):
    """Also for the group that is half in the first process and half in the second."""
    found = two[_SAMPLED]
    alone = train(load_policies(text_folder, tmp_path), CASES[_SAMPLED], tmp_path, num_processes=1)
    assert alone["said"] == found["said"]
    assert [len({tuple(ids) for ids in round_}) for round_ in alone["said"]] == [12, 12]
    assert_agree(grpo, alone, found)


@pytest.mark.slow
def test_losses_and_what_trains(grpo, text_folder, tmp_path):
    names = [name for name in CASES if name not in (*_QUICK, _FAULTY, _SAMPLED)]
    found = train_by_two(names, text_folder, tmp_path)
    check(found, grpo=grpo, text_folder=text_folder, folder=tmp_path)


_SPREAD = ("full", "pictures")
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
def spread(folders, tmp_path_factory):
    names = [*_SPREAD, *(f"{name}{grpo_sharded.COPIED}" for name in _SPREAD)]
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


@pytest.mark.parametrize("name", _SPREAD)
def test_two_train_what_one_trains(name, spread, folders, tmp_path):
    assert_is_what_one_trains(name, spread[name], folders, tmp_path)
    assert_are_equal(spread[name], spread[f"{name}{grpo_sharded.COPIED}"])


def test_each_holds_a_part_of_what_trains(spread):
    held, copied = (spread["full"]["bytes"], spread[f"full{grpo_sharded.COPIED}"]["bytes"])
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
