"""What a training tells while it runs, whatever loop it has: metrics, progress, memory, facts."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from groupwise.core import Fact, TrainingError, append_jsonl, read_jsonl, write_json, write_jsonl

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


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MiB: what its tensors take on a GPU, else all that it takes."""

    device: str
    now_mib: int
    peak_mib: int
    total_mib: int


def read_memory() -> Memory | None:
    """Return what this process takes; None on a CPU whose system does not say (not Linux)."""
    import torch

    if torch.cuda.is_available():
        device = torch.cuda.current_device()
        return Memory(
            f"{torch.cuda.get_device_name(device)} (cuda:{device})",
            torch.cuda.memory_allocated(device) // _MIB,
            torch.cuda.max_memory_allocated(device) // _MIB,
            torch.cuda.get_device_properties(device).total_memory // _MIB,
        )
    if not _STATUS.is_file():
        return None
    files = (_STATUS, Path("/proc/meminfo"))
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    values = dict(line.split(":", 1) for line in lines)
    sizes = [int(values[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM", "MemTotal")]
    return Memory("cpu", *sizes)


@dataclass
class FactCounts:
    """What rewards tell of completions: truth values, numbers and texts, added up between rows."""

    num: int = 0  # completions, whether anything is told of them or not
    shares: Counter[tuple[str, bool]] = field(default_factory=Counter)
    sums: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    texts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, facts: Iterable[Mapping[str, Fact]]) -> None:
        for told in facts:
            self.num += 1
            for name, value in told.items():
                if isinstance(value, bool):
                    self.shares[name, value] += 1
                elif isinstance(value, str):
                    self.texts[name][value] += 1
                else:
                    self.sums[name].append(value)

    def merge(self, other: Self) -> None:
        """Count what another process has counted."""
        self.num += other.num
        self.shares.update(other.shares)
        for name, values in other.sums.items():
            self.sums[name] += values
        for name, counts in other.texts.items():
            self.texts[name].update(counts)

    def tabulate(self) -> dict[str, Any]:
        """Return what a row of metrics says: curves by name, and under ``facts`` their counts."""
        shares = {
            name: [self.shares[name, True], self.shares[name, True] + self.shares[name, False]]
            for name in dict.fromkeys(name for name, _ in self.shares)
        }
        families: defaultdict[str, list[str]] = defaultdict(list)
        for name, counts in sorted(self.texts.items()):
            family, stroke, _ = name.partition("/")
            if stroke:
                shares[f"commonest_{name}"] = [max(counts.values()), counts.total()]
                families[family].append(counts.most_common(1)[0][0])
        sums = {name: [sum(values), len(values)] for name, values in self.sums.items()}
        if not (shares or sums or self.texts):
            return {}
        curves = {f"reward/{name}": part / num for name, (part, num) in shares.items()}
        curves |= {f"mean/{name}": total / num for name, (total, num) in sums.items()}
        # Whether one text is the commonest of all kinds, where there are several.
        alike = [len(set(one)) == 1 for one in families.values() if len(one) > 1]
        if alike:
            curves["reward/collapsed"] = float(any(alike))
        texts = {
            name: {
                "num": counts.total(),
                "different": len(counts),
                "commonest": [list(one) for one in counts.most_common(12)],
            }
            for name, counts in sorted(self.texts.items())
        }
        facts = {"num": self.num, "shares": shares, "sums": sums, "texts": texts}
        return {**curves, "facts": facts}
