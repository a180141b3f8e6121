"""One tiny run for all that is done with finished ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_task import LORA, SmallConfig, SmallTask

from groupwise.flow import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose checkpoints are still there; only to be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupwise.training.grpo.remove_checkpoints", lambda folder: None)
        folder = tmp_path_factory.mktemp("finished") / "run"
        yield run(SmallTask, SmallConfig(**LORA), out=folder, say=lambda _: None)
