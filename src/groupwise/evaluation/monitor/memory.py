"""What each process of a training takes of the memory, as the training has told it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Of one process, in MiB.

    Attributes:
        device: the GPU, or ``cpu``.
        now_mib: when the last row was written.
        peak_mib: at most since the process was started.
        total_mib: that there is, for all processes on it.
    """

    device: str
    now_mib: int
    peak_mib: int
    total_mib: int


def read_processes(record: Mapping[str, Any] | None) -> tuple[ProcessMemory, ...]:
    """Return what ``memory.json`` says, by the numbers of the processes; nothing without it."""
    return tuple(ProcessMemory(**one) for one in (record or {}).get("processes", ()))
