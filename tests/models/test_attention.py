import pytest
import torch

from groupwise.models import unplanned_attention

CUDA = torch.backends.cuda


def fail_inside():
    with unplanned_attention():
        assert not CUDA.cudnn_sdp_enabled()
        raise KeyError


@pytest.mark.parametrize("before", [True, False])
def test_cudnn_is_left_out_inside_and_as_it_was_afterwards(before):
    usual = CUDA.cudnn_sdp_enabled()
    CUDA.enable_cudnn_sdp(before)
    try:
        with pytest.raises(KeyError):
            fail_inside()
        assert CUDA.cudnn_sdp_enabled() is before
    finally:
        CUDA.enable_cudnn_sdp(usual)
