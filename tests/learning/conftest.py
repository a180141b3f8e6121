"""A tiny finished run, a loop that began with it, and one whose first round has ended."""

import shutil
from pathlib import Path

import pytest
from made_once import make_once
from said_things import LABELS, TEACHING, TESTING, Talk, Taught, advance, find_settings
from small_task import LORA, SmallConfig, SmallTask

from groupwise.learning.loop import Loop, begin_loop
from groupwise.run.running import run


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; only to be read."""
    return make_once("round_origin", tmp_path_factory, _run_small) / "run"


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path / "kept")


@pytest.fixture
def loop(origin: Path, tmp_path: Path) -> Loop:
    """A loop that was begun."""
    return begin_loop(tmp_path / "loop", origin, find_settings())


@pytest.fixture
def taught(origin: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Taught:
    made = make_once("taught_round", tmp_path_factory, lambda to: _teach(origin, to))
    for part in ("loop", "kept"):
        shutil.copytree(made / part, tmp_path / part)
    return Loop(tmp_path / "loop"), Talk(tmp_path / "kept")


def _run_small(folder: Path) -> None:
    run(SmallTask, SmallConfig(**LORA), out=folder / "run", say=lambda _: None)


def _teach(origin: Path, folder: Path) -> None:
    talk = Talk(folder / "kept")
    talk.fill(TEACHING[:5])
    talk.fill(TESTING[:3], num=2)
    incomplete = talk.fill(TESTING[3:4], num=2)
    talk.say(incomplete[0], None)
    disagreed = talk.fill(TEACHING[5:6])
    talk.say(disagreed[0], LABELS[0], user="bea")
    advance(begin_loop(folder / "loop", origin, find_settings()), talk)
    talk.store.close()
