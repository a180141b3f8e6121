"""TRL's GRPOTrainer with what the rows of a group have in common computed once.

The package's docstring says which of its methods are overridden, and why.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from peft.tuners.tuners_utils import BaseTunerLayer
from trl.trainer.grpo_trainer import GRPOTrainer

from groupwise.core import TrainingError
from groupwise.training import on_policy
from groupwise.training.fast import guard, support
from groupwise.training.fast import round as rounds
from groupwise.training.fast.draws import draw_from_seeds
from groupwise.training.fast.pictures import process_pictures_once
from groupwise.training.fast.sampling import find_sampling_obstacle, sample_round
from groupwise.training.fast.scoring import ScoredRows, Scores, Sharing, put_back, score_rows
from groupwise.training.fast.shared import find_text_model, install_shared_pass
from groupwise.training.fast.vllm import send_merged, show_pictures
from groupwise.training.settings import SpeedSettings
from groupwise.training.sharding import ShardedTraining, gather_head, gather_weights

# In float32, where each costs four whole prompts in a first step, and in less precision.
_MAX_COMPARED_ROWS = (3, 16)
# TRL leaves open what its attributes hold until training has begun.
_Base: Any = GRPOTrainer


class FastGRPOTrainer(ShardedTraining, _Base):
    """GRPOTrainer, made with its own arguments, that pays for a prompt once per group."""

    def __init__(self, *, speed: SpeedSettings, **named: Any) -> None:
        support.keep_inputs_without_gradient(named["model"], named.get("args"))
        super().__init__(**named)
        self.speed = speed
        self._round: Any = None
        self._micro_batch: Mapping[str, Any] = {}
        self._guard = guard.ShapeGuard()
        self._plain: tuple[Any, list[torch.Tensor], float] | None = None
        self._counts: Counter[str] = Counter()
        self._sharing = Sharing()
        self._shares = self._samples_once = False
        if speed.shared_prefix != "off":
            self._install()
        if self.use_vllm:
            show_pictures(self.vllm_generation, self.processing_class)
            if hasattr(self.model, "peft_config") and self._dist.is_fsdp:
                warnings.warn(
                    "adapters are merged into the weights and out again for vLLM, which rounds "
                    "them: they are spread over processes",
                    stacklevel=2,
                )
            elif hasattr(self.model, "peft_config"):
                send_merged(self.vllm_generation, self.model)

    def _install(self) -> None:
        given = [m for m in (self.model, self.ref_model) if m is not None]
        models = [self.accelerator.unwrap_model(model) for model in given]
        self._backbones = [support.find_backbone(model) for model in models]
        obstacle = guard.agree(self.accelerator, self._find_obstacle(models))
        if obstacle is not None:
            self._stop_sharing(obstacle)
            return
        for backbone in self._backbones:
            install_shared_pass(backbone)
        self._shares = True
        if self.use_vllm or self.use_transformers_continuous_batching:
            return
        if self.speed.prefill_once:
            obstacle = find_sampling_obstacle(self.generation_config, models[0].generation_config)
            self._samples_once = obstacle is None
        if obstacle is not None:
            warnings.warn(f"every prompt is read once per completion: {obstacle}", stacklevel=2)

    def _find_obstacle(self, models: Sequence[Any]) -> str | None:
        if self._dist.fsdp_version == 1:
            return "its weights are spread over processes by FSDP1; FSDP2 allows it"
        for model in models:
            found = support.find_obstacle(
                support.find_backbone(model)
            ) or support.find_adapter_obstacle(model)
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

    def _stop_sharing(self, reason: str) -> None:
        if self.speed.shared_prefix == "on":
            raise TrainingError(
                f"prompts cannot be shared: {reason}", fix="set speed.shared_prefix to auto or off"
            )
        warnings.warn(f"every prompt is computed once per completion: {reason}", stacklevel=2)
        self._shares = False

    def _find_sharing(self) -> Sharing:
        """Return what is kept in a round; what trains is known when training has begun."""
        if not self._shares:
            return Sharing()
        backbone = self._backbones[0]
        num_blocks = len(find_text_model(backbone).layers)
        first = support.find_first_trained(backbone, num_blocks)
        return Sharing(
            first_trained=first,
            keeps_trunk=0 < first < num_blocks,
            keeps_features=not support.trains_vision(backbone),
        )

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
                rounds.split_batch(batch, num_steps, is_shuffled=is_laid_out)
                if num_steps > 1
                else [batch]
            )
        return self._buffered_inputs[self._step % num_steps]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            kept, self._round = self._round, None
            try:
                return super()._generate_and_score_completions(inputs)
            finally:
                self._round = kept
        numbers = torch.tensor(rounds.number_prompts(inputs), device=self.accelerator.device)
        self._round = self._start_round(numbers)
        self._sharing = self._find_sharing()
        self._rows = inputs
        with process_pictures_once(self.processing_class):
            batch = super()._generate_and_score_completions(inputs)
        batch["advantages"] = batch["advantages"].masked_fill(self._dead_rows, 0.0)
        places = torch.arange(len(inputs), device=numbers.device)
        return batch | {"prompt_numbers": numbers, "places": places}

    def _start_round(self, numbers: torch.Tensor) -> rounds.Round:
        return rounds.Round(rounds.Groups.of(numbers))

    def _calculate_rewards(self, *given: Any, **named: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(*given, **named)
        if self.model.training:
            self._note_dead(rewards)
            self._count_groups(rewards)
        return rewards

    def _count_groups(self, rewards: torch.Tensor) -> None:
        if self.multi_objective_aggregation == "sum_then_normalize":
            self._counts["num_groups"] += len(rewards) // self.num_generations
            dead = int(self._find_dead_rows(rewards).sum()) // self.num_generations
            self._counts["num_dead_groups"] += dead

    def _note_dead(self, rewards: torch.Tensor) -> None:
        own = self._find_dead_rows(rewards).chunk(self.accelerator.num_processes)
        self._dead_rows = own[self.accelerator.process_index]

    def _find_dead_rows(self, rewards: torch.Tensor) -> torch.Tensor:
        if self.multi_objective_aggregation != "sum_then_normalize":
            return torch.zeros(len(rewards), dtype=torch.bool, device=rewards.device)
        weighted = rewards * self.reward_weights.to(rewards.device)
        return rounds.find_dead_rows(weighted, group_size=self.num_generations)

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
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if self._shares and self._round is not None and self.model.training:
            scored = self._collect_rows(input_ids, attention_mask, logits_to_keep, named)
            output = self._score(model, scored, batch_size or len(input_ids))
            if output is not None:
                return output[0], output[1] if compute_entropy else None, None
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
        numbers = self._micro_batch.get("prompt_numbers", self._round.groups.prompt_of_row)
        places = self._micro_batch.get("places", torch.arange(len(numbers), device=ids.device))
        if len(numbers) != len(ids):
            return None
        prompts = guard.collect_prompts(ids[:, :-num_tokens], mask[:, :-num_tokens], named)
        if prompts is None:
            return None
        return ScoredRows(prompts, ids[:, -num_tokens:], mask[:, -num_tokens:], places, numbers)

    def _score(
        self, model: Any, scored: ScoredRows | None, batch_size: int
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Return log-probabilities and entropies [rows, tokens]; None: use plain passes."""
        chunks: list[torch.Tensor] = []
        parts: list[ScoredRows] = []
        if scored is not None:
            alive = self._find_alive_rows(len(scored.ids))
            chunks = rounds.split_groups(alive, scored.prompt_numbers, batch_size)
            parts = [scored.take(rows) for rows in chunks]
        compared: dict[int, Scores] = {}
        # The first batch of each new shape is compared.
        is_reference, is_spread = model is self.ref_model, self._dist.is_fsdp
        new = [
            place
            for place, part in enumerate(parts)
            if part.mask.any() and self._guard.is_new((is_reference, *_describe_shape(part)))
        ]
        some_are_new = is_spread and bool(self._gather(len(new)).any())
        with gather_weights(model) if some_are_new else nullcontext():
            fault = guard.agree(self.accelerator, self._find_fault(model, parts, new, compared))
        if fault is not None:
            self._stop_sharing(fault)
        # Each pass gathers weights from all processes, so that all must do as many.
        counts = self._gather(len(parts)) if is_spread else torch.tensor([len(parts)])
        if scored is None or fault is not None or not counts.all():
            return None
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
        return put_back(found, scored, unscored_log_probs=old)

    def _share(self, model: Any, part: ScoredRows, *, is_reference: bool) -> Scores:
        backbone = self._backbones[-1 if is_reference else 0]
        sharing = Sharing() if is_reference else self._sharing
        gather_head(model)
        with self.accelerator.autocast():
            return score_rows(model, backbone, part, sharing, self._round)

    def _find_alive_rows(self, num_rows: int) -> torch.Tensor:
        """Return the rows to score; an update without KL and entropy terms skips dead ones."""
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
            dtype = on_policy.find_precision(model)
        for place in new:
            part = parts[place]
            shared = compared[place] = self._share(model, part, is_reference=is_reference)
            rows = guard.pick_rows(part, _MAX_COMPARED_ROWS[dtype != torch.float32])
            chosen = part.take(rows)
            given = shared.log_probs[rows, : chosen.ids.shape[1]][chosen.mask.bool()]
            # A round's check serves its first update, too; a reference goes through other adapters.
            layers = [one for one in model.modules() if isinstance(one, BaseTunerLayer)][:1]
            active = [(one.disable_adapters, one.active_adapters) for one in layers]
            tokens = chosen.prompts.ids.tolist(), chosen.ids.tolist()
            key = (is_reference, active, self.state.global_step, part.places[rows].tolist(), tokens)
            if self._plain is None or self._plain[0] != key:
                alone = [chosen.take(row) for row in torch.arange(len(chosen.ids)).split(1)]
                width = chosen.prompts.ids.shape[1] + chosen.ids.shape[1]
                first = guard.name_plain(chosen.take(torch.arange(1, device=chosen.ids.device)))
                named = {name: one for name, one in first.items() if not name.startswith("num_")}
                with torch.no_grad():
                    plain = [
                        torch.cat([self._score_plainly(model, batch) for batch in batches])
                        for batches in guard.vary_batches(chosen, dtype)
                    ]
                    with on_policy.use_plain_attention(width, dtype):
                        plain.append(torch.cat([self._score_plainly(model, row) for row in alone]))
                    with self.accelerator.autocast():
                        logits = model(**named, use_cache=False).logits / self.temperature
                self._plain = (key, plain, on_policy.find_resolution(logits, plain[0], dtype))
            found = guard.compare_passes(given, self._plain[1], ulp=self._plain[2])
            self._guard.comparisons.append(found)
            if not found.is_close:
                return f"log-probabilities {found}"
        return None

    def _score_plainly(self, model: Any, rows: ScoredRows) -> torch.Tensor:
        output = super()._get_per_token_logps_and_entropies(model, **guard.name_plain(rows))
        return output[0][rows.mask.bool()]

    def log(self, logs: dict[str, Any], *given: Any) -> None:
        if "loss" in logs:
            counts, self._counts = dict(self._counts), Counter()
            if "num_skipped_rows" in counts:  # of this process; groups are those of all
                own = torch.tensor(counts["num_skipped_rows"], device=self.accelerator.device)
                counts["num_skipped_rows"] = int(self.accelerator.reduce(own, "sum"))
            logs |= counts
            # The share of skipped rows is that of all processes.
            shares = gather_object([self._metrics["train"].get("skipped_rows", [])])
            joined = [share for part in shares for share in part]
            if joined:
                self._metrics["train"]["skipped_rows"] = joined
        super().log(logs, *given)

    # ---- resuming ------------------------------------------------------------------------------

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        rounds.save_progress(self, folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            rounds.load_progress(self, Path(checkpoint))
            self._sharing = self._find_sharing()


def _describe_shape(part: ScoredRows) -> tuple[Any, ...]:
    """Return what must be alike in two batches for one comparison to do for both."""
    pictures = max(part.prompts.pictures.count()) if part.prompts.pictures else 0
    widths = part.prompts.ids.shape[1].bit_length(), part.ids.shape[1].bit_length()
    return torch.is_grad_enabled(), bool((part.prompts.mask == 0).any()), pictures, *widths
