"""The wheel: what is in it runs outside of the repository."""

import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
    assert "on_task" in groupwise("recipes")
