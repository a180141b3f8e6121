"""The rule judge: what a reasoning entails, whatever the picture shows."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import read_tables

from groupwise.core import DataError, read_jsonl
from groupwise.rewards import BoxParser
from groupwise_drawn.relations import INVERSES, LANGUAGES, plan_pairs, write_claim
from groupwise_recipes.visual_reasoning.boxes import Box
from groupwise_recipes.visual_reasoning.entailment import judge_entailment
from groupwise_recipes.visual_reasoning.reasoning import write_reasoning

TABLES = read_tables(__file__)

SCENES = [scene for pair in plan_pairs(60, seed=2, split="train") for scene in pair]


def list_boxes(scene, language):
    return [Box(*thing.box, thing.name(language)) for thing in (scene.subject, scene.other)]


def write(scene, language, *, with_boxes=True):
    subject, other = list_boxes(scene, language)
    frame = (scene.side, scene.side) if with_boxes else None
    return write_reasoning(
        subject, scene.relation, other, is_true=scene.label, frame=frame, language=language
    )


@pytest.mark.parametrize(("language", "with_boxes"), list(product(LANGUAGES, (True, False))))
def test_written_reasoning_entails_its_answer_and_contradicts_the_other(language, with_boxes):
    for scene in SCENES:
        statement = scene.write_caption(language)
        text = write(scene, language, with_boxes=with_boxes)
        assert judge_entailment(statement, text, answer=scene.label).aligns
        other = judge_entailment(statement, text, answer=not scene.label)
        assert (other.aligns, other.type) == (False, "contradiction")


@pytest.mark.parametrize("language", LANGUAGES)
def test_written_boxes_are_read_as_boxes(language):
    for scene in SCENES[:20]:
        read = BoxParser(words=True).parse(write(scene, language)).value
        # From left to right, whichever the caption names first.
        assert [*read] == sorted(list_boxes(scene, language), key=lambda box: box.x1 + box.x2)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_finding_against_the_conclusion_or_the_boxes_is_a_contradiction(language):
    for scene in SCENES:
        statement = scene.write_caption(language)
        names = scene.subject.name(language), scene.other.name(language)
        found = scene.relation if scene.label else INVERSES[scene.relation]
        right = write_claim(names[0], found, names[1], language)
        wrong = write_claim(names[1], found, names[0], language)
        text = write(scene, language)
        assert right in text
        torn = [text.replace(right, wrong), f"{wrong} {text}", f"{text} {wrong}"]
        for reasoning, answer in product(torn, (True, False)):
            assert judge_entailment(statement, reasoning, answer=answer).type == "contradiction"


STATEMENT = "The red ball is left of the chair."
CASES = TABLES["cases"]


@pytest.mark.parametrize(("reasoning", "answer", "fault"), CASES)
def test_cases_of_each_kind(reasoning, answer, fault):
    verdict = judge_entailment(STATEMENT, reasoning, answer=answer)
    assert (verdict.aligns, verdict.type) == (fault is None, fault)
    assert verdict.why


# Free words, and whether by them the statement is true.
READ = TABLES["read"]
NOT_READ = TABLES["not_read"]


@pytest.mark.parametrize(("reasoning", "is_true"), READ)
def test_free_words_that_are_read(reasoning, is_true):
    assert judge_entailment(STATEMENT, reasoning, answer=is_true).aligns
    assert judge_entailment(STATEMENT, reasoning, answer=not is_true).type == "contradiction"


@pytest.mark.parametrize("reasoning", NOT_READ)
def test_what_is_not_understood_has_no_verdict(reasoning):
    for answer in (True, False):
        verdict = judge_entailment(STATEMENT, reasoning, answer=answer)
        assert (verdict.aligns, verdict.type) == (None, None)


WORDS = "The ball;the chair;it;is;not;left of;on the right;further left;no;x = 30;than;if;wait"
WORDS += ";the statement;true;wrong;and;but;its;one;neither;has the smaller x;covers;.;,;?;[1,2,3,4"


@given(st.lists(st.sampled_from(WORDS.split(";")), max_size=25).map(" ".join))
def test_no_text_entails_both_answers(text):
    verdicts = [judge_entailment(STATEMENT, text, answer=answer) for answer in (True, False)]
    assert not all(one.aligns for one in verdicts)
    assert all((one.aligns is False) == (one.type is not None) for one in verdicts)
    if any(one.aligns for one in verdicts):
        assert {one.type for one in verdicts} == {None, "contradiction"}


@pytest.mark.parametrize(
    ("name", "num_cases", "num_found", "num_aligned"),
    TABLES["cases_of_people_who_had_not_seen_the_judge"],
)
def test_cases_of_people_who_had_not_seen_the_judge(name, num_cases, num_found, num_aligned):
    """The first four were read to extend the judge: ``entailment`` tells what it found at first."""
    cases = list(read_jsonl(Path(__file__).parent / f"{name}.jsonl"))
    verdicts = [
        (one["type"], judge_entailment(one["statement"], one["reasoning"], answer=one["answer"]))
        for one in cases
    ]
    assert num_cases.items() <= Counter(fault for fault, _ in verdicts).items()
    assert not [one for fault, one in verdicts if fault and one.aligns]
    false_alarms = [one for fault, one in verdicts if not fault and one.type]
    assert len(false_alarms) <= 0.01 * num_cases[None]
    found = Counter((fault, one.type) for fault, one in verdicts if one.aligns is not None)
    assert found["contradiction", "contradiction"] >= num_found
    assert found[None, None] >= num_aligned


@pytest.mark.parametrize(("statement", "reasoning", "answer", "fault"), TABLES["chinese"])
def test_chinese_and_what_covers_what(statement, reasoning, answer, fault):
    assert judge_entailment(statement, reasoning, answer=answer).type == fault


@pytest.mark.parametrize("statement", ["A red ball.", "The ball is not left of the chair."])
def test_a_statement_that_claims_no_relation_is_refused(statement):
    with pytest.raises(DataError, match="no relation of two things is claimed; got"):
        judge_entailment(statement, "It is red.", answer=True)
