"""One tiny run for all that is done with finished ones."""

from pathlib import Path

import pytest
from small_task import LORA, SmallConfig, SmallTask

from groupwise.flow import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose checkpoints are still there; only to be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupwise.training.grpo.remove_checkpoints", lambda folder: None)
        folder = tmp_path_factory.mktemp("finished") / "run"
        return run(SmallTask, SmallConfig(**LORA), out=folder, say=lambda _: None)
