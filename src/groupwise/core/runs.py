"""The run folder: one folder per run, one process at a time, a manifest before any work."""

import os
import platform
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from groupwise.core.digests import digest_json
from groupwise.core.errors import RunError
from groupwise.core.jsonl import append_jsonl, write_json
from groupwise.core.locks import take_lock
from groupwise.core.outputs import read_manifest, seal

_PACKAGES = (
    "groupwise",
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "tokenizers",
    "datasets",
    "vllm",
    "numpy",
    "pillow",
    "torchvision",
    "scikit-learn",
    "scipy",
    "statsmodels",
    "math-verify",
)
"""Whose versions move results."""
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")


class RunFolder:
    """A folder that holds everything one run reads, writes and was told.

    ``manifest.json`` has the resolved config, its digest, the plan, digests of the inputs, seeds,
    package versions, git revision and hardware, and its own digest. ``history.jsonl`` has one row
    per start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def manifest_path(self) -> Path:
        """Where the manifest is."""
        return self.path / "manifest.json"

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest.

        Raises:
            RunError: if the folder holds no run, or only an evaluation of one on other data, or the
                manifest was changed since.
        """
        if not self.manifest_path.is_file():
            raise RunError(f"{self.path} holds no run", fix="check --out, or start it first")
        manifest = read_manifest(self.manifest_path)
        if not isinstance(manifest.get("recipe"), str):
            raise RunError(f"{self.manifest_path} is damaged", got="no recipe in it")
        if manifest.get("evaluated"):
            raise RunError(
                f"{self.path} holds an evaluation of the run {manifest['evaluated']['run']}",
                fix="name that run, or another folder",
            )
        return manifest

    def write_manifest(
        self,
        *,
        recipe: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        seed: int,
        accepted: Sequence[str] = (),
        plan: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        effects: Mapping[str, Mapping[str, str]] | None = None,
        metric_versions: Mapping[str, int] | None = None,
        other_packages: Mapping[str, Mapping[str, Any]] | None = None,
        evaluated: Mapping[str, Any] | None = None,
    ) -> None:
        """Write ``manifest.json`` and append this start to ``history.jsonl``.

        ``accepted`` names the findings that this run goes on with, because its user said so;
        ``plan`` says of each step what it reads and uses;
        ``effects`` says of settings that do not simply count what they change;
        ``metric_versions`` says by what version each family of metrics is measured;
        ``other_packages`` names the steps that were made with other versions of packages;
        ``evaluated`` says of an evaluation on other data which run, policy and data it is of.
        """
        found = {
            "recipe": recipe,
            "config": dict(config),
            "config_digest": digest_json(dict(config)),
            "inputs": dict(inputs),
            "seed": seed,
            "accepted_findings": list(accepted),
            "plan": dict(plan or {}),
            "effects": dict(effects or {}),
            "metric_versions": dict(metric_versions or {}),
            "other_packages": dict(other_packages or {}),
            **({"evaluated": dict(evaluated)} if evaluated else {}),
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **describe_machine(),
        }
        manifest = seal(found)
        write_json(self.manifest_path, manifest)
        append_jsonl(self.path / "history.jsonl", manifest)

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the folder for this process; the lock goes with the process, however it ends.

        Raises:
            RunError: if another process works in this folder, or it cannot be written.
        """
        busy = RunError(
            f"another process is working in {self.path}", fix="wait for it or use another --out"
        )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = take_lock(self.path / ".lock", busy=busy)
        except OSError as error:
            raise RunError(f"cannot write to {self.path} ({error.strerror})") from error
        try:
            yield
        finally:
            os.close(descriptor)


def describe_machine() -> dict[str, Any]:
    """Return package versions, the git revision of the working folder and the hardware.

    Processor, instruction set and threads decide in which order sums are rounded.
    """
    import torch

    return {
        "packages": dict(list_packages()),
        "python": platform.python_version(),
        "git_revision": _find_git_revision(),
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "num_cpus": len(os.sched_getaffinity(0)),
            "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            "accelerators": list_gpus(),
            "cpu": _find_processor(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "num_threads": torch.get_num_threads(),
        },
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def list_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use."""
    if sys.platform == "linux" and not any(Path(path).exists() for path in _DRIVERS):
        return []  # importing torch takes seconds
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _find_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "not known")


@cache
def list_packages() -> Mapping[str, str]:
    """Return the installed versions of the packages that compute results, by name."""
    return {name: found for name in _PACKAGES if (found := _find_version(name))}


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_git_revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
