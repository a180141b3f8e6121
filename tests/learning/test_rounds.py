"""Rounds of a tiny loop: what is trained and tested, and what is served after them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said_things import KEY, LABELS, SIDES, TEACHING, TESTING, Talk, Taught, advance, find_settings
from small_task import LORA, SmallConfig

from groupwise.core import (
    ConfigError,
    DataError,
    Example,
    RunError,
    digest_file,
    read_json,
    read_jsonl,
    write_json,
)
from groupwise.data.examples import read_examples
from groupwise.feedback import Shown, name_person, order_by_priority, read_items, write_items
from groupwise.learning.certificate import Certificate, read_certificate, verify, write_certificate
from groupwise.learning.judged import take_verdict
from groupwise.learning.loop import Loop, begin_loop
from groupwise.learning.round import prepare_round
from groupwise.learning.rounds import Learner, Standing, choose_next
from groupwise.learning.settings import LoopSettings, RoundConfig, RoundSettings
from groupwise.run.predict import find_source, read_served


def _find(loop: Loop, number: int = 1) -> Path:
    return loop.folder / f"rounds/{number:03}/decide/certificate.json"


def _read(loop: Loop, number: int = 1) -> Certificate:
    return read_certificate(_find(loop, number))


def test_a_loop_begins_with_the_run_that_is_served(loop: Loop, origin: Path) -> None:
    find_source(loop.folder, None).open()
    served = read_served(loop.folder)
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
    taught: Taught,
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
    found = replace(_read(loop).promotion, verdict="promoted")
    write_certificate(_find(loop), replace(_read(loop), promotion=found))


def test_a_promotion_that_was_interrupted_is_made_good_and_a_roll_back_holds(
    taught: Taught, origin: Path
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
    taught: Taught,
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


def test_a_round_that_was_given_more_is_not_ended(taught: Taught) -> None:
    """Killed between the new snapshot and the look: the look is not forgotten."""
    loop, talk = taught
    with loop.lock():
        assert not Learner(loop, talk.store).look_up().is_unfinished
        snapshot = loop.folder / "snapshots" / "001.asked.jsonl"
        snapshot.write_bytes(snapshot.read_bytes() + snapshot.read_bytes())
        assert Learner(loop, talk.store).look_up().is_unfinished


def test_deleting_a_person_lists_the_versions_and_ends_the_replay(
    taught: Taught,
) -> None:
    loop, talk = taught
    assert verify(_find(loop), talk.store).num_withdrawn == 0
    gone = talk.store.delete_person(name_person("ann", KEY))
    assert gone.versions == (_read(loop).version,)
    checked = verify(_find(loop), talk.store)
    assert (checked.problems, checked.num_withdrawn) == ((), 11)


def test_a_changed_certificate_is_refused(taught: Taught) -> None:
    path = _find(taught[0])
    path.write_text(path.read_text().replace('"undecided"', '"promoted"'))
    with pytest.raises(RunError, match="changed since"):
        verify(path)


def test_a_verdict_that_does_not_follow_is_found(taught: Taught) -> None:
    """Also where whoever wrote it wrote the digests, too."""
    loop, _ = taught
    _promote(loop)
    path = _find(loop)
    [problem] = verify(path).problems
    assert "certificate.json, which was changed" in problem
    marker = read_json(path.parent / "step.json", dict)
    outputs = {**marker["outputs"], "decide/certificate.json": digest_file(path)}
    write_json(path.parent / "step.json", {**marker, "outputs": outputs})
    [problem] = verify(path).problems
    assert "the answers give undecided" in problem


@pytest.mark.parametrize("name", ["evaluate/predictions.jsonl", "prepare/train.jsonl"])
def test_changed_files_of_the_round_are_found(taught: Taught, name: str) -> None:
    [run] = taught[0].rounds
    assert read_jsonl(run / name)
    (run / name).write_bytes((run / name).read_bytes() + b"\n")
    assert any(name in one for one in verify(run / "decide" / "certificate.json").problems)


def test_a_session_on_the_wrong_side_is_found(taught: Taught) -> None:
    loop, _ = taught
    found, path = _read(loop), _find(loop)
    wrong = replace(found.labels[0], side="tests")
    write_certificate(path, replace(found, labels=(wrong, *found.labels[1:])))
    assert any("tests" in problem for problem in verify(path).problems)


def test_labels_are_the_last_words_of_people(taught: Taught) -> None:
    """A label that its person changed since is not the one that the certificate rests on."""
    loop, talk = taught
    one = talk.store.list_items()[0]
    talk.say(one.shown, LABELS[0])
    assert verify(_find(loop), talk.store).num_withdrawn == 1


SETTINGS = LoopSettings(every=10, look_every=4, life=3)
IDLE = Standing(0, 0, 0, is_unfinished=False, certificate=None, is_pending=False)


@pytest.mark.parametrize(
    ("changes", "expected", "on_request"),
    [
        ({}, "wait", "wait"),
        ({"num_new": 1}, "wait", "train"),
        ({"num_new": 9}, "wait", "train"),
        ({"num_new": 10}, "train", "train"),
        ({"num_new": 10, "is_unfinished": True}, "finish", "finish"),
        ({"num_new_sessions": 9}, "wait", "wait"),
        ({"is_pending": True, "num_new_sessions": 3}, "wait", "wait"),
        ({"is_pending": True, "num_new_sessions": 4}, "look", "look"),
        ({"is_pending": True, "num_new": 1}, "wait", "train"),
        ({"is_pending": True, "num_new": 29}, "wait", "train"),
        ({"is_pending": True, "num_new": 30}, "train", "train"),
        ({"is_pending": True, "num_new": 30, "num_new_sessions": 4}, "look", "train"),
    ],
)
def test_what_a_loop_does_next(changes: dict[str, object], expected: str, on_request: str) -> None:
    """A round on request needs one new label."""
    standing = replace(IDLE, **changes)
    assert choose_next(standing, SETTINGS) == expected
    assert choose_next(standing, SETTINGS, is_wanted=True) == on_request


def test_labels_are_taught_as_the_origin_taught_in_one_epoch() -> None:
    origin = SmallConfig(**LORA)
    assert origin.sft is not None
    assert origin.sft.learning_rate != origin.grpo.learning_rate
    found = RoundSettings().choose_sft(origin)
    assert found is not None
    assert (found.epochs, found.learning_rate) == (1, origin.sft.learning_rate)
    assert found.trainable == origin.sft.trainable


RIGHT, WRONG = LABELS[1], LABELS[0]
SHARES = st.floats(0, 1)


@given(st.sampled_from([None, *LABELS]), st.sampled_from([None, *LABELS]), SHARES, SHARES)
def test_only_a_sure_judge_that_says_something_else_is_believed(
    prediction: str | None, label: str | None, share: float, least: float
) -> None:
    shown = Shown(
        "a", 0.0, {}, "", (), prediction, 0.9, "v", judge_label=label, judge_probability=share
    )
    found = take_verdict(shown, least)
    is_believed = label is not None and label != prediction and share >= least
    assert (found is not None) == is_believed
    assert found is None or found.label == label


@pytest.fixture
def judged(origin: Path, talk: Talk, tmp_path: Path) -> Loop:
    """A loop that learns from a judge who says nine in ten, and what was shown in it."""
    talk.fill(TEACHING[:4])
    talk.fill(TESTING[:2], num=2)
    verdicts = ((RIGHT, 0.95), (RIGHT, 0.85), (WRONG, 0.99))
    for session, verdict in zip(TEACHING[4:7], verdicts, strict=True):
        talk.show(session, verdict=verdict)
    talk.show(TESTING[0], verdict=verdicts[0])
    how = RoundSettings(learn_from_judge=0.9)
    return begin_loop(tmp_path / "loop", origin, find_settings(round=how))


@pytest.mark.slow
def test_sure_verdicts_against_the_policy_teach_and_are_told_apart(
    judged: Loop, talk: Talk
) -> None:
    advance(judged, talk)
    [run] = judged.rounds
    learned = read_items(run / "prepare" / "learned.jsonl")
    assert sorted(one.shown.session for one in learned) == sorted(TEACHING[:5])
    assert read_json(run / "prepare" / "source.json", dict)["judged"] == 1
    path = _find(judged)
    labels = read_certificate(path).labels
    assert [one.session for one in labels if one.is_judged] == [TEACHING[4]]
    assert [one.side for one in labels].count("tests") == 4
    assert verify(path, talk.store).num_withdrawn == 0
    # What a person says later of a judged answer is new.
    [shown] = [one for one in talk.store.list_unlabelled() if one.session == TEACHING[4]]
    talk.say(shown, WRONG)
    assert Learner(judged, talk.store).look_up().num_new == 1
    assert verify(path, talk.store).num_withdrawn == 0


def test_verdicts_alone_start_no_round(origin: Path, talk: Talk, tmp_path: Path) -> None:
    for session in TEACHING[:8]:
        talk.show(session, verdict=(RIGHT, 0.99))
    how = RoundSettings(learn_from_judge=0.9)
    loop = begin_loop(tmp_path / "loop", origin, find_settings(round=how))
    assert advance(loop, talk) is None
    assert loop.rounds == []


Prepare = Callable[..., dict[str, list[Example]]]


@pytest.fixture
def prepare(origin: Path, talk: Talk, tmp_path: Path) -> Prepare:
    """Prepare a round from what was said, and return its splits."""

    def prepare(**data: Any) -> dict[str, list[Example]]:
        items = tmp_path / "items.jsonl"
        write_items(items, order_by_priority(talk.store.list_items()))
        config = RoundConfig.model_validate(
            {
                "model": {**LORA["model"], "base": str(origin / "grpo" / "policy")},
                "data": {
                    "origin": origin,
                    "items": items,
                    "asked": items,
                    "pictures": talk.store.pictures.folder,
                    "sides": SIDES,
                    **data,
                },
                "sft": LORA["sft"],
                "grpo": LORA["grpo"],
                "served": "v0",
                "candidate": 1,
            }
        )
        folder = tmp_path / "prepare"
        folder.mkdir()
        prepare_round(config, folder)
        names = ("train", "validation", "test")
        return {name: read_examples(folder / f"{name}.jsonl") for name in names}

    return prepare


def _count_drops(tmp_path: Path) -> dict[str, int]:
    return read_json(tmp_path / "prepare" / "source.json", dict)["drops"]["counts"]


def test_old_rows_are_replayed_beside_what_was_said(talk: Talk, prepare: Prepare) -> None:
    talk.fill(TEACHING[:4])
    train = prepare(replay=1.0)["train"]
    said = [one for one in train if "answer" in one.fields]
    assert [one.label for one in said] == [LABELS[1]] * 4
    assert {one.cluster for one in said} == {*TEACHING[:4]}
    assert len(train) == 8


def test_nothing_is_replayed_where_nothing_is_wanted(talk: Talk, prepare: Prepare) -> None:
    talk.fill(TEACHING[:4])
    assert len(prepare(replay=0.0)["train"]) == 4


def test_the_held_out_set_is_the_origins_and_never_trained_on(
    talk: Talk, prepare: Prepare, origin: Path, tmp_path: Path
) -> None:
    """Nor is what asks the same as one of its rows, or is of one of its sessions."""
    test = read_examples(origin / "prepare" / "test.jsonl")
    talk.fill(TEACHING[:4])
    teaching = next(one.cluster for one in test if SIDES.find(one.cluster) == "teaches")
    for shown in (
        talk.show(TEACHING[4], question=test[0].prompt[0].text.replace("？", "?")),
        talk.show(teaching),
    ):
        talk.say(shown, LABELS[1])
    splits = prepare()
    assert [one.id for one in splits["test"]] == [one.id for one in test]
    assert {one.cluster for one in splits["train"]}.isdisjoint(one.cluster for one in test)
    assert _count_drops(tmp_path) == {
        "its picture or text is tested": 1,
        "its session is tested": 1,
    }


def test_what_is_of_a_session_of_the_validation_is_not_learned(
    talk: Talk, prepare: Prepare, origin: Path, tmp_path: Path
) -> None:
    """The audit would end the round: a session stands in one split alone."""
    validation = read_examples(origin / "prepare" / "validation.jsonl")
    talk.fill(TEACHING[:4])
    session = next(one.cluster for one in validation if SIDES.find(one.cluster) == "teaches")
    talk.say(talk.show(session), LABELS[1])
    splits = prepare()
    trained = {one.cluster for one in splits["train"]}
    assert trained.isdisjoint(one.cluster for one in splits["validation"])
    assert len(splits["validation"]) == len(validation)
    assert _count_drops(tmp_path) == {"its session is validated": 1}


def test_what_cannot_be_learned_is_dropped_and_counted(
    talk: Talk, prepare: Prepare, tmp_path: Path
) -> None:
    good = talk.fill(TEACHING[:3])
    talk.fill(TESTING[:2])
    for shown, label in (
        (talk.show(TEACHING[0], question=good[0].row["question"]), LABELS[1]),
        (talk.show(TEACHING[4]), "紫色"),
        (talk.show(TEACHING[5], question=" "), LABELS[1]),
    ):
        talk.say(shown, label)
    splits = prepare()
    assert _count_drops(tmp_path)["its session is of the other side"] == 2
    assert _count_drops(tmp_path)["a label that there is not"] == 1
    source = read_json(tmp_path / "prepare" / "source.json", dict)
    assert source["num_rows"] == sum(map(len, splits.values())) + source["drops"]["total"]


def test_a_round_with_nothing_to_learn_says_why(talk: Talk, prepare: Prepare) -> None:
    talk.fill(TESTING[:2])
    with pytest.raises(DataError, match="nothing that can be learned"):
        prepare()
