"""What a training tells while it runs, whatever loop it has: metrics, progress, facts."""

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import TrainingError, append_jsonl, read_jsonl, write_json, write_jsonl

_STATUS = Path("/proc/self/status")
_MIB = 2**20


class TrainingLog:
    """A JSONL file with a row for each logged step, such as ``metrics.jsonl``, of any loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._step, self._since_s = 0, time.perf_counter()

    def start(self, step: int) -> None:
        """Begin, or go on from a step: rows of later ones are dropped, as they are done again."""
        self._step, self._since_s = step, time.perf_counter()
        if self.path.exists():
            kept = [row for row in read_jsonl(self.path) if row["step"] <= step]
            write_jsonl(self.path, kept)

    def write(
        self,
        step: int,
        values: Mapping[str, float],
        *,
        epoch: float,
        facts: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Append the row of a step and return it; ``step_s`` is the mean time since the last row.

        A ``grad_norm`` that is no number is left out; another value that is none is a
        TrainingError. Facts are counts and texts of this step, as ``groupwise watch`` shows them.
        """
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if set(broken) - {"grad_norm"}:
            raise TrainingError(
                f"training broke down at step {step}",
                got=f"{' and '.join(broken)} not a number",
                fix="lower learning_rate or max_grad_norm, or train in float32",
            )
        row: dict[str, Any] = {"step": step, "epoch": round(epoch, 4)}
        row |= {name: value for name, value in values.items() if name not in broken}
        num_steps, since_s = step - self._step, self._since_s
        self._step, self._since_s = step, time.perf_counter()
        if num_steps > 0:
            row["step_s"] = (self._since_s - since_s) / num_steps
        row |= {"facts": facts} if facts else {}
        append_jsonl(self.path, row)
        return row


def begin_progress(folder: Path, *, num_steps: int, first_step: int) -> None:
    """Say in ``progress.json`` how far a training is to go, for those who look from outside.

    It says from where this attempt goes on, too, and stays where a training was killed.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    progress = {"num_steps": num_steps, "first_step": first_step, "started_at": started_at}
    write_json(folder / "progress.json", progress)


def end_progress(folder: Path) -> None:
    """Remove it: what follows from a training must not depend on the time of day."""
    (folder / "progress.json").unlink(missing_ok=True)
