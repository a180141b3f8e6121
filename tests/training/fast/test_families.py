"""Families that share prompts compute what the parent class computes; others are known."""

import pytest
import torch
from peft import IA3Config, LoraConfig, get_peft_model
from torch import nn

from groupwise.training.fast import support
from groupwise.training.fast.guard import ShapeGuard, compare_passes
from groupwise.training.fast.support import (
    find_backbone,
    find_first_trained,
    find_obstacle,
    has_dropout,
    trains_vision,
)
from groupwise.training.settings import SpeedSettings

TEXT = (
    *("mistral", "mistral_windows", "qwen3_moe", "gemma3", "gpt_oss", "glm", "glm4"),
    *("qwen3_vl_moe", "qwen3_5"),
)
VISION = (
    *("qwen2_vl", "qwen3_5_vl", "gemma3_vl", "smolvlm", "idefics3", "internvl"),
    *("llava", "llava_next", "llava_onevision"),
)
COMPARED_ELSEWHERE = ("qwen2", "qwen3", "llama", "qwen2_5_vl", "qwen3_vl")
NOT_EAGER = ("qwen3_5", "qwen3_vl_moe")
# TRL takes no count of pictures, which LLaVA-OneVision needs of several.
ONE_PICTURE = ("llava_onevision",)
# Prompts of one, and of several windows of the models that have some.
LENGTHS = (1, 20)
ONE_EACH = [[(16, 24)], [(24, 16)]]
TWO_EACH = [[(16, 24), (32, 16)], [(24, 24), (8, 16)]]
SEVERAL = [[(16, 24), (32, 16)], [(24, 24), (8, 16), (40, 12)]]


def mark(families, *quick):
    """Return families, of which others than these are slow: each is quick in one test.

    Quick are every kind of attention and experts: windows in some blocks, experts, linear attention
    in some. SmolVLM has the code of Idefics3, and Qwen2.5-VL, which other tests train, that of
    Qwen2-VL; a picture of LLaVA-NeXT or LLaVA-OneVision is one entry, as LLaVA's is.
    """
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in families]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    """Sample, score and update with both trainers; check every step."""

    def run(family, trained, *, sizes=None, **options):
        options = {"beta": 0.1} | options
        # Adam makes whole steps of rounding where a gradient is nearly 0, and linear attention
        # magnifies what follows: other weights, not another pass.
        applies = trained != "everything" and (family, trained) != ("qwen3_5", "full")
        if family in VISION:
            sizes = sizes or (ONE_EACH if family in ONE_PICTURE else SEVERAL)
        else:
            options = {"router_aux_loss_coef": 0.0} | options
            sizes = TWO_EACH if "_vl" in family else None
        rows = grpo.make_rows(3, lengths=LENGTHS, sizes=sizes)
        speed = SpeedSettings(shared_prefix="on")
        both = [pairs.make(family, trained, speed=levers, **options) for levers in (None, speed)]
        grpo.compare_rounds(both, rows, applies=applies)
        return both[1]

    return run


@pytest.mark.parametrize("family", [*TEXT, *VISION, *COMPARED_ELSEWHERE])
def test_a_family_shares_prompts(policies, family):
    for trained in ("full", "last")[: 1 + (family in COMPARED_ELSEWHERE)]:
        backbone = find_backbone(policies.build(family, trained))
        assert find_obstacle(backbone) is None
        assert family not in COMPARED_ELSEWHERE or backbone.config.model_type == family


def test_a_model_made_to_look_ahead_does_not(policies):
    backbone = find_backbone(policies.build("gemma3", "full"))
    backbone.config.use_bidirectional_attention = True
    assert "attend to later ones" in find_obstacle(backbone)


def test_kernels_of_linear_attention_are_not_known(policies, monkeypatch):
    """Only log-probabilities are compared in a training, and theirs may be right alone."""
    monkeypatch.setattr(support, "_KERNELS", ("missing_package", "torch"))
    backbones = [find_backbone(policies.build(one, "full")) for one in ("qwen3_5", "mistral")]
    assert "computed by torch" in find_obstacle(backbones[0])
    assert find_obstacle(backbones[1]) is None


@pytest.mark.parametrize("trained", ["sft", pytest.param("all weights", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "family", mark((*TEXT, *VISION), "gemma3", "qwen3_moe", "qwen3_5", "gemma3_vl", "qwen3_5_vl")
)
def test_sampled_and_scored(compare, family, trained):
    if trained != "sft":
        trained = "everything" if family in VISION else "full"
    compare(family, trained, num_iterations=2)


@pytest.mark.parametrize("family", mark(TEXT, "gemma3"))
def test_gradient_checkpointing(compare, family):
    compare(family, "all", gradient_checkpointing=True)


@pytest.mark.parametrize("family", NOT_EAGER)
def test_two_families_fall_back_with_eager_attention(policies, family):
    model = policies.build(family, "full")
    model.set_attn_implementation("eager")
    assert "with eager attention" in find_obstacle(find_backbone(model))


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [one for one in (*TEXT, *VISION) if one not in (*NOT_EAGER, "qwen3_5_vl")]
)
def test_eager_attention(compare, eager_attention, family):
    compare(family, "sft")


@pytest.mark.parametrize("family", mark(VISION, "smolvlm", "llava"))
def test_one_picture_each(compare, family):
    """TRL takes as many entries as rows for one of each."""
    assert compare(family, "sft", sizes=ONE_EACH).trainer._round.pictures


@pytest.mark.parametrize("family", mark(VISION, "internvl"))
def test_updates_of_one_round(compare, family):
    """Features and trunk of one update are picked for the next."""
    options = {"per_device_train_batch_size": 3, "steps_per_generation": 2}
    compare(family, "sft", num_iterations=2, gradient_checkpointing=True, **options)


@pytest.mark.parametrize("family", mark(VISION, *VISION[:-2]))
def test_the_vision_tower_is_asked_once(pairs, grpo, family):
    """In sampling; the reference and every update take what it gave."""
    asked = []
    stepped = pairs.make(family, "sft", speed=SpeedSettings(shared_prefix="on"), beta=0.1)
    backbone = find_backbone(stepped.trainer.model)
    own = backbone.get_image_features

    def encode(*given, **named):
        asked.append(len(named["pixel_values"]))
        return own(*given, **named)

    stepped.trainer._guard.is_new = lambda _: False  # plain passes ask it, too
    backbone.get_image_features = encode
    stepped.update(grpo.make_rows(3, sizes=ONE_EACH))
    assert len(asked) == 1


@pytest.mark.parametrize("family", VISION)
def test_pictures_that_train_are_told_from_blocks(policies, family):
    """Towers number their blocks, too."""
    assert trains_vision(find_backbone(policies.build(family, "everything")))
    backbone = find_backbone(policies.build(family, "sft"))
    assert not trains_vision(backbone)
    assert find_first_trained(backbone, 4) == 2


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


@pytest.mark.parametrize("where", ["blocks", "embeddings"])
def test_a_frozen_adapter_is_no_part_of_the_trunk(policies, where):
    """The reference has it switched on, the policy off."""
    model = policies.build("qwen2", "last")
    lora = policies.make_lora(last_blocks=4)
    if where == "embeddings":
        lora = LoraConfig(r=2, target_modules=["embed_tokens"])
    model.add_adapter("ref", lora)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".default." in name)
    assert find_first_trained(find_backbone(model), 4) == 0
    # Nor is one that is not LoRA.
    config = IA3Config(target_modules=["v_proj"], feedforward_modules=[])
    model = get_peft_model(policies.build("qwen2", "fresh"), config)
    model.requires_grad_(False)
    find_backbone(model).layers[3].requires_grad_(True)
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
    # The type of somebody else's class is written in its config; its forward may be another one.
    backbone = find_backbone(policies.build("qwen3", "full"))
    backbone.__class__ = type("Qwen3Model", (type(backbone),), {"__module__": "remote.modeling"})
    assert "Qwen3Model is not of Transformers" in find_obstacle(backbone)
    backbone = find_backbone(policies.build("llama", "full"))
    backbone.layers[3].to("meta")
    assert "spread over devices" in find_obstacle(backbone)


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


PLAIN = [torch.tensor([-1.0, value, -9.0]) for value in (-2.0, -2.25, -2.125)]


def shift(by):
    return torch.tensor([-1.0, -2.0, -9.0 + by])


def test_a_difference_may_be_twice_that_of_plain_passes():
    assert compare_passes(shift(0.5), PLAIN, ulp=1e-3).is_close
    found = compare_passes(shift(0.51), PLAIN, ulp=1e-3)
    assert not found.is_close
    assert str(found) == (
        "differ by 5.1e-01 from plain passes, which differ by 2.5e-01 from each other"
    )

    # It is taken from the nearest plain pass; where they agree, logits can resolve so much.
    assert compare_passes(torch.tensor([-1.0, -2.25, -9.0]), PLAIN, ulp=0).difference == 0
    assert compare_passes(shift(0.05), PLAIN[:1] * 3, ulp=0.03).is_close
    assert not compare_passes(shift(0.07), PLAIN[:1] * 3, ulp=0.03).is_close


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_is_never_close(bad):
    wrong = torch.tensor([bad, -2.0, -9.0])
    assert not compare_passes(wrong, PLAIN, ulp=1.0).is_close
    assert not compare_passes(shift(0), [*PLAIN, wrong], ulp=1.0).is_close


def test_each_shape_is_new_once():
    guard = ShapeGuard()
    assert [guard.is_new(shape) for shape in ((1, 8), (1, 16), (1, 8))] == [True, True, False]
