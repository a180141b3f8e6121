"""``groupwise learn``, ``verify`` and ``roll-back``."""

from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from said_things import TEACHING, Talk, Taught, find_settings

from groupwise.core import read_json
from groupwise.learning.loop import begin_loop


@pytest.fixture
def learn(origin: Path, talk: Talk, tmp_path: Path) -> tuple[Any, ...]:
    """Words that begin a loop, or go on with it."""
    return ("learn", origin, "--out", tmp_path / "loop", "--feedback", talk.folder)


def test_a_dry_run_says_where_the_loop_stands(
    command_line: CommandLine, learn: tuple[Any, ...], origin: Path, talk: Talk, tmp_path: Path
) -> None:
    begin_loop(tmp_path / "loop", origin, find_settings())
    talk.fill(TEACHING[:3])
    done = command_line.succeed(*learn, "--dry-run")
    assert "0 rounds" in done.stdout
    assert "3 new labels" in done.stdout
    assert done.stdout.rstrip().endswith("next: wait")
    talk.fill(TEACHING[3:4])
    assert command_line(*learn, "--dry-run").stdout.rstrip().endswith("next: train")
    assert not any((tmp_path / "loop" / "rounds").iterdir())


def test_settings_of_a_loop_hold_without_being_given_again(
    command_line: CommandLine, learn: tuple[Any, ...], tmp_path: Path
) -> None:
    command_line.succeed(*learn, "--dry-run", "--set", "every=3")
    command_line.succeed(*learn, "--dry-run")
    assert read_json(tmp_path / "loop" / "loop.json", dict)["settings"]["every"] == 3
    said = command_line.refuse(*learn, "--dry-run", "--set", "seed=9")
    assert said.startswith("error: seed: certificates rest on it")
    assert read_json(tmp_path / "loop" / "loop.json", dict)["settings"]["seed"] == 0
    # Nothing new is no round.
    assert "next: wait" in command_line.succeed(*learn, "--now").stdout


def test_what_cannot_be_begun_is_one_sentence(
    command_line: CommandLine, learn: tuple[Any, ...], tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    command_line.refuse_in_a_line("learn", tmp_path / "no run", *learn[2:], "--now")
    command_line.refuse_in_a_line(*learn, "--now", "--out", tmp_path / "full")


def test_a_certificate_is_verified_by_a_command(
    command_line: CommandLine, taught: Taught, tmp_path: Path
) -> None:
    loop, talk = taught
    path = loop.rounds[0] / "decide" / "certificate.json"
    done = command_line.succeed("learn", "--verify", path, "--feedback", talk.folder)
    assert done.stdout.startswith("candidate 1: undecided")
    assert done.stdout.endswith("it holds\n")
    one = talk.store.list_items()[0]
    talk.say(one.shown, None)
    withdrawn = command_line("learn", "--verify", path, "--feedback", talk.folder)
    assert withdrawn.returncode == 1
    assert "1 of 11 labels were withdrawn: it can't be replayed" in withdrawn.stdout
    (tmp_path / "x.json").write_text("{}")
    assert command_line("learn", "--verify", tmp_path / "x.json").returncode == 2


def test_rolling_back_is_one_command(command_line: CommandLine, taught: Taught) -> None:
    loop, _ = taught
    first = loop.read_log()[0]
    loop.record("promoted", "rounds/001", "grpo", "v2", "digest")
    done = command_line.succeed("learn", "--roll-back", loop.folder)
    assert first.version[:19] in done.stdout
    assert loop.read_log()[-1].event == "rolled back"
    assert "nothing was served" in command_line.refuse("learn", "--roll-back", loop.folder)


def test_a_server_that_is_not_there_does_not_stop_the_loop(
    command_line: CommandLine, taught: Taught
) -> None:
    loop, _ = taught
    loop.record("promoted", "rounds/001", "grpo", "v2", "digest")
    done = command_line.succeed(
        "learn", "--roll-back", loop.folder, "--serve", "http://127.0.0.1:9"
    )
    assert "could not be told" in done.stderr
