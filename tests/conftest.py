"""Patience for property tests; the tiny recipe for the command line and the pipeline."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from groupwise.core import read_jsonl

# A busy machine is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The tiny recipe needs no torch, and importing the real one takes most of a test's time.
_TORCH_STUB = """
class cuda:
    device_count = staticmethod(lambda: 0)
"""
_FIXTURES = Path(__file__).parent / "fixtures"


@dataclass
class TinyRecipe:
    """The tiny recipe installed in ``site``, with a folder to work in."""

    site: Path
    work: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.work / "source.txt"

    def use_real_torch(self) -> None:
        """Let the processes import the installed torch, not the quick stand-in."""
        (self.site / "torch.py").unlink()

    def list_done(self) -> list[str]:
        """Return ``step`` or ``step resumed`` for all that ran since the last call."""
        log = self.work / "log.jsonl"
        rows = read_jsonl(log) if log.is_file() else []
        log.unlink(missing_ok=True)
        return [row["step"] + (" resumed" if row["state"] == "resumed" else "") for row in rows]

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """Start ``groupwise`` with these arguments in the working folder."""
        return subprocess.Popen(
            [sys.executable, "-m", "groupwise.cli", *arguments],
            cwd=self.work,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def call(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run ``groupwise`` with these arguments to its end."""
        process = self.start(*arguments, **options)
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyRecipe:
    """Install the tiny recipe as a package of its own."""
    site, work = tmp_path / "site", tmp_path / "work"
    info = site / "tiny-0.1.dist-info"
    for folder in (info, work, site / "configs"):
        folder.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[groupwise.recipes]\ntiny = tiny_recipe:recipe\n")
    shutil.copy(_FIXTURES / "tiny_recipe.py", site)
    (site / "torch.py").write_text(_TORCH_STUB)
    (site / "configs" / "demo.yaml").write_text("source: source.txt\n")
    (work / "source.txt").write_text("hello\n")
    monkeypatch.setenv("TINY_LOG", str(work / "log.jsonl"))
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1", "COLUMNS": "200"}
    return TinyRecipe(site, work, environment)


@pytest.fixture
def load_tiny(tiny: TinyRecipe, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the tiny recipe importable in this process."""

    def load() -> None:
        tiny.use_real_torch()
        monkeypatch.delitem(sys.modules, "tiny_recipe", raising=False)
        monkeypatch.syspath_prepend(str(tiny.site))
        monkeypatch.chdir(tiny.work)

    return load
