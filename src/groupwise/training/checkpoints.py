"""Checkpoints that count only when they are whole."""

import shutil
from pathlib import Path
from typing import Any

from groupwise.core import TrainingError

_MARKER = "complete"


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as fully written."""
    (checkpoint / _MARKER).touch()


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; ones torn by a crash are removed."""
    found: list[Path] = []
    for path in folder.glob("checkpoint-*"):
        if (path / _MARKER).exists():
            found.append(path)
        else:
            shutil.rmtree(path)
    return max(found, key=read_step, default=None)


def read_step(checkpoint: Path) -> int:
    """Return the number of finished steps from a checkpoint's name."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def load_weights(model: Any, checkpoint: Path) -> None:
    """Put the weights of a checkpoint into a model, or into its adapter ``default``.

    Transformers' Trainer looks for the model's own names, but files of vision-language models
    have older ones; it would warn and go on with the weights that training started from.

    Raises:
        TrainingError: if the checkpoint does not hold every weight.
    """
    if getattr(model, "peft_config", None):
        from peft import load_peft_weights, set_peft_model_state_dict

        weights = load_peft_weights(str(checkpoint), device="cpu")
        found = set_peft_model_state_dict(model, weights, adapter_name="default")
        _check_names(checkpoint, [name for name in found.missing_keys if ".default." in name])
        return
    saved, notes = type(model).from_pretrained(
        checkpoint, dtype=model.dtype, output_loading_info=True
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


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of a finished training."""
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)
