"""Rounds of a tiny loop: what is trained and tested, and what is served after them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from said_things import KEY, LABELS, TEACHING, TESTING, Talk, advance, find_settings

from groupwise.core import ConfigError, RunError, digest_file, read_json, read_jsonl, write_json
from groupwise.data import read_examples
from groupwise.feedback import name_person, read_items
from groupwise.flow.served import open_served, read_served
from groupwise.learning import Certificate, Learner, Loop, begin_loop, read_certificate, verify
from groupwise.learning.certificate import write_certificate


def _read(loop: Loop, number: int = 1) -> Certificate:
    return read_certificate(loop.folder / f"rounds/{number:03}/decide/certificate.json")


def test_a_loop_begins_with_the_run_that_is_served(loop: Loop, origin: Path) -> None:
    served, _ = open_served(loop.folder)
    assert (served.run, served.policy) == (origin.resolve(), "grpo")
    [line] = loop.read_log()
    assert (line.event, line.version) == ("began", served.version)


def test_beginning_again_goes_on_and_settings_that_certificates_rest_on_stay(
    loop: Loop, origin: Path, tmp_path: Path
) -> None:
    assert begin_loop(loop.folder, origin, find_settings(every=7)).settings.every == 7
    with pytest.raises(ConfigError, match="test_share"):
        begin_loop(loop.folder, origin, find_settings(test_share=0.4))
    shutil.copytree(origin, tmp_path / "other")
    with pytest.raises(RunError, match="began with"):
        begin_loop(loop.folder, tmp_path / "other", find_settings())
    with pytest.raises(RunError, match="holds no loop"):
        begin_loop(tmp_path / "other", origin, find_settings())


def test_a_beginning_that_was_interrupted_begins_again(loop: Loop, origin: Path) -> None:
    (loop.folder / "loop.json").unlink()
    assert len(begin_loop(loop.folder, origin, find_settings()).read_log()) == 1


def test_two_processes_do_not_learn_in_one_loop(loop: Loop) -> None:
    with loop.lock(), pytest.raises(RunError, match="another process"), Loop(loop.folder).lock():
        pass


def test_a_round_learns_from_one_side_and_is_tested_on_the_other(
    taught: tuple[Loop, Talk],
) -> None:
    loop, _ = taught
    [run] = loop.rounds
    assert {one.shown.session for one in read_items(run / "prepare" / "learned.jsonl")} == {
        *TEACHING[:5]
    }
    assert {one.cluster for one in read_examples(run / "decide" / "asked.jsonl")} == {*TESTING[:3]}
    found = _read(loop)
    assert (found.asked.num_items, found.asked.num_sessions) == (6, 3)
    assert (found.candidate, found.held_out.num_items) == (1, 8)
    assert [one.side for one in found.labels].count("teaches") == 5
    assert [one.side for one in found.labels].count("tests") == 6
    assert found.served == loop.read_log()[0].version != found.version


@pytest.mark.slow
def test_a_candidate_lives_for_several_looks_and_the_next_learns_from_all(
    loop: Loop, talk: Talk
) -> None:
    talk.fill(TEACHING[:4])
    talk.fill(TESTING[:1], num=2)
    assert advance(loop, talk) is None
    before = _read(loop)
    assert before.promotion.verdict == "undecided"
    weights = (loop.rounds[0] / "grpo" / "step.json").read_bytes()
    talk.fill(TESTING[:1])  # a session that was looked at keeps what it was looked at with
    talk.fill(TESTING[1:3], num=2)
    advance(loop, talk)
    after = _read(loop)
    assert (after.asked.num_items, after.version) == (6, before.version)
    assert after.promotion.level == before.promotion.level
    assert (loop.rounds[0] / "grpo" / "step.json").read_bytes() == weights
    assert len(list((loop.folder / "certificates").iterdir())) == 2
    talk.fill(TEACHING[4:6])
    advance(loop, talk, is_wanted=True)
    last = _read(loop, 2)
    assert last.promotion.level == pytest.approx(before.promotion.level / 3)
    assert [one.side for one in last.labels].count("teaches") == 6


def _promote(loop: Loop) -> None:
    """Let the certificate of the first round say that its candidate is better."""
    found, path = _read(loop), loop.rounds[0] / "decide" / "certificate.json"
    write_certificate(path, replace(found, promotion=replace(found.promotion, verdict="promoted")))


def test_a_promotion_that_was_interrupted_is_made_good_and_a_roll_back_holds(
    taught: tuple[Loop, Talk], origin: Path
) -> None:
    loop, talk = taught
    _promote(loop)  # and nothing was logged: the process was killed
    with loop.lock():
        line = Learner(loop, talk.store).settle()
        assert line is not None
        assert Learner(loop, talk.store).settle() is None
    served = read_served(loop.folder)
    assert served.version == line.version != loop.read_log()[0].version
    assert served.run == loop.folder.absolute() / "rounds" / "001"
    back = loop.roll_back()
    assert read_served(loop.folder).run == origin.resolve()
    with loop.lock():
        assert Learner(loop, talk.store).settle() is None
    assert read_served(loop.folder).version == back.version
    with pytest.raises(RunError, match="before the present version"):
        loop.roll_back()
    assert [one.event for one in loop.read_log()] == ["began", "promoted", "rolled back"]


def test_a_candidate_held_against_what_is_served_no_more_is_not_promoted(
    taught: tuple[Loop, Talk],
) -> None:
    loop, talk = taught
    _promote(loop)
    loop.record("promoted", "elsewhere", "grpo", "another version", "another certificate")
    with loop.lock():
        assert Learner(loop, talk.store).settle() is None


def test_the_server_finds_what_the_log_says_after_a_kill_between_the_two(loop: Loop) -> None:
    write_json(loop.folder / "served.json", {"run": "x", "policy": "y", "version": "z"})
    with loop.lock():
        assert read_served(loop.folder).version == loop.read_log()[-1].version


def test_a_round_that_was_given_more_is_not_ended(taught: tuple[Loop, Talk]) -> None:
    """Killed between the new snapshot and the look: the look is not forgotten."""
    loop, talk = taught
    with loop.lock():
        assert not Learner(loop, talk.store).look_up().is_unfinished
        snapshot = loop.folder / "snapshots" / "001.asked.jsonl"
        snapshot.write_bytes(snapshot.read_bytes() + snapshot.read_bytes())
        assert Learner(loop, talk.store).look_up().is_unfinished


def test_deleting_a_person_lists_the_versions_and_ends_the_replay(
    taught: tuple[Loop, Talk],
) -> None:
    loop, talk = taught
    path = loop.rounds[0] / "decide" / "certificate.json"
    assert verify(path, talk.store).num_withdrawn == 0
    gone = talk.store.delete_person(name_person("ann", KEY))
    assert gone.versions == (_read(loop).version,)
    checked = verify(path, talk.store)
    assert (checked.problems, checked.num_withdrawn) == ((), 11)


def test_a_changed_certificate_is_refused(taught: tuple[Loop, Talk]) -> None:
    path = taught[0].rounds[0] / "decide" / "certificate.json"
    path.write_text(path.read_text().replace('"undecided"', '"promoted"'))
    with pytest.raises(RunError, match="changed since"):
        verify(path)


def test_a_verdict_that_does_not_follow_is_found(taught: tuple[Loop, Talk]) -> None:
    """Also where whoever wrote it wrote the digests, too."""
    loop, _ = taught
    _promote(loop)
    path = loop.rounds[0] / "decide" / "certificate.json"
    [problem] = verify(path).problems
    assert "certificate.json, which was changed" in problem
    marker = read_json(path.parent / "step.json", dict)
    outputs = {**marker["outputs"], "decide/certificate.json": digest_file(path)}
    write_json(path.parent / "step.json", {**marker, "outputs": outputs})
    [problem] = verify(path).problems
    assert "the answers give undecided" in problem


@pytest.mark.parametrize("name", ["evaluate/predictions.jsonl", "prepare/train.jsonl"])
def test_changed_files_of_the_round_are_found(taught: tuple[Loop, Talk], name: str) -> None:
    [run] = taught[0].rounds
    assert read_jsonl(run / name)
    (run / name).write_bytes((run / name).read_bytes() + b"\n")
    assert any(name in one for one in verify(run / "decide" / "certificate.json").problems)


def test_a_session_on_the_wrong_side_is_found(taught: tuple[Loop, Talk]) -> None:
    loop, _ = taught
    found, path = _read(loop), loop.rounds[0] / "decide" / "certificate.json"
    wrong = replace(found.labels[0], side="tests")
    write_certificate(path, replace(found, labels=(wrong, *found.labels[1:])))
    assert any("tests" in problem for problem in verify(path).problems)


def test_labels_are_the_last_words_of_people(taught: tuple[Loop, Talk]) -> None:
    """A label that its person changed since is not the one that the certificate rests on."""
    loop, talk = taught
    one = talk.store.list_items()[0]
    talk.say(one.shown, LABELS[0])
    assert verify(loop.rounds[0] / "decide" / "certificate.json", talk.store).num_withdrawn == 1
