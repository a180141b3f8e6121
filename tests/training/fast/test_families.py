"""Every family that shares prompts samples the parent class's tokens and computes its passes."""

import pytest

from groupwise.training.fast import support
from groupwise.training.fast.support import find_backbone, find_obstacle
from groupwise.training.settings import SpeedSettings

FAMILIES = (
    "mistral",
    "mistral_windows",
    "qwen3_moe",
    "gemma3",
    "gpt_oss",
    "glm",
    "glm4",
    "qwen3_vl_moe",
    "qwen3_5",
)
NOT_EAGER = ("qwen3_5", "qwen3_vl_moe")
# Every kind of attention and experts: windows in some blocks, experts, linear attention in some.
_QUICK = ("gemma3", "qwen3_moe", "qwen3_5")


def mark(*quick):
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in FAMILIES]


# Prompts of one, and of several windows of the models that have some.
LENGTHS = (1, 20)
PICTURES = [[(16, 24), (32, 16)], [(24, 24), (8, 16)]]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    """Sample, score and update with both trainers; check every step."""

    def run(family, trained, **options):
        speed = SpeedSettings(shared_prefix="on")
        sizes = PICTURES if "_vl" in family else None
        rows = grpo.make_rows(3, lengths=LENGTHS, sizes=sizes)
        options = {"beta": 0.1, "router_aux_loss_coef": 0.0} | options
        both = [pairs.make(family, trained, speed=levers, **options) for levers in (None, speed)]
        # Adam makes whole steps of rounding where a gradient is nearly 0, and linear attention
        # magnifies what follows: other weights, not another pass.
        applies = (family, trained) != ("qwen3_5", "full")
        grpo.compare_rounds(both, rows, applies=applies)

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_shares_prompts(policies, family):
    assert find_obstacle(find_backbone(policies.build(family, "full"))) is None


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


@pytest.mark.parametrize("trained", ["sft", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", mark(*_QUICK))
def test_sampled_and_scored(compare, family, trained):
    compare(family, trained, num_iterations=2)


@pytest.mark.parametrize("family", mark("gemma3"))
def test_gradient_checkpointing(compare, family):
    compare(family, "all", gradient_checkpointing=True)


@pytest.mark.parametrize("family", NOT_EAGER)
def test_two_families_fall_back_with_eager_attention(policies, family):
    model = policies.build(family, "full")
    model.set_attn_implementation("eager")
    assert "with eager attention" in find_obstacle(find_backbone(model))


@pytest.mark.slow
@pytest.mark.parametrize("family", [one for one in FAMILIES if one not in NOT_EAGER])
def test_eager_attention(compare, eager_attention, family):
    compare(family, "sft")
