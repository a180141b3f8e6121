"""Dynamic sampling: other prompts take the places of groups that have no gradient.

Source: DAPO (Yu et al. 2025, 2503.14476), section 3.2. Here as many are tried as places are open.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import nanstd

from groupwise.core import derive_seed
from groupwise.training.fast.pictures import process_pictures_once
from groupwise.training.fast.round import Groups, Round, find_dead_rows, number_prompts
from groupwise.training.fast.trainer import FastGRPOTrainer

Row = Mapping[str, Any]
ReadRows = Callable[[Sequence[int], int], list[Row]]
"""Returns a row of each place in the data, to be sampled at a step of the trainer."""


@dataclass(frozen=True)
class Candidates:
    """Prompts, by their place in the data, for open places."""

    read: ReadRows
    num_prompts: int
    max_tries: int
    seed: int

    def order(self, *, without: Sequence[int], step: int) -> list[int]:
        taken = set(without)
        places = [place for place in range(self.num_prompts) if place not in taken]
        random.Random(derive_seed(self.seed, "refill", step)).shuffle(places)
        return places


@dataclass
class Sampled:
    """Rows of this process, groups one after the other, with their completions and rewards."""

    rows: list[Row]
    # Of each: ids of the prompt and of the completion, the completion, and the log-probabilities
    # that it was sampled with, if known.
    parts: list[tuple[Any, ...]]
    kept: list[tuple[Round, int] | None]  # in which round, and where; None: in another process
    rewards: torch.Tensor  # of the rows of all processes, [all rows, functions]


class RefillingTrainer(FastGRPOTrainer):
    """FastGRPOTrainer whose rounds are sampled until their groups have a gradient.

    What metrics say of rewards and completions is of the prompts as they were laid out.
    """

    def __init__(self, *, candidates: Candidates, **named: Any) -> None:
        super().__init__(**named)
        self.candidates = candidates
        self._filled: Sampled | None = None

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        with process_pictures_once(self.processing_class):
            sampled = self._sample(inputs)
            # What TRL would log of them.
            weighted = sampled.rewards * self.reward_weights.to(sampled.rewards.device)
            totals = weighted.nansum(1).masked_fill(sampled.rewards.isnan().all(1), torch.nan)
            is_dead = find_dead_rows(weighted, group_size=self.num_generations)
            told = {
                "reward": totals.nanmean().item(),
                "reward_std": nanstd(totals).item(),
                "frac_reward_zero_std": is_dead.float().mean().item(),
            }
            self._fill(sampled)
            inputs[:] = sampled.rows
            self._filled = sampled
            try:
                batch = super()._generate_and_score_completions(inputs)
            finally:
                self._filled = None
        for name, value in told.items():
            self._metrics["train"][name][-1] = value
        return batch

    def _start_round(self, numbers: torch.Tensor) -> Round:
        started = super()._start_round(numbers)
        if self._filled is not None:
            for row, found in enumerate(self._filled.kept):
                if found is not None:
                    started.take_over(row, *found)
        return started

    def _generate(self, prompts: list[Any]) -> Any:
        if self._filled is None:
            return super()._generate(prompts)
        ids, completion_ids, completions, log_probs = map(
            list, zip(*self._filled.parts, strict=True)
        )
        known = None if log_probs[0] is None else log_probs
        return ids, completion_ids, None, completions, known, {}, None, []

    def _calculate_rewards(self, *given: Any, **named: Any) -> torch.Tensor:
        if self._filled is None:
            return super()._calculate_rewards(*given, **named)
        self._note_dead(self._filled.rewards)
        return self._filled.rewards

    def _sample(self, rows: Sequence[Row]) -> Sampled:
        numbers = torch.tensor(number_prompts(rows), device=self.accelerator.device)
        self._sharing = self._find_sharing()
        self._round, self._rows = Round(Groups.of(numbers)), rows
        prompts: list[Any] = [row["prompt"] for row in rows]
        if "images" in rows[0]:
            prompts = [prepare_multimodal_messages(row["prompt"], row["images"]) for row in rows]
        ids, completion_ids, _, completions, log_probs, *_ = super()._generate(prompts)
        rewards = GRPOTrainer._calculate_rewards(self, rows, prompts, completions, completion_ids)
        parts = zip(ids, completion_ids, completions, log_probs or [None] * len(ids), strict=True)
        kept: list[tuple[Round, int] | None] = [(self._round, row) for row in range(len(rows))]
        return Sampled(list(rows), list(parts), kept, rewards)

    def _fill(self, sampled: Sampled) -> None:
        """Let other prompts take the places of groups that are scored and dead."""
        self._count_groups(sampled.rewards)
        is_dead, is_scored = self._find_dead_groups(sampled.rewards)
        places = gather_object([row["place"] for row in sampled.rows[:: self.num_generations]])
        others = self.candidates.order(without=places, step=self._step)
        still_open = [n for n, dead in enumerate(is_dead) if dead and is_scored[n]]
        # In an order that any number of processes shares, as that of the candidates is.
        still_open.sort(key=places.__getitem__)
        num_processes = self.accelerator.num_processes
        for _ in range(self.candidates.max_tries):
            num_each = min(-(-len(still_open) // num_processes), len(others) // num_processes)
            if num_each == 0:
                return
            tried, others = others[: num_each * num_processes], others[num_each * num_processes :]
            still_open = self._try(sampled, still_open, tried)

    def _try(self, sampled: Sampled, still_open: list[int], tried: Sequence[int]) -> list[int]:
        """Sample prompts for open places, each process as many; return what is still open."""
        num_each = len(tried) // self.accelerator.num_processes
        first = self.accelerator.process_index * num_each
        # Metrics of completions and of rewards that may not be trained on are not kept.
        kept = self._metrics["train"], self._pending_metrics
        self._metrics["train"], self._pending_metrics = defaultdict(list), defaultdict(list)
        try:
            own = self._sample(self._read(tried[first : first + num_each]))
        finally:
            self._metrics["train"], self._pending_metrics = kept
        parts = gather_object(own.parts)
        is_dead, _ = self._find_dead_groups(own.rewards)
        alive = [number for number, dead in enumerate(is_dead) if not dead][: len(still_open)]
        self._counts["num_refills"] += len(tried)
        self._counts["num_dead_refills"] += sum(is_dead)
        self._counts["num_filled_groups"] += len(alive)
        self._counts["num_refill_tokens"] += sum(len(part[1]) for part in parts)
        for place, number in zip(still_open, alive, strict=False):
            theirs = self._find_rows(number)
            sampled.rewards[self._find_rows(place)] = own.rewards[theirs]
            group = self._find_rows(place, before=len(sampled.rows))
            if not 0 <= group.start < len(sampled.rows):
                continue  # of another process
            sampled.parts[group] = parts[theirs]
            rows = self._find_rows(number, before=len(own.rows))
            is_own = 0 <= rows.start < len(own.rows)
            sampled.rows[group] = own.rows[rows] if is_own else self._read([tried[number]])
            sampled.kept[group] = own.kept[rows] if is_own else [None] * self.num_generations
        return still_open[len(alive) :]

    def _find_rows(self, group: int, *, before: int = 0) -> slice:
        """Return the rows of a group, after so many rows of each process before this one."""
        start = group * self.num_generations - before * self.accelerator.process_index
        return slice(start, start + self.num_generations)

    def _read(self, places: Sequence[int]) -> list[Row]:
        rows = self.candidates.read(places, self._step)
        return [row for row in rows for _ in range(self.num_generations)]

    def _find_dead_groups(self, rewards: torch.Tensor) -> tuple[list[bool], list[bool]]:
        size = self.num_generations
        num_scored = (~rewards.isnan().all(1)).view(-1, size).sum(1)
        return self._find_dead_rows(rewards)[::size].tolist(), (num_scored > 1).tolist()
