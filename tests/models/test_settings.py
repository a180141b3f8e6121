"""What a recipe says of the model it starts from."""

import pytest
from pydantic import ValidationError

from groupwise.core import dump_config
from groupwise.models import TINY_MODELS, ModelSettings


@pytest.mark.parametrize("base", TINY_MODELS)
def test_a_tiny_model_is_built_here(base):
    assert ModelSettings(base=base, max_pixels=16_384).is_tiny


def test_a_model_of_the_hub_is_not(tmp_path):
    for base in ("Qwen/Qwen2.5-VL-3B-Instruct", str(tmp_path)):
        assert not ModelSettings(base=base, max_pixels=16_384).is_tiny


def test_steps_are_recognised_by_these_keys():
    settings = ModelSettings(base="some/model", max_pixels=16_384)
    assert dump_config(settings) == {
        "base": "some/model",
        "dtype": "float32",
        "quantization": None,
        "max_pixels": 16_384,
        "shape": None,
    }


def test_pixels_need_not_be_said_where_there_may_be_no_pictures():
    assert ModelSettings(base="some/model").max_pixels == 401_408


@pytest.mark.parametrize("values", [{"max_pixels": 783}, {"max_pixels": 784, "side": 28}])
def test_pixels_that_are_said_make_a_token(values):
    with pytest.raises(ValidationError):
        ModelSettings(base="some/model", **values)
