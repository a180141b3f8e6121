"""Settings of a model behind a server; the client of HTTP is imported when it is asked."""

from typing import Annotated

from pydantic import Field

from groupwise.core import Config, Harmless, Place
from groupwise.inference.limits import LimitSettings
from groupwise.inference.retry import RetrySettings

_PLACE = Place("where a server is reached", "服务器地址")
_PRICE = Harmless("what a server costs: only counted", "服务器价格：仅用于统计")


class ServerSettings(Config):
    """Where a model is served and how it is asked.

    Attributes:
        url: up to and with ``/v1``.
        model: name under which the server offers it.
        revision: of the weights; change it when other weights are served under this name, or
            verdicts of the old ones would be taken from a cache.
        api_key_variable: environment variable that holds the key; None: no key is sent.
        timeout_s: for a whole request, from its start to the last byte.
        top_log_probs: likeliest first tokens to ask for when labels are weighed (vLLM and OpenAI
            allow 20 unless told otherwise; vLLM ends if it is more than the vocabulary has).
        sends_extensions: whether ``top_k``, ``min_p`` and ``repetition_penalty`` are sent. vLLM
            fills what is missing from the model's generation_config, so leave it on where they are
            known; servers that refuse them (OpenAI's) need it off.
        max_share_error: label shares that the listed tokens leave more uncertain are refused.
        prompt_price, completion_price: of a million tokens, in any currency.
    """

    url: Annotated[str, _PLACE] = Field(pattern=r"^https?://[^\s]+$")
    model: str = Field(min_length=1)
    revision: str | None = None
    api_key_variable: Annotated[str | None, _PLACE] = None
    timeout_s: float = Field(default=60.0, gt=0)
    top_log_probs: int = Field(default=20, ge=1)
    sends_extensions: bool = True
    max_share_error: float = Field(default=0.05, ge=0, le=1)
    prompt_price: Annotated[float, _PRICE] = Field(default=0.0, ge=0)
    completion_price: Annotated[float, _PRICE] = Field(default=0.0, ge=0)
    limits: Annotated[LimitSettings, _PLACE] = LimitSettings()
    retry: RetrySettings = RetrySettings()
