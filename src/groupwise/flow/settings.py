"""The settings that every recipe has; a recipe's own config adds to them."""

from pydantic import Field

from groupwise.core import Config
from groupwise.data import NearDuplicates, TokenBudget
from groupwise.models import ModelSettings
from groupwise.training import GrpoSettings, SftSettings


class DataSettings(Config):
    """What is asked of any data.

    Attributes:
        near_duplicates: what is done about pictures of two splits that look alike: ``warn`` (and
            measure without them), ``drop`` those that train, or ``join`` their clusters.
        mirror_invariant: whether mirror images count as alike.
        budget: how long prompts may be.
    """

    near_duplicates: NearDuplicates = "warn"
    mirror_invariant: bool = False
    budget: TokenBudget = TokenBudget(max_prompt_tokens=4096)


class EvaluationSettings(Config):
    """How policies are asked.

    Attributes:
        num_items: test items, drawn by the seed so that fewer are always among more; None: all.
        batch_size: prompts per forward pass.
        num_latency_items: test items asked one by one, to time them.
        num_heldout_items: validation items behind the held-out curve of GRPO.
    """

    num_items: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=32, ge=1)
    num_latency_items: int = Field(default=20, ge=1)
    num_heldout_items: int = Field(default=96, ge=1)


class FlowConfig(Config):
    """The whole job.

    Attributes:
        model: the base that training starts from.
        sft: the warm-up; None: GRPO starts from the base.
        grpo: the training on rewards.
        evaluation: how policies are asked.
    """

    seed: int = 0
    model: ModelSettings
    data: DataSettings
    sft: SftSettings | None
    grpo: GrpoSettings
    evaluation: EvaluationSettings = EvaluationSettings()
