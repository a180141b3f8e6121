"""Is this machine ready? One finding per thing that is known to go wrong.

Looks only; installs, downloads and changes nothing.
"""

import platform
import shutil
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from groupwise import __version__
from groupwise.core import list_gpus, read_total_memory
from groupwise.sandbox import explain_missing, explain_slow

_MIN_DISK_GIB = 2.0
_MIN_MEMORY_GIB = 4.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        level: ``fine``, ``warning`` (some things will not work) or ``broken`` (nothing will).
        found: what was found.
        fix: what to do about it; empty where it is fine.
    """

    name: str
    level: Literal["fine", "warning", "broken"]
    found: str
    fix: str = ""


def check_machine(folder: Path) -> list[Check]:
    """Look at versions, devices, torchvision, the sandbox, the disk of ``folder`` and memory."""
    found = [Check("groupwise", "fine", f"{__version__} on Python {platform.python_version()}")]
    # The requirements of Groupwise itself, without those of its extras.
    needed = [text for text in requires("groupwise") or [] if "extra ==" not in text]
    found += [check_package(text) for text in needed]
    found += [_check_devices(), _check_torchvision()]
    if missing := explain_missing():
        found.append(Check("sandbox", "warning", "most model-written code is refused", missing))
    else:
        slow = explain_slow()
        works = "bubblewrap works" + (f", slowly: {slow}" if slow else "")
        found.append(Check("sandbox", "fine", works))
    free_gib, limit_gib = shutil.disk_usage(folder).free / _GIB, read_total_memory() / _GIB
    wanted = f"a small run wants {_MIN_DISK_GIB:.0f} GiB, or use --out on another disk"
    least = f"the smallest configs want {_MIN_MEMORY_GIB:.0f} GiB; lower the batch sizes"
    for name, size, least_gib, free, fix in (
        ("disk", free_gib, _MIN_DISK_GIB, " free", f"free some: {wanted}"),
        ("memory", limit_gib, _MIN_MEMORY_GIB, "", least),
    ):
        is_enough = size >= least_gib
        level = "fine" if is_enough else "warning"
        found.append(Check(name, level, f"{size:.1f} GiB{free}", "" if is_enough else fix))
    return found


def check_package(requirement: str) -> Check:
    """Compare the installed version of one package with the range Groupwise asks for."""
    wanted = Requirement(requirement)
    install = f"pip install '{wanted}'"
    try:
        found = version(wanted.name)
    except PackageNotFoundError:
        return Check(wanted.name, "broken", "not installed", install)
    if wanted.specifier.contains(found, prereleases=True):
        return Check(wanted.name, "fine", found)
    return Check(wanted.name, "broken", f"{found}, but {wanted.specifier} is needed", install)


def _check_devices() -> Check:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("devices", "broken", f"torch cannot be imported ({error})", "reinstall torch")
    if names := list_gpus():
        return Check("devices", "fine", ", ".join(names))
    found = f"CPU only, {torch.get_num_threads()} threads"
    fix = "enough for the tiny configs; configs with billions of parameters want a GPU"
    return Check("devices", "fine", found, fix)


def _check_torchvision() -> Check:
    try:
        found = version("torchvision")
    except PackageNotFoundError:
        return Check("torchvision", "fine", "not installed; Pillow reads the pictures")
    try:
        import_module("torchvision")
    except (ImportError, OSError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        fix = "pip uninstall torchvision, or install the build that matches torch"
        return Check("torchvision", "broken", f"{found} cannot be imported ({first_line})", fix)
    return Check("torchvision", "fine", found)
