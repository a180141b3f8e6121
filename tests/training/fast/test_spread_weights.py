"""Blocks whose weights are spread over processes are run once per pass, as the parent does."""

import pytest
from trl.distributed import DistributedBackend

from groupwise.core import TrainingError
from groupwise.training.settings import SpeedSettings


@pytest.mark.parametrize("how", ["is_fsdp", "is_zero3"])
def test_prompts_are_not_shared(how, pairs, grpo, monkeypatch):
    monkeypatch.setattr(DistributedBackend, how, True)
    with pytest.warns(UserWarning, match="its weights are spread over processes"):
        stepped = pairs.make(speed=SpeedSettings())
    monkeypatch.undo()  # nothing is gathered here
    rows = grpo.make_rows(3)
    stepped.say(grpo.write_completions(len(rows), end=1))
    assert stepped.update(rows).gradients
    assert stepped.num_shared == 0


def test_asking_for_it_is_refused(pairs, monkeypatch):
    monkeypatch.setattr(DistributedBackend, "is_fsdp", True)
    with pytest.raises(TrainingError, match="spread over processes"):
        pairs.make(speed=SpeedSettings(shared_prefix="on"))
