"""What is told when a run goes on with other versions of libraries, and what is reused."""

import json
from pathlib import Path

import pytest

from groupwise.core import Config, RunFolder
from groupwise.pipeline import Preview, Recipe, Step, StepContext, run_recipe
from groupwise.pipeline.step_files import find_other_packages


class AnyConfig(Config):
    seed: int = 0


def start(run: Path, *, fails: bool = False, settings: int = 0) -> list[str]:
    """Run two steps; return what was said."""
    said: list[str] = []

    def train(context: StepContext) -> None:
        (context.folder / "weights").write_text("w")
        if fails:
            raise OSError("stopped")

    steps = [
        Step("prepare", lambda context: None),
        Step("train", train, uses=("prepare",), settings=settings),
    ]
    recipe = Recipe("any", "", AnyConfig, Path(), lambda *_: steps, lambda _: Preview())
    run_recipe(recipe, AnyConfig(), out=run, say=said.append)
    return said


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    """Make these versions the installed ones."""

    def install(**versions: str) -> None:
        for place in ("pipeline.step_files", "pipeline.runner"):
            monkeypatch.setattr(f"groupwise.{place}.list_packages", lambda: versions)

    return install


def test_what_is_reused_from_other_libraries_is_said_in_one_line(tmp_path: Path, install) -> None:
    install(torch="2.12.0", trl="1.15.0", groupwise="0.1")
    assert start(tmp_path / "run") == []
    assert start(tmp_path / "run") == []
    install(torch="2.13.0", trl="1.15.0", groupwise="0.2")
    [line] = start(tmp_path / "run", settings=1)
    assert line.startswith("libraries changed since prepare, train: torch was 2.12.0 and is 2.13.0")
    assert "\n" not in line
    others = RunFolder(tmp_path / "run").read_manifest()["other_packages"]
    row = {"then": ["2.12.0"], "now": "2.13.0", "steps": ["prepare", "train"]}
    assert others == {"torch": row}
    assert find_other_packages(tmp_path / "run")["torch"]["steps"] == ["prepare"]


def test_half_a_step_of_other_libraries_is_theirs_when_it_is_whole(tmp_path: Path, install) -> None:
    install(torch="2.12.0")
    with pytest.raises(OSError, match="stopped"):
        start(tmp_path / "run", fails=True)
    install(torch="2.13.0")
    [line] = start(tmp_path / "run")
    assert "since prepare, train: torch was 2.12.0" in line
    marker = json.loads((tmp_path / "run/train/step.json").read_text())
    assert marker["packages"] == {"torch": "2.12.0"}
    assert list(marker["uses"]) == ["prepare"]
