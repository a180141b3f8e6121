"""How a server is asked: where, how much at once, how often again. No client is imported here."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    Field,
    JsonValue,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from groupwise.core import Config, Harmless, Place
from groupwise.inference.responder import RequestError

T = TypeVar("T")


class RetrySettings(Config):
    """How often and how patiently a request is repeated.

    Attributes:
        max_attempts: the first one included.
        base_delay_s: before the second attempt; it doubles with every further one.
        max_delay_s: the longest delay that doubling leads to.
        max_retry_after_s: a server that asks to wait longer than this is not asked again.
    """

    max_attempts: int = Field(default=4, ge=1, le=1000)
    base_delay_s: float = Field(default=0.5, ge=0, le=604_800)
    max_delay_s: float = Field(default=30.0, ge=0, le=604_800)
    max_retry_after_s: float = Field(default=120.0, ge=0, le=604_800)

    def choose_delay(self, num_failures: int, retry_after_s: float | None) -> float:
        """Return the seconds to wait after so many failures: half of it is jitter."""
        longest = min(self.max_delay_s, self.base_delay_s * 2.0 ** min(num_failures - 1, 60))
        return max(random.uniform(longest / 2, longest), retry_after_s or 0.0)


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
    for number in range(1, settings.max_attempts + 1):
        try:
            return await attempt()
        except RequestError as error:
            on_failure(error)
            is_too_long = (error.retry_after_s or 0.0) > settings.max_retry_after_s
            if not error.is_retryable or is_too_long or number == settings.max_attempts:
                raise
            await asyncio.sleep(settings.choose_delay(number, error.retry_after_s))
    raise AssertionError("there is at least one attempt")


class LimitSettings(Config):
    """Limits of one server, shared by all who ask it.

    Attributes:
        max_concurrency: requests at once.
        max_per_second: requests started in a second; None: any number.
    """

    max_concurrency: int = Field(default=16, ge=1, le=65_536)
    max_per_second: float | None = Field(default=None, gt=0)


class RequestLimiter:
    """Holds requests back; belongs to one event loop."""

    def __init__(self, settings: LimitSettings) -> None:
        self._places = asyncio.Semaphore(settings.max_concurrency)
        self._gap_s = 1.0 / settings.max_per_second if settings.max_per_second else 0.0
        self._next_start = 0.0

    @asynccontextmanager
    async def admit(self) -> AsyncGenerator[None]:
        """Wait for a place and for the turn; starts are spaced evenly."""
        async with self._places:
            await self._wait_for_turn()
            yield

    def pause(self, duration_s: float) -> None:
        """Start nothing for so many seconds from now."""
        self._next_start = max(self._next_start, _now() + duration_s)

    async def _wait_for_turn(self) -> None:
        while (delay := self._next_start - _now()) > 0:
            await asyncio.sleep(delay)
        self._next_start = max(self._next_start, _now()) + self._gap_s


def _now() -> float:
    return asyncio.get_running_loop().time()


_OWN_PARAMETERS = frozenset(
    (
        "model",
        "messages",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "n",
        "logprobs",
        "top_logprobs",
        "add_generation_prompt",
        "continue_final_message",
        "stream",
    )
)
_PLACE = Place("where a server is reached", "服务器地址")
_PRICE = Harmless("what a server costs: only counted", "服务器价格：仅用于统计")


class ServerSettings(Config):
    """Where a model is served and how it is asked.

    Attributes:
        url: up to and with ``/v1``.
        model: name under which the server offers it.
        revision: of the weights; change it when other weights are served under this name, or
            verdicts of the old ones would be taken from a cache.
        api_key_variable: environment variable that holds the key; its name ends with
            ``_API_KEY``, no other is ever sent; None: no key is sent.
        timeout_s: for a whole request, from its start to the last byte.
        top_log_probs: likeliest first tokens to ask for when labels are weighed (vLLM and OpenAI
            allow 20 unless told otherwise; vLLM ends if it is more than the vocabulary has).
        sends_extensions: whether ``top_k``, ``min_p`` and ``repetition_penalty`` are sent. vLLM
            fills what is missing from the model's generation_config, so leave it on where they are
            known; servers that refuse them (OpenAI's) need it off.
        extras: parameters sent with every request, such as ``reasoning_effort`` or
            ``chat_template_kwargs``; answers depend on them. None that is set here or by the
            sampling.
        max_share_error: label shares that the listed tokens leave more uncertain are refused.
        no_proxy: whether proxies that the environment names are passed by; None: for a server on
            this machine.
        prompt_price, completion_price: of a million tokens, in any currency.
    """

    url: Annotated[str, _PLACE] = Field(pattern=r"^https?://[^\s]+$")
    model: str = Field(min_length=1)
    revision: str | None = None
    api_key_variable: Annotated[str | None, _PLACE] = Field(
        default=None, pattern=r"^[A-Z][A-Z0-9_]*_API_KEY$"
    )
    timeout_s: float = Field(default=60.0, gt=0, le=604_800)
    top_log_probs: int = Field(default=20, ge=1, le=1000)
    sends_extensions: bool = True
    extras: Mapping[str, JsonValue] = Field(default_factory=dict)
    max_share_error: float = Field(default=0.05, ge=0, le=1)
    no_proxy: Annotated[bool | None, _PLACE] = None
    prompt_price: Annotated[float, _PRICE] = Field(default=0.0, ge=0)
    completion_price: Annotated[float, _PRICE] = Field(default=0.0, ge=0)
    limits: Annotated[LimitSettings, _PLACE] = LimitSettings()
    retry: RetrySettings = RetrySettings()
    _was_read: bool = PrivateAttr(default=False)

    @property
    def was_read(self) -> bool:
        """Whether a config or a run says so, which may be somebody else's, and not code."""
        return self._was_read

    @model_validator(mode="after")
    def _note_origin(self, info: ValidationInfo) -> Self:
        # Settings that are put into others are validated once more, without the context.
        if info.context and "was_read" in info.context:
            self._was_read = True
        return self

    def passes_proxies_by(self) -> bool:
        """Return whether the server is asked without the environment's proxies."""
        if self.no_proxy is not None:
            return self.no_proxy
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @field_validator("extras")
    @classmethod
    def _check_extras(cls, extras: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        own = sorted(_OWN_PARAMETERS.intersection(extras))
        if own:
            raise ValueError(f"{' and '.join(own)} cannot be an extra: Groupwise says it itself")
        return extras
