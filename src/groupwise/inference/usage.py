"""What requests to models used: calls, tokens and money."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts that add up; failed calls count, too.

    Attributes:
        num_calls: requests made.
        prompt_tokens, completion_tokens: as the model counted them; 0 where it did not say.
        cost: in the currency of the engine's prices; 0 without prices.
    """

    num_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(
            self.num_calls + other.num_calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )
