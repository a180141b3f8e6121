"""Why a request to a model gave no usable reply: typed causes, never a guessed answer."""

from typing import Literal

from groupwise.core import ModelError
from groupwise.inference.usage import Usage

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
        self.retry_after_s = retry_after_s
        self.usage = usage or Usage()

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.cause in RETRYABLE_CAUSES
