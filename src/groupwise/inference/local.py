"""The in-process engine: a loaded policy answers batches of prompts.

Rows are padded on the left and positions are explicit, so that a batch gives the same tokens
as one row at a time. It does not train and does not know rewards.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
)

from groupwise.core import Completion, DataError, Example, ModelError, derive_seed, open_picture
from groupwise.inference.engine import ReportProgress, Sampling
from groupwise.inference.labels import LabelTree, grow_labels
from groupwise.inference.row_draws import draw_by_row
from groupwise.models.encoding import break_tokens
from groupwise.models.policy import Policy, unplanned_attention
from groupwise.models.processor import TOKEN_TYPES

T = TypeVar("T")

# What several labels start with is looked behind if it has at least so much of their mass.
_NEGLIGIBLE = 1e-3
_NEVER = 1e-12


class LocalEngine:
    """Answers with a policy in this process.

    Args:
        policy: the loaded policy.
        batch_size: rows per forward pass.
    """

    def __init__(self, policy: Policy, *, batch_size: int = 16) -> None:
        self.policy = policy
        self.batch_size = batch_size

    def generate(
        self,
        examples: Sequence[Example],
        *,
        sampling: Sampling,
        num_completions: int = 1,
        report_progress: ReportProgress | None = None,
    ) -> list[list[Completion]]:
        """Return ``num_completions`` completions for each example, in order.

        Raises:
            ModelError: if a prompt with its completion is longer than the model takes.
            DataError: naming an example that the policy's processor does not take.
        """
        completions: list[list[Completion]] = []
        for batch in _split(examples, self.batch_size):
            flat = self._generate_batch(batch, sampling, num_completions)
            for start in range(0, len(flat), num_completions):
                completions.append(flat[start : start + num_completions])
            if report_progress is not None:
                report_progress(len(completions), len(examples))
        return completions

    def explain_refused(self, examples: Sequence[Example]) -> dict[str, str]:
        """Return why examples cannot be asked, by id; nothing is asked."""
        refused: dict[str, str] = {}
        for example in examples:
            try:
                self._encode([example])
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
    ) -> list[dict[str, float]]:
        """Return each label's share of the probability of all labels' first tokens.

        One forward pass per row; the mass of a label is the sum over the distinct first
        tokens of its spellings, and the masses are normalised over the labels. Where a row may
        well say a token that several labels start with (``fault`` and ``faulty``, ``1`` and
        ``10``), one more pass reads each place where they part. A space at the end of a lead is
        left to the label: tokenizers write it into the label's first token.

        Raises:
            ModelError: if a label has no spelling that is its own, or a prompt is longer than the
                model takes.
        """
        tree = grow_labels(self.policy.tokenizer, labels)
        num_read = 1 + max(map(len, tree.list_parting()))
        given = [lead.rstrip(" ") for lead in leads] if leads is not None else [""] * len(examples)
        results: list[dict[str, float]] = []
        for batch in _split(list(zip(examples, given, strict=True)), self.batch_size):
            inputs = self._encode([e for e, _ in batch], leads=[lead for _, lead in batch])
            self._check_length([e for e, _ in batch], inputs, num_new_tokens=num_read)
            shares = self._weigh(tree, labels, inputs).softmax(-1).tolist()
            results += [dict(zip(labels, row, strict=True)) for row in shares]
            if report_progress is not None:
                report_progress(len(results), len(examples))
        return results

    def _weigh(
        self, tree: LabelTree, labels: Sequence[str], inputs: Mapping[str, Any]
    ) -> torch.Tensor:
        """Return logarithms of the labels' masses, but for a number a row, [rows, labels]."""
        logits = self._read_next(inputs, ())
        owners = {token: one.labels for token, one in tree.next.items()}
        masses = [
            _add_up(logits, [token for token, own in owners.items() if own == {label}])
            for label in labels
        ]
        found = torch.stack(masses, -1)
        shared = _add_up(logits, [token for token, own in owners.items() if len(own) > 1])
        is_open = shared - torch.logaddexp(shared, found.logsumexp(-1)) > math.log(_NEGLIGIBLE)
        if not is_open.any():
            return found
        parts = list(self._part(tree, inputs, (), torch.zeros_like(shared)))
        resolved = [torch.stack([m for own, m in parts if own == one]) for one in labels]
        every = torch.stack([part.logsumexp(0) for part in resolved], -1)
        return torch.where(is_open.unsqueeze(-1), every, found)

    def _part(
        self,
        tree: LabelTree,
        inputs: Mapping[str, Any],
        prefix: tuple[int, ...],
        reached: torch.Tensor,
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield labels with log-probabilities of their spellings behind a prefix, [rows].

        A label that ends where another goes on has what does not go on.
        """
        log_probs = self._read_next(inputs, prefix).log_softmax(-1)
        for token, one in tree.next.items():
            mass = reached + log_probs[:, token]
            if len(one.labels) > 1:
                yield from self._part(one, inputs, (*prefix, token), mass)
            else:
                yield from ((label, mass) for label in one.labels)
        if len(tree.ended) == 1:
            going_on = _add_up(log_probs, list(tree.next)).exp()
            yield from (
                (label, reached + (1 - going_on).clamp(min=_NEVER).log()) for label in tree.ended
            )

    def _read_next(self, inputs: Mapping[str, Any], prefix: Sequence[int]) -> torch.Tensor:
        """Return logits of the token behind prompts and a prefix, [rows, vocabulary]."""
        given = dict(inputs)
        tail = torch.tensor([list(prefix)] * len(given["input_ids"]), dtype=torch.long)
        tail = tail.to(given["input_ids"].device)
        if prefix:
            given["input_ids"] = torch.cat([given["input_ids"], tail], 1)
            ones = torch.ones_like(tail)
            given["attention_mask"] = torch.cat([given["attention_mask"], ones], 1)
            for name in filter(given.__contains__, TOKEN_TYPES):
                given[name] = torch.cat([given[name], torch.zeros_like(tail)], 1)
        with unplanned_attention():
            return self.policy.model(**given, logits_to_keep=1).logits[:, -1].float()

    @torch.inference_mode()
    def hidden_states(
        self,
        examples: Sequence[Example],
        *,
        blocks: Sequence[int],
        report_progress: ReportProgress | None = None,
    ) -> "torch.Tensor":
        """Return what blocks say of prompts, pooled, float32 (examples, blocks, 2, width).

        Pooled are the mean over a prompt's tokens, and its last token.

        Args:
            examples: what is asked.
            blocks: behind how many language blocks.
            report_progress: called with the numbers of finished and of all examples.

        Raises:
            ModelError: if a prompt is longer than the model takes.
        """
        found: list[Any] = []
        for batch in _split(examples, self.batch_size):
            inputs = self._encode(batch)
            self._check_length(batch, inputs, num_new_tokens=0)
            with unplanned_attention():
                made = self.policy.model(**inputs, output_hidden_states=True, logits_to_keep=1)
            seen = inputs["attention_mask"].unsqueeze(-1)
            states = [made.hidden_states[block].float() for block in blocks]
            pooled = [torch.stack([(s * seen).sum(1) / seen.sum(1), s[:, -1]], 1) for s in states]
            found.append(torch.stack(pooled, 1).cpu())
            if report_progress is not None:
                report_progress(sum(map(len, found)), len(examples))
        return torch.cat(found)

    def _generate_batch(
        self, examples: Sequence[Example], sampling: Sampling, num_completions: int
    ) -> list[Completion]:
        inputs = self._encode(examples)
        self._check_length(examples, inputs, num_new_tokens=sampling.max_new_tokens)
        return self.generate_encoded(
            inputs,
            [example.id for example in examples],
            sampling=sampling,
            num_completions=num_completions,
        )

    @torch.inference_mode()
    def generate_encoded(
        self,
        inputs: Mapping[str, Any],
        ids: Sequence[str],
        *,
        sampling: Sampling,
        num_completions: int = 1,
        features: Any = None,
    ) -> list[Completion]:
        """Return the completions of one batch that is encoded already, row by row.

        Args:
            inputs: what the policy's processor makes of a batch, padded on the left; no longer
                than the model takes. It is brought to the model's device here.
            ids: of the rows' examples.
            sampling: how completions are drawn.
            num_completions: for each row; they follow one another.
            features: of the pictures, instead of ``pixel_values``, as the model's
                ``get_image_features`` returns them.
        """
        inputs = {key: value.to(self.policy.model.device) for key, value in inputs.items()}
        given = {
            "max_new_tokens": sampling.max_new_tokens,
            "num_return_sequences": num_completions,
            "eos_token_id": list(self.policy.end_token_ids),
            "pad_token_id": self.policy.tokenizer.pad_token_id,
            "logits_processor": _penalise_repetition(inputs, sampling, num_completions),
        }
        if features is not None:
            given["mm_encoder_outputs"] = {"image": features}
        if sampling.seed is not None:
            seeds = [derive_seed(sampling.seed, id_) for id_ in ids]
            keys = [(seed, number) for seed in seeds for number in range(num_completions)]
            given["custom_generate"] = draw_by_row(keys)
        settings = _write_draws(sampling) | given
        with unplanned_attention():
            output = self.policy.model.generate(**inputs, **settings)
        rows = output[:, inputs["input_ids"].shape[1] :].tolist()
        return [self._decode(row) for row in rows]

    def _decode(self, row: list[int]) -> Completion:
        ends = self.policy.end_token_ids
        length = next((i + 1 for i, token in enumerate(row) if token in ends), None)
        ids = row[:length]
        text = str(self.policy.tokenizer.decode(ids, skip_special_tokens=True))
        return Completion(text, tuple(ids), finish_reason="length" if length is None else "stop")

    def _encode(
        self, examples: Sequence[Example], *, leads: Sequence[str] | None = None
    ) -> dict[str, Any]:
        texts = [self.policy.render_prompt(example) for example in examples]
        if leads is not None:
            words = [break_tokens(self.policy.processor, lead) for lead in leads]
            texts = [text + lead for text, lead in zip(texts, words, strict=True)]
        pictures = [[open_picture(p) for p in example.pictures] for example in examples]
        named = {"images": pictures} if any(pictures) else {}
        try:
            inputs = self.policy.processor(text=texts, padding=True, return_tensors="pt", **named)
        except ValueError as error:
            # Such as for a picture of 300:1, or a text that writes the token of a picture.
            if len(examples) > 1:
                for number, example in enumerate(examples):
                    self._encode([example], leads=None if leads is None else [leads[number]])
            raise DataError(f"example {examples[0].id} cannot be asked ({error})") from error
        return {key: value.to(self.policy.model.device) for key, value in inputs.items()}

    def _check_length(
        self, examples: Sequence[Example], inputs: dict[str, Any], *, num_new_tokens: int
    ) -> None:
        """Refuse what the model cannot take: beyond its positions it answers, but nonsense."""
        limit = self.policy.max_tokens
        lengths: list[int] = inputs["attention_mask"].sum(-1).tolist()
        longest = max(lengths, default=0)
        if limit is not None and longest + num_new_tokens > limit:
            raise ModelError(
                f"the prompt of example {examples[lengths.index(longest)].id} is too long",
                got=f"{longest} tokens, and {num_new_tokens} for the answer",
                expected=f"at most {limit} together",
                fix="shorten the prompt, lower max_pixels or max_new_tokens, or take another model",
            )


def _add_up(logits: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """Return the logarithm of the mass of some tokens, [rows]; -inf of none."""
    return logits[:, list(tokens)].logsumexp(-1)


def _penalise_repetition(
    inputs: Mapping[str, Any], sampling: Sampling, num_completions: int
) -> LogitsProcessorList:
    """Penalise what a row repeats, but not its padding, which may be an end token."""
    if sampling.repetition_penalty == 1.0:
        return LogitsProcessorList()
    num_padded = (inputs["attention_mask"] == 0).sum(-1).repeat_interleave(num_completions)
    penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty, num_padded)
    return LogitsProcessorList([penalty])


def _write_draws(sampling: Sampling) -> dict[str, Any]:
    if sampling.temperature == 0:
        return {"do_sample": False}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p or None,
    }


def _split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def time_answers(
    policy: Policy, examples: Sequence[Example], *, sampling: Sampling, num_timed: int
) -> list[float | None]:
    """Return the seconds per answer of the first ``num_timed`` examples, and None for the others.

    Each is asked in a batch of its own, as somebody who waits for it would.
    """
    engine = LocalEngine(policy, batch_size=1)
    latencies_s: list[float | None] = [None] * len(examples)
    for number, example in enumerate(examples[:num_timed]):
        started = time.perf_counter()
        engine.generate([example], sampling=sampling)
        latencies_s[number] = time.perf_counter() - started
    return latencies_s
