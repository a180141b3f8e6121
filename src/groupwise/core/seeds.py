"""Seeds: every random choice has its own, derived from what it is for."""

import hashlib
import random
from typing import Annotated

from pydantic import Field

Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""A seed of a config: NumPy takes no other."""


def derive_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**31) that depends on every part and on their order.

    ``derive_seed(0, "session", 3)`` is the same on every machine and Python version.
    """
    # The separator is doubled inside of them, so that parts never run together.
    named = (f"{type(part).__name__}:{part}".replace("\x1f", "\x1f\x1f") for part in parts)
    text = "\x1f".join(named)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and PyTorch (all devices)."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType] (untyped in torch)
