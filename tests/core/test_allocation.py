"""Freed memory is kept where glibc is asked for it, unless the environment says how."""

import os
import platform
import subprocess
import sys

import pytest

from groupwise.core import keep_freed_memory

_COUNT_FAULTS = """
import resource, sys
from groupwise.core import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    b"x" * (40_000_000 + len(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_NAMES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_pages_of_freed_blocks_are_not_asked_for_again():
    environment = {name: value for name, value in os.environ.items() if name not in _NAMES}

    def count(kept: str) -> int:
        command = [sys.executable, "-c", _COUNT_FAULTS, kept]
        return int(subprocess.check_output(command, env=environment))

    assert count("kept") < count("given back") / 2


@pytest.mark.parametrize("name", _NAMES)
def test_what_the_environment_sets_stays(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(name, "")
    assert not keep_freed_memory()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
