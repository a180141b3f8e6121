"""Rounds that are sampled before the updates of the round before them.

A vLLM server then samples while the trainer learns; here it is done one after the other, for those
who want to know what being one round off does. TRL's own code weighs the losses, as it does where
vLLM's log-probabilities are not those of training: by the policy that an update starts from over
the one that sampled. The update's own ratio begins at 1, as ever.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.grpo_trainer import GRPOTrainer

from groupwise.core import TrainingError
from groupwise.training.fast.draws import draw_from_seeds
from groupwise.training.fast.groups import Groups, number_prompts
from groupwise.training.fast.refill import count_apart
from groupwise.training.fast.rounds import Round
from groupwise.training.fast.trainer import FastGRPOTrainer
from groupwise.training.on_policy import score_as_training
from groupwise.training.settings import AheadSettings


@dataclass(frozen=True)
class SampledAhead:
    """Completions of a round that is yet to come.

    Attributes:
        places: of the prompts of its rows.
        completion_ids: of each row.
        log_probs: of each token, by the policy that sampled it; None: vLLM has no number.
    """

    places: list[int]
    completion_ids: list[list[int]]
    log_probs: list[list[float | None]]


class AheadTrainer(FastGRPOTrainer):
    """FastGRPOTrainer that samples each round before the updates of the one before it.

    The first round is sampled from the policy itself. Rows have a ``place``, and the dataset has
    them in the order in which they are read, by one process.

    Args:
        ahead: how losses are weighted.
        named: FastGRPOTrainer's own arguments.
    """

    def __init__(self, *, ahead: AheadSettings, **named: Any) -> None:
        super().__init__(**named)
        self.vllm_importance_sampling_correction = ahead.correction is not None
        self.vllm_importance_sampling_mode = ahead.correction or "token_truncate"
        self.vllm_importance_sampling_clip_min = None
        self.vllm_importance_sampling_clip_max = ahead.ratio_max
        self._ahead: Future[SampledAhead] | None = None
        self._taken: SampledAhead | None = None
        self._is_apart = False
        self._asking = ThreadPoolExecutor(max_workers=1)

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._taken = self._take(inputs)
        with self._weigh(applies=self._taken is not None):
            batch = super()._generate_and_score_completions(inputs)
            if self._taken is not None:
                self._report(batch)
        self._taken = None
        rows = self._read_next()
        if rows:
            with self._keep_round():
                self._ahead = self._ask_vllm(rows) if self.use_vllm else self._sample(rows)
        return batch

    def _take(self, inputs: Sequence[Any]) -> SampledAhead | None:
        """Return what was sampled for these rows, once it is there; None: nothing was."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        sampled = ahead.result()
        if sampled.places != [row["place"] for row in inputs]:
            raise TrainingError("a round was sampled ahead for other prompts than it has")
        return sampled

    @contextmanager
    def _weigh(self, *, applies: bool) -> Iterator[None]:
        """Within this context TRL weighs losses as it does for completions of vLLM."""
        own, self.use_vllm = self.use_vllm, self.use_vllm or applies
        try:
            yield
        finally:
            self.use_vllm = own

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        with self._weigh(applies="importance_sampling_ratio" in inputs):
            return super()._compute_loss(model, inputs)

    def _generate_single_turn(self, *given: Any, **named: Any) -> tuple[Any, Any]:
        if self._taken is None or not self.model.training:
            return super()._generate_single_turn(*given, **named)
        return self._taken.completion_ids, self._taken.log_probs

    # ---- the round after this one ----------------------------------------------------------------

    def _read_next(self) -> list[Any]:
        """Return the rows of the next round; none behind the last."""
        num_uses = self.args.steps_per_generation * self.num_iterations
        number = self._step // num_uses + 1
        num_passes = self.state.max_steps * self.args.gradient_accumulation_steps
        if number * num_uses >= num_passes:
            return []
        size = self.args.generation_batch_size // self.num_generations
        rows = [self.train_dataset[number * size + place] for place in range(size)]
        return [row for row in rows for _ in range(self.num_generations)]

    @contextmanager
    def _keep_round(self) -> Iterator[None]:
        """After this context the trainer is in the round that it was in."""
        kept = self._round, self._rows, self._sharing, self._dead_rows
        try:
            yield
        finally:
            self._round, self._rows, self._sharing, self._dead_rows = kept

    def _ask_vllm(self, rows: Sequence[Any]) -> Future[SampledAhead]:
        """Send the weights as they are, and let the server sample while they are learned."""
        numbers = torch.tensor(number_prompts(rows), device=self.accelerator.device)
        self._round, self._rows = Round(Groups.of(numbers)), rows
        prompts: list[Any] = [row["prompt"] for row in rows]
        if "images" in rows[0]:
            prompts = [prepare_multimodal_messages(row["prompt"], row["images"]) for row in rows]
        ids, images, _ = self._tokenize_prompts(prompts)
        self.vllm_generation.sync_weights()
        self._last_loaded_step = self.state.global_step

        def ask() -> SampledAhead:
            with draw_from_seeds(self, rows):
                _, completion_ids, log_probs, _ = self.vllm_generation.generate(
                    prompts=ids,
                    images=images,
                    num_generations=self.num_generations,
                    profiler=nullcontext(),
                )
            # Of each token those of the likeliest others may follow.
            own = [[several[0] for several in row] for row in log_probs]
            return SampledAhead([row["place"] for row in rows], completion_ids, own)

        return self._asking.submit(ask)

    def _sample(self, rows: list[Any]) -> Future[SampledAhead]:
        """Sample here, and score what was sampled with the weights that it was sampled with."""
        with self._stand_apart():
            batch = super()._generate_and_score_completions(rows)
            log_probs = batch.get("old_per_token_logps")
            if log_probs is None:
                log_probs = score_as_training(self, batch)
        masks = batch["completion_mask"].bool()
        completion_ids, known = (
            [row[mask].tolist() for row, mask in zip(values, masks, strict=True)]
            for values in (batch["completion_ids"], log_probs)
        )
        done: Future[SampledAhead] = Future()
        done.set_result(SampledAhead([row["place"] for row in rows], completion_ids, known))
        return done

    @contextmanager
    def _stand_apart(self) -> Iterator[None]:
        """Within this context rounds earn nothing, no reference is asked and nothing is logged."""
        beta, self.beta, self._is_apart = self.beta, 0.0, True
        num_seen = self.state.num_input_tokens_seen  # they are counted when they are taken
        try:
            with count_apart(self):
                yield
        finally:
            self.beta, self._is_apart = beta, False
            self.state.num_input_tokens_seen = num_seen

    def _generate(self, prompts: list[Any]) -> Any:
        return (
            GRPOTrainer._generate(self, prompts) if self._is_apart else super()._generate(prompts)
        )

    def _calculate_rewards(self, *given: Any, **named: Any) -> torch.Tensor:
        if not self._is_apart:
            return super()._calculate_rewards(*given, **named)
        rewards = torch.zeros(len(self._rows), len(self.reward_funcs))
        rewards = rewards.to(self.accelerator.device)
        self._note_dead(rewards)
        return rewards

    # ---- what is told and kept -------------------------------------------------------------------

    def _report(self, batch: Mapping[str, Any]) -> None:
        """Log how far the policy has moved since it sampled these tokens."""
        own = batch.get("old_per_token_logps")
        if own is None:
            own = score_as_training(self, batch)
        gaps = (own - batch["sampling_per_token_logps"])[batch["completion_mask"].bool()].double()
        gaps = gaps[~gaps.isnan()]
        ratios = gaps.exp()
        told = {
            "ratio_mean": ratios.mean(),
            "ratio_max": ratios.max(),
            "kl": -gaps.mean(),
            # Kong's effective sample size, as a share of the tokens.
            "effective": ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()),
        }
        if self.vllm_importance_sampling_clip_max is not None:
            told["beyond"] = (ratios > self.vllm_importance_sampling_clip_max).double().mean()
        for name, value in told.items():
            self._metrics["train"][f"ahead/{name}"].append(value.item())

    def save_more(self) -> dict[str, Any]:
        """Return the round that is sampled already, once it is."""
        return {"ahead": None if self._ahead is None else asdict(self._ahead.result())}

    def load_more(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``save_more`` returned."""
        self._ahead = None
        if saved["ahead"] is not None:
            self._ahead = Future()
            self._ahead.set_result(SampledAhead(**saved["ahead"]))
