"""What a training has sampled earns again what it earned, or what other rewards say."""

import json

import pytest
from small_task import PARSER, SmallTask
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.core import ConfigError, DataError, RunError, Score
from groupwise.flow import open_run, replay_rewards, replaying
from groupwise.rewards import LabelMatch, RewardSet
from groupwise.training import read_rollouts


class Length:
    """Pays for short answers; does not know every question."""

    name = "length"

    def __call__(self, example, completion):
        known = int(example.id, 16) % 2
        return Score(1 / (1 + len(completion.token_ids)) if known else None, "counted")


def test_the_same_rewards_pay_the_same(finished):
    found = open_run(finished)
    replayed = replay_rewards(found, found.config)
    assert [part.name for part in replayed.list_parts()] == ["reward", "label"]
    for part in replayed.list_parts():
        assert part.num_same == len(part.before) == 8 * 2  # prompts, completions of each
        assert part.before == part.after
    assert {rollout.step for rollout in replayed.rollouts} == {0, 1}
    assert replayed.num_unknown == 0


def test_other_rewards_are_told_part_by_part(finished, monkeypatch):
    parts = {"label": (LabelMatch(PARSER), 1.0), "length": (Length(), 1.0)}
    monkeypatch.setattr(SmallTask, "rewards", lambda *_: RewardSet(parts))
    found = open_run(finished)
    _, label, length = replay_rewards(found, found.config).list_parts()
    assert label.num_same == len(label.before)
    assert length.count_unscored()[0] == len(length.before)
    assert 0 < length.count_unscored()[1] < len(length.before)
    before, after = length.average()
    assert before is None
    assert after is not None
    assert 0 < after <= 0.5


def test_the_command_prints_a_table_and_what_differs(finished, monkeypatch):
    same = CliRunner().invoke(app, ["audit", "replay", str(finished)])
    assert same.exit_code == 0
    row = next(line.split() for line in same.stdout.splitlines() if line.split()[0] == "reward")
    assert row[1:7] == ["16", "16", "0", "0", "->", "0"]
    assert "step" not in same.stdout
    monkeypatch.setattr(SmallTask, "rewards", lambda *_: RewardSet({"length": (Length(), 1.0)}))
    other = CliRunner().invoke(app, ["audit", "replay", str(finished)])
    assert other.exit_code == 0
    assert "step 0, example " in other.stdout
    assert other.stdout.count("counted") == 3


def test_a_setting_that_is_not_there_is_named(finished):
    asked = CliRunner().invoke(app, ["audit", "replay", str(finished), "--set", "rewadrs.x=1"])
    assert isinstance(asked.exception, ConfigError)


def test_a_run_without_a_record_says_how_to_get_one(finished, monkeypatch):
    monkeypatch.setattr(replaying, "ROLLOUTS", "absent.jsonl")
    found = open_run(finished)
    with pytest.raises(RunError, match=r"no recorded completions; train with .*record_rollouts"):
        replay_rewards(found, found.config)


def test_completions_of_other_data_are_counted(finished, monkeypatch):
    known = replaying.read_splits
    found = open_run(finished)
    monkeypatch.setattr(
        replaying, "read_splits", lambda *names: {"train": known(*names)["train"][1:]}
    )
    assert replay_rewards(found, found.config).num_unknown == 2
    monkeypatch.setattr(replaying, "read_splits", lambda *_: {"train": []})
    with pytest.raises(RunError, match=r"no recorded completion is of the run's data; got 16"):
        replay_rewards(found, found.config)


@pytest.mark.parametrize("row", [{"step": 1}, {"step": 1, "rollouts": [{"text": "a"}]}])
def test_a_file_that_no_training_wrote_is_one_sentence(tmp_path, row):
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match="not what a training with"):
        list(read_rollouts(path))
