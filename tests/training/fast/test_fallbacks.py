"""Where prompts cannot be shared, or a shared pass is wrong, the results are the plain ones."""

import warnings

import pytest
import torch
from peft import get_peft_model

from groupwise.core import TrainingError
from groupwise.training.fast import scoring
from groupwise.training.settings import SpeedSettings

AUTO, ON = SpeedSettings(), SpeedSettings(shared_prefix="on")
REASON = "every prompt is computed once per completion"


def list_reasons(caught):
    return [str(found.message) for found in caught if REASON in str(found.message)]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    """Step the parent class and the fast one, which may fall back; return the latter's warnings."""

    def run(family="qwen2", *, build, speed=AUTO, num_updates=2, **options):
        sizes = [[(16, 16)], [(24, 16)]] if family.endswith("vl") else None
        rows = grpo.make_rows(3, sizes=sizes)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            both = [
                pairs.make(family, model=build(), speed=levers, beta=0.1, **options)
                for levers in (None, speed)
            ]
            for stepped in both:
                stepped.say(grpo.write_completions(6, end=stepped.trainer.eos_token_ids[0]))
            for seed in range(num_updates):
                parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
                assert grpo.measure_log_probs(parent, fast) < 1e-5
                assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4
        return both[1], list_reasons(caught)

    return run


@pytest.fixture
def with_dropout(policies):
    def build():
        torch.manual_seed(1)
        model = policies.build("qwen2", "fresh")
        return get_peft_model(model, policies.make_lora(lora_dropout=0.5))

    return build


def test_dropout(compare, with_dropout):
    fast, reasons = compare(build=with_dropout)
    (reason,) = reasons
    assert "dropout is on" in reason
    assert fast.num_shared == 0


def test_dropout_that_the_trainer_switches_off_is_none(compare, with_dropout):
    fast, reasons = compare(build=with_dropout, disable_dropout=True)
    assert not reasons
    assert fast.num_shared


def test_sliding_windows(compare, policies):
    """Half of the blocks see two tokens back."""

    def build():
        model = policies.build("qwen2", "fresh")
        kinds = ["full_attention", "sliding_attention"] * 2
        model.config.layer_types = kinds
        model.config.sliding_window = 2
        model.config.use_sliding_window = True
        model = type(model)(model.config)
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.data.normal_(std=0.2)
        model.generation_config.eos_token_id = 2
        return get_peft_model(model, policies.make_lora())

    fast, reasons = compare(build=build)
    (reason,) = reasons
    assert "sliding_attention" in reason
    assert fast.num_shared == 0


ROTARY = {
    "dynamic": {"factor": 4.0},
    "longrope": {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "factor": 4.0},
}


@pytest.mark.parametrize("kind", ROTARY)
def test_rotary_embeddings_that_depend_on_the_length(grpo, pairs, policies, keep_order, kind):
    """The completions of the second round reach beyond what the model was first trained on."""
    rounds = [grpo.make_rows(3, lengths=lengths) for lengths in ((1, 16), (1, 24))]
    tokenizer = policies.find_processor("qwen2")
    longest = tokenizer.apply_chat_template(rounds[1][-1]["prompt"], add_generation_prompt=True)
    limit = len(longest["input_ids"]) + 2

    def build():
        torch.manual_seed(1)
        model = policies.build("qwen2", "fresh")
        model.config.max_position_embeddings = limit
        model.config.rope_parameters = {
            "rope_type": kind,
            "rope_theta": 1e4,
            "original_max_position_embeddings": limit,
            **ROTARY[kind],
        }
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
        return get_peft_model(model, policies.make_lora())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = [pairs.make(model=build(), speed=speed) for speed in (None, AUTO)]
    (reason,) = list_reasons(caught)
    assert f"its rotary embedding ({kind}) depends on the length" in reason
    for stepped in both:
        stepped.say(grpo.write_completions(6, end=2))
    for rows in rounds:
        parent, fast = (stepped.update(rows) for stepped in both)
        assert grpo.measure_log_probs(parent, fast) < 1e-5
        assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4


def test_a_family_that_nobody_has_tried(compare, policies):
    def build():
        model = policies.build("qwen2", "last")
        model.get_base_model().model.config.model_type = "mystery"
        return model

    fast, (reason,) = compare(build=build)
    assert "mystery" in reason
    assert fast.num_shared == 0


def test_on_refuses_instead(pairs, with_dropout):
    with pytest.raises(TrainingError, match=r"prompts cannot be shared: dropout is on.*auto"):
        pairs.make(model=with_dropout(), speed=ON)


@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl"])
def test_off_is_silent_and_plain(compare, policies, family):
    speed = SpeedSettings(shared_prefix="off")
    fast, reasons = compare(family, build=lambda: policies.build(family, "last"), speed=speed)
    assert not reasons
    assert fast.num_shared == 0


def shift_positions(monkeypatch):
    """Let every completion start one position too late."""
    own = scoring._describe_pass

    def describe(*given):
        shared = own(*given)
        return scoring.replace(shared, positions=shared.positions + 3)

    monkeypatch.setattr(scoring, "_describe_pass", describe)


@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl"])
def test_a_wrong_shared_pass_is_noticed(compare, policies, monkeypatch, family):
    shift_positions(monkeypatch)
    fast, reasons = compare(family, build=lambda: policies.build(family, "last"))
    (reason,) = reasons
    assert "log-probabilities differ by" in reason
    assert fast.num_shared == 1


def test_a_wrong_shared_pass_stops_the_run_if_sharing_is_on(grpo, pairs, monkeypatch):
    shift_positions(monkeypatch)
    stepped = pairs.make("qwen2", speed=ON)
    stepped.say(grpo.write_completions(6, end=2))
    with pytest.raises(TrainingError, match="prompts cannot be shared: log-probabilities differ"):
        stepped.update(grpo.make_rows(3))


def test_a_wrong_pass_of_a_shape_seen_later_is_noticed(grpo, pairs, monkeypatch, keep_order):
    """The first shape is right; longer prompts are compared anew."""
    both = [pairs.make("qwen2", "sft", speed=speed) for speed in (None, AUTO)]
    for stepped in both:
        stepped.say(grpo.write_completions(6, end=2))
        stepped.update(grpo.make_rows(3))
    shift_positions(monkeypatch)
    rows = grpo.make_rows(3, lengths=(60, 60))
    with pytest.warns(UserWarning, match="log-probabilities differ by"):
        parent, fast = (stepped.update(rows) for stepped in both)
    assert grpo.measure_log_probs(parent, fast) < 1e-5
    assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4


@pytest.mark.parametrize("num_masked", [3, 6])
def test_completions_that_are_masked(grpo, pairs, keep_order, num_masked):
    """Cut off and left out of the loss: there is no real token to compare."""
    rows, said = grpo.make_rows(3), grpo.write_completions(6, end=2)
    said[:num_masked] = [list(range(20, 26))] * num_masked
    both = pairs.make_both("qwen2", "sft", mask_truncated_completions=True, beta=0.1)
    for stepped in both:
        stepped.say(said)
    parent, fast = (stepped.update(rows) for stepped in both)
    for name, gradient in parent.gradients.items():
        assert (gradient - fast.gradients[name]).norm() <= 1e-4 * gradient.norm() + 1e-9
