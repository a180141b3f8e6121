"""What a training leaves in its folder: whole checkpoints, and what it has used."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from groupwise.core import TrainingError, find_unlike, read_jsonl, write_digests, write_json
from groupwise.models import refuse_pickled
from groupwise.training.processes import ask_first, count_processes


@dataclass(frozen=True)
class Workspace:
    """The folder and the seed of one training.

    Attributes:
        folder: takes ``metrics.jsonl`` and the checkpoints; whole checkpoints found there are
            continued.
        seed: of the order of rows, of sampling and of new weights.
    """

    folder: Path
    seed: int

    @property
    def metrics(self) -> Path:
        """One row per logged step."""
        return self.folder / "metrics.jsonl"


_MARKER = "complete"


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as fully written, with the digests of its files."""
    write_digests(checkpoint / _MARKER)


def check_checkpoint(checkpoint: Path) -> None:
    """Refuse a checkpoint that is not file by file what its training wrote.

    Raises:
        TrainingError: with the first file that is not.
    """
    unlike = find_unlike(checkpoint / _MARKER)
    if unlike is not None:
        raise TrainingError(
            f"{checkpoint} is not what its training wrote",
            got=f"another {unlike}",
            fix="delete it: the training goes on from the one before, or starts again",
        )


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; ones torn by a crash are removed.

    Raises:
        TrainingError: if it was changed since.
    """
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
    """Return the checkpoint that these processes go on from, or None: there is none.

    Raises:
        TrainingError: if it was changed since, or another number of processes wrote it: what each
            has left in the middle of a round is its own part of it.
    """
    # The first process tells the others: on a file system of several machines they may see less.
    last = ask_first(lambda: find_last_checkpoint(folder))
    num_writers = 0 if last is None else len(list(last.glob("rng_state*.pth")))
    if num_writers not in (0, count_processes()):
        raise TrainingError(
            f"{last} was written by {num_writers} training together",
            got=f"{count_processes()} processes",
            fix="start as many, or delete the training's checkpoints to start it again",
        )
    return last


@contextmanager
def refuse_pickles(checkpoint: Path | None) -> Iterator[None]:
    """Say in one sentence that a checkpoint holds more than tensors and plain values.

    Args:
        checkpoint: that is continued inside the block; None: none is.

    Raises:
        TrainingError: on the library's error inside the block.
    """
    try:
        yield
    except UnpicklingError as error:
        raise TrainingError(
            f"{checkpoint} holds something else than tensors and plain values, or is damaged",
            got=str(error).splitlines()[0],
            fix="delete it: the training goes on from the one before, or starts again",
        ) from error


def read_step(checkpoint: Path) -> int:
    """Return the number of finished steps from a checkpoint's name."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def load_weights(model: Any, checkpoint: Path) -> None:
    """Put the weights of a checkpoint into a model, or into its adapter ``default``.

    Transformers' Trainer looks for the model's own names, but files of vision-language models
    have older ones; it would warn and go on with the weights that training started from.

    Raises:
        TrainingError: if the checkpoint does not hold every weight.
        ModelError: if it holds them as a pickle.
    """
    if getattr(model, "peft_config", None):
        from peft import load_peft_weights, set_peft_model_state_dict

        refuse_pickled(checkpoint)
        weights = load_peft_weights(str(checkpoint), device="cpu")
        found = set_peft_model_state_dict(model, weights, adapter_name="default")
        _check_names(checkpoint, [n for n in found.missing_keys if ".default." in f"{n}."])
        return
    saved, notes = type(model).from_pretrained(
        checkpoint, dtype=model.dtype, output_loading_info=True, use_safetensors=True
    )
    _check_names(checkpoint, sorted(notes["missing_keys"]))
    model.load_state_dict(saved.state_dict())


def _check_names(checkpoint: Path, missing: list[str]) -> None:
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

    Args:
        folder: of the training.
        num_steps: of the optimizer.
        num_samples: rows of supervised training, completions of GRPO.
        num_tokens: that were trained on: of the targets, or of all completions.
        looks: how often and at how many items validation was looked at, if it was.
    """
    counts = {"num_steps": num_steps, "num_samples": num_samples, "num_tokens": num_tokens}
    write_json(folder / "budget.json", counts | looks)


def write_grpo_budget(
    metrics: Path,
    resolved: Mapping[str, Any],
    *,
    num_steps: int,
    gradient_accumulation: int,
    group_size: int,
    **looks: int,
) -> None:
    """Write the budget of a GRPO training beside its ``metrics.jsonl``.

    What was sampled for places of dead groups is counted, whether it took one or not.

    Args:
        metrics: the file.
        resolved: values of the trainer.
        num_steps: of the optimizer.
        gradient_accumulation: micro-batches per optimizer step.
        group_size: completions per prompt.
        looks: as for ``write_budget``.
    """
    rows_per_pass = resolved["generation_batch_size"] / resolved["steps_per_generation"]
    per_step = rows_per_pass * gradient_accumulation / resolved["num_iterations"]
    rows = list(read_jsonl(metrics)) if metrics.is_file() else []
    num_refills, num_tokens = (
        sum(row.get(name, 0) for row in rows) for name in ("num_refills", "num_refill_tokens")
    )
    write_budget(
        metrics.parent,
        num_steps=num_steps,
        num_samples=round(num_steps * per_step) + num_refills * group_size,
        num_tokens=count_sampled_tokens(metrics, samples_per_step=per_step) + num_tokens,
        **looks,
    )


def count_sampled_tokens(metrics: Path, *, samples_per_step: float) -> int:
    """Return the tokens of all sampled completions of a ``metrics.jsonl``.

    Each row has the mean length since the row before, ``completion_length``.
    """
    done, num_tokens = 0, 0.0
    for row in read_jsonl(metrics) if metrics.is_file() else ():
        if "completion_length" in row:
            num_tokens += (row["step"] - done) * samples_per_step * row["completion_length"]
            done = row["step"]
    return round(num_tokens)
