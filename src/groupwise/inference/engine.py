"""What every inference backend offers: sampled completions and label probabilities."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import Field

from groupwise.core import Completion, Config, Example

ReportProgress = Callable[[int, int], None]
"""Called with the number of finished and of all items."""


class Sampling(Config):
    """How completions are drawn.

    Attributes:
        temperature: 0 means greedy decoding.
        top_p: below 1 the tail is cut; keep 1 where log-probabilities matter.
        max_new_tokens: at most so many tokens, the end token included.
        repetition_penalty: above 1, tokens of the prompt and of the completion so far become
            less likely: their logits are divided by it, or multiplied if negative.
    """

    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_new_tokens: int = Field(default=16, ge=1)
    repetition_penalty: float = Field(default=1.0, gt=0)


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
