"""Settings of the selector and of its two trainings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from groupwise.core import BUDGET, Config, Harmless, Source

TEMPERATURE = 0.1
"""Cosines of the selector are divided by it."""
WEIGHT_DECAY, MAX_GRAD_NORM = 0.01, 1.0
MIN_STD = 0.1
"""A group's std counts as at least this when its advantages are computed."""
MAX_ADVANTAGE = 5.0
RewardMode = Literal["hard_plus_soft", "separated", "hard_only", "soft_only"]

_LOGGED = Harmless("what is logged: training does not see it", "日志：不影响训练")


class SelectorSettings(Config):
    """The pointer network that picks demonstrations.

    Attributes:
        feature_size: values of a query or candidate (d); 512 with CLIP ViT-B/32.
        hidden_size: values of their projections.
        num_layers: layers of cross-attention of the query over the pool.
        dropout: share of attention outputs that is dropped in RCE; GRPO has none.
        history_gate: let what was picked change what the query looks for next.
    """

    retired: ClassVar = {"temperature": (TEMPERATURE,)}
    feature_size: int = Field(default=512, ge=1, le=65_536)
    hidden_size: int = Field(default=256, ge=1, le=65_536)
    num_layers: int = Field(default=1, ge=1, le=256)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    history_gate: bool = False


class SelectorTraining(Config):
    """What RCE and GRPO of the selector share; both use AdamW at a constant rate.

    Attributes:
        epochs: passes over the queries.
        batch_size: queries per step; the last step of an epoch has the rest.
        learning_rate: of AdamW.
        freeze_backbone: train the attention, its norms and the history gate only, not the
            projections.
        log_every_steps: a row of metrics each so many steps, and one at the end of each epoch with
            the means since the row before; None: one per epoch, with its means.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "weight_decay": (WEIGHT_DECAY,),
        "max_grad_norm": (MAX_GRAD_NORM,),
    }
    epochs: Annotated[int, BUDGET] = Field(default=1, ge=1, le=100_000)
    batch_size: Annotated[int, BUDGET] = Field(default=32, ge=1, le=65_536)
    learning_rate: float = Field(default=1e-3, gt=0)
    freeze_backbone: bool = False
    log_every_steps: Annotated[int | None, _LOGGED] = Field(default=None, ge=1)


class SelectorRceSettings(SelectorTraining):
    """Reward-conditioned estimation: cross-entropy of the recorded lists, weighted by reward.

    Attributes:
        tau_start, tau_end: τ of softmax(r / τ) at the first step and at the last; linear between.
        weights: a selector that RCE gave before, ``selector.safetensors`` or
            ``epoch-N.safetensors`` of a run: it is taken as it is, as the one epoch there is.
    """

    epochs: Annotated[int, BUDGET] = Field(default=5, ge=1, le=100_000)
    tau_start: float = Field(default=2.0, gt=0)
    tau_end: float = Field(default=0.5, gt=0)
    weights: Annotated[Path | None, Source("base_weights")] = None

    @property
    def num_epochs(self) -> int:
        """Epochs after which there are weights."""
        return 1 if self.weights is not None else self.epochs


class SelectorGrpoSettings(SelectorTraining):
    """GRPO on the recorded lists: loss = PPO + β · KL.

    Attributes:
        beta: weight of the KL penalty, β.
        target_kl: halve or double β after an epoch whose mean KL is far from this; None: β is
            fixed.
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        curriculum: how many of the best lists of each group are kept, by epoch; epochs without an
            entry keep all. It removes negatives, so that more groups are dead: they are counted.
    """

    retired: ClassVar = {
        "min_std": (MIN_STD,),
        "max_advantage": (MAX_ADVANTAGE,),
    }
    epochs: Annotated[int, BUDGET] = Field(default=3, ge=1, le=100_000)
    learning_rate: float = Field(default=5e-6, gt=0)
    beta: float = Field(default=0.12, ge=0)
    target_kl: float | None = Field(default=None, gt=0)
    clip: float = Field(default=0.2, gt=0, lt=1)
    curriculum: tuple[Annotated[int, Field(ge=2)], ...] = ()
