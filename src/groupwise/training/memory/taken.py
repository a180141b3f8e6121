"""How much memory each process takes, told beside its rows for who looks from outside."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from groupwise.core import write_json
from groupwise.training.processes import count_processes, is_first_process

MEMORY = "memory.json"
_STATUS = Path("/proc/self/status")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MiB: what its tensors take on a GPU, else all that it takes.

    Attributes:
        device: the GPU, or ``cpu``.
        now_mib: at this moment.
        peak_mib: at most since the process was started.
        total_mib: that there is, for all processes on it.
    """

    device: str
    now_mib: int
    peak_mib: int
    total_mib: int


def read_memory() -> Memory | None:
    """Return what this process takes; None on a CPU whose system does not say (not Linux)."""
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
    now, peak = _read_kib(_STATUS, "VmRSS"), _read_kib(_STATUS, "VmHWM")
    total = _read_kib(Path("/proc/meminfo"), "MemTotal")
    return Memory("cpu", now // 1024, peak // 1024, total // 1024)


def _read_kib(path: Path, name: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


class MemoryFile(TrainerCallback):
    """Writes ``memory.json`` with each logged row: one entry per process, in their order."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / MEMORY

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        """Ask all processes, and let the first write."""
        if not logs or "loss" not in logs:
            return
        found = [read_memory()]
        if count_processes() > 1:
            found = gather_object(found)
        if is_first_process() and None not in found:
            told = [asdict(one) for one in found if one is not None]
            write_json(self.path, {"step": state.global_step, "processes": told})
