"""One request at a time, awaited: what judges and workflow operators need of an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from groupwise.core import Example
from groupwise.inference.engine import Sampling
from groupwise.inference.failures import RequestError
from groupwise.inference.usage import Usage


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token that could have come first.

    Attributes:
        spelling: its bytes.
        log_prob: natural logarithm of its probability.
    """

    spelling: bytes
    log_prob: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model replied to one request.

    Attributes:
        text: None if the server gave none.
        finish_reason: as the server named it (``stop``, ``length``, ...).
        first_tokens: the likeliest first tokens, if they were asked for.
        usage: what the request cost.
    """

    text: str | None
    finish_reason: str = "stop"
    first_tokens: tuple[TokenChance, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(num_calls=1))

    def require_text(self) -> str:
        """Return the text of a whole reply.

        Raises:
            RequestError: ``truncated``, ``no_content`` or ``empty``, with what it cost.
        """
        if self.finish_reason != "stop":
            what = f"the reply was truncated (finish reason {self.finish_reason})"
            raise RequestError("truncated", what, usage=self.usage)
        if self.text is None:
            raise RequestError("no_content", "the reply has no content", usage=self.usage)
        if not self.text.strip():
            raise RequestError("empty", "the reply is empty", usage=self.usage)
        return self.text


@dataclass(frozen=True, slots=True)
class LabelShares:
    """How the probability of all labels' first tokens is shared.

    Attributes:
        shares: by label; they add up to 1.
        error: no share is further from the truth than this (0 where every token was seen).
        usage: what the request cost.
    """

    shares: Mapping[str, float]
    error: float = 0.0
    usage: Usage = field(default_factory=lambda: Usage(num_calls=1))


class Responder(Protocol):
    """Answers single requests; many may be awaited at once."""

    @property
    def identity(self) -> Mapping[str, str | None]:
        """``model``, ``revision`` and whatever else answers depend on beside the request."""
        ...

    async def respond(self, example: Example, *, sampling: Sampling) -> Reply:
        """Return one reply to the example's prompt and pictures.

        Raises:
            RequestError: if there is none, with its cause.
        """
        ...

    async def weigh_labels(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Return the shares of the labels as the first words of the reply.

        Raises:
            RequestError: if there is no reply, or it does not tell the shares.
        """
        ...
