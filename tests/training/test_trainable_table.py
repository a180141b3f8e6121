"""The table of what trains is on the screen before the first step."""

import re

import pytest

from groupwise.core import Score
from groupwise.models import (
    LoraSettings,
    TrainableSettings,
    format_trainable,
    load_policy,
    prepare_trainable,
    tabulate_trainable,
)
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, SftRow, SftSettings, Workspace, train_grpo, train_sft

TRAINABLE = TrainableSettings(lora=LoraSettings(last_blocks=1))


@pytest.fixture
def table(text_folder):
    model = prepare_trainable(load_policy(text_folder).model, TRAINABLE)
    return format_trainable(tabulate_trainable(model)) + "\n"


def test_sft_prints_it_once_before_the_first_step(
    table, text_folder, text_examples, tmp_path, monkeypatch, capfd
):
    from trl.trainer.sft_trainer import SFTTrainer

    compute, seen = SFTTrainer.compute_loss, []

    def note(self, *given, **named):
        seen.append(capfd.readouterr().err)
        return compute(self, *given, **named)

    monkeypatch.setattr(SFTTrainer, "compute_loss", note)
    train_sft(
        load_policy(text_folder),
        lambda _: [SftRow(example, "yes") for example in text_examples],
        SftSettings(batch_size=4, trainable=TRAINABLE),
        workspace=Workspace(tmp_path, 0),
    )
    assert seen == [table, *[""] * (len(seen) - 1)]
    line = r"  \S+: (\d) of \1 steps(, in \d+ s)?, loss [\d.]+\n"
    assert re.fullmatch(line, capfd.readouterr().err)


class Watcher:
    """Notes what is on the screen whenever a completion is scored."""

    name = "watcher"

    def __init__(self, capfd):
        self.capfd, self.seen = capfd, []

    def __call__(self, example, completion):
        self.seen.append(self.capfd.readouterr().err)
        return Score(float(len(self.seen) % 2))


def test_grpo_prints_it_once_before_the_first_step(
    table, text_folder, text_examples, tmp_path, capfd
):
    watcher = Watcher(capfd)
    train_grpo(
        load_policy(text_folder),
        text_examples,
        RewardSet({"watcher": (watcher, 1.0)}),
        GrpoSettings(
            prompts_per_step=4,
            group_size=2,
            max_new_tokens=2,
            max_steps=1,
            warmup_share=0.0,
            beta=0.1,
            trainable=TRAINABLE,
        ),
        workspace=Workspace(tmp_path, 0),
    )
    assert watcher.seen[0] == table
    assert table not in "".join(watcher.seen[1:])


def test_only_the_first_process_prints_it(
    table, text_folder, text_examples, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("RANK", "1")
    train_sft(
        load_policy(text_folder),
        lambda _: [SftRow(example, "yes") for example in text_examples],
        SftSettings(batch_size=4, trainable=TRAINABLE),
        workspace=Workspace(tmp_path, 0),
    )
    assert table not in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
