"""Prompt lengths in tokens against a budget, before anything is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from groupwise.core import MAX_PLACES, Config, Example, Finding

MAX_LONGER_SHARE = 0.01


class TokenBudget(Config):
    """How long prompts are meant to be. Longer ones are reported, and used whole or dropped.

    Attributes:
        max_prompt_tokens: tokens of a prompt, those of its pictures included.
        allow_longer: accept that more than 1 % of a split's rows are longer.
        drop_longer: leave longer rows out of every split, each counted with its reason.
    """

    max_prompt_tokens: int = Field(ge=1)
    allow_longer: bool = False
    drop_longer: bool = False

    @model_validator(mode="after")
    def _check_longer(self) -> Self:
        if self.allow_longer and self.drop_longer:
            raise ValueError("longer rows are either used or dropped: set one, not both")
        return self


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Prompt lengths of a split in tokens; quantiles are lengths that occur.

    ``budget``, ``num_over`` and ``share_over`` (in [0, 1]) say how many prompts are longer than
    the budget; without a budget they are None, 0 and 0.
    """

    min: int
    median: int
    p90: int
    p99: int
    max: int
    budget: int | None
    num_over: int
    share_over: float


def measure_lengths(
    examples: Sequence[Example],
    count_tokens: Callable[[Example], int],
    budget: TokenBudget | None = None,
) -> tuple[LengthSummary, list[str]]:
    """Return the summary and the ids of the examples over the budget; at least one example."""
    import numpy as np

    lengths = [count_tokens(example) for example in examples]
    limit = budget.max_prompt_tokens if budget else None
    over = [
        example.id
        for example, length in zip(examples, lengths, strict=True)
        if limit is not None and length > limit
    ]
    quantiles = np.quantile(lengths, [0, 0.5, 0.9, 0.99, 1], method="inverted_cdf")
    low, median, p90, p99, high = (int(value) for value in quantiles)
    share = len(over) / len(lengths)
    return LengthSummary(low, median, p90, p99, high, limit, len(over), share), over


def check_lengths(
    summaries: Mapping[str, tuple[LengthSummary, list[str]]], budget: TokenBudget | None
) -> list[Finding]:
    """Return a finding per split with prompts over the budget."""
    findings: list[Finding] = []
    for split, (lengths, over) in summaries.items():
        if budget is None or not over:
            continue
        is_error = lengths.share_over > MAX_LONGER_SHARE and not budget.allow_longer
        message = (
            f"{len(over)} rows ({lengths.share_over:.1%}) of split {split} are longer than the "
            f"prompt budget of {budget.max_prompt_tokens} tokens; the longest has {lengths.max}"
            + (
                ", raise it, or set allow_longer or drop_longer."
                if is_error
                else ". They are used whole."
            )
        )
        level = "error" if is_error else "warning"
        findings.append(Finding(level, "over_budget", message, len(over), tuple(over[:MAX_PLACES])))
    return findings
