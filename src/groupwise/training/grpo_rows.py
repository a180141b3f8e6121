"""Examples and rewards in the shapes that TRL's GRPOTrainer reads.

The prompts of all epochs are laid out in one fixed order that follows from the seed: TRL's own
shuffling starts from the first permutation again when training is continued.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from groupwise.core import Completion, Example, Score, derive_seed, open_picture
from groupwise.models import build_messages
from groupwise.rewards import RewardSet
from groupwise.training.facts import FactCounts
from groupwise.training.processes import ask_first, count_processes, find_rank
from groupwise.training.rollouts import RolloutLog


def lay_out_prompts(
    num_prompts: int,
    *,
    num_epochs: int,
    prompts_per_round: int,
    seed: int,
    ranks: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """Return (epoch, place) of each prompt of every epoch in order.

    Each epoch is shuffled by its own seed; what does not fill a round is left out.

    Args:
        num_prompts: of an epoch.
        num_epochs: that are laid out.
        prompts_per_round: that are sampled at once.
        seed: of the orders.
        ranks: of the prompts; the first epoch begins with the lowest. None: all are alike.
    """
    layout: list[tuple[int, int]] = []
    for epoch in range(num_epochs):
        places = list(range(num_prompts))
        random.Random(derive_seed(seed, "prompts", epoch)).shuffle(places)
        places = places[: num_prompts - num_prompts % prompts_per_round]
        if ranks is not None and epoch == 0:
            places.sort(key=ranks.__getitem__)
        layout += [(epoch, place) for place in places]
    return layout


def deal_prompts(
    layout: Sequence[tuple[int, int]], *, prompts_per_step: int, prompts_per_round: int
) -> list[tuple[int, int]]:
    """Return the layout with each round in the order in which several processes read it.

    A process has one stretch of a round and takes its micro-batches from it in turn. Dealt like
    this, micro-batches of all processes together have the prompts that one process would give them.

    Args:
        layout: of all rounds.
        prompts_per_step: of a micro-batch, over all processes.
        prompts_per_round: of all micro-batches of a round.
    """
    own = prompts_per_step // count_processes()
    dealt: list[tuple[int, int]] = []
    for round_start in range(0, len(layout), prompts_per_round):
        for share_start in range(0, prompts_per_step, own):
            for step_start in range(0, prompts_per_round, prompts_per_step):
                start = round_start + step_start + share_start
                dealt += layout[start : start + own]
    return dealt


def make_prompt_rows(
    examples: Sequence[Example], layout: Sequence[tuple[int, int]], *, seed: int
) -> Any:
    """Return a Dataset with the prompts of (epoch, place) pairs, in order.

    Its columns are ``place``, ``sampling_seed``, ``prompt`` and ``images`` (if any). Rows of one
    place that are read together, a group, hold the same opened pictures. What is sampled for a
    prompt follows from ``seed``, its place and its epoch: not from the rows around it.
    """
    from datasets import Dataset

    has_pictures = any(example.pictures for example in examples)

    def read(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        chosen = [examples[place] for place in batch["place"]]
        columns: dict[str, list[Any]] = {
            **batch,
            "prompt": [build_messages(example) for example in chosen],
        }
        if has_pictures:
            opened = {
                place: [open_picture(picture) for picture in examples[place].pictures]
                for place in set(batch["place"])
            }
            columns["images"] = [opened[place] for place in batch["place"]]
        return columns

    columns = {
        "place": [place for _, place in layout],
        "sampling_seed": [derive_seed(seed, "completions", place, n) for n, place in layout],
    }
    return Dataset.from_dict(columns).with_transform(read)


class RewardFunction:
    """Scores completions with a RewardSet; parts, invalid and unscored shares are logged.

    Of several processes the first scores what all have sampled: what rewards ask, keep and count is
    then what it is with one process.

    Args:
        examples: looked up by the ``place`` of a row.
        rewards: what scores; None in processes that are not the first.
        end_token_ids: a completion that does not end with one of them was truncated.
        log: of what is scored; None: it is not kept.

    Attributes:
        facts: what this process's rewards told since ``tell_facts``.
    """

    __name__ = "reward"

    def __init__(
        self,
        examples: Sequence[Example],
        rewards: RewardSet | None,
        *,
        end_token_ids: Sequence[int],
        log: RolloutLog | None = None,
    ) -> None:
        self.log = log
        self.examples = examples
        self.rewards = rewards
        self.end_token_ids = frozenset(end_token_ids)
        self.facts = FactCounts()

    def __call__(
        self,
        *,
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        place: Sequence[int],
        log_metric: Callable[[str, float], None],
        trainer_state: Any = None,
        **_: Any,
    ) -> list[float | None]:
        """Return one value in [0, 1] per completion, or None where nothing could be scored."""
        from accelerate.utils import gather_object

        sampled = [
            (index, self._wrap(messages[0]["content"], ids))
            for index, messages, ids in zip(place, completions, completion_ids, strict=True)
        ]
        parts = gather_object([sampled])
        step = trainer_state.global_step if trainer_state else 0
        values = ask_first(lambda: self._score(parts, log_metric, step=step))
        return values[find_rank()]

    def _score(
        self,
        parts: Sequence[Sequence[tuple[int, Completion]]],
        log_metric: Callable[[str, float], None],
        *,
        step: int,
    ) -> list[list[float | None]]:
        """Return the values of what each process has sampled: places of examples, completions."""
        assert self.rewards is not None
        sampled = [pair for part in parts for pair in part]
        examples = [self.examples[index] for index, _ in sampled]
        completions = [one for _, one in sampled]
        scores = self.rewards.score_batch(examples, completions)
        if self.log is not None:
            self.log.write(step, examples, completions, scores)
        self._log(self.rewards, scores, log_metric)
        self.facts.add(score.facts for score in scores)
        values = iter([score.value for score in scores])
        return [[next(values) for _ in part] for part in parts]

    def tell_facts(self) -> dict[str, Any]:
        """Return what rewards told in all processes since this was last asked, as a row says it."""
        from accelerate.utils import gather_object

        told, self.facts = self.facts, FactCounts()
        first, *others = gather_object([told])
        for other in others:
            first.merge(other)
        return first.tabulate()

    def _wrap(self, text: str, ids: Sequence[int]) -> Completion:
        has_ended = bool(ids) and ids[-1] in self.end_token_ids
        return Completion(text, tuple(ids), finish_reason="stop" if has_ended else "length")

    def _log(
        self,
        rewards: RewardSet,
        scores: Sequence[Score],
        log_metric: Callable[[str, float], None],
    ) -> None:
        log_metric("invalid", sum(score.invalid for score in scores) / len(scores))
        log_metric("unscored", sum(score.value is None for score in scores) / len(scores))
        for name in rewards.weights:
            values = [v for s in scores if (v := s.breakdown.get(name)) is not None]
            if values:
                mean = sum(values) / len(values)
                spread = sum((value - mean) ** 2 for value in values) / len(values)
                log_metric(f"reward/{name}", mean)
                log_metric(f"reward/{name}_std", math.sqrt(spread))
