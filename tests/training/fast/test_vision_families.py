"""Every family with pictures samples the parent class's tokens and computes its passes."""

import pytest

from groupwise.training.fast.support import (
    find_backbone,
    find_first_trained,
    find_obstacle,
    trains_vision,
)
from groupwise.training.settings import SpeedSettings

FAMILIES = (
    *("qwen2_vl", "qwen3_5_vl", "gemma3_vl", "smolvlm", "idefics3", "internvl"),
    *("llava", "llava_next", "llava_onevision"),
)
# TRL takes no count of pictures, which LLaVA-OneVision needs of several.
ONE_PICTURE = ("llava_onevision",)
_LIKE_LLAVA = ("llava_next", "llava_onevision")
ALL = [pytest.param(one, marks=pytest.mark.slow) if one in _LIKE_LLAVA else one for one in FAMILIES]
LENGTHS = (1, 20)
ONE_EACH = [[(16, 24)], [(24, 16)]]
SEVERAL = [[(16, 24), (32, 16)], [(24, 24), (8, 16), (40, 12)]]


def mark(*quick):
    """Return all families, of which others than these are slow: each is quick in one test.

    But SmolVLM has the code of Idefics3, and Qwen2.5-VL, which other tests train, that of Qwen2-VL;
    a picture of LLaVA-NeXT or LLaVA-OneVision is one entry, as LLaVA's is.
    """
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in FAMILIES]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    """Sample, score and update with both trainers; check every step."""

    def run(family, trained, *, sizes=None, speed=None, **options):
        sizes = sizes or (ONE_EACH if family in ONE_PICTURE else SEVERAL)
        speed = speed or SpeedSettings(shared_prefix="on")
        rows = grpo.make_rows(3, lengths=LENGTHS, sizes=sizes)
        both = [
            pairs.make(family, trained, speed=levers, beta=0.1, **options)
            for levers in (None, speed)
        ]
        # Adam makes whole steps of rounding where a gradient is nearly 0.
        applies = trained != "everything"
        grpo.compare_rounds(both, rows, applies=applies)
        return both[1]

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_shares_prompts(policies, family):
    assert find_obstacle(find_backbone(policies.build(family, "full"))) is None


@pytest.mark.parametrize("trained", ["sft", pytest.param("everything", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", mark("gemma3_vl", "qwen3_5_vl"))
def test_sampled_and_scored(compare, family, trained):
    compare(family, trained, num_iterations=2)


@pytest.mark.parametrize("family", mark("smolvlm", "llava"))
def test_one_picture_each(compare, family):
    """TRL takes as many entries as rows for one of each."""
    fast = compare(family, "sft", sizes=ONE_EACH)
    assert fast.trainer._round.pictures


@pytest.mark.parametrize("family", mark("internvl"))
def test_updates_of_one_round(compare, family):
    """Features and trunk of one update are picked for the next."""
    options = {"per_device_train_batch_size": 3, "steps_per_generation": 2}
    compare(family, "sft", num_iterations=2, gradient_checkpointing=True, **options)


@pytest.mark.parametrize("family", ALL)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_that_train_are_told_from_blocks(policies, family):
    """Towers number their blocks, too."""
    assert trains_vision(find_backbone(policies.build(family, "everything")))
    backbone = find_backbone(policies.build(family, "sft"))
    assert not trains_vision(backbone)
    assert find_first_trained(backbone, 4) == 2


@pytest.mark.slow
@pytest.mark.parametrize("family", [one for one in FAMILIES if one != "qwen3_5_vl"])
def test_eager_attention(compare, eager_attention, family):
    compare(family, "sft")
