import pytest
import torch

from groupwise.training.on_policy import find_ulp


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.7, 1.0, 5.0, 24.5])
def test_one_unit_in_the_last_place(dtype, value):
    number = torch.tensor(value, dtype=dtype)
    following = (number.view(torch.int32 if number.itemsize == 4 else torch.int16) + 1).view(dtype)
    assert find_ulp(value, dtype) == float(following) - float(number)
