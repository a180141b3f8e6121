"""Where DeepSpeed spreads states, gradients or weights, prompts are shared: training is the same.

DeepSpeed compiles its shared memory when it first starts, which takes a minute or two.
"""

from pathlib import Path

import pytest
from grpo_processes import load_policies, train
from grpo_sharded import CASES

from .test_two_processes import read_outcomes, run_together

pytest.importorskip("deepspeed", reason="pip install deepspeed ninja")
pytestmark = pytest.mark.slow

_PROGRAM = Path(__file__).parents[2] / "fixtures" / "grpo_zero.py"
_SPREAD_WEIGHTS = ("last", "all", "lora-again", "pictures", "vision", "reference", "dead", "rounds")
_NUM_STEPS = 5


def check(stage, name, folders, work):
    """Train by two processes and by one; return what the two found."""
    run_together(
        [_PROGRAM, *folders, work, work, stage, name],
        folder=work,
        DS_ACCELERATOR="cpu",
        ACCELERATE_USE_CPU="false",
        ACCELERATE_USE_DEEPSPEED="true",
    )
    found = read_outcomes((name,), work)[name]
    policies = load_policies(folders[0], work / "alone", folders[1])
    alone = train(policies, CASES[name], work, num_processes=1)
    assert found["wrapped"] == "DeepSpeedEngine"
    assert all(found["shares"])
    assert found["said"] == alone["said"]
    losses, own = (one["losses"].view(_NUM_STEPS, -1).mean(1) for one in (found, alone))
    assert losses.tolist() == pytest.approx(own.tolist(), abs=1e-6)
    assert found["weights"].keys() == alone["weights"].keys()
    for part, weight in found["weights"].items():
        assert (alone["weights"][part] - weight).abs().max() < 1e-6
    return found


@pytest.mark.parametrize("name", ["full", "last", "rounds", "adam"])
def test_spread_states_and_gradients(name, text_folder, vision_folder, tmp_path):
    check(2, name, (text_folder, vision_folder), tmp_path)


def test_spread_weights(text_folder, vision_folder, tmp_path):
    found = check(3, "full", (text_folder, vision_folder), tmp_path)
    whole = sum(weight.nbytes for weight in found["weights"].values())
    assert [held / whole for held in found["bytes"]] == [pytest.approx(0.5, abs=0.02)] * 2


@pytest.mark.parametrize("name", _SPREAD_WEIGHTS)
def test_spread_weights_of_whatever_trains(name, text_folder, vision_folder, tmp_path):
    check(3, name, (text_folder, vision_folder), tmp_path)
