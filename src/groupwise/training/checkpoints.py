"""What a training leaves in its folder: whole checkpoints, what it used, and what it sampled."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from groupwise.core import (
    Completion,
    Example,
    Score,
    TrainingError,
    append_jsonl,
    find_unlike,
    read_jsonl,
    write_digests,
    write_json,
    write_jsonl,
)
from groupwise.training.processes import ask_first, count_processes
from groupwise.training.settings import GrpoSettings

ROLLOUTS = "rollouts.jsonl"
_MARKER = "complete"
_AGAIN = "delete it: the training goes on from the one before, or starts again"


@dataclass(frozen=True)
class Workspace:
    """The folder of one training, whose whole checkpoints are continued, and its seed."""

    folder: Path
    seed: int  # of the order of rows, of sampling and of new weights

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as fully written, with the digests of its files."""
    write_digests(checkpoint / _MARKER)


def check_checkpoint(checkpoint: Path) -> None:
    """Refuse with a TrainingError a checkpoint that is not file by file what its training wrote."""
    unlike = find_unlike(checkpoint / _MARKER)
    if unlike is not None:
        raise TrainingError(
            f"{checkpoint} is not what its training wrote", got=f"another {unlike}", fix=_AGAIN
        )


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint, refused if it was changed; torn ones are removed."""
    found: list[Path] = []
    for path in folder.glob("checkpoint-*"):
        if (path / _MARKER).exists():
            found.append(path)
        else:
            shutil.rmtree(path)
    last = max(found, key=read_step, default=None)
    if last is not None:
        check_checkpoint(last)
    return last


def find_start(folder: Path) -> Path | None:
    # The first process tells the others: on a file system of several machines they may see less.
    last = ask_first(lambda: find_last_checkpoint(folder))
    num_writers = 0 if last is None else len(list(last.glob("rng_state*.pth")))
    # What each process has left in the middle of a round is its own part of it.
    if num_writers not in (0, count_processes()):
        raise TrainingError(
            f"{last} was written by {num_writers} training together",
            got=f"{count_processes()} processes",
            fix="start as many, or delete the training's checkpoints to start it again",
        )
    return last


@contextmanager
def refuse_pickles(checkpoint: Path | None) -> Iterator[None]:
    """Say in one sentence that a checkpoint, continued inside, holds more than tensors and values.

    The library's own error becomes a TrainingError.
    """
    try:
        yield
    except UnpicklingError as error:
        raise TrainingError(
            f"{checkpoint} holds something else than tensors and plain values, or is damaged",
            got=str(error).splitlines()[0],
            fix=_AGAIN,
        ) from error


def read_step(checkpoint: Path) -> int:
    """Return the number of finished steps from a checkpoint's name."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def load_weights(model: Any, checkpoint: Path) -> None:
    """Put the weights of a checkpoint into a model, or into its adapter ``default``."""
    if getattr(model, "peft_config", None):
        from peft import load_peft_weights, set_peft_model_state_dict

        from groupwise.models.identity import refuse_pickled

        refuse_pickled(checkpoint)
        weights = load_peft_weights(str(checkpoint), device="cpu")
        found = set_peft_model_state_dict(model, weights, adapter_name="default")
        missing = [name for name in found.missing_keys if ".default." in f"{name}."]
    else:
        saved, notes = type(model).from_pretrained(
            checkpoint, dtype=model.dtype, output_loading_info=True, use_safetensors=True
        )
        missing = sorted(notes["missing_keys"])
        if not missing:
            model.load_state_dict(saved.state_dict())
    if missing:
        raise TrainingError(
            f"{checkpoint} does not hold all weights of the model",
            got=f"no {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""),
            fix="delete the checkpoint to start the training again",
        )


def remove_checkpoints(folder: Path, *, num_kept: int = 0) -> None:
    """Remove all checkpoints but those of the last steps, whatever the clock said at them."""
    found = sorted(folder.glob("checkpoint-*"), key=read_step)
    for path in found[: max(0, len(found) - num_kept)]:
        shutil.rmtree(path)


def write_budget(
    folder: Path, *, num_steps: int, num_samples: int, num_tokens: int, **looks: int
) -> None:
    """Write ``budget.json`` into the folder of a training.

    Samples are rows of supervised training or completions of GRPO, tokens those of the targets or
    of all completions; ``looks`` says how often and at how many items validation was looked at.
    """
    counts = {"num_steps": num_steps, "num_samples": num_samples, "num_tokens": num_tokens}
    write_json(folder / "budget.json", counts | looks)


def write_grpo_budget(
    metrics: Path,
    resolved: Mapping[str, Any],
    settings: GrpoSettings,
    *,
    num_steps: int,
    looks: Mapping[str, int],
) -> None:
    """Write the budget of a GRPO training, refills included, beside its ``metrics.jsonl``."""
    rows_per_pass = resolved["generation_batch_size"] / resolved["steps_per_generation"]
    per_step = rows_per_pass * settings.gradient_accumulation / resolved["num_iterations"]
    rows = list(read_jsonl(metrics)) if metrics.is_file() else []
    num_refills = sum(row.get("num_refills", 0) for row in rows)
    done, num_tokens = 0, 0.0
    for row in rows:
        if "completion_length" in row:
            num_tokens += (row["step"] - done) * per_step * row["completion_length"]
            done = row["step"]
    write_budget(
        metrics.parent,
        num_steps=num_steps,
        num_samples=round(num_steps * per_step) + num_refills * settings.group_size,
        num_tokens=round(num_tokens) + sum(row.get("num_refill_tokens", 0) for row in rows),
        **looks,
    )


class RolloutLog:
    """A file with one line for all completions that were scored at once."""

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
        rows = [
            {
                "example": example.id,
                "text": completion.text,
                "token_ids": list(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "value": score.value,
                "reason": score.reason,
                "invalid": score.invalid,
                "breakdown": dict(score.breakdown),
            }
            for example, completion, score in zip(examples, completions, scores, strict=True)
        ]
        append_jsonl(self.path, {"step": step, "rollouts": rows})
