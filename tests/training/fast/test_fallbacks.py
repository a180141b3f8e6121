"""Whatever stock TRL trains with is trained with; it is said where prompts are not shared."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from peft import (
    BOFTConfig,
    FourierFTConfig,
    HRAConfig,
    IA3Config,
    LNTuningConfig,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    OFTConfig,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from trl.trainer import grpo_trainer

from groupwise.core import TrainingError
from groupwise.training.fast import scoring
from groupwise.training.fast.support import keep_inputs_without_gradient
from groupwise.training.settings import SpeedSettings

AUTO, ON = SpeedSettings(), SpeedSettings(shared_prefix="on")
COMPUTED = "every prompt is computed once per completion: "
READ = "every prompt is read once per completion: "


def list_reasons(caught):
    messages = [str(found.message) for found in caught]
    return [text for text in messages if text.startswith((COMPUTED, READ))]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    """Step the parent class and the fast one, which may fall back; return the latter's warnings.

    Completions are given, or each trainer samples for itself.
    """

    def run(
        family="qwen2",
        *,
        build=None,
        rows=None,
        speed=AUTO,
        num_updates=2,
        is_sampled=False,
        **options,
    ):
        rows = rows or grpo.make_rows(3, family=family)
        build = build or (lambda: pairs.policies.build(family, "last"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            both = [
                pairs.make(family, model=build(), speed=levers, beta=0.1, **options)
                for levers in (None, speed)
            ]
            for stepped in both:
                if not is_sampled:
                    stepped.say(grpo.write_completions(6, end=stepped.trainer.eos_token_ids[0]))
            for seed in range(num_updates):
                parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
                said = [stepped.batches[-1]["completion_ids"] for stepped in both]
                assert said[0].equal(said[1])
                assert grpo.measure_log_probs(parent, fast) < 1e-5
                assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4
        return both[1], list_reasons(caught)

    return run


@pytest.fixture
def train_both(grpo, compare):
    """Step both on rollouts that each samples; return our warnings and how often it shared."""

    def run(family="qwen2", *, rows=None, num_updates=1, **named):
        rows = rows or grpo.make_rows(3, lengths=(1, 12))
        fast, reasons = compare(
            family, rows=rows, num_updates=num_updates, is_sampled=True, **named
        )
        return reasons, fast.num_shared

    return run


@pytest.fixture
def with_dropout(policies):
    def build():
        torch.manual_seed(1)
        model = policies.build("qwen2", "fresh")
        return get_peft_model(model, policies.make_lora(lora_dropout=0.5))

    return build


def test_dropout_unless_the_trainer_switches_it_off(compare, with_dropout):
    fast, (reason,) = compare(build=with_dropout)
    assert "dropout is on" in reason
    assert fast.num_shared == 0
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

    fast, (reason,) = compare(build=build)
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
def test_off_is_silent_and_plain(compare, family):
    speed = SpeedSettings(shared_prefix="off")
    fast, reasons = compare(family, speed=speed)
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
def test_a_wrong_shared_pass_is_noticed(compare, monkeypatch, family):
    shift_positions(monkeypatch)
    fast, (reason,) = compare(family)
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


@pytest.mark.parametrize("trained", ["last", "sft"])
def test_a_shape_seen_first_after_an_update_is_held_to_the_same_adapters(
    grpo, pairs, keep_order, trained
):
    """The reference's pass goes through other adapters; both are compared, and neither is wrong."""
    both = pairs.make_both("qwen2", trained, beta=0.1, learning_rate=3e-2)
    for lengths in ((1, 4), (60, 60)):
        for stepped in both:
            stepped.say(grpo.write_completions(6, end=2))
        parent, fast = (stepped.update(grpo.make_rows(3, lengths=lengths)) for stepped in both)
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


LINEAR = ["q_proj", "v_proj", "down_proj"]
PICTURES = [[(16, 16)], [(24, 16)]]


def mark_slow(names, often):
    return [n if n in often else pytest.param(n, marks=pytest.mark.slow) for n in names]


def generate(**options):
    return {"generation_kwargs": options}


OPTIONS = {
    "cache_implementation is static": {"cache_implementation": "static"},
    "num_beams is 2": generate(num_beams=2),
    "use_cache is False": generate(use_cache=False),
    "penalty_alpha is 0.6": generate(penalty_alpha=0.6),
    "guidance_scale is 1.5": generate(guidance_scale=1.5),
    "prefill_chunk_size is 4": generate(prefill_chunk_size=4),
    "max_new_tokens is None": generate(max_new_tokens=None, max_length=40),
}


@pytest.mark.parametrize(
    "reason", mark_slow(OPTIONS, ("use_cache is False", "max_new_tokens is None"))
)
def test_sampling_that_needs_every_prompt(train_both, reason):
    """Scoring shares them all the same."""
    reasons, num_shared = train_both(**OPTIONS[reason])
    assert reasons == [READ + reason]
    assert num_shared


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("num_beams", 2, marks=pytest.mark.slow),
        pytest.param("cache_implementation", "static", marks=pytest.mark.slow),
        ("use_cache", False),
    ],
)
def test_sampling_as_the_model_itself_wants_it(train_both, policies, name, value):
    def build():
        model = policies.build("qwen2", "last")
        setattr(model.generation_config, name, value)
        return model

    assert train_both(build=build)[0] == [f"{READ}{name} is {value}"]


PENALTIES = {
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 2,
    "min_length": 40,
    "exponential_decay_length_penalty": (2, 1.2),
    "sequence_bias": [[[40], 2.0]],
    "bad_words_ids": [[41, 42]],
    "begin_suppress_tokens": [43],
    "typical_p": 0.9,
}


def test_options_that_look_at_the_prompt_see_what_the_parents_see(train_both, policies):
    """Its padding, too; every third token is an end token, which ``min_length`` rules out."""

    def build():
        model = policies.build("qwen2", "last")
        model.generation_config.eos_token_id = list(range(0, 480, 3))
        return model

    reasons, num_shared = train_both(
        build=build, num_updates=2, pad_to_multiple_of=32, **generate(**PENALTIES)
    )
    assert not reasons
    assert num_shared


DROPS = COMPUTED + "dropout is on, so that no two passes agree"


def unknown(kind):
    return f"{COMPUTED}adapters of type {kind} are not known to allow it"


ADAPTERS = {
    "dora": (lambda: LoraConfig(r=4, target_modules=LINEAR, use_dora=True), None),
    "embeddings": (lambda: LoraConfig(r=4, target_modules=[*LINEAR, "embed_tokens"]), None),
    "whole parts": (
        lambda: LoraConfig(r=4, target_modules=LINEAR, modules_to_save=["embed_tokens"]),
        None,
    ),
    "some blocks": (
        lambda: LoraConfig(
            r=4, target_modules=LINEAR, rank_pattern={"q_proj": 2}, layers_to_transform=[2, 3]
        ),
        None,
    ),
    "ia3": (lambda: IA3Config(target_modules=LINEAR, feedforward_modules=["down_proj"]), None),
    "vera": (lambda: VeraConfig(r=4, target_modules=["q_proj"]), None),
    "oft": (lambda: OFTConfig(oft_block_size=4, target_modules=["q_proj"]), None),
    "boft": (lambda: BOFTConfig(boft_block_size=4, target_modules=["q_proj"]), None),
    "hra": (lambda: HRAConfig(r=4, target_modules=["q_proj"]), None),
    "fourier": (lambda: FourierFTConfig(n_frequency=10, target_modules=["q_proj"]), None),
    "norms": (lambda: LNTuningConfig(target_modules=["input_layernorm"]), None),
    "loha": (lambda: LoHaConfig(r=4, target_modules=LINEAR), unknown("LOHA")),
    "loha drops": (lambda: LoHaConfig(r=4, target_modules=LINEAR, module_dropout=0.5), DROPS),
    "lokr drops": (lambda: LoKrConfig(r=4, target_modules=LINEAR, rank_dropout=0.5), DROPS),
    "boft drops": (
        lambda: BOFTConfig(boft_block_size=4, target_modules=["q_proj"], boft_dropout=0.5),
        DROPS,
    ),
    "prompt": (lambda: PromptTuningConfig(num_virtual_tokens=3), unknown("PROMPT_TUNING")),
    "p-tuning": (lambda: PromptEncoderConfig(num_virtual_tokens=3), unknown("P_TUNING")),
    "prefix": (lambda: PrefixTuningConfig(num_virtual_tokens=3), unknown("PREFIX_TUNING")),
    "alora": (
        lambda: LoraConfig(r=4, target_modules=LINEAR, alora_invocation_tokens=[1]),
        f"{COMPUTED}LoRA as ALoraLinearVariant is not known to allow it",
    ),
}


OFTEN = ("ia3", "loha drops", "prompt", "alora")


@pytest.mark.parametrize("kind", mark_slow(ADAPTERS, OFTEN))
def test_adapters(train_both, policies, kind):
    make, reason = ADAPTERS[kind]

    def build():
        torch.manual_seed(1)
        config = make()
        config.task_type = "CAUSAL_LM"
        return get_peft_model(policies.build("qwen2", "fresh"), config)

    reasons, num_shared = train_both(build=build, num_updates=2)
    assert reasons == ([] if reason is None else [reason])
    assert bool(num_shared) == (reason is None)


@pytest.mark.slow
def test_an_adapter_without_a_peft_model(train_both, policies):
    """Transformers can put one on by itself."""

    def build():
        torch.manual_seed(1)
        model = policies.build("qwen2", "fresh")
        model.add_adapter(policies.make_lora())
        return model

    reasons, num_shared = train_both(build=build)
    assert not reasons
    assert num_shared


def test_experts_with_an_auxiliary_loss(train_both, policies):
    """It is of every token, and a prompt's would count once for all of its completions."""

    def build():
        base = policies.build("qwen3", "fresh").config.to_dict()
        torch.manual_seed(0)
        model = Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                **(base | {"model_type": "qwen3_moe", "architectures": None}),
                num_experts=2,
                num_experts_per_tok=1,
                moe_intermediate_size=8,
                router_aux_loss_coef=0.1,
            )
        )
        return get_peft_model(model, policies.make_lora())

    reasons, num_shared = train_both("qwen3", build=build)
    assert reasons == [COMPUTED + "an auxiliary loss of its experts is trained on"]
    assert not num_shared


def make_tensor(picture):
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


@pytest.mark.parametrize(
    ("convert", "key"),
    [
        pytest.param(np.asarray, "images", marks=pytest.mark.slow),
        pytest.param(make_tensor, "image", marks=pytest.mark.slow),
        (np.asarray, "message"),
    ],
)
def test_pictures_as_arrays(train_both, grpo, convert, key):
    rows = []
    for row in grpo.make_rows(3, lengths=(1, 12), sizes=PICTURES):
        (message,), array = row["prompt"], convert(row["images"][0])
        if key == "message":
            said = {"type": "text", "text": message["content"]}
            shown = {"type": "image", "image": array}
            rows.append({"prompt": [{"role": "user", "content": [shown, said]}]})
        else:
            value = [array] if key == "images" else array
            rows.append({"prompt": row["prompt"], key: value})
    reasons, num_shared = train_both("qwen2_5_vl", rows=rows)
    assert not reasons
    assert num_shared


def test_noise_on_embeddings(pairs):
    with pytest.warns(UserWarning, match="noise is added to its embeddings"):
        pairs.make(speed=SpeedSettings(), neftune_noise_alpha=5.0)


def test_without_arguments(pairs, monkeypatch):
    """TRL's own are those of a GPU."""
    configure = pairs._configure
    monkeypatch.setattr(grpo_trainer, "GRPOConfig", lambda _: configure({}))
    monkeypatch.setattr(pairs, "_configure", lambda _: None)
    assert pairs.make(speed=SpeedSettings()).trainer.args is not None


def test_gradients_of_inputs_where_checkpointing_becomes_reentrant_later(policies):
    """TRL may choose that itself later."""
    model = policies.build("qwen2", "last")
    arguments = SimpleNamespace(gradient_checkpointing_kwargs=None)
    keep_inputs_without_gradient(model, arguments)
    embed = model.get_input_embeddings()
    for is_reentrant in (False, True):
        arguments.gradient_checkpointing_kwargs = {"use_reentrant": is_reentrant}
        model.enable_input_require_grads()
        assert embed(torch.tensor([1])).requires_grad == is_reentrant
