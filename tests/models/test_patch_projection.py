import torch
from torch import nn

from groupwise.models import load_policy
from groupwise.models.policy import PatchProjection, project_patches_fast


def convert(conv: nn.Conv3d) -> nn.Module:
    model = nn.Sequential(conv)
    project_patches_fast(model)
    assert type(model[0]) is PatchProjection
    return model


def run(model: nn.Module, patches: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    output = model(patches)
    output.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return output.detach(), gradients


def check_same(conv: nn.Conv3d, patches: torch.Tensor) -> None:
    expected, expected_gradients = run(conv, patches)
    found, gradients = run(convert(conv), patches)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_patches_are_projected_as_by_the_convolution():
    torch.manual_seed(0)
    for bias in (False, True):
        conv = nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4), bias=bias)
        check_same(conv, torch.randn(5, 3, 2, 4, 4))


def test_inputs_larger_than_the_kernel_and_padding_stay_with_the_convolution():
    torch.manual_seed(0)
    check_same(nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4)), torch.randn(2, 3, 4, 8, 12))
    check_same(nn.Conv3d(3, 8, (2, 4, 4), padding=1), torch.randn(2, 3, 2, 4, 4))


def test_names_of_weights_stay():
    conv = nn.Conv3d(3, 8, (2, 4, 4))
    names = [f"0.{name}" for name in conv.state_dict()]
    assert list(convert(conv).state_dict()) == names


def test_a_loaded_policy_projects_fast(vision_folder):
    embed = load_policy(vision_folder).model.model.visual.patch_embed
    assert type(embed.proj) is PatchProjection
