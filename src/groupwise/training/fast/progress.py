"""Where a training stands inside a round, written beside a checkpoint and read back from it.

Transformers' Trainer keeps weights, optimizer and generators; what follows from them only at the
start of a round is kept here. Kept states are not computed again: sampling made them token by
token, and another pass would round differently.
"""

from pathlib import Path
from typing import Any

import torch

from groupwise.core import TrainingError
from groupwise.training.fast.groups import Groups
from groupwise.training.fast.rounds import Round


def save_progress(trainer: Any, folder: Path) -> None:
    """Write what this process needs to go on after ``trainer``'s last micro-batch."""
    num_uses = trainer.args.steps_per_generation * trainer.num_iterations
    is_inside = trainer._step % num_uses != 0
    state = {
        "step": trainer._step,
        "shares": trainer._shares,
        "compared": sorted(trainer._guard.compared),
        "buffered": trainer._buffered_inputs if is_inside else None,
        "round": _pack(trainer._round) if is_inside else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, _find_file(trainer, folder))


def load_progress(trainer: Any, folder: Path) -> None:
    """Put back what ``save_progress`` wrote.

    Raises:
        TrainingError: if this process wrote nothing there.
    """
    path = _find_file(trainer, folder)
    if not path.exists():
        raise TrainingError(
            f"{folder} does not say where the training stood",
            got=f"no {path.name}",
            fix="use as many processes as wrote it, or delete it to start the training again",
        )
    state = torch.load(path, map_location=trainer.accelerator.device)
    trainer._step, trainer._shares = state["step"], trainer._shares and state["shares"]
    trainer._guard.compared = set(state["compared"])
    trainer._buffered_inputs, packed = state["buffered"], state["round"]
    trainer._round = None if packed is None else Round(Groups.of(packed.pop("numbers")), **packed)


def _find_file(trainer: Any, folder: Path) -> Path:
    return folder / f"grpo_progress_{trainer.accelerator.process_index}.pt"


def _pack(kept: Round | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    return {
        "numbers": kept.groups.prompt_of_row,
        "pictures": kept.pictures,
        "prefixes": kept.prefixes,
        "tails": kept.tails,
    }
