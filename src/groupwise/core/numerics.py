"""What decides in which order this machine adds numbers, and so the last bits of every result."""

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = re.compile(r"(?:avx\w*|amx\w*|fma|f16c|asimd\w*|sve\w*|bf16|i8mm)$")
_BUILDS = re.compile(r"(Math Kernel Library|MKL-DNN|OpenBLAS|OpenMP) (?:Version )?v?([\w.]+)")
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")
_CPU_INFO = Path("/proc/cpuinfo")


def describe_numerics() -> dict[str, Any]:
    """Return processor, instruction sets, threads and builds of the libraries that compute.

    Two machines that agree in all of it compute the same bits from the same settings; where they
    do not, sums may be rounded in another order.
    """
    import numpy as np
    import torch

    cpu = _read_cpu()
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    blas: Any = np.show_config(mode="dicts")
    found = blas.get("Build Dependencies", {}).get("blas", {})
    return {
        "cpu": cpu.get("model name", "not known"),
        "cpu_flags": sorted(flag for flag in flags if _FLAGS.match(flag)),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "num_threads": torch.get_num_threads(),
        "builds": [
            f"torch {torch.__version__}",
            *(" ".join(build) for build in _BUILDS.findall(torch.__config__.show())),
            f"numpy with {found.get('name')} {found.get('version')}",
        ],
    }


@contextmanager
def one_thread() -> Generator[None]:
    """Let PyTorch compute with one thread inside the block: no sum is split among several."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def list_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use."""
    if sys.platform == "linux" and not any(Path(path).exists() for path in _DRIVERS):
        return []  # importing torch takes seconds
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _read_cpu() -> dict[str, str]:
    """Return what the system says of its first processor; nothing where it does not say."""
    try:
        text = _CPU_INFO.read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
