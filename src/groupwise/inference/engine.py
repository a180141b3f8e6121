"""What every inference backend offers: sampled completions and label probabilities."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import Field

from groupwise.core import Completion, Config, Example

ReportProgress = Callable[[int, int], None]
"""Called with the number of finished and of all items."""


class Sampling(Config):
    """How completions are drawn: all of it, whatever a model folder or a server has as its own.

    Attributes:
        temperature: 0 means greedy decoding.
        top_p: below 1 the tail is cut; keep 1 where log-probabilities matter.
        max_new_tokens: at most so many tokens, the end token included.
        repetition_penalty: above 1, tokens of the prompt and of the completion so far become
            less likely: their logits are divided by it, or multiplied if negative.
        top_k: only so many of the likeliest tokens are drawn from; 0: from all.
        min_p: only tokens that are at least so likely relative to the likeliest are drawn.
        seed: of the draws. In this process the completions of an example follow from it, the
            example's id and their number, whatever else is asked; a server is given it as it is.
            None: others each time.
    """

    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_new_tokens: int = Field(default=16, ge=1, le=1_000_000)
    repetition_penalty: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=0, ge=0)
    min_p: float = Field(default=0.0, ge=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=2**63 - 1)


class Engine(Protocol):
    """A backend that answers prompts; the call is the same whatever runs behind it."""

    def generate(
        self,
        examples: Sequence[Example],
        *,
        sampling: Sampling,
        num_completions: int = 1,
        report_progress: ReportProgress | None = None,
    ) -> list[list[Completion]]:
        """Return ``num_completions`` completions for each example, in order."""
        ...

    def label_probabilities(
        self,
        examples: Sequence[Example],
        *,
        labels: Sequence[str],
        leads: Sequence[str] | None = None,
        report_progress: ReportProgress | None = None,
    ) -> list[dict[str, float]]:
        """Return the probability of each label as the next words, in order; each sums to 1.

        ``leads`` are texts that the answer already starts with.
        """
        ...
