"""``groupwise learn``, ``verify`` and ``roll-back``."""

from pathlib import Path

import pytest
from command_line import CommandLine
from said_things import TEACHING, Talk, find_settings

from groupwise.core import read_json
from groupwise.learning.loop import Loop, begin_loop

LoopAndTalk = tuple[Loop, Talk]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line."""
    return CommandLine(capsys)


def test_a_dry_run_says_where_the_loop_stands(
    command: CommandLine, origin: Path, talk: Talk, tmp_path: Path
) -> None:
    begin_loop(tmp_path / "loop", origin, find_settings())
    talk.fill(TEACHING[:3])
    told = ("learn", origin, "--out", tmp_path / "loop", "--feedback", talk.folder, "--dry-run")
    done = command(*told)
    assert done.returncode == 0, done.stderr
    assert "0 rounds" in done.stdout
    assert "3 new labels" in done.stdout
    assert done.stdout.rstrip().endswith("next: wait")
    talk.fill(TEACHING[3:4])
    assert command(*told).stdout.rstrip().endswith("next: train")
    assert not any((tmp_path / "loop" / "rounds").iterdir())


def test_settings_of_a_loop_hold_without_being_given_again(
    command: CommandLine, origin: Path, talk: Talk, tmp_path: Path
) -> None:
    told = ("learn", origin, "--out", tmp_path / "loop", "--feedback", talk.folder, "--dry-run")
    assert command(*told, "--set", "every=3").returncode == 0
    assert command(*told).returncode == 0
    assert read_json(tmp_path / "loop" / "loop.json", dict)["settings"]["every"] == 3
    refused = command(*told, "--set", "seed=9")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: seed: certificates rest on it")
    assert read_json(tmp_path / "loop" / "loop.json", dict)["settings"]["seed"] == 0


def test_nothing_new_is_no_round(
    command: CommandLine, origin: Path, talk: Talk, tmp_path: Path
) -> None:
    told = ("learn", origin, "--out", tmp_path / "loop", "--feedback", talk.folder, "--now")
    done = command(*told)
    assert done.returncode == 0
    assert "next: wait" in done.stdout


def test_what_cannot_be_begun_is_one_sentence(
    command: CommandLine, origin: Path, talk: Talk, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    for run, out in ((tmp_path / "no run", tmp_path / "loop"), (origin, tmp_path / "full")):
        done = command("learn", run, "--out", out, "--feedback", talk.folder, "--now")
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_a_certificate_is_verified_by_a_command(
    command: CommandLine, taught: LoopAndTalk, tmp_path: Path
) -> None:
    loop, talk = taught
    path = loop.rounds[0] / "decide" / "certificate.json"
    done = command("verify", path, "--feedback", talk.folder)
    assert done.returncode == 0
    assert done.stdout.startswith("candidate 1: undecided")
    assert done.stdout.endswith("it holds\n")
    one = talk.store.list_items()[0]
    talk.say(one.shown, None)
    withdrawn = command("verify", path, "--feedback", talk.folder)
    assert withdrawn.returncode == 1
    assert "1 of 11 labels were withdrawn: it can't be replayed" in withdrawn.stdout
    (tmp_path / "x.json").write_text("{}")
    assert command("verify", tmp_path / "x.json").returncode == 2


def test_rolling_back_is_one_command(command: CommandLine, taught: LoopAndTalk) -> None:
    loop, _ = taught
    first = loop.read_log()[0]
    loop.record("promoted", "rounds/001", "grpo", "v2", "digest")
    done = command("roll-back", loop.folder)
    assert done.returncode == 0
    assert first.version[:19] in done.stdout
    assert loop.read_log()[-1].event == "rolled back"
    refused = command("roll-back", loop.folder)
    assert refused.returncode == 2
    assert "nothing was served" in refused.stderr


def test_a_server_that_is_not_there_does_not_stop_the_loop(
    command: CommandLine, taught: LoopAndTalk
) -> None:
    loop, _ = taught
    loop.record("promoted", "rounds/001", "grpo", "v2", "digest")
    done = command("roll-back", loop.folder, "--serve", "http://127.0.0.1:9")
    assert done.returncode == 0
    assert "could not be told" in done.stderr
