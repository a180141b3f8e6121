"""Which model is asked, as written in a config, and how: where, how much at once, how often again.

A config or a run folder may be somebody else's, and asking a server sends it rows, pictures and a
key: only hosts are asked that this user has named, with ``--allow-judge``, once. No client, and
nothing that a model in this process needs, is imported before a model is opened.
"""

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, PrivateAttr, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, ConfigError, Harmless, Place, replace_file

LOOK_AHEAD = 4
"""So many batches of a stream are formed at once, out of examples sorted by their length."""
_LONGEST_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 120.0
"""A server that asks to wait longer than this is not asked again."""


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


class RetrySettings(Config):
    """How often and how patiently a request is repeated.

    Attributes:
        max_attempts: the first one included.
        base_delay_s: before the second attempt; it doubles with every further one, up to 30 s.
    """

    retired: ClassVar = {"max_delay_s": (30.0,), "max_retry_after_s": (120.0,)}

    max_attempts: int = Field(default=4, ge=1, le=1000)
    base_delay_s: float = Field(default=0.5, ge=0, le=604_800)

    def choose_delay(self, num_failures: int, retry_after_s: float | None) -> float:
        """Return the seconds to wait after so many failures: half of it is jitter."""
        longest = min(_LONGEST_DELAY_S, self.base_delay_s * 2.0 ** min(num_failures - 1, 60))
        return max(random.uniform(longest / 2, longest), retry_after_s or 0.0)


class LimitSettings(Config):
    """Limits of one server, shared by all who ask it.

    Attributes:
        max_concurrency: requests at once.
    """

    retired: ClassVar = {"max_per_second": (None,)}

    max_concurrency: int = Field(default=16, ge=1, le=65_536)


_OWN_PARAMETERS = frozenset(
    (
        *("model", "messages", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
        *("max_tokens", "max_completion_tokens", "seed", "n", "logprobs", "top_logprobs"),
        *("add_generation_prompt", "continue_final_message", "stream"),
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
        no_proxy: whether proxies that the environment names are passed by; None: for a server on
            this machine.
        prompt_price, completion_price: of a million tokens, in any currency.
    """

    retired: ClassVar = {"max_share_error": (0.05,)}

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
        return _is_loopback(urlsplit(self.url).hostname or "")

    @field_validator("extras")
    @classmethod
    def _check_extras(cls, extras: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        own = sorted(_OWN_PARAMETERS.intersection(extras))
        if own:
            raise ValueError(f"{' and '.join(own)} cannot be an extra: Groupwise says it itself")
        return extras


class ModelSource(Config):
    """A model in this process or one behind a server.

    Attributes:
        model: a model folder or hub id, run in this process.
        server: where a model is served instead.
        tokenizer: folder or hub id of the served model's tokenizer, if at hand: the first tokens
            of labels are then known.
        dtype, batch_size: of a model in this process.
        max_pixels: pictures are scaled down to at most so many, before they are sent to a server
            (None: as the model's processor says).
    """

    retired: ClassVar = {"device_map": (None,)}

    model: str | None = None
    server: ServerSettings | None = None
    tokenizer: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    batch_size: int = Field(default=16, ge=1, le=65_536)
    max_pixels: int | None = Field(default=None, ge=28 * 28)

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.model is None) == (self.server is None):
            raise ValueError("give model or server, and not both")
        return self


class StreamSettings(Config):
    """Settings of batch inference; both bound its memory.

    Attributes:
        batch_size: items that a model in this process answers at once, from any groups.
        max_pixels: larger pictures are scaled down to so many; None: as the processor does.
    """

    retired: ClassVar = {
        "order": ("given", "finished"),
        "look_ahead": (LOOK_AHEAD,),
        "num_prefetch": (1,),
        "num_threads": (4,),
    }

    batch_size: int = Field(default=16, ge=1, le=65_536)
    max_pixels: int | None = Field(default=786_432, ge=28 * 28)


class RaySettings(Config):
    """Workers of a cluster, each with a policy of its own.

    Attributes:
        address: of a running cluster (``auto``: the one of this machine); None: one is started
            in this machine, unless this process is in one already.
        num_workers: processes with a policy each.
        num_gpus: of each worker.
    """

    retired: ClassVar = {"num_cpus": (1.0,), "slice_size": (20_000,)}

    address: Annotated[str | None, Place("where a cluster is reached", "集群地址")] = None
    num_workers: int = Field(default=2, ge=1, le=4096)
    num_gpus: float = Field(default=0.0, ge=0)


def allow_hosts(hosts: Sequence[str]) -> None:
    """Remember that this user means these hosts to be asked, with the key that a config names.

    Raises:
        ConfigError: for what is no host; if they cannot be written down.
    """
    for host in hosts:
        try:
            found = _read_host(f"http://[{host}]/" if ":" in host else f"http://{host}/")
        except ConfigError:
            found = ""
        if not found or found != host.lower():
            raise ConfigError(
                "--allow-judge names no host", got=repr(host), expected="such as judge.example"
            )
    named, known, file = {host.lower() for host in hosts}, _list_allowed(), _find_file()
    if named <= known:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(file, [f"{host}\n".encode() for host in sorted(known | named)])
    except OSError as error:
        raise ConfigError(f"the hosts cannot be written down in {file} ({error})") from error


def check_hosts(section: object) -> None:
    """Refuse a config that leads to a host that this user has not named, before hours of work.

    Raises:
        ConfigError: naming the host.
    """
    parts: Iterable[object] = ()
    if isinstance(section, ServerSettings):
        check_host(section.url, section.api_key_variable)
    elif isinstance(section, Config):
        parts = (getattr(section, name) for name in type(section).model_fields)
    elif isinstance(section, Mapping):
        parts = cast("Mapping[object, object]", section).values()
    elif isinstance(section, list | tuple):
        parts = cast("Sequence[object]", section)
    for part in parts:
        check_hosts(part)


def check_host(url: str, variable: str | None) -> None:
    """Refuse a server that somebody else may have named.

    Without a key, a server on this machine may be asked by anybody.
    """
    host = _read_host(url)
    if host in _list_allowed() or (variable is None and _is_loopback(host)):
        return
    key = "" if variable is None else f", with the key in {variable}"
    raise ConfigError(
        f"the config leads to the server {url}{key}: rows and pictures would be sent to {host}, "
        "which you have not named",
        fix=f"if you trust whom the config is from, name the host once: --allow-judge {host}",
    )


def _find_file() -> Path:
    above = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(above, "groupwise", "allowed_hosts").expanduser()


def _list_allowed() -> set[str]:
    try:
        return set(_find_file().read_text("utf-8").split())
    except FileNotFoundError:
        return set()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the hosts in {_find_file()} ({error})") from error


def _read_host(url: str) -> str:
    """Return the host of a URL, as the client that asks it reads it."""
    import httpx2

    try:
        return httpx2.URL(url).raw_host.decode("ascii").lower()
    except (httpx2.InvalidURL, UnicodeDecodeError) as error:
        raise ConfigError(f"{url!r} is no address of a server ({error})") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
