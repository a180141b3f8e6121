"""Which attention kernels a model may take on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def unplanned_attention() -> Iterator[None]:
    """Keep cuDNN's attention out of the block, for passes whose lengths always change.

    It makes a plan for every new shape, which costs more than the attention itself where each token
    that is sampled makes a new shape.
    """
    cuda = torch.backends.cuda
    before = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)
