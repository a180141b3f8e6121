"""Weights between a policy and what it was trained from: they keep more of what it could before.

Source: Wortsman et al. 2022 (2109.01903, "WiSE-FT"), equation 1.
"""

from pathlib import Path

import torch

from groupwise.core import ModelError
from groupwise.models.export import merge_adapter
from groupwise.models.identity import is_adapter, read_base
from groupwise.models.policy import Policy, load_policy
from groupwise.models.quantization import find_quantization
from groupwise.models.virtual_tokens import KIND


@torch.no_grad()
def average_policy(
    trained: Path, before: str | Path, share: float, *, dtype: str = "float32"
) -> Policy:
    """Return the policy whose weights are a share of the way from others to what was trained.

    A LoRA on these very weights stays one: its product is scaled. All else becomes a whole model.

    Args:
        trained: folder of a policy.
        before: folder or hub id of a whole model of the same architecture, which it was trained
            from.
        share: of the way, in [0, 1].
        dtype: of the weights; averages are computed in float32.

    Raises:
        ModelError: if there is no way from one to the other: virtual tokens, another architecture.
    """
    cpu = torch.device("cpu")
    policy = load_policy(trained, dtype=dtype, device=cpu)
    kinds = {one.peft_type for one in getattr(policy.model, "peft_config", {}).values()}
    if KIND in kinds:
        raise ModelError(f"{trained} has virtual tokens, which {before} has not: no average")
    if kinds and is_adapter(trained) and _is_same(read_base(trained), before):
        for name, weights in policy.model.named_parameters():
            if ".lora_B." in name:
                weights.mul_(share)
        return policy
    if find_quantization(policy.model) is not None:
        raise ModelError(f"{trained} is on a base in 4 bits, and {before} is not: no average")
    policy = merge_adapter(policy)
    # Parameters, not the state: that has tied weights under both names, and once is enough.
    own, ends = (
        dict(model.named_parameters())
        for model in (policy.model, load_policy(before, dtype=dtype, device=cpu).model)
    )
    if {n: one.shape for n, one in own.items()} != {n: one.shape for n, one in ends.items()}:
        raise ModelError(f"{trained} and {before} are no models of the same architecture")
    for name, weights in own.items():
        weights.copy_(ends[name].float().lerp(weights.float(), share))
    return policy


def _is_same(base: str, before: str | Path) -> bool:
    return base == str(before) or Path(base).resolve() == Path(before).resolve()
