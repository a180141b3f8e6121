"""One tiny run for all that is done with finished ones."""

from pathlib import Path

import pytest
from made_once import make_once
from small_task import LORA, SmallConfig, SmallTask

from groupwise.flow import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose checkpoints and completions are still there; only to be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupwise.training.grpo.remove_checkpoints", lambda folder: None)
        return make_once("finished", tmp_path_factory, run_small) / "run"


def run_small(folder: Path) -> None:
    grpo = LORA["grpo"] | {"record_rollouts": True}
    run(SmallTask, SmallConfig(**LORA | {"grpo": grpo}), out=folder / "run", say=lambda _: None)
