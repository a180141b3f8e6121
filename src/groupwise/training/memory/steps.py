"""The phases of a step of SFT and of GRPO, as a rehearsal goes through them.

Each phase calls what the trainers call, on as many rows and tokens; what a round keeps for later
phases is kept here, too.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from transformers import GenerationConfig
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper
from transformers.trainer_pt_utils import LabelSmoother

from groupwise.inference.row_draws import pick_tokens
from groupwise.training.fast.groups import Groups
from groupwise.training.fast.guard import compute_logits, name_plain, vary_batches
from groupwise.training.fast.rounds import Round
from groupwise.training.fast.sampling import sample_rows
from groupwise.training.fast.scoring import (
    PromptRows,
    ScoredRows,
    Sharing,
    find_positions,
    score_rows,
)
from groupwise.training.fast.shared import install_shared_pass
from groupwise.training.fast.support import (
    describe_sharing,
    find_adapter_obstacle,
    find_backbone,
    find_obstacle,
)
from groupwise.training.on_policy import use_plain_attention
from groupwise.training.settings import GrpoSettings, SftSettings

_NO_LABEL = -100
_MAX_COMPARED_ROWS = 16
_NUM_COPIES = 5


class SftStep:
    """A micro-batch of one process.

    Args:
        model: with what trains prepared and TRL's head.
        prompts: of the rows, shape [rows, prompt].
        settings: of SFT.
        num_targets: tokens of each answer.
    """

    def __init__(
        self, model: Any, prompts: PromptRows, settings: SftSettings, *, num_targets: int
    ) -> None:
        self._model, self._settings = model, settings
        places = torch.arange(len(prompts.ids))
        self._rows = _continue_prompts(prompts, places, num_targets)

    def update(self) -> None:
        """Go through the policy, forward and back."""
        named, labels = _lay_out_plainly(self._rows)
        if self._settings.label_smoothing:
            smooth = LabelSmoother(self._settings.label_smoothing)
            loss = smooth(self._model(**named), labels, shift_labels=True)
            with torch.no_grad():  # for TRL's metrics alone
                self._model(**named, labels=labels, fused_lm_head=True)
        else:
            loss = self._model(**named, labels=labels, fused_lm_head=True).loss
        loss.backward()


class GrpoStep:
    """A round of GRPO of one process, and one of its updates.

    Args:
        model: with what trains prepared and TRL's head.
        prompts: of the round, shape [prompts, prompt].
        settings: of GRPO.
        num_rows: of a micro-batch.

    Attributes:
        shares: whether its passes compute a prompt once.
    """

    def __init__(
        self, model: Any, prompts: PromptRows, settings: GrpoSettings, *, num_rows: int
    ) -> None:
        self._model, self._prompts, self._settings = model, prompts, settings
        self._backbone = find_backbone(model)
        obstacle = find_obstacle(self._backbone) or find_adapter_obstacle(model)
        self.shares = settings.speed.shared_prefix != "off" and obstacle is None
        self._sharing = Sharing()
        if self.shares:
            install_shared_pass(self._backbone)
            self._sharing = describe_sharing(self._backbone, settings.speed)
        prompt_of_row = torch.arange(len(prompts.ids)).repeat_interleave(settings.group_size)
        self._round = Round(Groups.of(prompt_of_row))
        self._every = _continue_prompts(prompts, prompt_of_row, settings.max_new_tokens)
        self._rows = self._every.take(torch.arange(num_rows))

    @torch.no_grad()
    def sample(self) -> None:
        """Read the prompts, and sample the last token of each completion."""
        pictures = self._every.prompts.pictures
        if pictures is not None:  # TRL gives each row its own; those of the last round are there
            self._given = pictures.copy_fields()
        self._sample()

    def _sample(self) -> None:
        if not (self.shares and self._settings.speed.prefill_once):
            self._sample_plainly()
            return
        self._model.generate = self._sample_last
        sample_rows(
            self._model,
            self._backbone,
            self._prompts,
            self._round,
            sharing=self._sharing,
            generation_config=GenerationConfig(max_new_tokens=self._settings.max_new_tokens),
        )

    def _sample_plainly(self) -> None:
        prompts = self._every.prompts
        cache = self._model(
            input_ids=prompts.ids,
            attention_mask=prompts.mask,
            use_cache=True,
            logits_to_keep=1,
            **prompts.token_types,
            **(prompts.pictures.copy_fields() if prompts.pictures else {}),
        ).past_key_values
        for layer in cache.layers:
            if getattr(layer, "keys", None) is not None:
                room = (0, 0, 0, self._settings.max_new_tokens - 1)
                layer.keys = functional.pad(layer.keys, room)
                layer.values = functional.pad(layer.values, room)
        self._sample_last(prompts.ids, prompts.mask, cache)

    def _sample_last(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, past_key_values: Any, **_: Any
    ) -> torch.Tensor:
        """Stand in for ``generate``: with a cache that is nearly full."""
        settings, num_new = self._settings, self._settings.max_new_tokens
        for layer in past_key_values.layers:
            if hasattr(layer, "buffers"):
                layer._show(layer.keys.shape[-2] + num_new - 1)
        positions = find_positions(self._backbone, self._every.prompts)
        logits = self._model(
            input_ids=input_ids[:, -1:],
            position_ids=positions[..., -1:] + num_new - 1,
            attention_mask=functional.pad(attention_mask, (0, num_new - 1), value=1),
            past_key_values=past_key_values,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        ids: Any = input_ids
        scores = logits.to(torch.float32, copy=True)
        if settings.temperature != 1:
            scores = TemperatureLogitsWarper(settings.temperature)(ids, scores)
        if settings.top_p < 1:
            scores = TopPLogitsWarper(settings.top_p)(ids, scores)
        pick_tokens(scores, torch.zeros(len(scores), dtype=torch.float64))
        return functional.pad(input_ids, (0, num_new))

    @torch.no_grad()
    def check(self) -> None:
        """Check that training scores as sampling did: all rows, then one alone, in copies."""
        self._compare(self._every)
        for places in ([0], [0] * _NUM_COPIES):
            named, _ = _lay_out_plainly(self._every.take(torch.tensor(places)))
            with self._compute_plainly(named) if len(places) == 1 else nullcontext():
                self._model(**named, use_cache=False)

    def compare(self) -> None:
        """Compare the pass of an update with plain ones, as is done for each new shape."""
        self._compare(self._rows)

    def _compare(self, rows: ScoredRows) -> None:
        shared = self._score(rows)
        if not self.shares:
            return
        chosen = rows.take(torch.arange(min(len(rows.ids), _MAX_COMPARED_ROWS)))
        *_, [widest] = vary_batches(chosen)
        with torch.no_grad():
            self._score_plainly(widest)
            alone = chosen.take(torch.zeros(1, dtype=torch.long))
            with self._compute_plainly(name_plain(alone)):
                self._score_plainly(alone)
            compute_logits(self._model, chosen)
        del shared

    def update(self) -> None:
        """Go through the policy, forward and back."""
        output = self._score(self._rows)
        loss = output.log_probs.sum()
        if self._settings.entropy_bonus:
            loss = loss - self._settings.entropy_bonus * output.entropy.sum()
        loss.backward()

    def _compute_plainly(self, named: Mapping[str, Any]) -> AbstractContextManager[None]:
        dtype = self._model.get_output_embeddings().weight.dtype
        return use_plain_attention(named["input_ids"].shape[1], dtype)

    def _score(self, rows: ScoredRows) -> Any:
        if self.shares:
            return score_rows(self._model, self._backbone, rows, self._sharing, self._round)
        return self._score_plainly(rows)

    def _score_plainly(self, rows: ScoredRows) -> Any:
        named, labels = _lay_out_plainly(rows)
        return self._model(**named, labels=labels, fused_lm_head=True)


def _continue_prompts(
    prompts: PromptRows, prompt_of_row: torch.Tensor, num_tokens: int
) -> ScoredRows:
    """Return rows of which all but the last have so many tokens: batches have padding."""
    mask = torch.ones(len(prompt_of_row), num_tokens, dtype=torch.long)
    mask[-1, -1] = 0
    return ScoredRows(
        prompts.take(prompt_of_row),
        torch.zeros_like(mask),
        mask,
        places=torch.arange(len(mask)),
        prompt_numbers=prompt_of_row,
    )


def _lay_out_plainly(rows: ScoredRows) -> tuple[dict[str, Any], torch.Tensor]:
    """Return what a model is given of whole rows, and the labels of their completions."""
    named = name_plain(rows)
    num_kept = named.pop("logits_to_keep")
    named.pop("num_images", None)
    named.pop("num_tiles", None)
    labels = named["input_ids"].masked_fill(named["attention_mask"] == 0, _NO_LABEL)
    labels[:, :-num_kept] = _NO_LABEL
    return named, labels
