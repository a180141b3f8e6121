"""The line of progress says values by our names, as ``metrics.jsonl`` does."""

from functools import partial
from types import SimpleNamespace

from groupwise.core import ProgressLine
from groupwise.training import callbacks
from groupwise.training.callbacks import StepProgress


def test_values_have_the_names_of_the_metrics(monkeypatch, capsys):
    line = partial(ProgressLine, every_s=-1.0)
    monkeypatch.setattr(callbacks, "ProgressLine", line)
    progress = StepProgress(
        "grpo", shown={"reward": "reward", "frac_reward_zero_std": "dead_groups"}
    )
    state = SimpleNamespace(global_step=0, max_steps=4)
    progress.on_train_begin(None, state, None)
    state.global_step = 1
    progress.on_log(None, state, None, logs={"frac_reward_zero_std": 0.25, "loss": 1.0})
    progress.on_step_end(None, state, None)
    line = capsys.readouterr().err
    assert line.startswith("  grpo: 0 of 4 steps\n  grpo: 1 of 4 steps, about 0 s left, ")
    assert line.endswith(", dead_groups 0.25\n")
