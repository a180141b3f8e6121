"""Single requests to a model: what is asked, what comes back, and why there is no reply.

Causes are typed; an answer is never guessed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from groupwise.core import Example, ModelError
from groupwise.inference.engine import Sampling


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts that add up; failed calls count, too.

    Attributes:
        num_calls: requests made.
        prompt_tokens, completion_tokens: as the model counted them; 0 where it did not say.
        cost: in the currency of the engine's prices; 0 without prices.
        reasoning_tokens: those of the completion tokens that are not in the reply's text.
    """

    num_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(
            self.num_calls + other.num_calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
            self.reasoning_tokens + other.reasoning_tokens,
        )


RequestCause = Literal[
    "timeout",
    "connection",
    "rate_limit",
    "server_error",
    "refused",
    "malformed",
    "no_content",
    "empty",
    "truncated",
    "unlisted",
    "unparsable",
]
"""``timeout``: no whole reply in time. ``connection``: could not connect, or was dropped.
``rate_limit``: 429. ``server_error``: 5xx. ``refused``: any other 4xx (a wrong model name, key or
parameter). ``malformed``: not the JSON of a chat completion. ``no_content``: the content is null.
``empty``: only white space. ``truncated``: the token limit was reached. ``unlisted``: the returned
log-probabilities do not say how likely the labels are. ``unparsable``: the reply does not have the
form that was asked for."""

RETRYABLE_CAUSES: frozenset[RequestCause] = frozenset(
    (
        "timeout",
        "connection",
        "rate_limit",
        "server_error",
        "malformed",
        "no_content",
        "empty",
        "truncated",
        "unparsable",
    )
)


class RequestError(ModelError):
    """A request without a usable reply.

    Attributes:
        cause: what happened.
        status: of HTTP, where a server answered with one that is no success.
        retry_after_s: seconds that the server asked to wait, or None.
        usage: what the request had cost by then.
    """

    def __init__(
        self,
        cause: RequestCause,
        what: str,
        *,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(what, fix=fix)
        self.cause: RequestCause = cause
        self.status: int | None = None
        self.retry_after_s = retry_after_s
        self.usage = usage or Usage()

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.cause in RETRYABLE_CAUSES


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


def ask_until_whole(
    responder: Responder, example: Example, sampling: Sampling
) -> Callable[[], Awaitable[tuple[str, Usage]]]:
    """Return what asks for a whole text, to be called again where there was none.

    A call after a reply that was cut off or empty allows twice as many tokens; what the model
    reasoned had used them up.
    """
    max_new_tokens = sampling.max_new_tokens

    async def attempt() -> tuple[str, Usage]:
        nonlocal max_new_tokens
        allowed = sampling.model_copy(update={"max_new_tokens": max_new_tokens})
        reply = await responder.respond(example, sampling=allowed)
        try:
            return reply.require_text(), reply.usage
        except RequestError:
            max_new_tokens *= 2
            raise

    return attempt
