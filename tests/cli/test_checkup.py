"""What the check of the machine finds, and what it says to do."""

from collections import namedtuple
from pathlib import Path

import pytest

from groupwise.cli.check import check_machine, check_package


def find(name: str, folder: Path) -> tuple[str, str]:
    check = next(check for check in check_machine(folder) if check.name == name)
    return check.level, check.fix


def test_packages_are_compared_with_what_is_asked_for():
    assert check_package("pytest>=1").level == "fine"
    old = check_package("pytest>=1000")
    assert (old.level, old.fix) == ("broken", "pip install 'pytest>=1000'")
    assert "but >=1000 is needed" in old.found
    assert check_package("no-such-package>=1").found == "not installed"


def test_own_requirements_are_all_looked_at(tmp_path: Path):
    names = {check.name for check in check_machine(tmp_path)}
    assert {"groupwise", "torch", "trl", "pydantic", "devices", "torchvision"} <= names
    assert "pytest" not in names


def test_small_disk_and_memory_are_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2**40, 2**40, 2**20))
    monkeypatch.setattr("groupwise.core.read_total_memory", lambda: 2**30)
    assert find("disk", tmp_path)[0] == "warning"
    assert "free some" in find("disk", tmp_path)[1]
    assert find("memory", tmp_path)[0] == "warning"


@pytest.mark.parametrize(("missing", "level"), [(None, "fine"), ("install it", "warning")])
def test_a_sandbox_that_cannot_start_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | None, level: str
):
    monkeypatch.setattr("groupwise.sandbox.explain_missing", lambda: missing)
    assert find("sandbox", tmp_path) == (level, missing or "")
