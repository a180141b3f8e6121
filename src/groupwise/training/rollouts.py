"""What a GRPO training sampled and what it earned, kept so that rewards can be run on it again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.core import (
    Completion,
    DataError,
    Example,
    Score,
    append_jsonl,
    read_jsonl,
    write_jsonl,
)

ROLLOUTS = "rollouts.jsonl"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of a training.

    Attributes:
        step: finished updates when it was sampled.
        example: id of what was asked.
        completion: the answer.
        score: what it earned then, without facts.
    """

    step: int
    example: str
    completion: Completion
    score: Score


class RolloutLog:
    """A file with one line for all completions that were scored at once.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, step: int) -> None:
        """Begin, or go on behind a step: what was sampled from there on is sampled again."""
        if self.path.exists():
            write_jsonl(self.path, (row for row in read_jsonl(self.path) if row["step"] < step))

    def write(
        self,
        step: int,
        examples: Sequence[Example],
        completions: Sequence[Completion],
        scores: Sequence[Score],
    ) -> None:
        """Append completions, each with its example and score."""
        rows = [
            {
                "example": example.id,
                "text": one.text,
                "token_ids": list(one.token_ids),
                "finish_reason": one.finish_reason,
                "value": score.value,
                "reason": score.reason,
                "invalid": score.invalid,
                "breakdown": dict(score.breakdown),
            }
            for example, one, score in zip(examples, completions, scores, strict=True)
        ]
        append_jsonl(self.path, {"step": step, "rollouts": rows})


def read_rollouts(path: Path) -> Iterator[list[Rollout]]:
    """Yield what was scored at once, in order.

    Raises:
        DataError: if the file cannot be read, or is none that a training wrote.
    """
    for row in read_jsonl(path):
        try:
            yield [
                Rollout(
                    row["step"],
                    one["example"],
                    Completion(
                        one["text"], tuple(one["token_ids"]), finish_reason=one["finish_reason"]
                    ),
                    Score(one["value"], one["reason"], one["breakdown"], invalid=one["invalid"]),
                )
                for one in row["rollouts"]
            ]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{path} is not what a training with grpo.record_rollouts wrote", got=repr(error)
            ) from error
