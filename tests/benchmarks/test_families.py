"""What the benchmark of families says of bfloat16 and keeps of a former run."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch


@pytest.fixture
def families(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import families

    return families


class Stepped:
    """A runner with a gradient; ``fallen`` if its log-probabilities were too far off."""

    shape = SimpleNamespace(num_tokens=2, group_size=2)

    def __init__(self, error, *, fallen=False):
        self.gradient = torch.tensor([3.0, 4.0 + error])
        self.fallen, self.trainer, self.said = fallen, SimpleNamespace(), None
        self.rollout = {"ref_per_token_logps": torch.zeros(2, 2)}

    def step(self, *, seed):
        self.said = self.trainer._generate_single_turn()[0]

    def read_gradient(self):
        return self.gradient

    def list_noise(self):
        return {"shared_diff": 0.25}

    def has_fallen_back(self):
        return self.fallen


@pytest.mark.parametrize(
    ("error", "fallen", "is_close"),
    [(0.19, False, True), (0.21, False, False), (0.0, True, False), (float("nan"), False, False)],
)
def test_a_shared_step_in_bfloat16_is_held_against_a_plain_one(families, error, fallen, is_close):
    three = Stepped(0.0), Stepped(0.1), Stepped(error, fallen=fallen)
    found = families.compare_rounding(*three)
    assert found["is_close"] is is_close
    assert found["shared_diff"] == 0.25
    assert found["plain_grad"] == pytest.approx(0.02)
    assert three[0].said == three[1].said == three[2].said


def test_exactness_alone_keeps_the_times(families):
    before = {"max_logp_diff": 1.0, "ratio": 4.0, "long": {"max_grad_rel": 1.0, "ratio": 8.0}}
    found = families.keep_times(before, {"max_logp_diff": 2.0, "long": {"max_grad_rel": 2.0}})
    assert found == {
        "max_logp_diff": 2.0,
        "ratio": 4.0,
        "long": {"max_grad_rel": 2.0, "ratio": 8.0},
    }
    assert families.keep_times(before, {"fallback": "why"}) == {"fallback": "why"}
    assert families.keep_times({"untested": "not run"}, {"max_logp_diff": 2.0}) == {
        "max_logp_diff": 2.0
    }
