"""The HTTP engine: any server with the OpenAI chat-completions API, such as vLLM.

It offers the same calls as the in-process engine. ``generate`` and ``label_probabilities`` repeat
failed requests; ``respond`` and ``weigh_labels`` ask once, and their callers decide.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from groupwise.core import Completion, ConfigError, Example
from groupwise.inference.chat import build_chat_messages, describe_status, read_replies
from groupwise.inference.engine import ReportProgress, Sampling
from groupwise.inference.hosts import check_host
from groupwise.inference.labels import share_labels
from groupwise.inference.responder import LabelShares, Reply, RequestError, Usage
from groupwise.inference.server_settings import RequestLimiter, ServerSettings, retry
from groupwise.inference.shared_loop import on_shared_loop, run_on_shared_loop

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

A = TypeVar("A")
B = TypeVar("B")


class ServerEngine:
    """Answers with a model behind an OpenAI-compatible server.

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
        self._max_pixels = max_pixels
        self._tokenizer = tokenizer
        self._headers = _read_key(settings.api_key_variable)
        self._client: httpx2.AsyncClient | None = None
        self._limiter = RequestLimiter(settings.limits)

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
            **({"max_pixels": str(self._max_pixels)} if self._max_pixels else {}),
        }

    def generate(
        self,
        examples: Sequence[Example],
        *,
        sampling: Sampling,
        num_completions: int = 1,
        report_progress: ReportProgress | None = None,
    ) -> list[list[Completion]]:
        """Return ``num_completions`` completions for each example, in order.

        An empty completion is an answer. Token ids and log-probabilities are not known.

        Raises:
            RequestError: if a request failed for good.
        """

        async def draw(example: Example) -> list[Completion]:
            replies = await self._ask(example, sampling, extra={"n": num_completions})
            return [read_completion(reply) for reply in replies]

        return run_on_shared_loop(self._map(draw, examples, report_progress))

    def label_probabilities(
        self,
        examples: Sequence[Example],
        *,
        labels: Sequence[str],
        leads: Sequence[str] | None = None,
        report_progress: ReportProgress | None = None,
    ) -> list[dict[str, float]]:
        """Return each label's share of the probability of all labels' first tokens.

        A lead is sent as the beginning of the assistant's turn, which vLLM continues.

        Raises:
            RequestError: if a request failed for good, or the returned log-probabilities do not
                tell a share within ``max_share_error``.
        """
        given = leads if leads is not None else [""] * len(examples)
        pairs = list(zip(examples, given, strict=True))

        async def weigh(pair: tuple[Example, str]) -> dict[str, float]:
            return dict((await self._weigh(*pair, labels)).shares)

        return run_on_shared_loop(self._map(weigh, pairs, report_progress))

    @on_shared_loop
    async def respond(self, example: Example, *, sampling: Sampling) -> Reply:
        """Return one reply; one request, never repeated here.

        Raises:
            RequestError: if there is none, with its cause.
        """
        return (await self._ask(example, sampling))[0]

    @on_shared_loop
    async def weigh_labels(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Return the shares of the labels; one request, never repeated here.

        Raises:
            RequestError: if there is no reply, or it does not tell the shares.
        """
        return await self._weigh(example, "", labels)

    @on_shared_loop
    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _map(
        self,
        ask: Callable[[A], Awaitable[B]],
        items: Sequence[A],
        report_progress: ReportProgress | None,
    ) -> list[B]:
        num_done = 0

        async def finish(item: A) -> B:
            nonlocal num_done
            result = await retry(lambda: ask(item), self.settings.retry)
            num_done += 1
            if report_progress is not None:
                report_progress(num_done, len(items))
            return result

        tasks = [asyncio.ensure_future(finish(item)) for item in items]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _weigh(self, example: Example, lead: str, labels: Sequence[str]) -> LabelShares:
        reply = (
            await self._ask(
                example,
                Sampling(max_new_tokens=1),
                lead=lead.rstrip(" "),
                extra={"logprobs": True, "top_logprobs": self.settings.top_log_probs},
            )
        )[0]
        if not reply.first_tokens:
            raise RequestError(
                "unlisted",
                "the server returned no log-probabilities",
                usage=reply.usage,
                fix="serve the model with a server that returns top_logprobs, such as vLLM",
            )
        return share_labels(
            reply.first_tokens,
            labels,
            tokenizer=self._tokenizer,
            max_error=self.settings.max_share_error,
            usage=reply.usage,
        )

    async def _ask(
        self,
        example: Example,
        sampling: Sampling,
        *,
        lead: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> list[Reply]:
        asked: dict[str, Any] = {
            **self.settings.extras,
            "model": self.settings.model,
            **_write_sampling(sampling, sends_extensions=self.settings.sends_extensions),
            **(extra or {}),
        }
        if lead:
            asked |= {"add_generation_prompt": False, "continue_final_message": True}
        async with self._limiter.admit():
            asked["messages"] = build_chat_messages(
                example, lead=lead, max_pixels=self._max_pixels, tokenizer=self._tokenizer
            )
            body = await self._post(asked)
        replies = read_replies(body, num_choices=asked.get("n", 1))
        return [replace(reply, usage=self._price(reply.usage)) for reply in replies]

    async def _post(self, asked: Mapping[str, Any]) -> bytes:
        """Return the body of a reply with status 200."""
        usage = Usage(num_calls=1)
        limit_s = self.settings.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._connect().post("chat/completions", json=asked)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise RequestError("timeout", f"no reply within {limit_s} s", usage=usage) from error
        except httpx2.DecodingError as error:
            raise RequestError("malformed", f"unreadable ({error})", usage=usage) from error
        except httpx2.RequestError as error:
            what = f"no connection to {self.settings.url} ({type(error).__name__}: {error})"
            raise RequestError("connection", what, usage=usage) from error
        if response.status_code == 200:
            return response.content
        failure = describe_status(
            response.status_code,
            response.content,
            response.headers.get("retry-after"),
            extras=self.settings.extras,
        )
        self._rest(failure.retry_after_s)
        raise failure

    def _rest(self, duration_s: float | None) -> None:
        """Ask nothing while the server wants a rest, unless that is longer than we would wait."""
        if duration_s is not None and duration_s <= self.settings.retry.max_retry_after_s:
            self._limiter.pause(duration_s)

    def _connect(self) -> httpx2.AsyncClient:
        if self._client is None:
            # None is a direct connection, instead of the one by the environment's proxy.
            direct = {"http://": None, "https://": None}
            self._client = httpx2.AsyncClient(
                base_url=self.settings.url.rstrip("/") + "/",
                headers=self._headers,
                timeout=None,
                mounts=direct if self.settings.passes_proxies_by() else None,
                limits=httpx2.Limits(max_keepalive_connections=64, keepalive_expiry=2.0),
            )
        return self._client

    def _price(self, usage: Usage) -> Usage:
        prices = self.settings.prompt_price, self.settings.completion_price
        tokens = usage.prompt_tokens, usage.completion_tokens
        cost = sum(price * count for price, count in zip(prices, tokens, strict=True)) / 1e6
        return replace(usage, cost=cost)


def read_completion(reply: Reply) -> Completion:
    """Return a reply as a completion; an empty text is one."""
    if reply.text is None:
        raise RequestError("no_content", "the reply has no content", usage=reply.usage)
    return Completion(
        reply.text, finish_reason="stop" if reply.finish_reason == "stop" else "length"
    )


def _write_sampling(sampling: Sampling, *, sends_extensions: bool) -> dict[str, Any]:
    """Return the parameters of a request, neutral ones too: none is left for the server to choose.

    Source: vLLM's SamplingParams and ``get_default_sampling_params``; a top_k of -1 means all.
    """
    asked: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_new_tokens,
    }
    if sampling.seed is not None:
        asked["seed"] = sampling.seed
    extensions = ("top_k", "min_p", "repetition_penalty")
    if sends_extensions:
        asked |= {name: getattr(sampling, name) for name in extensions}
        return asked | {"top_k": sampling.top_k or -1}
    changed = [name for name in extensions if getattr(sampling, name) != getattr(Sampling(), name)]
    if changed:
        raise ConfigError(
            f"the server is not to be sent {' and '.join(changed)}",
            fix="leave it out of the sampling, or set sends_extensions if the server knows it",
        )
    return asked


def _read_key(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(
            f"the environment variable {variable} is not set",
            fix="set it to the server's key, or leave api_key_variable empty",
        )
    return {"Authorization": f"Bearer {key}"}
