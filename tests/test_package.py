"""What is installed is whole: package data, the lock with hashes, the wheel outside of here."""

import re
import site
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_file_beside_the_code_is_package_data():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        folder = ROOT / "src" / package
        packed = {path for pattern in patterns for path in folder.glob(pattern)}
        beside = {p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
        assert {p for p in beside if p.suffix != ".py"} <= packed, package


def test_the_lock_has_every_pin_once_and_a_hash_for_each() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("lock-cpu.txt", "lock-cpu-dev.txt")]
    assert [line for line in texts[1].splitlines() if line[0] == "-"] == ["-r lock-cpu.txt"]
    lines = re.sub(r"^#.*\n|^-r.*\n", "", "".join(texts), flags=re.M)
    locked = re.findall(r"(\S+==[^\s+]+)\S* \\\n    --hash=sha256:[0-9a-f]{64}\n", lines)
    assert len(locked) == lines.count("==") == lines.count("\n") / 2
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert sorted(locked) == sorted(pin for pin in pins if not pin.startswith("#"))


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_writes_and_runs_a_task(tmp_path: Path):
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps"]
    run(*build, "--wheel-dir", tmp_path / "dist", ROOT, cwd=tmp_path)
    [wheel] = (tmp_path / "dist").glob("groupwise-*.whl")
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", packages]
    run(*install, wheel, cwd=tmp_path)
    # Dependencies are those that are here; a path in a .pth file comes after the wheel's own, and
    # the .pth file by which the repository itself is installed is not read from there.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    python = folder / "bin" / "python"

    def groupwise(*words: str) -> str:
        return run(python, "-I", "-m", "groupwise.cli", *words, cwd=tmp_path)

    place = run(python, "-I", "-c", "import groupwise; print(groupwise.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(folder)
    groupwise("new", "my_task", "--tiny")
    groupwise("run", "my_task/task.yaml", "--out", "run")
    assert "<html" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "on_task" in groupwise("run", "--list")
