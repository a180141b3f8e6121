"""The rule judge: what a reasoning entails, whatever the picture shows."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from groupwise.core import DataError, read_jsonl
from groupwise.rewards import BoxParser
from groupwise_drawn.relations import (
    INVERSES,
    LANGUAGES,
    Scene,
    plan_pairs,
    write_claim,
)
from groupwise_recipes.visual_reasoning.boxes import Box
from groupwise_recipes.visual_reasoning.entailment import judge_entailment
from groupwise_recipes.visual_reasoning.reasoning import write_reasoning

CASES_IN_FREE_WORDS = Path(__file__).parents[2] / "fixtures" / "free_reasoning.jsonl"
SCENES = [scene for pair in plan_pairs(60, seed=2, split="train") for scene in pair]


def list_boxes(scene: Scene, language) -> list[Box]:
    return [Box(*thing.box, thing.name(language)) for thing in (scene.subject, scene.other)]


def write(scene: Scene, language, *, with_boxes: bool = True) -> str:
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
        assert list(read) == list_boxes(scene, language)


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
CASES = [
    ("The ball is to the left of the chair.", True, None),
    ("The chair is on the right side of the red ball, so the statement is true.", True, None),
    ("The red ball is not left of the chair.", False, None),
    ("The chair is left of the ball. Therefore the statement is not true.", False, None),
    ("[1,2,30,40 red ball] [50,2,90,40 chair]", True, None),
    ("[50,2,90,40 red ball] [1,2,30,40 chair] So the statement is false.", False, None),
    ("The ball is right of the chair.", True, "contradiction"),
    ("The ball is left of the chair. So the statement is false.", False, "contradiction"),
    ("The ball is left of the chair. So the statement is false.", True, "contradiction"),
    ("The chair is right of the ball.", False, "contradiction"),
    ("[50,2,90,40 red ball] [1,2,30,40 chair]", True, "contradiction"),
    (
        "[50,2,90,40 red ball] [1,2,30,40 chair] The ball is left of the chair.",
        True,
        "contradiction",
    ),
    ("The ball is on the left and the chair is on the right.", True, None),
    ("The chair is at the left, but the ball is at the right side.", True, "contradiction"),
    ("The statement is false.", True, "contradiction"),
    ("The red ball isn't left of the chair.", True, "contradiction"),
    ("Since the ball is left of the chair, the statement is false.", False, "contradiction"),
    ("The ball can be seen to the right of the chair.", True, "contradiction"),
    ("The red ball is located left of the chair.", False, "contradiction"),
    ("We see that the ball is left of the chair.", False, "contradiction"),
    ("The ball is above the chair and it is right of the chair.", True, "contradiction"),
    ("", True, "missing_detail"),
    ("The statement is true.", True, "missing_detail"),
    ("[1,2,30,40 red ball]", True, "missing_detail"),
    ("[1,2,30,40 red ball] [20,2,90,40 chair]", True, "missing_detail"),
    ("The red ball is not right of the chair.", True, "missing_detail"),
    ("The ball is on the left.", True, "missing_detail"),
    ("The ball is above the chair.", True, "irrelevant"),
    ("The green ball is left of the chair.", True, "irrelevant"),
    ("The cup is left of the table.", True, "irrelevant"),
    ("It is a sunny day.", False, "irrelevant"),
    ("The ball is left of the chair. It is the opposite.", False, "contradiction"),
]


@pytest.mark.parametrize(("reasoning", "answer", "fault"), CASES)
def test_cases_of_each_kind(reasoning, answer, fault):
    verdict = judge_entailment(STATEMENT, reasoning, answer=answer)
    assert (verdict.aligns, verdict.type) == (fault is None, fault)
    assert verdict.why


@pytest.mark.parametrize(
    "reasoning",
    [
        "The chair is on the left of the picture, the red ball on the right.",
        "There is a red ball.",
        "The ball is left of the chair. No, that is wrong.",
        "The chair stands closer to the viewer than the ball.",
    ],
)
def test_what_is_not_understood_has_no_verdict(reasoning: str) -> None:
    for answer in (True, False):
        verdict = judge_entailment(STATEMENT, reasoning, answer=answer)
        if verdict.type != "contradiction":
            assert (verdict.aligns, verdict.type) == (None, None)
        assert not verdict.aligns


def test_cases_of_somebody_who_has_not_seen_the_judge() -> None:
    """Its words are not the made language: no verdict is better than a wrong one."""
    cases = read_jsonl(CASES_IN_FREE_WORDS)
    assert Counter(one["aligns"] for one in cases) == {True: 80, False: 80}
    found = Counter(
        (
            one["aligns"],
            judge_entailment(one["statement"], one["reasoning"], answer=one["answer"]).aligns,
        )
        for one in cases
    )
    assert found[False, True] == 0
    # As at first sight: the reader is not to be made for these very sentences.
    assert (found[True, True], found[True, False], found[True, None]) == (33, 3, 44)


@pytest.mark.parametrize(
    ("statement", "reasoning", "answer", "fault"),
    [
        ("红色球在椅子的左边。", "椅子在红色球的右侧，所以这句话是对的。", True, None),
        ("红色球在椅子的左边。", "红色的球不在椅子的左边。", False, None),
        ("红色球在椅子的左边。", "球在椅子的右边。", True, "contradiction"),
        ("红色球在椅子的左边。", "球在椅子的左边，所以这句话是错的。", False, "contradiction"),
        ("红色球在椅子的左边。", "球在椅子的上方。", True, "irrelevant"),
        ("红色球在椅子的左边。", "球在画面左侧，椅子在右边。", True, None),
        ("红色球在椅子的左边。", "球在画面的右侧，椅子在左边。", True, "contradiction"),
        ("树在汽车的后面。", "汽车挡住了树的一部分。", True, None),
        ("树在汽车的后面。", "汽车被树挡住了。", True, "contradiction"),
        ("The tree is behind the car.", "The car covers part of the tree.", True, None),
        ("The tree is behind the car.", "The car is partly hidden by the tree.", False, None),
        ("The tree is behind the car.", "The tree covers the car.", True, "contradiction"),
    ],
)
def test_chinese_and_what_covers_what(statement, reasoning, answer, fault):
    assert judge_entailment(statement, reasoning, answer=answer).type == fault


def test_a_statement_without_a_relation_is_refused():
    with pytest.raises(DataError, match="no relation of two things is claimed; got A red"):
        judge_entailment("A red ball.", "It is red.", answer=True)
