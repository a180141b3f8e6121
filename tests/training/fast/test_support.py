import pytest
from peft import IA3Config, LoraConfig, get_peft_model
from torch import nn

from groupwise.training.fast.support import (
    find_backbone,
    find_first_trained,
    find_obstacle,
    has_dropout,
    trains_vision,
)

FAMILIES = ("qwen2", "qwen3", "llama", "qwen2_5_vl", "qwen3_vl")


@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_share_prompts(policies, family):
    for trained in ("full", "last"):
        backbone = find_backbone(policies.build(family, trained))
        assert backbone.config.model_type == family
        assert find_obstacle(backbone) is None


@pytest.mark.parametrize(
    ("trained", "first", "vision"),
    [
        ("last", 2, False),
        ("all", 0, False),
        ("full", 0, False),
        ("everything", 0, True),
        ("top", 3, False),
    ],
)
@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl", "qwen3_vl"])
def test_where_training_starts(policies, family, trained, first, vision):
    backbone = find_backbone(policies.build(family, trained))
    assert find_first_trained(backbone, 4) == first
    assert trains_vision(backbone) == (vision and family != "qwen2")


def test_a_frozen_adapter_is_no_part_of_the_trunk(policies):
    """The reference has it switched on, the policy off."""
    model = policies.build("qwen2", "last")
    model.add_adapter("ref", policies.make_lora(last_blocks=4))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".default." in name)
    assert find_first_trained(find_backbone(model), 4) == 0


def test_nor_is_one_on_the_embeddings(policies):
    model = policies.build("qwen2", "last")
    model.add_adapter("ref", LoraConfig(r=2, target_modules=["embed_tokens"]))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".default." in name)
    assert find_first_trained(find_backbone(model), 4) == 0


@pytest.mark.parametrize("part", ["patch_embed", "merger"])
def test_below_a_vision_tower_that_trains_nothing_is_fixed(policies, part):
    model = policies.build("qwen3_vl", "last")
    for name, parameter in model.named_parameters():
        if f"visual.{part}" in name:
            parameter.requires_grad_(True)
    backbone = find_backbone(model)
    assert find_first_trained(backbone, 4) == 0
    assert trains_vision(backbone)


def test_obstacles(policies):
    model = find_backbone(policies.build("qwen3", "full"))
    model.config.layer_types = ["full_attention", "sliding_attention"] * 2
    assert "sliding_attention" in find_obstacle(model)
    model.config.layer_types = None
    model.config._attn_implementation = "flex_attention"
    assert "flex_attention" in find_obstacle(model)
    model.config.model_type = "mamba"
    assert "mamba" in find_obstacle(model)


def test_a_class_of_somebody_else_is_not_known(policies):
    """Its type is written in its config; its forward may be another one."""
    backbone = find_backbone(policies.build("qwen3", "full"))
    backbone.__class__ = type("Qwen3Model", (type(backbone),), {"__module__": "remote.modeling"})
    assert "Qwen3Model is not of Transformers" in find_obstacle(backbone)


def test_a_model_on_several_devices(policies):
    backbone = find_backbone(policies.build("llama", "full"))
    backbone.layers[3].to("meta")
    assert "spread over devices" in find_obstacle(backbone)


def test_a_frozen_adapter_that_is_not_lora_is_no_part_of_the_trunk_either(policies):
    config = IA3Config(target_modules=["v_proj"], feedforward_modules=[])
    model = get_peft_model(policies.build("qwen2", "fresh"), config)
    model.requires_grad_(False)
    find_backbone(model).layers[3].requires_grad_(True)
    assert find_first_trained(find_backbone(model), 4) == 0


def test_rotary_embeddings_of_every_kind_of_layer_are_found(policies):
    model = find_backbone(policies.build("qwen3", "full"))
    model.rotary_emb.rope_type = "yarn"
    assert find_obstacle(model) is None
    model.rotary_emb.rope_type = {"full_attention": "default", "sliding_attention": "longrope"}
    assert "longrope" in find_obstacle(model)
    nested = find_backbone(policies.build("qwen2_5_vl", "full"))
    nested.language_model.rotary_emb.rope_type = "dynamic"
    assert "dynamic" in find_obstacle(nested)


def test_dropout_of_every_kind_is_found(policies):
    clean = policies.build("llama", "last")
    assert not has_dropout(clean)
    clean.get_base_model().model.layers[1].mlp.extra = nn.Dropout(0.1)
    assert has_dropout(clean)
    attention = policies.build("llama", "last")
    attention.get_base_model().model.layers[2].self_attn.attention_dropout = 0.1
    assert "dropout" in find_obstacle(find_backbone(attention))
    adapter = policies.build("llama", "full")
    adapter.add_adapter(policies.make_lora(lora_dropout=0.1))
    assert has_dropout(adapter)
