"""What every model offers, in this process or behind a server: replies and shares of labels.

Requests are single and awaited, many at once; why there is no reply is typed, and an answer is
never guessed. All of them are awaited on one event loop of this process: connections, limits and
the list of questions in flight belong to a loop, and rewards are called from several threads.
"""

import functools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass, field
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar

from groupwise.core import Example, ModelError
from groupwise.inference.settings import MAX_RETRY_AFTER_S, RetrySettings, Sampling

if TYPE_CHECKING:
    import asyncio  # whoever only reads a config does without it

T = TypeVar("T")
P = ParamSpec("P")

ReportProgress = Callable[[int, int], None]
"""Called with the number of finished and of all items."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts that add up; failed calls count, too."""

    num_calls: int = 0  # requests made
    prompt_tokens: int = 0  # as the model counted them; 0 where it did not say
    completion_tokens: int = 0
    cost: float = 0.0  # in the currency of the server's prices; 0 without prices
    reasoning_tokens: int = 0  # those of the completion tokens that are not in the reply's text

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


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


class RequestError(ModelError):
    """A request without a usable reply, with its cause and what it had cost by then.

    ``status`` is that of HTTP where a server answered with one that is no success, and
    ``retry_after_s`` are the seconds that it asked to wait.
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
        return self.cause not in ("refused", "unlisted")


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token that could have come first."""

    spelling: bytes
    log_prob: float  # natural logarithm of its probability


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model replied to one request."""

    text: str | None  # None if the server gave none
    finish_reason: str = "stop"  # as the server named it (``stop``, ``length``, ...)
    first_tokens: tuple[TokenChance, ...] = ()  # the likeliest ones, if they were asked for
    usage: Usage = field(default_factory=lambda: Usage(num_calls=1))  # what the request cost

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
    """How the probability of all labels' first tokens is shared."""

    shares: Mapping[str, float]  # by label; they add up to 1
    error: float = 0.0  # no share is further from the truth (0 where every token was seen)
    usage: Usage = field(default_factory=lambda: Usage(num_calls=1))  # what the request cost


class Model(Protocol):
    """Answers single requests; many may be awaited at once, on whichever loop.

    Both raise a ``RequestError`` with its cause if there is no reply, or it does not tell the
    shares.
    """

    @property
    def identity(self) -> Mapping[str, str | None]:
        """``model``, ``revision`` and whatever else answers depend on beside the request."""
        ...

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Return one reply to the example's prompt and pictures."""
        ...

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Return the shares of the labels as the first words of the reply."""
        ...


async def retry(
    attempt: Callable[[], Awaitable[T]],
    settings: RetrySettings,
    *,
    on_failure: Callable[[RequestError], None] = lambda _: None,
) -> T:
    """Await ``attempt()`` until it succeeds and return its result.

    Raises:
        RequestError: the last one, after the last attempt or if repeating cannot help.
    """
    import asyncio

    for number in range(1, settings.max_attempts + 1):
        try:
            return await attempt()
        except RequestError as error:
            on_failure(error)
            is_too_long = (error.retry_after_s or 0.0) > MAX_RETRY_AFTER_S
            if not error.is_retryable or is_too_long or number == settings.max_attempts:
                raise
            await asyncio.sleep(settings.choose_delay(number, error.retry_after_s))
    raise AssertionError("there is at least one attempt")


def ask_until_whole(
    model: Model, example: Example, sampling: Sampling
) -> Callable[[], Awaitable[tuple[str, Usage]]]:
    """Return what asks for a whole text, to be called again where there was none.

    A call after a reply that was cut off or empty allows twice as many tokens; what the model
    reasoned had used them up.
    """
    max_new_tokens = sampling.max_new_tokens

    async def attempt() -> tuple[str, Usage]:
        nonlocal max_new_tokens
        allowed = sampling.model_copy(update={"max_new_tokens": max_new_tokens})
        reply = await model.reply(example, sampling=allowed)
        try:
            return reply.require_text(), reply.usage
        except RequestError:
            max_new_tokens *= 2
            raise

    return attempt


_lock = threading.Lock()
_started: "dict[int, asyncio.AbstractEventLoop]" = {}


def run_on_shared_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop and wait for its result; raises what it raises.

    An interrupt (Ctrl-C) while waiting cancels the work.

    Raises:
        RuntimeError: if called on the shared loop itself, which would wait for ever.
    """
    if _is_on(_find_loop()):
        work.close()
        raise RuntimeError("the shared loop cannot wait for itself: await the coroutine instead")
    future = start_on_shared_loop(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def start_on_shared_loop(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine on the shared loop; cancelling what is returned cancels it."""
    import asyncio

    return asyncio.run_coroutine_threadsafe(work, _find_loop())


def on_shared_loop(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> "Callable[P, CoroutineType[Any, Any, T]]":
    """Make a coroutine function run on the shared loop, whichever loop awaits it."""

    @functools.wraps(function)
    async def call(*given: P.args, **named: P.kwargs) -> T:
        import asyncio

        loop, work = _find_loop(), function(*given, **named)
        if _is_on(loop):
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    return call


def _find_loop() -> "asyncio.AbstractEventLoop":
    """Return this process's loop, started on first use; a forked process starts its own."""
    import asyncio

    with _lock:
        loop = _started.get(os.getpid())
        if loop is None:
            loop = _started[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
        return loop


def _is_on(loop: "asyncio.AbstractEventLoop") -> bool:
    import asyncio

    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
