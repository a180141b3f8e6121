"""The run folder: one folder per run, one process at a time, a manifest before any work.

What a run has left is held against the digests that it wrote down when it was made. A digest tells
what was changed, torn or mixed up since. It proves nothing against somebody who writes the digests,
too: what a folder from elsewhere says stays what somebody says.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from groupwise.core.errors import DataError, RunError
from groupwise.core.files import (
    append_jsonl,
    digest_file,
    digest_json,
    parse_value,
    read_json,
    read_jsonl,
    take_lock,
    write_json,
)

STEP_DONE = "step.json"
"""The marker of a finished step, with the digests of its outputs."""
_SEAL = "digest"
_RECORDS = (".json", ".jsonl", ".yaml")
_DIGESTS = TypeAdapter(dict[str, str])
_TAKE = "take the whole run from where it was made, or let it do that step again (run --resume)"
_PACKAGES = (
    *("groupwise", "torch", "transformers", "trl", "peft", "accelerate", "tokenizers", "datasets"),
    *("vllm", "numpy", "pillow", "torchvision", "scikit-learn", "scipy", "statsmodels"),
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

        Args:
            recipe: its name.
            config: the resolved settings.
            inputs: digests by name.
            seed: of the run.
            accepted: findings that this run goes on with, because its user said so.
            plan: of each step what it reads and uses.
            effects: of settings that do not simply count what they change.
            metric_versions: by what version each family of metrics is measured.
            other_packages: the steps that were made with other versions of packages.
            evaluated: of an evaluation on other data which run, policy and data it is of.
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

    lines: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    revision = ""
    with suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=False)
        revision = told.stdout.strip()
    return {
        "packages": dict(list_packages()),
        "python": platform.python_version(),
        "git_revision": revision or None,
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "num_cpus": len(os.sched_getaffinity(0)),
            "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            "accelerators": list_gpus(),
            "cpu": next(names, "not known"),
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


@cache
def list_packages() -> Mapping[str, str]:
    """Return the installed versions of the packages that compute results, by name."""
    found: dict[str, str] = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the digest of all that is in it."""
    return {**values, _SEAL: digest_json(dict(values))}


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest in a file; one of an earlier version, without a digest, as it is.

    Of a torn one, what the run wrote at its last start into ``history.jsonl`` beside it.

    Raises:
        DataError: if it cannot be read, and there is no whole row of a start.
        RunError: if it is not what its run wrote.
    """
    try:
        manifest = read_json(path, dict)
    except DataError as error:
        history = path.with_name("history.jsonl")
        starts = read_jsonl(history) if history.is_file() else []
        whole = [row for row in starts if row.get(_SEAL) == _digest_rest(row)]
        if not whole:
            fix = "take it from a copy, or start anew with --out DIR"
            raise DataError(f"{path} is torn", fix=fix) from error
        manifest = whole[-1]
    check_sealed(manifest, path)
    return manifest


def _digest_rest(values: Mapping[str, Any]) -> str:
    """Return the digest that a sealed object should name."""
    return digest_json({name: value for name, value in values.items() if name != _SEAL})


def check_sealed(values: Mapping[str, Any], path: Path) -> None:
    """Refuse a JSON object that was changed since it got its digest.

    Raises:
        RunError: if it was.
    """
    if _SEAL in values and _digest_rest(values) != values[_SEAL]:
        raise RunError(
            f"{path} was changed since its run wrote it",
            got="another digest than it names",
            fix="take the whole run from where it was made",
        )


def check_records(run: Path, *steps: str) -> None:
    """Refuse a run whose finished steps' JSON and YAML files are not what the steps wrote.

    A file that is gone is left to whoever reads it. A step that writes for people only, such as
    the report, is left out: what it wrote is written again by others. Of all ``steps`` if none is
    named.

    Raises:
        RunError: if one was changed or added.
        DataError: if a marker cannot be read.
    """
    for name in steps or sorted(path.parent.name for path in run.glob(f"[!.]*/{STEP_DONE}")):
        known = _read_outputs(run, name)
        if not known or not all(path.startswith(f"{name}/") for path in known):
            continue
        here = (p.name for p in (run / name).iterdir() if p.name[0] != "." and p.name != STEP_DONE)
        paths = (run / path for path in {*known, *(f"{name}/{one}" for one in here)})
        inside = (path for path in paths if ".." not in path.parts[len(run.parts) :])
        _check(run, known, [path for path in inside if path.suffix in _RECORDS and path.is_file()])


def check_folder(run: Path, folder: str) -> None:
    """Refuse a folder of a finished step, such as ``grpo/policy``, that is not what it wrote.

    Raises:
        RunError: if a file was changed, added or removed.
        DataError: if the marker cannot be read.
    """
    known = _read_outputs(run, folder.partition("/")[0])
    if not known:
        return
    here = {path: digest for path, digest in known.items() if path.startswith(f"{folder}/")}
    found = [path for path in (run / folder).rglob("*") if path.is_file()]
    _check(run, here, {*found, *(run / path for path in here)})


def _check(run: Path, known: Mapping[str, str], paths: Iterable[Path]) -> None:
    """Refuse the first of these files that has another digest than is known of it."""
    for path in sorted(paths):
        name = path.relative_to(run).as_posix()
        digest = digest_file(path) if path.is_file() else None
        if known.get(name) != digest:
            how = "is gone" if digest is None else "was changed" if name in known else "was added"
            what = f"{run} is not what its steps wrote"
            raise RunError(what, got=f"{name}, which {how}", fix=_TAKE)


def digest_files(folder: Path) -> dict[str, str]:
    """Return the digests of all files below a folder by their path in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in files}


def write_digests(marker: Path) -> None:
    """Write a marker with the digests of all other files of its folder: it is whole."""
    write_json(marker, _digest_others(marker))


def find_unlike(marker: Path) -> str | None:
    """Return the first file beside a marker of digests that is not what it was; None: all are."""
    try:
        known = _DIGESTS.validate_json(marker.read_bytes())
    except (OSError, ValueError):
        return marker.name
    found = _digest_others(marker)
    names = sorted(known.keys() | found.keys())
    return next((name for name in names if known.get(name) != found.get(name)), None)


def _digest_others(marker: Path) -> dict[str, str]:
    found = digest_files(marker.parent)
    return {name: digest for name, digest in found.items() if name != marker.name}


def _read_outputs(run: Path, step: str) -> dict[str, str]:
    """Return the digests that a finished step wrote down; empty where it wrote none."""
    path = run / step / STEP_DONE
    done: dict[str, Any] = read_json(path, dict) if path.is_file() else {}
    return parse_value(
        done.get("outputs", {}), _DIGESTS, f"{path} is damaged", error=RunError, fix=_TAKE
    )
