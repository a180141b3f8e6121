"""Rivals of a candidate use what people said in sessions that teach, without any training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from said_things import LABELS, TEACHING, TESTING, Talk

from groupwise.cli.learn import describe_certificate
from groupwise.core import (
    Example,
    Message,
    digest_file,
    make_example,
    read_json,
    read_picture,
    seal,
    write_json,
)
from groupwise.evaluation import Prediction, read_predictions
from groupwise.learning import Loop, LoopOnPage, read_certificate, verify
from groupwise.learning.certificate import write_certificate
from groupwise.learning.memory import Memory, Trial, choose_threshold
from groupwise.learning.nearness import Nearness
from groupwise.learning.rival_results import USED, compare_rivals
from groupwise.learning.rivals import (
    RULES,
    count_fitting,
    read_learned,
    write_rules,
    write_turns,
)
from groupwise.training import SftRow

GOOD, BAD = LABELS


def _make(words: str, *, label: str = GOOD, session: str = "a", system: str = "") -> Example:
    turns = [Message("system", system)] if system else []
    return make_example([*turns, Message("user", words)], cluster=session, label=label)


def _answer(example: Example, predicted: str, latency_s: float | None = None) -> Prediction:
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy="prompt",
        label=str(example.label),
        predicted=predicted,
        text=predicted,
        latency_s=latency_s,
    )


ROWS = [SftRow(_make("first bolt", system="be kind"), "tight"), SftRow(_make("second"), "loose")]
ASKED = _make("which bolt?", system="be brief")


def test_examples_are_turns_with_their_answers_and_one_system_turn() -> None:
    told = [(turn.role, turn.text) for turn in write_turns(ASKED, ROWS).prompt]
    assert told == [
        ("system", "be brief"),
        ("user", "first bolt"),
        ("assistant", "tight"),
        ("user", "second"),
        ("assistant", "loose"),
        ("user", "which bolt?"),
    ]


def test_rules_are_lines_before_the_question_each_once_and_without_pictures(
    tmp_path: Path,
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    shown = replace(
        ROWS[1].example, prompt=(Message("user", [read_picture(tmp_path / "a.png"), "second"]),)
    )
    found = write_rules(ASKED, [ROWS[0], SftRow(shown, "x"), ROWS[1]])
    assert not found.pictures
    assert (
        found.prompt[-1].text == f"{RULES}\nbe kind first bolt → 合格\nsecond → 合格\n\nwhich bolt?"
    )
    assert (found.id, found.label) == (ASKED.id, ASKED.label)
    assert write_rules(ASKED, []) == ASKED


@given(st.integers(0, 20), st.integers(0, 30), st.integers(1, 5), st.integers(0, 120))
def test_as_many_rows_as_fit_are_shown(rows: int, own: int, size: int, limit: int) -> None:
    """The number that fits, found one by one."""
    found = count_fitting(
        ASKED,
        [ROWS[0]] * rows,
        write=write_turns,
        count_tokens=lambda one: own + size * (len(one.prompt) - 2) // 2,
        limit=limit,
    )
    assert found == max((n for n in range(rows + 1) if own + size * n <= limit), default=0)


_TRIAL = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=8)


def _try(items: Sequence[tuple[int, bool, bool]]) -> Trial:
    """Return a trial; the largest distance stands for no item."""
    gaps, near, served = (np.asarray([one[place] for one in items]) for place in range(3))
    return Trial(np.where(gaps == 4, np.inf, gaps.astype(float)), near == 1, served == 1)


def _count(trial: Trial, level: float) -> int:
    columns = zip(trial.gaps, trial.is_near_right, trial.is_served_right, strict=True)
    return sum(bool(near if gap <= level else served) for gap, near, served in columns)


@given(_TRIAL, _TRIAL, st.sampled_from([0.02, 0.2, 0.6]))
def test_no_threshold_that_spares_others_answers_more_learned_items_right(
    items: Sequence[tuple[int, bool, bool]],
    rest: Sequence[tuple[int, bool, bool]],
    margin: float,
) -> None:
    said, others = _try(items), _try(rest)
    chosen = choose_threshold(said, others, margin=margin)

    def spares(level: float) -> bool:
        return _count(others, level) >= _count(others, -np.inf) - margin * len(rest)

    assert spares(chosen)
    levels = {-np.inf, *said.gaps} - {np.inf}
    allowed = [level for level in levels if spares(level)]
    assert _count(said, chosen) == max(_count(said, level) for level in allowed)
    assert all(_count(said, one) < _count(said, chosen) for one in allowed if one < chosen)


def test_of_one_session_nothing_is_remembered() -> None:
    """Nothing tells how near is near enough, so the served version answers."""
    learned = [_make("bolt one"), _make("bolt two")]
    asked = [_make("bolt one", session="b")]
    memory = Memory(learned, [], [BAD, BAD], margin=0.02)
    [found] = memory.answer(asked, [_answer(asked[0], BAD)])
    assert (found.predicted, found.policy, found.fields[USED]) == (BAD, "memory", 0)


RED = [_make(f"red bolt number {number}", session=str(number)) for number in range(4)]


def test_what_is_near_is_remembered_and_all_else_is_the_served_answer() -> None:
    asked = [_make("red bolt number 9", session="x"), _make("一个完全不同的问题", session="y")]
    served = [_answer(asked[0], BAD, latency_s=7.0), _answer(asked[1], BAD, latency_s=7.0)]
    near, far = Memory(RED, [], [BAD] * 4, margin=0.02).answer(asked, served)
    assert (near.predicted, near.fields[USED]) == (GOOD, 1)
    assert (far.predicted, far.fields[USED]) == (BAD, 0)
    assert near.latency_s is not None
    assert near.latency_s < 7.0 < (far.latency_s or 0)


def test_what_would_cost_others_too_much_is_not_remembered() -> None:
    """Their questions are as near, and the served version answers them right."""
    others = [_make(f"red bolt number 9{number}", label=BAD, session="z") for number in range(5)]
    asked = [_make("red bolt number 9", session="x")]
    served = [_answer(asked[0], BAD)]
    for margin, expected in ((0.02, BAD), (1.0, GOOD)):
        memory = Memory(RED, others, [BAD] * 9, margin=margin)
        assert memory.answer(asked, served)[0].predicted == expected


def test_where_the_served_version_is_right_nothing_is_remembered() -> None:
    labels = [GOOD, BAD, GOOD, BAD]
    learned = [_make(f"bolt {n}", label=one, session=str(n)) for n, one in enumerate(labels)]
    asked = [_make("bolt 0", session="x")]
    [found] = Memory(learned, [], labels, margin=0.02).answer(asked, [_answer(asked[0], BAD)])
    assert (found.predicted, found.fields[USED]) == (BAD, 0)


def test_of_the_same_words_the_picture_that_looks_alike_is_nearer(tmp_path: Path) -> None:
    examples = list[Example]()
    for name, box in (
        ("left", (0, 0, 32, 64)),
        ("right", (32, 0, 64, 64)),
        ("new", (0, 0, 30, 64)),
    ):
        picture = Image.new("RGB", (64, 64))
        picture.paste((255, 255, 255), box)
        picture.save(tmp_path / f"{name}.png")
        pictures = [read_picture(tmp_path / f"{name}.png")]
        examples.append(make_example([Message("user", "same")], cluster=name, pictures=pictures))
    [[left, right]] = Nearness(examples[:2]).measure(examples[2:])
    assert left < right


@pytest.fixture
def decided(taught: tuple[Loop, Talk]) -> Path:
    """The folder of the stage in which versions and rivals were asked."""
    return taught[0].rounds[0] / "decide"


def test_rivals_answer_the_candidates_questions_and_learn_from_the_other_side(
    decided: Path,
) -> None:
    answers = read_predictions(decided / "predictions.jsonl")
    ids = {
        name: [one.example_id for one in answers if one.policy == name]
        for name in ("grpo", "memory", "nearest", "rules")
    }
    assert len(ids["grpo"]) == 6
    assert all(own == ids["grpo"] for own in ids.values())
    assert {one.cluster for one in answers} == {*TESTING[:3]}
    learned = read_learned(decided.parent / "prepare")
    assert [one.cluster for one in learned] == TEACHING[:5]
    assert 0 < max(one.fields[USED] for one in answers if one.policy == "nearest") < 5


def test_the_certificate_compares_and_replays_and_a_page_and_a_line_tell(
    decided: Path, taught: tuple[Loop, Talk]
) -> None:
    path = decided / "certificate.json"
    found = read_certificate(path)
    assert [one.name for one in found.rivals] == ["memory", "nearest", "rules"]
    for one in found.rivals:
        assert (one.num_items, one.num_sessions) == (6, 3)
        assert one.gain == pytest.approx(one.candidate - one.accuracy)
        assert one.low <= one.gain <= one.high
        assert one.seconds is not None
    assert verify(path).problems == ()
    unbeaten = [one.name for one in found.rivals if not one.is_beaten]
    assert unbeaten  # six answers of three sessions show nothing
    assert all(f"the rival {name}" in describe_certificate(found) for name in unbeaten)
    [shown] = LoopOnPage(taught[0]).show().candidates
    assert shown.looks[0].unbeaten == tuple(unbeaten)


def test_what_a_certificate_says_of_rivals_must_follow_from_their_answers(decided: Path) -> None:
    """Also where whoever wrote it wrote the digests, too."""
    path = decided / "certificate.json"
    found = read_certificate(path)
    write_certificate(path, replace(found, rivals=found.rivals[1:]))
    marker = read_json(decided / "step.json", dict)
    outputs = {**marker["outputs"], "decide/certificate.json": digest_file(path)}
    write_json(decided / "step.json", {**marker, "outputs": outputs})
    [problem] = verify(path).problems
    assert "rivals" in problem


def test_certificates_without_rivals_are_read(decided: Path) -> None:
    """As rounds wrote them before there were any."""
    path = decided / "certificate.json"
    told = read_json(path, dict)
    write_json(path, seal({name: told[name] for name in told if name not in ("digest", "rivals")}))
    assert read_certificate(path).rivals == ()


@pytest.mark.parametrize(("is_rival_right", "told"), [(True, "is better"), (False, "beaten")])
def test_a_rival_is_better_or_beaten_where_its_answers_are(is_rival_right: bool, told: str) -> None:
    asked = [_make(f"bolt {number}", session=str(number)) for number in range(40)]
    right = [replace(_answer(one, GOOD, latency_s=2.0), fields={USED: 1}) for one in asked]
    wrong = [replace(one, predicted=BAD, latency_s=None) for one in right]
    rival, candidate = (right, wrong) if is_rival_right else (wrong, right)
    answers = [replace(one, policy="memory") for one in rival]
    [found] = compare_rivals(
        [*answers, *(replace(one, policy="grpo") for one in candidate)], "grpo"
    )
    assert (found.is_better, found.is_beaten) == (told == "is better", told == "beaten")
    assert (found.seconds, found.candidate_seconds) == (None, None)  # no item was timed at both


def test_a_rival_that_is_better_is_said_to_be(decided: Path) -> None:
    found = read_certificate(decided / "certificate.json")
    better = replace(found.rivals[0], accuracy=0.9, candidate=0.5, gain=-0.4, low=-0.6, high=-0.2)
    told = describe_certificate(replace(found, rivals=(better,)))
    assert "memory, which takes no training, is better than the candidate: 90.0 % against" in told
