"""What vLLM gets is the adapted policy as a plain model; the policy is only read."""

import copy
import hashlib

import pytest
import torch
from peft import LoraConfig, get_peft_model

from groupwise.core import TrainingError
from groupwise.training.fast.vllm import iter_merged, send_merged

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
    from trl.generation.vllm_generation import VLLMGeneration

    policy = adapt(build("qwen2", tied=False), modules_to_save=["norm", "lm_head"])
    assert [n for n, _ in iter_merged(policy)] == [
        n for n, _ in send_as_trl(VLLMGeneration, policy)
    ]


def send_as_trl(kind, policy):
    """Yield what TRL itself sends of a policy on one process."""
    from accelerate import Accelerator
    from trl.distributed import DistributedBackend

    generation = object.__new__(kind)
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
    from trl.generation.vllm_generation import VLLMGeneration

    policy = adapt(build("qwen2", dtype=torch.bfloat16)).to(torch.bfloat16)
    weight = policy.base_model.model.model.layers[3].self_attn.q_proj.base_layer.weight
    before = weight.detach().clone()
    for _ in range(3):
        list(send_as_trl(VLLMGeneration, policy))
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
    from peft import IA3Config

    policy = get_peft_model(
        build("qwen2"), IA3Config(target_modules=["k_proj"], feedforward_modules=[])
    )
    with pytest.raises(TrainingError, match="its adapter is not LoRA"):
        send_merged(object(), policy)
