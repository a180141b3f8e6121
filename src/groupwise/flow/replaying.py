"""Rewards on what a training has sampled, once more and without a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from groupwise.core import Completion, DataError, Example, RunError, Score, read_jsonl
from groupwise.flow.finished import FinishedRun
from groupwise.flow.task import read_splits
from groupwise.rewards import RewardSet
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
    """What became of a part's values, or of the rewards themselves.

    Attributes:
        name: of the part; ``reward``: the whole.
        before, after: of each completion; None: unscored, or there is no such part.
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

    def average(self) -> tuple[float | None, float | None]:
        """Return the mean of the values before and now; None where there are none."""
        return _average(self.before), _average(self.after)


@dataclass(frozen=True, slots=True)
class Replay:
    """Completions of a training and what they earn now.

    Attributes:
        rollouts: as they were recorded.
        scores: now.
        num_unknown: completions left out, because the run's data has their examples no more.
    """

    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]
    num_unknown: int

    def list_parts(self) -> list[ReplayedPart]:
        """Return the rewards as a whole, then their parts of then and now."""
        before = [rollout.score for rollout in self.rollouts]
        scores = list(zip(before, self.scores, strict=True))
        names = dict.fromkeys(name for pair in scores for one in pair for name in one.breakdown)
        total = ReplayedPart(TOTAL, *_split((a.value, b.value) for a, b in scores))
        parts = (
            ReplayedPart(n, *_split((a.breakdown.get(n), b.breakdown.get(n)) for a, b in scores))
            for n in names
        )
        return [total, *parts]


def replay_rewards(run: FinishedRun, config: Any) -> Replay:
    """Return what the recorded completions of a run earn by the rewards of a config.

    A judge is asked again; its replies are kept for this call alone, or where its config says.

    Args:
        run: trained with ``grpo.record_rollouts``; it may still be at work.
        config: of the run, or changed in what rewards read.

    Raises:
        RunError: if nothing was recorded, or none of it is of the run's data.
        DataError: if the record is not what a training wrote.
    """
    paths = sorted(run.folder.glob(f"*/{ROLLOUTS}"))
    if not paths:
        raise RunError(
            f"{run.folder} has no recorded completions",
            fix="train with --set grpo.record_rollouts=true",
        )
    train = read_splits(run.folder / run.task.data_stage, "train")["train"]
    batches = [batch for path in paths for batch in read_rollouts(path)]
    with TemporaryDirectory() as folder:
        rewards = run.task.rewards(config, run.task.judge(config, Path(folder)))
        return _score(batches, {example.id: example for example in train}, rewards)


def _score(
    batches: Sequence[Sequence[Rollout]], examples: dict[str, Example], rewards: RewardSet
) -> Replay:
    rollouts: list[Rollout] = []
    scores: list[Score] = []
    for batch in batches:  # as they were scored then
        known = [one for one in batch if one.example in examples]
        rollouts += known
        scores += rewards.score_batch(
            [examples[one.example] for one in known], [one.completion for one in known]
        )
    num_unknown = sum(map(len, batches)) - len(rollouts)
    if not rollouts:
        raise RunError("no recorded completion is of the run's data", got=f"{num_unknown} others")
    return Replay(tuple(rollouts), tuple(scores), num_unknown)


def _split(
    pairs: Iterator[tuple[float | None, float | None]],
) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    before, after = zip(*pairs, strict=True)
    return before, after


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
