"""Rewards on what a training has sampled, once more and without a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from groupwise.core import Completion, DataError, RunError, Score, read_jsonl
from groupwise.data.examples import read_splits
from groupwise.flow.finished import FinishedRun
from groupwise.training.checkpoints import ROLLOUTS

TOTAL = "reward"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of a training."""

    step: int  # finished updates when it was sampled
    example: str  # id of what was asked
    completion: Completion
    score: Score  # what it earned then, without facts


def read_rollouts(path: Path) -> Iterator[list[Rollout]]:
    """Yield what was scored at once, in order; a file that no training wrote is a DataError."""
    for row in read_jsonl(path):
        try:
            batch: list[Rollout] = []
            for one in row["rollouts"]:
                ids, reason = tuple(one["token_ids"]), one["finish_reason"]
                completion = Completion(one["text"], ids, finish_reason=reason)
                score = Score(one["value"], one["reason"], one["breakdown"], invalid=one["invalid"])
                batch.append(Rollout(row["step"], one["example"], completion, score))
            yield batch
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{path} is not what a training with grpo.record_rollouts wrote", got=repr(error)
            ) from error


@dataclass(frozen=True, slots=True)
class ReplayedPart:
    """What became of the values of a part, or of the rewards as a whole (``reward``).

    Of each completion before and after; None: unscored, or there is no such part.
    """

    name: str
    before: tuple[float | None, ...]
    after: tuple[float | None, ...]

    @property
    def num_same(self) -> int:
        """Completions with the same value, or none, as before."""
        return sum(one == other for one, other in zip(self.before, self.after, strict=True))

    def count_unscored(self) -> tuple[int, int]:
        """Return how many had no value before, and have none now."""
        return self.before.count(None), self.after.count(None)

    def average(self) -> tuple[float | None, ...]:
        """Return the mean of the values before and now; None where there are none."""
        known = [[one for one in some if one is not None] for some in (self.before, self.after)]
        return tuple(fmean(values) if values else None for values in known)


@dataclass(frozen=True, slots=True)
class Replay:
    """Completions of a training as they were recorded, and what they earn now."""

    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]
    num_unknown: int  # completions left out: the run's data has their examples no more

    def list_parts(self) -> list[ReplayedPart]:
        """Return the rewards as a whole, then their parts of then and now."""
        both = [rollout.score for rollout in self.rollouts], self.scores
        names = dict.fromkeys(name for some in both for one in some for name in one.breakdown)
        parts = [
            ReplayedPart(name, *(tuple(one.breakdown.get(name) for one in some) for some in both))
            for name in names
        ]
        return [ReplayedPart(TOTAL, *(tuple(one.value for one in some) for some in both)), *parts]


def replay_rewards(run: FinishedRun, config: Any) -> Replay:
    """Return what the recorded completions of a run earn by the rewards of a config.

    A judge is asked again; its replies are kept for this call alone, or where its config says. The
    run was trained with ``grpo.record_rollouts`` and may still be at work; the config is its own,
    or changed in what rewards read. A RunError if nothing was recorded, or none of it is of the
    run's data; a DataError if the record is not what a training wrote.
    """
    paths = sorted(run.folder.glob(f"*/{ROLLOUTS}"))
    if not paths:
        raise RunError(
            f"{run.folder} has no recorded completions",
            fix="train with --set grpo.record_rollouts=true",
        )
    train = read_splits(run.folder / run.task.data_stage, "train")["train"]
    batches = [batch for path in paths for batch in read_rollouts(path)]
    examples = {example.id: example for example in train}
    rollouts: list[Rollout] = []
    scores: list[Score] = []
    with TemporaryDirectory() as folder:
        rewards = run.task.rewards(config, run.task.judge(config, Path(folder)))
        for batch in batches:  # as they were scored then
            known = [one for one in batch if one.example in examples]
            rollouts += known
            asked = [examples[one.example] for one in known]
            scores += rewards.score_batch(asked, [one.completion for one in known])
    num_unknown = sum(map(len, batches)) - len(rollouts)
    if not rollouts:
        raise RunError("no recorded completion is of the run's data", got=f"{num_unknown} others")
    return Replay(tuple(rollouts), tuple(scores), num_unknown)
