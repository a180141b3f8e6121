"""Pictures reach vLLM in the size of training; where it reads them otherwise, training ends."""

from types import SimpleNamespace
from typing import Any

import pytest
import trl.generation.vllm_generation
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import TrainingError
from groupwise.models.tiny import make_tiny_image_processor
from groupwise.training.fast.vllm import collapse, prepare_vllm, scale_picture
from groupwise.training.settings import SpeedSettings

vllm_generation: Any = trl.generation.vllm_generation
LARGE = [[(96, 64)], [(64, 80)]]  # beyond the 64 x 64 pixels of training
PAD = 7


@pytest.fixture
def make(fixtures, pairs, policies, grpo, monkeypatch):
    """Make a trainer whose vLLM has limits of its own."""

    def run(family="qwen2_5_vl", **options):
        given = {"max_pixels": options.pop("max_pixels")} if "max_pixels" in options else {}
        end = policies.find_base(family).generation_config.eos_token_id
        completions = grpo.write_completions(6, end=end)
        kind = fixtures("fake_vllm").make_fake_vllm(
            policies.find_base(family), completions, **given
        )
        monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", kind)
        return pairs.make(family, "sft", speed=SpeedSettings(), use_vllm=True, **options)

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
