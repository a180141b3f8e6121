"""A model in this process: a loaded policy answers batches of prompts.

Rows are padded on the left and positions are explicit, so that a batch gives the same tokens
as one row at a time. Draws are keyed by row: what is sampled for a row follows from its key and its
own distribution; how many rows there are, which share its batch and how many processes sample plays
no part. It does not train and does not know rewards.
"""

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from groupwise.core import (
    Completion,
    DataError,
    Example,
    ModelError,
    derive_seed,
    digest_json,
    open_picture,
)
from groupwise.inference.labels import Spellings, spell_labels
from groupwise.inference.model import (
    LabelShares,
    Reply,
    ReportProgress,
    Sampling,
    Usage,
    on_shared_loop,
)
from groupwise.inference.pictures import read_picture_bytes
from groupwise.models.policy import Policy, unplanned_attention
from groupwise.models.processor import TOKEN_TYPES
from groupwise.models.prompts import break_tokens

# What several labels start with is looked behind if it has at least so much of their mass.
_NEGLIGIBLE = 1e-3
_NEVER = 1e-12
# Who wrote a model, and where it was read from.
_ORIGIN = ("_name_or_path", "transformers_version")
Asked = Sampling | tuple[str, ...]
"""What a single request wants: a reply, or shares of labels."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of prompts as the model takes them, padded on the left."""

    examples: Sequence[Example]
    pictures: Sequence[Sequence[Any]]  # of each example, opened
    texts: Sequence[str]  # as the chat template writes them
    inputs: Mapping[str, Any]  # tensors by name, in memory until the model is asked
    lengths: Sequence[int]  # tokens of each prompt, pictures included, without padding

    def place(self, device: torch.device) -> dict[str, Any]:
        """Return the inputs on a device, where only what is asked lies."""
        return {name: value.to(device) for name, value in self.inputs.items()}


class LocalModel:
    """Answers with a policy in this process.

    Single requests are computed in a thread of their own; what waits at the same time goes in one
    batch. The policy must not change while they are made, nor once ``identity`` was read.

    Args:
        policy: the loaded policy.
        batch_size: rows per forward pass.
        name: in versions and reports.
        revision: of its weights; None: the digest of the weights.
        max_pixels: of a picture, as its policy was loaded; None: as its processor says.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        batch_size: int = 16,
        name: str = "policy",
        revision: str | None = None,
        max_pixels: int | None = None,
    ) -> None:
        self.policy = policy
        self.batch_size = batch_size
        self.name = name
        self._revision = revision
        self._max_pixels = max_pixels
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="local-model")
        self._waiting: dict[asyncio.Future[Any], tuple[Example, Asked]] = {}
        self._worker: asyncio.Task[None] | None = None

    @property
    def identity(self) -> Mapping[str, str | None]:
        """Model, revision and pixels."""
        if not self._revision:
            self._revision = _digest_weights(self.policy.model)
        found: dict[str, str | None] = {"model": self.name, "revision": self._revision}
        if self._max_pixels is not None:  # left out otherwise: what was kept before is found
            found["max_pixels"] = str(self._max_pixels)
        return found

    @on_shared_loop
    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Return one reply."""
        completion: Completion = await self._wait(example, sampling)
        usage = Usage(1, completion_tokens=len(completion.token_ids))
        return Reply(completion.text, completion.finish_reason, usage=usage)

    @on_shared_loop
    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Return the shares of the labels."""
        return LabelShares(await self._wait(example, tuple(labels)))

    async def _wait(self, example: Example, asked: Asked) -> Any:
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[result] = example, asked
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
        return await result

    async def _work(self) -> None:
        """Answer batch after batch until nothing waits; others may join while one is computed."""
        while self._waiting:
            await asyncio.sleep(0)
            _, asked = next(iter(self._waiting.values()))
            alike = (result for result, (_, other) in self._waiting.items() if other == asked)
            taken = {one: self._waiting.pop(one) for one in list(islice(alike, self.batch_size))}
            batch = {one: example for one, (example, _) in taken.items() if not one.done()}
            examples, loop = list(batch.values()), asyncio.get_running_loop()
            try:  # also where no thread can be started: who waits would wait for ever
                found = await loop.run_in_executor(self._thread, self._compute, examples, asked)
            except Exception as error:  # noqa: BLE001 (it belongs to those who wait)
                for result in batch:
                    if not result.done():
                        result.set_exception(error)
                continue
            for result, answer in zip(batch, found, strict=True):
                if not result.done():
                    result.set_result(answer)

    def _compute(self, examples: list[Example], asked: Asked) -> list[Any]:
        for picture in {p.path: p for example in examples for p in example.pictures}.values():
            read_picture_bytes(picture)
        if isinstance(asked, Sampling):
            return [completion for (completion,) in self.generate(examples, sampling=asked)]
        return self.label_probabilities(examples, labels=asked)

    def encode(self, examples: Sequence[Example]) -> Iterator[Encoded]:
        """Yield prompts written and encoded, batch by batch.

        A list of what is yielded may be asked for answers and then for shares of labels. A
        ``DataError`` names an example that the policy's processor does not take.
        """
        for start in range(0, len(examples), self.batch_size):
            batch = examples[start : start + self.batch_size]
            yield self.encode_batch(batch, [list(map(open_picture, e.pictures)) for e in batch])

    def encode_batch(
        self, examples: Sequence[Example], pictures: Sequence[Sequence[Any]]
    ) -> Encoded:
        """Return the prompts of one batch with their opened pictures."""
        texts = [self.policy.render_prompt(example) for example in examples]
        return self._tokenize(Encoded(examples, pictures, texts, {}, []), texts)

    def _tokenize(self, batch: Encoded, texts: Sequence[str]) -> Encoded:
        named = {"images": batch.pictures} if any(batch.pictures) else {}
        try:
            inputs = self.policy.processor(text=texts, padding=True, return_tensors="pt", **named)
        except ValueError as error:
            # Such as for a picture of 300:1, or a text that writes the token of a picture.
            if len(texts) > 1:
                for example, shown, text in zip(batch.examples, batch.pictures, texts, strict=True):
                    self._tokenize(Encoded([example], [shown], [text], {}, []), [text])
            what = f"example {batch.examples[0].id} cannot be asked ({error})"
            raise DataError(what) from error
        lengths = inputs["attention_mask"].sum(-1).tolist()
        return replace(batch, inputs=dict(inputs), lengths=lengths)

    def generate(
        self,
        examples: Sequence[Example],
        *,
        sampling: Sampling,
        num_completions: int = 1,
        report_progress: ReportProgress | None = None,
        encoded: Sequence[Encoded] | None = None,
    ) -> list[list[Completion]]:
        """Return ``num_completions`` completions for each example, in order.

        ``encoded`` is what ``encode`` made of the examples, if it is at hand.

        Raises:
            ModelError: if a prompt with its completion is longer than the model takes.
            DataError: naming an example that the policy's processor does not take.
        """
        completions: list[list[Completion]] = []
        for batch in encoded or self.encode(examples):
            self._check_length(batch, num_new_tokens=sampling.max_new_tokens)
            flat = self.generate_batch(batch, sampling=sampling, num_completions=num_completions)
            starts = range(0, len(flat), num_completions)
            completions += [flat[start : start + num_completions] for start in starts]
            if report_progress is not None:
                report_progress(len(completions), len(examples))
        return completions

    def explain_refused(self, examples: Sequence[Example]) -> dict[str, str]:
        """Return why examples cannot be asked, by id; nothing is asked."""
        refused: dict[str, str] = {}
        for example in examples:
            try:
                next(self.encode([example]))
            except DataError as error:
                refused[example.id] = str(error)
        return refused

    @torch.inference_mode()
    def label_probabilities(
        self,
        examples: Sequence[Example],
        *,
        labels: Sequence[str],
        leads: Sequence[str] | None = None,
        report_progress: ReportProgress | None = None,
        encoded: Sequence[Encoded] | None = None,
    ) -> list[dict[str, float]]:
        """Return each label's share of the probability of all labels' first tokens.

        One forward pass per row; the mass of a label is the sum over the distinct first
        tokens of its spellings, and the masses are normalised over the labels. Where a row may
        well say a token that several labels start with (``fault`` and ``faulty``, ``1`` and
        ``10``), one more pass reads each place where they part. A space at the end of a lead is
        left to the label: tokenizers write it into the label's first token. ``encoded`` is as of
        ``generate``.

        Raises:
            ModelError: if a label has no spelling that is its own, or a prompt is longer than the
                model takes.
        """
        spellings = spell_labels(self.policy.tokenizer, labels)
        paired = () if leads is None else zip(examples, leads, strict=True)
        given = iter([lead.rstrip(" ") for _, lead in paired])
        results: list[dict[str, float]] = []
        for batch in encoded or self.encode(examples):
            words = list(islice(given, len(batch.texts)))
            if any(words):
                written = [break_tokens(self.policy.processor, lead) for lead in words]
                texts = [one + lead for one, lead in zip(batch.texts, written, strict=True)]
                batch = self._tokenize(batch, texts)
            self._check_length(batch, num_new_tokens=1 + spellings.num_shared)
            masses = self._weigh(spellings, labels, batch.place(self.policy.model.device))
            results += [dict(zip(labels, r, strict=True)) for r in masses.softmax(-1).tolist()]
            if report_progress is not None:
                report_progress(len(results), len(examples))
        return results

    def _weigh(
        self, spellings: Spellings, labels: Sequence[str], inputs: Mapping[str, Any]
    ) -> torch.Tensor:
        """Return logarithms of the labels' masses, but for a number a row, [rows, labels]."""
        logits = self._read_next(inputs, ())
        found = torch.stack([logits[:, spellings.own[one]].logsumexp(-1) for one in labels], -1)
        shared = logits[:, spellings.common].logsumexp(-1)
        is_open = shared - torch.logaddexp(shared, found.logsumexp(-1)) > math.log(_NEGLIGIBLE)
        if not is_open.any():
            return found
        parts = list(self._part(spellings, inputs, (), torch.zeros_like(shared)))
        resolved = [torch.stack([m for own, m in parts if own == one]) for one in labels]
        every = torch.stack([part.logsumexp(0) for part in resolved], -1)
        return torch.where(is_open.unsqueeze(-1), every, found)

    def _part(
        self,
        spellings: Spellings,
        inputs: Mapping[str, Any],
        prefix: tuple[int, ...],
        reached: torch.Tensor,
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield labels with log-probabilities of their spellings behind a prefix, [rows].

        A label that ends where another goes on has what does not go on.
        """
        log_probs = self._read_next(inputs, prefix).log_softmax(-1)
        behind = {p[-1]: found for p, found in spellings.begun.items() if p[:-1] == prefix}
        for token, found in behind.items():
            mass = reached + log_probs[:, token]
            if len(found) > 1:
                yield from self._part(spellings, inputs, (*prefix, token), mass)
            else:
                yield from ((label, mass) for label in found)
        ended = spellings.whole.get(prefix, ())
        if len(ended) == 1:
            going_on = log_probs[:, list(behind)].logsumexp(-1).exp()
            rest = reached + (1 - going_on).clamp(min=_NEVER).log()
            yield from ((label, rest) for label in ended)

    def _read_next(self, inputs: Mapping[str, Any], prefix: Sequence[int]) -> torch.Tensor:
        """Return logits of the token behind prompts and a prefix, [rows, vocabulary]."""
        given = dict(inputs)
        if prefix:
            ids = given["input_ids"]
            tail = torch.tensor([list(prefix)] * len(ids), dtype=torch.long).to(ids.device)
            more = dict.fromkeys(TOKEN_TYPES, torch.zeros_like(tail))
            more |= {"input_ids": tail, "attention_mask": torch.ones_like(tail)}
            for name in given.keys() & more.keys():
                given[name] = torch.cat([given[name], more[name]], 1)
        with unplanned_attention():
            return self.policy.model(**given, logits_to_keep=1).logits[:, -1].float()

    @torch.inference_mode()
    def hidden_states(
        self,
        examples: Sequence[Example],
        *,
        blocks: Sequence[int],
        report_progress: ReportProgress | None = None,
    ) -> torch.Tensor:
        """Return what blocks say of prompts, pooled, float32 (examples, blocks, 2, width).

        Pooled are the mean over a prompt's tokens, and its last token. ``blocks`` says behind how
        many language blocks. A ``ModelError`` if a prompt is longer than the model takes.
        """
        found: list[Any] = []
        for batch in self.encode(examples):
            self._check_length(batch, num_new_tokens=0)
            inputs = batch.place(self.policy.model.device)
            with unplanned_attention():
                made = self.policy.model(**inputs, output_hidden_states=True, logits_to_keep=1)
            seen = inputs["attention_mask"].unsqueeze(-1)
            states = [made.hidden_states[block].float() for block in blocks]
            pooled = [torch.stack([(s * seen).sum(1) / seen.sum(1), s[:, -1]], 1) for s in states]
            found.append(torch.stack(pooled, 1).cpu())
            if report_progress is not None:
                report_progress(sum(map(len, found)), len(examples))
        return torch.cat(found)

    @torch.inference_mode()
    def generate_batch(
        self, batch: Encoded, *, sampling: Sampling, num_completions: int = 1
    ) -> list[Completion]:
        """Return the completions of one batch, no longer than the model takes, row after row."""
        policy, inputs = self.policy, batch.place(self.policy.model.device)
        ends, tokenizer = policy.end_token_ids, policy.tokenizer
        given: dict[str, Any] = {
            "max_new_tokens": sampling.max_new_tokens,
            "num_return_sequences": num_completions,
            "eos_token_id": list(ends),
            "pad_token_id": tokenizer.pad_token_id,
        }
        if sampling.repetition_penalty != 1.0:
            # What a row repeats is penalised, but not its padding, which may be an end token.
            num_padded = (inputs["attention_mask"] == 0).sum(-1).repeat_interleave(num_completions)
            penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty, num_padded)
            given["logits_processor"] = LogitsProcessorList([penalty])
        if sampling.seed is not None:
            seeds = [derive_seed(sampling.seed, example.id) for example in batch.examples]
            keys = [(seed, number) for seed in seeds for number in range(num_completions)]
            given["custom_generate"] = draw_by_row(keys)
        if sampling.temperature == 0:
            given["do_sample"] = False
        else:
            given |= {"do_sample": True, "temperature": sampling.temperature}
            given |= {"top_p": sampling.top_p, "top_k": sampling.top_k}
            given["min_p"] = sampling.min_p or None
        with unplanned_attention():
            output = policy.model.generate(**inputs, **given)
        completions: list[Completion] = []
        for row in output[:, inputs["input_ids"].shape[1] :].tolist():
            length = next((i + 1 for i, token in enumerate(row) if token in ends), None)
            text = str(tokenizer.decode(row[:length], skip_special_tokens=True))
            reason = "length" if length is None else "stop"
            completions.append(Completion(text, tuple(row[:length]), finish_reason=reason))
        return completions

    def _check_length(self, batch: Encoded, *, num_new_tokens: int) -> None:
        """Refuse what the model cannot take: beyond its positions it answers, but nonsense."""
        limit, longest = self.policy.max_tokens, max(batch.lengths, default=0)
        if limit is not None and longest + num_new_tokens > limit:
            raise ModelError(
                f"the prompt of example {batch.examples[batch.lengths.index(longest)].id} "
                "is too long",
                got=f"{longest} tokens, and {num_new_tokens} for the answer",
                expected=f"at most {limit} together",
                fix="shorten the prompt, lower max_pixels or max_new_tokens, or take another model",
            )


def _digest_weights(model: Any) -> str:
    """Return a digest of the weights of a model and of its configuration."""
    config = json.loads(model.config.to_json_string())
    settings = {name: value for name, value in config.items() if name not in _ORIGIN}
    total = hashlib.sha256(digest_json(settings).encode())
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(flat.numpy())
    return total.hexdigest()[:32]


def time_answers(
    policy: Policy, examples: Sequence[Example], *, sampling: Sampling, num_timed: int
) -> list[float | None]:
    """Return the seconds per answer of the first ``num_timed`` examples, and None for the others.

    Each is asked in a batch of its own, as somebody who waits for it would.
    """
    model = LocalModel(policy, batch_size=1)
    latencies_s: list[float | None] = [None] * len(examples)
    for number, example in enumerate(examples[:num_timed]):
        started = time.perf_counter()
        model.generate([example], sampling=sampling)
        latencies_s[number] = time.perf_counter() - started
    return latencies_s


RowKey = tuple[int, int]
"""A row's seed and the number of its completion; each in [0, 2**64)."""


def draw_by_row(keys: Sequence[RowKey]) -> Callable[..., Any]:
    """Return a ``custom_generate`` of Transformers that draws each row's tokens by its key.

    Penalties, temperature, top-k and top-p are those that ``generate`` was given; where it was
    told not to sample, nothing is drawn.

    Args:
        keys: of the rows, each prompt's completions one after the other.
    """

    def sample(model: Any, input_ids: torch.Tensor, **named: Any) -> Any:
        config, num_given = named["generation_config"], input_ids.shape[1]
        if config.do_sample:
            uniforms = draw_uniforms(keys, config.max_length - num_given)
            draw = _Draw(uniforms.to(input_ids.device), num_given)
            named["logits_processor"] = LogitsProcessorList([*named["logits_processor"], draw])
            config.do_sample = False  # what was drawn is the likeliest; the config is a copy
        # ``generate`` does not tell a callable that others wait for its forward passes.
        spread = is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)
        return type(model)._sample(model, input_ids, synced_gpus=spread, **named)

    return sample


def draw_uniforms(keys: Sequence[RowKey], num_tokens: int) -> torch.Tensor:
    """Return numbers from [0, 1), float64 of shape [rows, tokens]; fewer tokens are a prefix."""
    rows = [np.random.Generator(np.random.Philox(key=key)).random(num_tokens) for key in keys]
    return torch.from_numpy(np.stack(rows))


def pick_tokens(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the token of each row whose share of the probability its number falls into.

    Sums are in float64: in float32 the rarest of 150,000 tokens would be lost.

    Args:
        scores: logits or log-probabilities, shape [rows, vocabulary]; -inf is never picked.
        uniforms: from [0, 1), float64, shape [rows].

    Returns:
        Token ids, shape [rows].
    """
    sums = scores.softmax(-1).to(uniforms.device).cumsum(-1, dtype=torch.float64)
    places = uniforms[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, places, right=True)[:, 0].to(scores.device)


class _Draw(LogitsProcessor):
    """The last processor: makes the drawn token of each row the likeliest."""

    def __init__(self, uniforms: torch.Tensor, num_given: int) -> None:
        self.uniforms = uniforms  # shape [rows, tokens]
        self.num_given = num_given  # tokens of a prompt, padding included

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = pick_tokens(scores, self.uniforms[:, input_ids.shape[1] - self.num_given])
        return scores.scatter_(1, tokens[:, None], torch.inf)
