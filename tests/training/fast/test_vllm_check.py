"""A round that was not sampled from the policy ends the training."""

import math

import pytest

from groupwise.core import TrainingError
from groupwise.training.fast.vllm import check_sampler
from groupwise.training.settings import SpeedSettings, VllmSettings

SIZES = [[(16, 16)], [(24, 16)]]


@pytest.fixture
def check(fixtures, pairs, policies, grpo, monkeypatch):
    """Take updates with a fake vLLM and check every round."""

    def run(family="qwen2", *, noise=0.0, limit=0.01, loses=False, **options):
        end = policies.find_base(family).generation_config.eos_token_id
        kind = fixtures("fake_vllm").make_fake_vllm(
            policies.find_base(family), grpo.write_completions(6, end=end), noise=noise
        )
        if loses:
            monkeypatch.setattr(kind, "_load", lambda *_: None)
        monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", kind)
        stepped = pairs.make(family, "sft", speed=SpeedSettings(), use_vllm=True, **options)
        own = stepped.trainer._generate_and_score_completions

        def generate(inputs):
            batch = own(inputs)
            check_sampler(stepped.trainer, batch, VllmSettings(max_logprob_gap=limit))
            return batch

        stepped.trainer._generate_and_score_completions = generate
        rows = grpo.make_rows(3, sizes=SIZES if family.endswith("vl") else None)
        for seed in range(2):
            stepped.update(rows, seed=seed)
        return stepped

    return run


WAYS = [{}, {"vllm_importance_sampling_correction": False}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", [pytest.param("qwen2", marks=pytest.mark.slow), "qwen2_5_vl"])
def test_the_policy_itself_passes(check, family, way):
    """With a correction, of old log-probabilities; without, of a few rows' own pass."""
    stepped = check(family, limit=1e-5, **way)
    assert ("old_per_token_logps" in stepped.batches[-1]) == (not way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", ["qwen2", pytest.param("qwen2_5_vl", marks=pytest.mark.slow)])
def test_weights_that_did_not_arrive_end_it(check, family, way):
    with pytest.raises(TrainingError, match=r"weights are not those of training; got .* tokens"):
        check(family, loses=True, **way)


@pytest.mark.parametrize("way", WAYS)
def test_rounding_is_allowed_for_on_average(check, way):
    """A single token may be farther off than the limit."""
    check(noise=0.3, limit=0.25, **way)
    with pytest.raises(TrainingError, match=r"on average; expected at most 0\.1;"):
        check(noise=0.3, limit=0.1, **way)


def test_what_is_no_number_ends_it(check):
    with pytest.raises(TrainingError, match="differ by inf"):
        check(noise=math.inf)


def test_it_can_be_left_out(check):
    check(noise=9.0, limit=None)


def test_what_top_p_leaves_out_is_allowed_for(check):
    """Over the kept tokens alone vLLM's probabilities are larger, by 1 / top_p at most."""
    check(noise=0.3, limit=0.1, top_p=0.8)
