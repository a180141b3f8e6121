"""Sampling with vLLM: weights and pictures reach it, scoring is the parent's."""

import copy
import hashlib
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl.generation.vllm_generation
from accelerate import Accelerator
from fake_vllm import make_fake_vllm
from hypothesis import given
from hypothesis import strategies as st
from peft import IA3Config, LoraConfig, get_peft_model
from PIL import Image
from trl.distributed import DistributedBackend

from groupwise.core import TrainingError
from groupwise.models.tiny import make_tiny_image_processor
from groupwise.training.fast.vllm import (
    check_sampler,
    collapse,
    iter_merged,
    prepare_vllm,
    scale_picture,
    send_merged,
)
from groupwise.training.settings import SpeedSettings, VllmSettings

vllm_generation: Any = trl.generation.vllm_generation
FAMILIES = ("qwen2", "qwen2_5_vl", "qwen3_vl")
BLOCKS = r"^(?!.*visual).*layers\.(?:2|3)\..*(?:q|v|down)_proj"


def adapt(model, *, seed=0, name="default", **options):
    """Put an adapter on a model whose every weight is drawn anew."""
    options = {"r": 4, "lora_alpha": 8, "target_modules": BLOCKS} | options
    config = LoraConfig(**options)
    if hasattr(model, "peft_config"):
        model.add_adapter(name, config)
    else:
        model = get_peft_model(model, config, adapter_name=name)
    torch.manual_seed(seed)
    for key, parameter in model.named_parameters():
        if f".{name}." in f"{key}.":
            parameter.data = 0.2 * torch.randn_like(parameter)
    return model.eval()


def adapt_twice(model):
    """A LoRA on top of another one."""
    model = adapt(adapt(model), name="second", seed=1, r=2, use_rslora=True)
    model.base_model.set_adapter(["default", "second"])
    return model


ADAPTERS = {
    "last blocks": adapt,
    "two": adapt_twice,
    "rslora": lambda model: adapt(model, use_rslora=True, target_modules="all-linear"),
    "embedding": lambda model: adapt(model, target_modules=["embed_tokens", "up_proj"]),
    "module": lambda model: adapt(model, modules_to_save=["norm", "lm_head"]),
}


def find_digests(model):
    return {
        name: hashlib.sha256(value.detach().float().numpy().tobytes()).hexdigest()
        for name, value in model.state_dict().items()
    }


@pytest.fixture
def build(policies):
    """Return a copy of a base model, without pictures in its inputs."""

    def run(family, *, dtype=torch.float32, tied=True):
        model = copy.deepcopy(policies.find_base(family))
        if not tied:
            model.config.tie_word_embeddings = False
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        return model.to(dtype).eval()

    return run


def ask(model):
    torch.manual_seed(3)
    ids = torch.randint(10, 200, (2, 7))
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits


def load(plain, weights):
    """Load weights by name; what is missing is tied to another."""
    missing, unexpected = plain.load_state_dict(weights, strict=False)
    assert not unexpected
    assert not set(missing) & set(dict(plain.named_parameters()))
    return plain


@pytest.mark.parametrize(
    ("family", "adapter"),
    [*(("qwen2", adapter) for adapter in ADAPTERS), *((family, "two") for family in FAMILIES[1:])],
)
def test_a_plain_model_with_them_is_the_policy(build, family, adapter):
    tied = family == "qwen2" and adapter not in ("embedding", "module")
    policy = ADAPTERS[adapter](build(family, tied=tied))
    weights = dict(iter_merged(policy))
    plain = build(family, tied=tied)
    before = ask(plain)
    assert (ask(load(plain, weights)) - ask(policy)).abs().max() < 1e-5
    assert (ask(plain) - before).abs().max() > 1e-2


def test_a_bias_of_the_adapter_is_added(build):
    """Queries, keys and values of Qwen2 have a bias."""
    only = {"target_modules": ["q_proj", "v_proj"]}
    policy = adapt(build("qwen2"), bias="lora_only", lora_bias=True, **only)
    plain = load(build("qwen2"), dict(iter_merged(policy)))
    assert (ask(plain) - ask(policy)).abs().max() < 1e-5


@pytest.mark.parametrize("adapter", ["last blocks", "two", "module"])
@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_those_of_the_plain_model(build, family, adapter):
    """In its order, tied weights once, as TRL sends a policy without an adapter."""
    tied = family == "qwen2" and adapter != "module"
    named = dict(build(family, tied=tied).named_parameters())
    policy = ADAPTERS[adapter](build(family, tied=tied))
    found = {name: (value.shape, value.dtype) for name, value in iter_merged(policy)}
    assert found == {name: (value.shape, value.dtype) for name, value in named.items()}
    assert list(found) == list(named)


def test_names_are_those_that_trl_sends(build):
    """For the adapter that it knows by name."""
    policy = adapt(build("qwen2", tied=False), modules_to_save=["norm", "lm_head"])
    assert [n for n, _ in iter_merged(policy)] == [n for n, _ in send_as_trl(policy)]


def send_as_trl(policy):
    """Yield what TRL itself sends of a policy on one process."""
    generation = object.__new__(vllm_generation.VLLMGeneration)
    generation.model, generation._dist = policy, DistributedBackend(Accelerator(cpu=True))
    yield from generation._iter_named_params()


def test_bfloat16_is_rounded_once(build):
    policy = adapt_twice(build("qwen2", dtype=torch.bfloat16)).to(torch.bfloat16)
    weights = dict(iter_merged(policy))
    layer = policy.base_model.model.model.layers[3].self_attn.q_proj
    exact = layer.base_layer.weight.double()
    for adapter in ("default", "second"):
        a, b = (part[adapter].weight.double() for part in (layer.lora_A, layer.lora_B))
        exact = exact + layer.scaling[adapter] * (b @ a)
    found = weights["model.layers.3.self_attn.q_proj.weight"]
    assert found.dtype == torch.bfloat16
    assert found.equal(exact.float().to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_policy_is_only_read(build, dtype):
    policy = adapt_twice(build("qwen3_vl", dtype=dtype)).to(dtype)
    before = find_digests(policy)
    for _ in range(3):
        for _name, value in iter_merged(policy):
            assert not value.requires_grad
    assert find_digests(policy) == before


def test_trl_changes_the_base_weights(build):
    """The reason for all this: merged and taken out in bfloat16, they are other ones."""
    policy = adapt(build("qwen2", dtype=torch.bfloat16)).to(torch.bfloat16)
    weight = policy.base_model.model.model.layers[3].self_attn.q_proj.base_layer.weight
    before = weight.detach().clone()
    for _ in range(3):
        list(send_as_trl(policy))
    assert (weight != before).float().mean() > 0.05


def test_merged_weights_are_not_kept(build):
    """Each is made when it is asked for, so an update in between shows in those to come."""
    policy = adapt(build("qwen2"))
    weights = iter_merged(policy)
    next(weights)
    layer = policy.base_model.model.model.layers[3].self_attn.q_proj
    layer.lora_B["default"].weight.data.zero_()
    merged = dict(weights)["model.layers.3.self_attn.q_proj.weight"]
    assert merged.equal(layer.base_layer.weight)


def test_the_reference_is_not_sent(build):
    """A frozen copy of the adapter lies beside the one that trains."""
    policy = adapt(build("qwen2", tied=False), modules_to_save=["norm"])
    expected = dict(iter_merged(policy))
    policy = adapt(policy, name="ref", seed=5, modules_to_save=["norm"])
    found = dict(iter_merged(policy))
    assert found.keys() == expected.keys()
    assert all(value.equal(expected[name]) for name, value in found.items())
    policy.set_adapter("ref")
    changed = dict(iter_merged(policy))
    assert not changed["model.norm.weight"].equal(expected["model.norm.weight"])


def test_without_its_adapters_it_is_the_base_model(build):
    policy = adapt(build("qwen2", tied=False), modules_to_save=["norm"])
    with policy.disable_adapter():
        found = dict(iter_merged(policy))
    for name, value in build("qwen2", tied=False).named_parameters():
        assert found[name].equal(value)


def test_patch_projections_keep_their_name(build):
    from groupwise.models.policy import project_patches_fast

    model = build("qwen2_5_vl")
    names = {name for name, _ in model.named_parameters()}
    project_patches_fast(model)
    assert {name for name, _ in iter_merged(adapt(model))} == names
    assert "model.visual.patch_embed.proj.weight" in names


REFUSED = {
    "DoRA": ({"use_dora": True}, "variant of LoRA .DoraLinearVariant"),
    "tied embedding": ({"target_modules": ["embed_tokens"]}, "embed_tokens.* is tied to another"),
    "tied module": ({"modules_to_save": ["embed_tokens"]}, "embed_tokens.* is tied to another"),
    "single tokens": ({"trainable_token_indices": {"embed_tokens": [3]}}, "a part of a layer"),
    "no bias": (
        {"lora_bias": True, "target_modules": ["o_proj"]},
        "lora_bias is on for a layer without a bias",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_merged_is_refused(build, case):
    options, message = REFUSED[case]
    policy = adapt(build("qwen2"), **options)
    with pytest.raises(TrainingError, match=f"vLLM cannot sample from this policy: .*{message}"):
        send_merged(object(), policy)


def test_other_adapters_are_refused(build):
    policy = get_peft_model(
        build("qwen2"), IA3Config(target_modules=["k_proj"], feedforward_modules=[])
    )
    with pytest.raises(TrainingError, match="its adapter is not LoRA"):
        send_merged(object(), policy)


slow = pytest.mark.slow
CORRECTIONS = {
    name: {"vllm_importance_sampling_mode": name}
    for name in ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate")
} | {"none": {"vllm_importance_sampling_correction": False}}


@pytest.fixture
def fake(policies, grpo, monkeypatch):
    """Let trainers sample with a fake vLLM."""

    def run(family, **limits):
        base = policies.find_base(family)
        completions = grpo.write_completions(6, end=base.generation_config.eos_token_id)
        kind = make_fake_vllm(base, completions, **limits)
        monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", kind)
        return kind

    return run


@pytest.fixture
def compare(grpo, pairs, fake, keep_order):
    """Step the parent class and the fast one on the same vLLM; check every step."""

    def run(family="qwen2", trained="sft", *, num_updates=2, noise=0.3, **options):
        fake(family, noise=noise)
        both = pairs.make_both(family, trained, use_vllm=True, **options)
        rows = grpo.make_rows(3, family=family)
        for seed in range(num_updates):
            parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
            assert grpo.measure_log_probs(parent, fast) < 1e-5
            assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4
            assert fast.losses == pytest.approx(parent.losses, abs=1e-5)
        parent, fast = both
        assert grpo.measure_difference(parent.list_weights(), fast.list_weights()) < 1e-4
        assert fast.num_shared > 0
        for name, values in parent.list_metrics().items():
            if name.startswith("sampling/"):
                assert fast.list_metrics()[name] == pytest.approx(values, abs=1e-4)
        return both

    return run


@pytest.mark.parametrize(
    "correction",
    [
        one if one in ("token_truncate", "sequence_mask") else pytest.param(one, marks=slow)
        for one in CORRECTIONS
    ],
)
def test_every_correction(compare, correction):
    parent, fast = compare(num_iterations=2, beta=0.1, **CORRECTIONS[correction])
    for stepped in (parent, fast):
        found = stepped.batches[0].get("importance_sampling_ratio")
        assert (found is None) == (correction == "none")
        assert found is None or ((found - 1).abs() > 0.01).any()


_WAYS = [
    *(("qwen2", trained) for trained in ("last", "full", "fresh")),
    *(("qwen2_5_vl", trained) for trained in ("sft", "full")),
    ("qwen3_vl", "sft"),
]
_QUICK = (("colocate", "qwen2_5_vl", "sft"), ("server", "qwen2", "last"))


@pytest.mark.parametrize(
    ("mode", "family", "trained"),
    [
        *_QUICK,
        *(
            pytest.param(mode, *way, marks=slow)
            for mode in ("colocate", "server")
            for way in _WAYS
            if (mode, *way) not in _QUICK
        ),
    ],
)
def test_weights_arrive_before_each_round(compare, policies, family, trained, mode):
    """vLLM's log-probabilities are the policy's, in the third round, too."""
    both = compare(family, trained, num_updates=3, noise=0.0, vllm_mode=mode)
    names = [name for name, _ in policies.find_base(family).named_parameters()]
    for stepped in both:
        assert stepped.trainer.vllm_generation.syncs == [names] * 3
        found = stepped.list_metrics()["sampling/sampling_logp_difference/max"]
        assert max(found) < 1e-5
    start, end = (stepped.batches[place]["old_per_token_logps"] for place in (0, 2))
    assert (start - end).abs().max() > 1e-3


def test_a_round_of_several_updates(compare):
    """Rows of one round, shuffled in groups, keep their log-probabilities and ratios."""
    compare(per_device_train_batch_size=3, steps_per_generation=2, num_updates=3, beta=0.1)


def test_dead_groups_are_skipped(compare):
    rewards = [1.0, 1.0, 1.0, 0.0, 0.5, 1.0]
    _, fast = compare(reward=lambda completion_ids, **_: rewards)
    assert fast.list_metrics()["skipped_rows"][0] == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16]
)
def test_base_weights_are_only_read(grpo, pairs, policies, fake, dtype):
    """TRL's own way leaves other ones behind."""
    changed = {}
    for name, speed in (("fast", SpeedSettings()), ("parent", None)):
        fake("qwen2")
        model = policies.build("qwen2", "sft").to(dtype)
        stepped = pairs.make("qwen2", speed=speed, model=model, use_vllm=True)
        base = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
        for seed in range(2):
            stepped.update(grpo.make_rows(3), seed=seed)
        now = dict(model.named_parameters())
        changed[name] = [n for n, value in base.items() if not now[n].equal(value)]
    assert not changed["fast"]
    assert changed["parent"]


def count_tokens(module):
    seen = []

    def count(_, given):  # prompts and what continues them
        seen.append(sum(states.shape[:-1].numel() for states in given))

    module.register_forward_pre_hook(count)
    return seen


@pytest.mark.slow
def test_trunk_and_features_are_computed_once(grpo, pairs, fake):
    """In the pass that scores what vLLM sampled: the update starts at the first trained block."""
    fake("qwen2_5_vl")
    stepped = pairs.make("qwen2_5_vl", speed=SpeedSettings(), use_vllm=True, num_iterations=2)
    rows = grpo.make_rows(3, family="qwen2_5_vl")
    stepped.update(rows)
    stepped.update(rows, seed=1)
    base = stepped.trainer.model.get_base_model().model
    first = count_tokens(base.language_model.layers[0])
    last = count_tokens(base.language_model.layers[-1])
    patches = count_tokens(base.visual.blocks[0])
    stepped.update(rows, seed=2)
    assert sum(patches) == 16 + 24
    assert sum(last) == 2 * sum(first)
    assert sum(first) == grpo.count_real_tokens(stepped.batches[-1], group_size=3)
    stepped.update(rows, seed=3)
    assert sum(last) == 3 * sum(first)


def test_an_adapter_that_cannot_be_merged_is_refused(pairs, policies, fake):
    fake("qwen2")
    model = get_peft_model(policies.build("qwen2", "full"), policies.make_lora(use_dora=True))
    with pytest.raises(TrainingError, match="vLLM cannot sample from this policy"):
        pairs.make("qwen2", speed=SpeedSettings(), model=model, use_vllm=True)


@pytest.fixture
def check(pairs, fake, grpo, monkeypatch):
    """Take updates with a fake vLLM and check every round."""

    def run(family="qwen2", *, noise=0.0, limit=0.01, loses=False, **options):
        kind = fake(family, noise=noise)
        if loses:
            monkeypatch.setattr(kind, "_load", lambda *_: None)
        stepped = pairs.make(family, "sft", speed=SpeedSettings(), use_vllm=True, **options)
        own = stepped.trainer._generate_and_score_completions

        def generate(inputs):
            batch = own(inputs)
            check_sampler(stepped.trainer, batch, VllmSettings(), max_gap=limit)
            return batch

        stepped.trainer._generate_and_score_completions = generate
        rows = grpo.make_rows(3, family=family)
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


def test_what_top_p_leaves_out_is_allowed_for(check):
    """Over the kept tokens alone vLLM's probabilities are larger, by 1 / top_p at most."""
    check(noise=0.3, limit=0.1, top_p=0.8)


LARGE = [[(96, 64)], [(64, 80)]]  # beyond the 64 x 64 pixels of training
PAD = 7


@pytest.fixture
def make(pairs, fake):
    """Make a trainer whose vLLM has limits of its own."""

    def run(*, vllm_mode, **limits):
        fake("qwen2_5_vl", **limits)
        options = {"speed": SpeedSettings(), "use_vllm": True, "vllm_mode": vllm_mode}
        return pairs.make("qwen2_5_vl", "sft", **options)

    return run


@pytest.mark.parametrize("mode", ["colocate", pytest.param("server", marks=pytest.mark.slow)])
def test_larger_pictures_are_those_of_training(make, grpo, mode):
    """vLLM's own limits are far wider, and its log-probabilities are the policy's."""
    stepped = make(vllm_mode=mode)
    stepped.update(grpo.make_rows(3, sizes=LARGE))
    assert stepped.list_metrics()["sampling/sampling_logp_difference/max"][0] < 1e-5
    token = stepped.trainer.processing_class.image_token_id
    asked = stepped.trainer.vllm_generation.asked
    written_out = {ids.count(token) > 1 for ids in asked}
    assert written_out == {mode == "server"}


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_narrower_limits_of_vllm_are_an_error(make, grpo, mode):
    stepped = make(vllm_mode=mode, max_pixels=32 * 32)
    with pytest.raises(TrainingError, match="reads a prompt's pictures otherwise than training"):
        stepped.update(grpo.make_rows(3, sizes=LARGE))


@given(
    width=st.integers(9, 300),
    height=st.integers(9, 300),
    max_pixels=st.sampled_from([128**2, 2 * 128**2, 9 * 128**2]),
)
def test_a_processor_with_wider_limits_makes_the_same_numbers(width, height, max_pixels):
    picture = Image.effect_noise((width, height), 90).convert("RGB")
    own, wide = make_tiny_image_processor(max_pixels), make_tiny_image_processor(1 << 24)
    scaled = scale_picture(own, picture)
    there, here = (f([p], return_tensors="pt") for f, p in ((wide, scaled), (own, picture)))
    assert there["image_grid_thw"].equal(here["image_grid_thw"])
    assert there["pixel_values"].equal(here["pixel_values"])


def test_pictures_of_other_processors_are_left_alone():
    picture = Image.new("RGB", (9, 9))
    assert scale_picture(SimpleNamespace(), picture) is picture


@given(st.lists(st.lists(st.integers(0, 5), min_size=1), min_size=1), st.integers(1, 9))
def test_placeholders_are_collapsed_between_words_alone(words, length):
    short = [id_ for part in words for id_ in (*part, PAD)]
    long = [id_ for part in words for id_ in (*part, *[PAD] * length)]
    assert collapse(long, PAD) == short
    assert collapse(short, PAD) == short


def test_an_engine_is_built_with_the_limits(monkeypatch):
    built = []
    monkeypatch.setattr(vllm_generation, "LLM", lambda **named: built.append(named), raising=False)
    own = vllm_generation.LLM
    processor = SimpleNamespace(image_processor=make_tiny_image_processor(5 * 128**2))
    with prepare_vllm(None, SimpleNamespace(processor=processor)):
        vllm_generation.LLM(model="one")
    limits = {"min_pixels": 128**2, "max_pixels": 5 * 128**2}
    assert built == [{"model": "one", "mm_processor_kwargs": limits}]
    assert vllm_generation.LLM is own
    with prepare_vllm(None, SimpleNamespace(processor=None)):
        assert vllm_generation.LLM is own
