"""What libraries print for their own developers is kept away, and nothing else."""

import logging

import pytest

from groupwise.models import silence_libraries

TRL = logging.getLogger("trl.trainer.grpo_trainer")


def test_unscored_completions_are_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    with silence_libraries():
        TRL.warning("All reward functions returned None for the following kwargs:\n{'label': 1}")
        TRL.warning("another warning")
    TRL.warning("All reward functions returned None, outside")
    assert [one.getMessage() for one in caplog.records] == [
        "another warning",
        "All reward functions returned None, outside",
    ]
