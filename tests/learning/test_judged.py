"""A judge's verdicts against the policy are learned from where that is wanted, and only there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said_things import LABELS, TEACHING, TESTING, Talk, advance, find_settings

from groupwise.core import read_json
from groupwise.feedback import Shown, read_items
from groupwise.learning import Learner, Loop, RoundSettings, begin_loop, read_certificate, verify
from groupwise.learning.judged import take_verdict

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
    path = run / "decide" / "certificate.json"
    labels = read_certificate(path).labels
    assert [one.session for one in labels if one.is_judged] == [TEACHING[4]]
    assert [one.side for one in labels].count("tests") == 4
    assert verify(path, talk.store).num_withdrawn == 0


@pytest.mark.slow
def test_what_a_person_says_later_of_a_judged_answer_is_new(judged: Loop, talk: Talk) -> None:
    advance(judged, talk)
    [shown] = [one for one in talk.store.list_unlabelled() if one.session == TEACHING[4]]
    talk.say(shown, WRONG)
    assert Learner(judged, talk.store).look_up().num_new == 1
    path = judged.rounds[0] / "decide" / "certificate.json"
    assert verify(path, talk.store).num_withdrawn == 0


def test_verdicts_alone_start_no_round(origin: Path, talk: Talk, tmp_path: Path) -> None:
    for session in TEACHING[:8]:
        talk.show(session, verdict=(RIGHT, 0.99))
    how = RoundSettings(learn_from_judge=0.9)
    loop = begin_loop(tmp_path / "loop", origin, find_settings(round=how))
    assert advance(loop, talk) is None
    assert loop.rounds == []
