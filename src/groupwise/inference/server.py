"""A model behind any server with the OpenAI chat-completions API, such as vLLM.

Prompts are sent with pictures as data URLs, and replies read from bytes: whatever is not clearly a
completion is ``malformed``; nothing is filled in. A single request is made once, who asks repeats
it; a stream of examples repeats what failed.
"""

import asyncio
import json
import math
import os
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import httpx2
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from groupwise.core import Completion, ConfigError, DataError, Example, ModelError, Picture
from groupwise.inference.labels import share_labels
from groupwise.inference.model import (
    LabelShares,
    Reply,
    RequestCause,
    RequestError,
    Sampling,
    TokenChance,
    Usage,
    on_shared_loop,
    retry,
    start_on_shared_loop,
)
from groupwise.inference.pictures import encode_picture, open_limited
from groupwise.inference.settings import (
    LOOK_AHEAD,
    MAX_RETRY_AFTER_S,
    ServerSettings,
    StreamSettings,
    check_host,
)
from groupwise.inference.stream import Failure, Outcome
from groupwise.models.prompts import break_tokens_for_others, build_messages

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHOWN = 200
_GIVE_UP_AFTER = 16  # failures in a row, after which a stream ends
_MAX_SHARE_ERROR = 0.05  # label shares that listed tokens leave more uncertain are refused
_EXTENSIONS = ("top_k", "min_p", "repetition_penalty")
_WAITING = ("rate_limit", "server_error")  # causes whose servers may say how long to wait


class ServerModel:
    """Answers with a model behind an OpenAI-compatible server; a single request is made once.

    Args:
        settings: where and how.
        tokenizer: the served model's, if it is at hand: the first tokens of labels are then
            known and need not be told from their spelling.
        max_pixels: pictures are scaled down to at most so many before they are sent.

    Raises:
        ConfigError: if the key's environment variable is not set, or a config that was read leads
            to a host that this user has not named.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        max_pixels: int | None = None,
    ) -> None:
        if settings.was_read:
            check_host(settings.url, settings.api_key_variable)
        self.settings = settings
        self.max_pixels = max_pixels
        self._tokenizer = tokenizer
        self._headers: dict[str, str] = {}
        if (variable := settings.api_key_variable) is not None:
            if not os.environ.get(variable):
                raise ConfigError(
                    f"the environment variable {variable} is not set",
                    fix="set it to the server's key, or leave api_key_variable empty",
                )
            self._headers["Authorization"] = f"Bearer {os.environ[variable]}"
        self._client: httpx2.AsyncClient | None = None
        self._places = asyncio.Semaphore(settings.limits.max_concurrency)
        self._next_start_s = 0.0  # on the shared loop's clock: nothing is asked before

    @property
    def identity(self) -> Mapping[str, str | None]:
        """Model, revision, extras, pixels, how first tokens are found; not the address."""
        found = "by spelling" if self._tokenizer is None else "by tokenizer"
        sent = self.settings.extras
        return {
            "model": self.settings.model,
            "revision": self.settings.revision,
            "first_tokens": f"{found}, {self.settings.top_log_probs} listed",
            # Left out where there are none: what was kept before there were extras is found.
            **({"extras": json.dumps(sent, sort_keys=True)} if sent else {}),
            **({"max_pixels": str(self.max_pixels)} if self.max_pixels else {}),
        }

    @on_shared_loop
    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Return one reply."""
        return await self._ask(example, sampling)

    @on_shared_loop
    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Return the shares of the labels."""
        extra = {"logprobs": True, "top_logprobs": self.settings.top_log_probs}
        reply = await self._ask(example, Sampling(max_new_tokens=1), extra)
        if not reply.first_tokens:
            raise RequestError(
                "unlisted",
                "the server returned no log-probabilities",
                usage=reply.usage,
                fix="serve the model with a server that returns top_logprobs, such as vLLM",
            )
        named: Any = {"tokenizer": self._tokenizer, "max_error": _MAX_SHARE_ERROR}
        return share_labels(reply.first_tokens, labels, usage=reply.usage, **named)

    def stream(
        self, examples: Iterator[Example], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each example's number and outcome as its reply comes; many are asked at once.

        A request that fails is repeated as the server's settings say; then it is a failure of its
        example. The server forms its own batches.

        Raises:
            ModelError: if the server is gone, or refuses all it is asked: that is no fault of the
                examples.
        """
        # A few more run than are asked at once, so that pictures are ready when a place is free;
        # none runs too far ahead of the oldest.
        most = self.settings.limits.max_concurrency + 4
        window = max(settings.batch_size * LOOK_AHEAD, 4 * most)
        running: dict[Future[Outcome], int] = {}
        hopeless, num_in_vain = {"connection", "refused"}, 0

        def take_done() -> Iterator[tuple[int, Outcome]]:
            nonlocal num_in_vain
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                outcome = future.result()
                if isinstance(outcome, Completion):
                    hopeless.discard("refused")  # what it refuses now is at fault
                    num_in_vain = 0
                else:
                    num_in_vain += outcome.cause in hopeless
                    if num_in_vain >= _GIVE_UP_AFTER:
                        raise ModelError(
                            f"the server answers nothing: {num_in_vain} items in a row failed, "
                            f"the last one because of: {outcome.message}",
                            fix="see to the server, or to its address, model name and key, and "
                            "start again",
                        )
                yield running.pop(future), outcome

        try:
            for number, example in enumerate(examples):
                while running and (
                    len(running) >= most or number - min(running.values()) >= window
                ):
                    yield from take_done()
                running[start_on_shared_loop(self._find_outcome(example, sampling))] = number
            while running:
                yield from take_done()
        finally:
            for future in running:
                future.cancel()

    async def _find_outcome(self, example: Example, sampling: Sampling) -> Outcome:
        async def attempt() -> Completion:
            reply = await self.reply(example, sampling=sampling)
            if reply.text is None:  # an empty text is an answer
                raise RequestError("no_content", "the reply has no content", usage=reply.usage)
            is_whole = reply.finish_reason == "stop"
            return Completion(reply.text, finish_reason="stop" if is_whole else "length")

        try:
            for picture in example.pictures:  # one that is torn is not sent
                await asyncio.to_thread(open_limited, picture, self.max_pixels)
            return await retry(attempt, self.settings.retry)
        except RequestError as error:
            return Failure(error.cause, str(error))
        except DataError as error:
            return Failure("picture", str(error))
        except MemoryError:
            return Failure("memory", "out of memory while its pictures were read")

    @on_shared_loop
    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ask(
        self, example: Example, sampling: Sampling, extra: Mapping[str, Any] | None = None
    ) -> Reply:
        settings = self.settings
        # Neutral parameters are said, too: none is left for the server to choose. A top_k of -1
        # means all. Source: vLLM's SamplingParams and ``get_default_sampling_params``.
        asked: dict[str, Any] = {
            **settings.extras,
            "model": settings.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            **({} if sampling.seed is None else {"seed": sampling.seed}),
            **(extra or {}),
        }
        more = {name: getattr(sampling, name) for name in _EXTENSIONS}
        changed = [name for name, value in more.items() if value != getattr(Sampling(), name)]
        if settings.sends_extensions:
            asked |= more | {"top_k": sampling.top_k or -1}
        elif changed:
            raise ConfigError(
                f"the server is not to be sent {' and '.join(changed)}",
                fix="leave it out of the sampling, or set sends_extensions if the server knows it",
            )
        write = partial(build_chat_messages, max_pixels=self.max_pixels, tokenizer=self._tokenizer)
        async with self._places:
            while (wait_s := self._next_start_s - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(wait_s)
            # Pictures take a while to decode: not on the loop that all wait on.
            asked["messages"] = (
                await asyncio.to_thread(write, example) if example.pictures else write(example)
            )
            reply = read_reply(await self._post(asked))
        usage = reply.usage
        cost = settings.prompt_price * usage.prompt_tokens
        cost += settings.completion_price * usage.completion_tokens
        return replace(reply, usage=replace(usage, cost=cost / 1e6))

    async def _post(self, asked: Mapping[str, Any]) -> bytes:
        """Return the body of a reply with status 200."""
        settings, usage = self.settings, Usage(num_calls=1)
        if self._client is None:
            # None is a direct connection, instead of the one by the environment's proxy.
            direct = {"http://": None, "https://": None}
            self._client = httpx2.AsyncClient(
                base_url=settings.url.rstrip("/") + "/",
                headers=self._headers,
                timeout=None,
                mounts=direct if settings.passes_proxies_by() else None,
                limits=httpx2.Limits(max_keepalive_connections=64, keepalive_expiry=2.0),
            )
        limit_s = settings.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._client.post("chat/completions", json=asked)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise RequestError("timeout", f"no reply within {limit_s} s", usage=usage) from error
        except httpx2.DecodingError as error:
            raise RequestError("malformed", f"unreadable ({error})", usage=usage) from error
        except httpx2.RequestError as error:
            what = f"no connection to {settings.url} ({type(error).__name__}: {error})"
            raise RequestError("connection", what, usage=usage) from error
        if response.status_code == 200:
            return response.content
        status, body = response.status_code, response.content
        asks = response.headers.get("retry-after")
        failure = describe_status(status, body, asks, extras=settings.extras)
        # Ask nothing while the server wants a rest, unless that is longer than we would wait.
        wait_s = failure.retry_after_s or 0.0
        if wait_s <= MAX_RETRY_AFTER_S:
            start_s = asyncio.get_running_loop().time() + wait_s
            self._next_start_s = max(self._next_start_s, start_s)
        raise failure


def build_chat_messages(
    example: Example, *, max_pixels: int | None = None, tokenizer: Any = None
) -> list[dict[str, Any]]:
    """Return the prompt as messages.

    The server writes the prompt itself: what spells a control token in words is broken, of the
    served model's ``tokenizer`` (None: as families spell them). Pictures are scaled down to
    ``max_pixels`` (None: sent as they are).

    Raises:
        DataError: if a picture cannot be read or is no longer the one that the example names.
    """
    write = partial(break_tokens_for_others, processor=tokenizer)

    def show(picture: Picture) -> dict[str, Any]:
        url = encode_picture(picture, max_pixels=max_pixels)
        return {"type": "image_url", "image_url": {"url": url}}

    return build_messages(example, show=show, write=write)


def _only(kind: type[Any]) -> BeforeValidator:
    """Take what is of another kind for an empty one."""
    return BeforeValidator(lambda value: value if isinstance(value, kind) else kind())


def _check_text(text: str) -> str:
    """Refuse half characters: JSON allows them, and nothing can write them."""
    text.encode()
    return text


_Count = Annotated[int, BeforeValidator(lambda n: n if type(n) is int and n >= 0 else 0)]
_Text = Annotated[str, AfterValidator(_check_text)]
_List = Annotated[list[Any], _only(list)]


class _Schema(BaseModel):
    """A part of a chat completion; what is not named is not looked at."""

    model_config = ConfigDict(strict=True)


class _Details(_Schema):
    reasoning_tokens: _Count = 0


class _Counts(_Schema):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    completion_tokens_details: Annotated[_Details, _only(dict)] = _Details()


class _Token(_Schema):
    token: _Text
    logprob: float = Field(le=1e-3)
    bytes: Annotated[list[Annotated[int, Field(ge=0, le=255)]], _only(list)] = []


class _Place(_Schema):
    top_logprobs: Annotated[list[_Token], _only(list)] = []


class _LogProbs(_Schema):
    content: _List = []


class _Message(_Schema):
    content: _Text | None = None


class _Choice(_Schema):
    message: _Message
    finish_reason: _Text
    logprobs: _LogProbs | None = None


class _Body(_Schema):
    choices: _List = []
    usage: Annotated[_Counts, _only(dict)] = _Counts()


def read_reply(body: bytes) -> Reply:
    """Return the reply of a chat completion.

    Raises:
        RequestError: ``malformed``, if it is not clearly one with one choice.
    """
    usage = Usage(num_calls=1)
    try:
        found = _Body.model_validate(json.loads(body))
        counts = found.usage
        num_reasoned = counts.completion_tokens_details.reasoning_tokens
        usage = Usage(
            1, counts.prompt_tokens, counts.completion_tokens, reasoning_tokens=num_reasoned
        )
        if len(found.choices) != 1:
            raise ValueError(f"{len(found.choices)} choices instead of 1")
        choice = _Choice.model_validate(found.choices[0])
        places = choice.logprobs.content if choice.logprobs is not None else []
        listed = _Place.model_validate(places[0]).top_logprobs if places else []
    except (ValueError, RecursionError) as error:
        what = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            what = f"{place}: {first['msg'].partition(' or instance of')[0]}".lstrip(": ")
        what = f"the server's reply is not a chat completion ({what[:_SHOWN]})"
        raise RequestError("malformed", what, usage=usage) from error
    tokens = [TokenChance(bytes(t.bytes) or t.token.encode(), t.logprob) for t in listed]
    tokens.sort(key=lambda token: -token.log_prob)
    return Reply(choice.message.content, choice.finish_reason, tuple(tokens), usage)


def describe_status(
    status: int, body: bytes, retry_after: str | None, *, extras: Collection[str] = ()
) -> RequestError:
    """Return the error that a status other than 200 stands for."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        message = None
    told = message if isinstance(message, str) else body.decode("utf-8", "replace")
    what = " ".join(told.split())[:_SHOWN] or "no message"
    cause: RequestCause = "server_error" if status >= 500 else "refused"
    if status in (408, 429):
        cause = "timeout" if status == 408 else "rate_limit"
    fix = None
    if extras and cause == "refused":
        fix = f"if it knows none of that, take it out of the server's extras: {', '.join(extras)}"
    error = RequestError(
        cause,
        f"the server answered with status {status}: {what}",
        retry_after_s=parse_retry_after(retry_after) if cause in _WAITING else None,
        usage=Usage(num_calls=1),
        fix=fix,
    )
    error.status = status
    return error


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header names, as a number or as a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
