"""Projecting the patches of pictures by a matrix product.

Qwen-VL models cut pictures into patches before the model and then project each by a 3D convolution
that is as large as the patch. That is one dot product per output, and a matrix product does it
several times faster than a convolution, forwards and backwards.
"""

import torch
from torch import nn
from torch.nn import functional


class PatchProjection(nn.Conv3d):
    """A Conv3d with the same weights whose inputs are single patches, as large as its kernel."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return [patches, out, 1, 1, 1] for [patches, in, time, height, width]."""
        if input.shape[1:] != self.weight.shape[1:] or any(self.padding):
            return super().forward(input)
        projected = functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)
        return projected[:, :, None, None, None]


def project_patches_fast(model: nn.Module) -> None:
    """Let every Conv3d of a model take single patches by a matrix product; weights stay."""
    for module in model.modules():
        if type(module) is nn.Conv3d:
            module.__class__ = PatchProjection
