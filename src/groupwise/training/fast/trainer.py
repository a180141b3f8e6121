"""TRL's GRPOTrainer with what the rows of a group have in common computed once.

Every loss of TRL stays valid, because ``_compute_loss`` is inherited. What changes: where
log-probabilities come from, how completions are sampled, and which rows are scored at all.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from trl.trainer.grpo_trainer import GRPOTrainer

from groupwise.core import TrainingError
from groupwise.training.fast.draws import draw_from_seeds
from groupwise.training.fast.early_rewards import start_all, start_early
from groupwise.training.fast.groups import (
    Groups,
    find_dead_rows,
    number_prompts,
    split_batch,
    split_groups,
)
from groupwise.training.fast.guard import (
    Comparison,
    ShapeGuard,
    agree,
    collect_prompts,
    compare_passes,
    compute_logits,
    name_plain,
    pick_rows,
    vary_batches,
)
from groupwise.training.fast.pictures import process_pictures_once
from groupwise.training.fast.rounds import Round, load_progress, save_progress
from groupwise.training.fast.sampling import find_sampling_obstacle, sample_round
from groupwise.training.fast.scoring import (
    ScoredRows,
    Scores,
    Sharing,
    put_back,
    score_rows,
)
from groupwise.training.fast.shared import install_shared_pass
from groupwise.training.fast.support import (
    describe_sharing,
    find_adapter_obstacle,
    find_backbone,
    find_obstacle,
    keep_inputs_without_gradient,
)
from groupwise.training.fast.vllm_pictures import show_pictures
from groupwise.training.fast.vllm_weights import send_merged
from groupwise.training.on_policy import find_precision, find_resolution, use_plain_attention
from groupwise.training.settings import SpeedSettings
from groupwise.training.sharding import (
    ShardedTraining,
    gather_from_zero3,
    gather_head,
    gather_weights,
)

LogProbs = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]

# In float32, where each costs four whole prompts in a first step, and in less precision.
_MAX_COMPARED_ROWS = (3, 16)

# TRL leaves open what its attributes hold until training has begun.
_Base: Any = GRPOTrainer


class FastGRPOTrainer(ShardedTraining, _Base):
    """GRPOTrainer that pays for a prompt once per group.

    Args:
        speed: which levers are used.
        named: GRPOTrainer's own arguments.
    """

    def __init__(self, *, speed: SpeedSettings, **named: Any) -> None:
        keep_inputs_without_gradient(named["model"], named.get("args"))
        super().__init__(**named)
        self.speed = speed
        if speed.rewards_beside_scoring:
            self.reward_funcs = [start_early(function) for function in self.reward_funcs]
        self._round: Any = None
        self._micro_batch: Mapping[str, Any] = {}
        self._guard = ShapeGuard()
        self._plain: tuple[Any, list[torch.Tensor], float] | None = None
        self._counts: Counter[str] = Counter()
        self._sharing = Sharing()
        self._shares = speed.shared_prefix != "off" and self._install()
        self._samples_once = self._shares and speed.prefill_once and self._can_sample_once()
        if self.use_vllm:
            show_pictures(self.vllm_generation, self.processing_class)
            if hasattr(self.model, "peft_config"):
                self._send_merged()

    def _install(self) -> bool:
        """Make the models take a shared pass; return whether that is possible."""
        given = [m for m in (self.model, self.ref_model) if m is not None]
        models = [self.accelerator.unwrap_model(model) for model in given]
        self._backbones = [find_backbone(model) for model in models]
        obstacle = agree(self.accelerator, self._find_obstacle(models))
        if obstacle is not None:
            self._stop_sharing(obstacle)
            return False
        for backbone in self._backbones:
            install_shared_pass(backbone)
        return True

    def _find_obstacle(self, models: Sequence[Any]) -> str | None:
        """Return why prompts cannot be shared by these models in this training, or None."""
        if self._dist.fsdp_version == 1:
            return "its weights are spread over processes by FSDP1; FSDP2 and ZeRO-3 allow it"
        for model in models:
            found = find_obstacle(find_backbone(model)) or find_adapter_obstacle(model)
            if found is not None:
                return found
        reasons = {
            "tools write into completions": self.tools,
            "environments write prompts": self.environment_factories,
            "a rollout function makes its rows": self.rollout_func,
            "an auxiliary loss of its experts is trained on": self.aux_loss_enabled,
            "noise is added to its embeddings": self.args.neftune_noise_alpha,
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    def _can_sample_once(self) -> bool:
        """Whether completions are sampled here, by options that allow it."""
        if self.use_vllm or self.use_transformers_continuous_batching:
            return False
        own = self.accelerator.unwrap_model(self.model).generation_config
        obstacle = find_sampling_obstacle(self.generation_config, own)
        if obstacle is not None:
            warnings.warn(f"every prompt is read once per completion: {obstacle}", stacklevel=2)
        return obstacle is None

    def _send_merged(self) -> None:
        if self._dist.is_fsdp or self._dist.is_zero3:
            warnings.warn(
                "adapters are merged into the weights and out again for vLLM, which rounds them: "
                "they are spread over processes",
                stacklevel=2,
            )
        else:
            send_merged(self.vllm_generation, self.model)

    def _stop_sharing(self, reason: str) -> None:
        if self.speed.shared_prefix == "on":
            raise TrainingError(
                f"prompts cannot be shared: {reason}", fix="set speed.shared_prefix to auto or off"
            )
        warnings.warn(f"every prompt is computed once per completion: {reason}", stacklevel=2)
        self._shares = False

    def _find_sharing(self) -> Sharing:
        """Return what is kept in a round; what trains is known when training has begun."""
        return describe_sharing(self._backbones[0], self.speed) if self._shares else Sharing()

    # ---- a round: sampling, rewards, reference -------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        num_steps = self.args.steps_per_generation
        if self._step % (num_steps * self.num_iterations) == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            # Rows with seeds were laid out in an order that any number of processes shares.
            is_laid_out = "sampling_seed" in generation_batch[0]
            self._buffered_inputs = (
                split_batch(batch, num_steps, is_shuffled=is_laid_out) if num_steps > 1 else [batch]
            )
        return self._buffered_inputs[self._step % num_steps]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            kept, self._round = self._round, None
            try:
                return super()._generate_and_score_completions(inputs)
            finally:
                self._round = kept
        numbers = torch.tensor(number_prompts(inputs), device=self.accelerator.device)
        self._round = self._start_round(numbers)
        self._sharing = self._find_sharing()
        once = self.speed.vision_once
        self._rows = inputs
        with process_pictures_once(self.processing_class) if once else nullcontext():
            batch = super()._generate_and_score_completions(inputs)
        batch["advantages"] = batch["advantages"].masked_fill(self._dead_rows, 0.0)
        places = torch.arange(len(inputs), device=numbers.device)
        return batch | {"prompt_numbers": numbers, "places": places}

    def _start_round(self, numbers: torch.Tensor) -> Round:
        return Round(Groups.of(numbers))

    def _generate(self, prompts: list[Any]) -> Any:
        output = super()._generate(prompts)
        elsewhere = self.environment_factories or self.rollout_func
        if self._round is not None and not elsewhere:
            # They are needed only after old policy and reference are scored.
            start_all(
                self.reward_funcs,
                self._rows,
                prompts=prompts,
                completions=output[3],
                completion_ids=output[1],
                trainer_state=self.state,
                log_extra=self._log_completion_extra,
                log_metric=self._log_metric,
            )
        return output

    def _calculate_rewards(self, *given: Any, **named: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(*given, **named)
        if not self.model.training:
            return rewards
        self._note_dead(rewards)
        self._count_groups(rewards)
        return rewards

    def _count_groups(self, rewards: torch.Tensor) -> None:
        if self.multi_objective_aggregation == "sum_then_normalize":
            self._counts["num_groups"] += len(rewards) // self.num_generations
            dead = int(self._find_dead_rows(rewards).sum()) // self.num_generations
            self._counts["num_dead_groups"] += dead

    def _note_dead(self, rewards: torch.Tensor) -> None:
        """Remember which rows of this process are of dead groups: their advantages are 0."""
        own = self._find_dead_rows(rewards).chunk(self.accelerator.num_processes)
        self._dead_rows = own[self.accelerator.process_index]

    def _find_dead_rows(self, rewards: torch.Tensor) -> torch.Tensor:
        """Return which rows are of dead groups; ``rewards`` are those of all processes."""
        if self.multi_objective_aggregation != "sum_then_normalize":
            return torch.zeros(len(rewards), dtype=torch.bool, device=rewards.device)
        weighted = rewards * self.reward_weights.to(rewards.device)
        return find_dead_rows(weighted, group_size=self.num_generations)

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[Any, Any, Any]:
        if not self._reads_prompts_once(len(prompts)):
            return super()._tokenize_prompts(prompts)
        groups = self._round.groups
        rows = groups.prompt_of_row.tolist()
        unique = [prompts[row] for row in groups.first_rows.tolist()]
        ids, images, fields = super()._tokenize_prompts(unique)
        repeated = None if images is None else [images[row] for row in rows]
        return [ids[row] for row in rows], repeated, fields

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, *given: Any, **named: Any
    ) -> tuple[Any, Any]:
        drawn = nullcontext() if self._round is None else draw_from_seeds(self, self._rows)
        has_prefix = max(map(len, prompt_ids)) > 1
        # One process may say fewer tokens than another.
        with drawn, gather_weights(self.model):
            if has_prefix and self._reads_prompts_once(len(prompt_ids)):
                return sample_round(self, prompt_ids, images, multimodal_fields), None
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, *given, **named
            )

    def _reads_prompts_once(self, num_rows: int) -> bool:
        """Whether these rows are those of the round and are sampled here."""
        is_round = self._round is not None and len(self._round.groups.prompt_of_row) == num_rows
        return self._shares and self._samples_once and is_round

    # ---- log-probabilities ---------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._micro_batch = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._micro_batch = {}

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **named: Any,
    ) -> LogProbs:
        if self._shares and self._round is not None and self.model.training:
            scored = self._collect_rows(input_ids, attention_mask, logits_to_keep, named)
            output = self._score(model, scored, batch_size or len(input_ids))
            if output is not None:
                entropies = output[1] if compute_entropy else None
                return output[0], entropies, None
        gather_head(model)
        return super()._get_per_token_logps_and_entropies(
            model,
            input_ids,
            attention_mask,
            logits_to_keep,
            batch_size=batch_size,
            compute_entropy=compute_entropy,
            compute_aux_loss=compute_aux_loss,
            **named,
        )

    def _collect_rows(
        self, ids: torch.Tensor, mask: torch.Tensor, num_tokens: int, named: Mapping[str, Any]
    ) -> ScoredRows | None:
        """Return the rows for a shared pass, or None if they cannot go through one."""
        numbers = self._micro_batch.get("prompt_numbers", self._round.groups.prompt_of_row)
        places = self._micro_batch.get("places", torch.arange(len(numbers), device=ids.device))
        if len(numbers) != len(ids):
            return None
        prompts = collect_prompts(ids[:, :-num_tokens], mask[:, :-num_tokens], named)
        if prompts is None:
            return None
        return ScoredRows(prompts, ids[:, -num_tokens:], mask[:, -num_tokens:], places, numbers)

    def _score(self, model: Any, scored: ScoredRows | None, batch_size: int) -> LogProbs | None:
        """Return log-probabilities and entropies, shape [rows, tokens]; None: use plain passes.

        Every process takes part in the verdict, whatever its rows are.
        """
        chunks: list[torch.Tensor] = []
        parts: list[ScoredRows] = []
        if scored is not None:
            alive = self._find_alive_rows(len(scored.ids))
            chunks = split_groups(alive, scored.prompt_numbers, batch_size)
            parts = [scored.take(rows) for rows in chunks]
        compared: dict[int, Scores] = {}
        new = self._list_new(model, parts)
        is_spread = self._dist.is_fsdp or self._dist.is_zero3
        some_are_new = is_spread and bool(self._gather(len(new)).any())
        with self._gather_weights(model) if some_are_new else nullcontext():
            fault = agree(self.accelerator, self._find_fault(model, parts, new, compared))
        if fault is not None:
            self._stop_sharing(fault)
        # Each pass gathers weights from all processes, so that all must do as many.
        counts = self._gather(len(parts)) if is_spread else torch.tensor([len(parts)])
        if scored is None or fault is not None or not counts.all():
            return None
        is_reference = model is self.ref_model
        if is_spread or self.accelerator.unwrap_model(model) is not model:
            compared = {}  # an update goes through what talks to the other processes
        outputs = [
            compared.get(place) or self._share(model, part, is_reference=is_reference)
            for place, part in enumerate(parts)
        ]
        for _ in range(int(counts.max()) - len(parts)):  # never in an update, which is one pass
            self._share(model, parts[-1], is_reference=is_reference)
        found = [
            (rows, output.log_probs, output.entropy)
            for rows, output in zip(chunks, outputs, strict=True)
        ]
        old = self._micro_batch.get("old_per_token_logps")
        return *put_back(found, scored, unscored_log_probs=old), None

    def _gather_weights(self, model: Any) -> AbstractContextManager[None]:
        if not self._dist.is_zero3:
            return gather_weights(model)
        engine = model if model is self.ref_model else self.model_wrapped
        return gather_from_zero3(engine, self.accelerator)

    def _share(self, model: Any, part: ScoredRows, *, is_reference: bool) -> Scores:
        backbone = self._backbones[-1 if is_reference else 0]
        sharing = Sharing() if is_reference else self._sharing
        gather_head(model)
        with self.accelerator.autocast():
            return score_rows(model, backbone, part, sharing, self._round)

    def _find_alive_rows(self, num_rows: int) -> torch.Tensor:
        """Return the rows to score: in an update without KL and entropy terms, not the dead ones.

        Of a micro-batch without any, the first prompt stays: the backward pass of every process
        needs one.
        """
        every = torch.arange(num_rows, device=self.accelerator.device)
        advantages = self._micro_batch.get("advantages")
        needs_all = self.beta != 0 or self._entropy_bonus_enabled or self.top_entropy_quantile < 1
        if advantages is None or needs_all or not self.speed.skip_dead_groups:
            return every
        alive = every[advantages != 0]
        self._metrics["train"]["skipped_rows"].append(1 - len(alive) / num_rows)
        self._counts["num_skipped_rows"] += num_rows - len(alive)
        if len(alive):
            return alive
        numbers = self._micro_batch["prompt_numbers"]
        return every[numbers == numbers[0]]

    def _list_new(self, model: Any, parts: Sequence[ScoredRows]) -> list[int]:
        """Return the place of the first batch of each new shape."""
        is_reference = model is self.ref_model
        return [
            place
            for place, part in enumerate(parts)
            if part.mask.any() and self._guard.is_new((is_reference, *_describe_shape(part)))
        ]

    def _gather(self, number: int) -> torch.Tensor:
        """Return a number of every process, all of which must take part, shape [processes]."""
        return self.accelerator.gather(torch.tensor([number], device=self.accelerator.device))

    def _find_fault(
        self,
        model: Any,
        parts: Sequence[ScoredRows],
        new: Sequence[int],
        compared: dict[int, Scores],
    ) -> str | None:
        """Compare new batches with plain passes; return what is wrong, and keep their passes."""
        is_reference = model is self.ref_model
        # A wrapped one talks to the other processes, whose shapes may not be new.
        model = self.accelerator.unwrap_model(model)
        with self.accelerator.autocast():
            dtype = find_precision(model)
        for place in new:
            part = parts[place]
            shared = compared[place] = self._share(model, part, is_reference=is_reference)
            rows = pick_rows(part, _MAX_COMPARED_ROWS[dtype != torch.float32])
            found = self._compare(model, part, rows, shared.log_probs, is_reference=is_reference)
            self._guard.comparisons.append(found)
            if not found.is_close:
                return f"log-probabilities {found}"
        return None

    def _compare(
        self,
        model: Any,
        part: ScoredRows,
        rows: torch.Tensor,
        shared: torch.Tensor,
        *,
        is_reference: bool,
    ) -> Comparison:
        """Compare some rows of a shared pass, shape [rows, tokens], with plain ones."""
        chosen = part.take(rows)
        given = shared[rows, : chosen.ids.shape[1]][chosen.mask.bool()]
        # What the check of a first round computed serves its first update, too.
        tokens = chosen.prompts.ids.tolist(), chosen.ids.tolist()
        key = (is_reference, self.state.global_step, part.places[rows].tolist(), tokens)
        if self._plain is None or self._plain[0] != key:
            self._plain = (key, *self._pass_plainly(model, chosen))
        _, plain, ulp = self._plain
        return compare_passes(given, plain, ulp=ulp)

    def _pass_plainly(self, model: Any, chosen: ScoredRows) -> tuple[list[torch.Tensor], float]:
        """Return log-probabilities of plain passes, each of shape [tokens], and their unit."""
        alone = [chosen.take(row) for row in torch.arange(len(chosen.ids)).split(1)]
        with self.accelerator.autocast():
            dtype = find_precision(model)
        width = chosen.prompts.ids.shape[1] + chosen.ids.shape[1]
        with torch.no_grad():
            plain = [
                torch.cat([self._score_plainly(model, batch) for batch in batches])
                for batches in vary_batches(chosen, dtype)
            ]
            with use_plain_attention(width, dtype):
                plain.append(torch.cat([self._score_plainly(model, row) for row in alone]))
        with self.accelerator.autocast():
            logits = compute_logits(model, chosen) / self.temperature
        return plain, find_resolution(logits, plain[0], dtype)

    def _score_plainly(self, model: Any, rows: ScoredRows) -> torch.Tensor:
        """Return log-probabilities of the real tokens of a plain pass, shape [tokens]."""
        output = super()._get_per_token_logps_and_entropies(model, **name_plain(rows))
        return output[0][rows.mask.bool()]

    def log(self, logs: dict[str, Any], *given: Any) -> None:
        """Log counts since the last row of a training, too: unlike means they add up."""
        if "loss" in logs:
            logs |= self._take_counts()
            self._join_skipped()
        super().log(logs, *given)

    def _take_counts(self) -> dict[str, int]:
        counts, self._counts = dict(self._counts), Counter()
        if "num_skipped_rows" in counts:  # of this process; groups are those of all
            own = torch.tensor(counts["num_skipped_rows"], device=self.accelerator.device)
            counts["num_skipped_rows"] = int(self.accelerator.reduce(own, "sum"))
        return counts

    def _join_skipped(self) -> None:
        """Let the share of skipped rows be that of all processes."""
        parts = gather_object([self._metrics["train"].get("skipped_rows", [])])
        joined = [share for part in parts for share in part]
        if joined:
            self._metrics["train"]["skipped_rows"] = joined

    # ---- resuming ------------------------------------------------------------------------------

    def save_more(self) -> dict[str, Any]:
        """Return what else a checkpoint has to hold."""
        return {}

    def load_more(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``save_more`` returned; ``saved`` holds other things, too."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        save_progress(self, folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            load_progress(self, Path(checkpoint))
            self._sharing = self._find_sharing()


def _describe_shape(part: ScoredRows) -> tuple[Any, ...]:
    """Return what must be alike in two batches for one comparison to do for both."""
    pictures = max(part.prompts.pictures.count()) if part.prompts.pictures else 0
    widths = part.prompts.ids.shape[1].bit_length(), part.ids.shape[1].bit_length()
    return torch.is_grad_enabled(), bool((part.prompts.mask == 0).any()), pictures, *widths
