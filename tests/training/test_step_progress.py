"""The line of progress says values by our names, as ``metrics.jsonl`` does."""

from functools import partial
from types import SimpleNamespace

from groupwise.core import ProgressLine
from groupwise.training import callbacks
from groupwise.training.callbacks import StepProgress, draw_curve


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


def test_the_reward_and_the_looks_at_validation_are_curves(monkeypatch, capsys):
    monkeypatch.setattr(callbacks, "ProgressLine", partial(ProgressLine, every_s=-1.0))
    looks = SimpleNamespace(last_step=0, values={})
    progress = StepProgress("grpo", shown={"reward": "reward"}, looks=looks)
    state = SimpleNamespace(global_step=0, max_steps=2)
    progress.on_train_begin(None, state, None)
    for step, reward in ((1, 0.0), (2, 0.75)):
        state.global_step = step
        progress.on_log(None, state, None, logs={"reward": reward})
        if step == 2:
            looks.last_step, looks.values = 2, {"good": 0.5, "n": 8}
        progress.on_step_end(None, state, None)
    first, last = capsys.readouterr().err.splitlines()[-2:]
    assert first.endswith("reward ▁ 0")
    assert last.endswith("reward ▁▇ 0.75  validation good ▅ 0.5")


def test_a_curve_has_at_most_so_many_bars_and_each_is_a_mean():
    assert draw_curve([]) == ""
    assert draw_curve([0, 0.5, 1, 2, -1]) == "▁▅██▁"
    assert draw_curve([0.0, 1.0] * 24) == "▅" * 24
