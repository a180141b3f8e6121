"""In bfloat16 and float16 a shared pass rounds as plain ones do, and a wrong one stands out."""

import warnings

import pytest
import torch

from groupwise.training.fast import scoring
from groupwise.training.settings import SpeedSettings

AUTO = SpeedSettings()
# How weights are kept, and what passes are cast to.
PRECISIONS = {
    "bfloat16": (torch.bfloat16, {}),
    "float16": (torch.float16, {}),
    "autocast": (torch.float32, {"bf16": True}),
    "both": (torch.bfloat16, {"bf16": True}),
}


@pytest.fixture
def score(grpo, pairs, policies):
    """Score a round of two prompts in a precision; return the trainer and why it fell back."""

    def run(family, precision, *, trained="sft", speed=AUTO, seed=0):
        dtype, options = PRECISIONS[precision]
        model = policies.build(family, trained).to(dtype)
        stepped = pairs.make(
            family, trained, model=model, speed=speed, beta=0.1, num_iterations=2, **options
        )
        sizes = [[(16, 16)], [(24, 16)]] if family.endswith("vl") else None
        torch.manual_seed(seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stepped.trainer._generate_and_score_completions(grpo.make_rows(3, sizes=sizes))
        reasons = [str(w.message) for w in caught if "once per completion" in str(w.message)]
        return stepped, reasons

    return run


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "qwen2_5_vl", "qwen3_vl"])
def test_a_right_pass_is_shared(score, family, precision):
    stepped, reasons = score(family, precision)
    assert not reasons
    assert stepped.num_shared


def change_pass(monkeypatch, **changes):
    own = scoring._describe_pass

    def describe(*given):
        described = own(*given)
        changed = {name: change(getattr(described, name)) for name, change in changes.items()}
        return scoring.replace(described, **changed)

    monkeypatch.setattr(scoring, "_describe_pass", describe)


def see_padding(monkeypatch):
    change_pass(monkeypatch, mask=torch.ones_like)


def shift_positions(monkeypatch):
    change_pass(monkeypatch, positions=lambda positions: positions + 1)


def turn_backwards(monkeypatch):
    """The rotary embedding of completions turns the other way."""
    change_pass(monkeypatch, positions=lambda positions: -positions)


def swap_one_row(monkeypatch):
    """The last row continues the first prompt."""
    change_pass(
        monkeypatch, prompt_of_row=lambda rows: torch.cat([rows[:-1], torch.zeros_like(rows[:1])])
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("fault", [see_padding, shift_positions, turn_backwards, swap_one_row])
def test_a_wrong_pass_is_noticed(score, monkeypatch, fault, precision):
    fault(monkeypatch)
    _, (reason,) = score("qwen2", precision)
    assert "log-probabilities differ by" in reason
