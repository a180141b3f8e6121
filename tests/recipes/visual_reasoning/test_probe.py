"""The text-only probe is two-sided, and pictures that splits share are told."""

from collections.abc import Sequence
from math import comb

import pytest

from groupwise.core import DataError
from groupwise_recipes.visual_reasoning.probe import (
    check_probe,
    find_opposite_captions,
    find_shared_pictures,
    fit_probe,
)
from groupwise_recipes.visual_reasoning.rows import VisualRow


def statement(number: int, text: str, label: bool, relation: str = "on") -> VisualRow:
    return VisualRow(
        id=str(number),
        source="made",
        split="train",
        text=text,
        answers=frozenset({str(label)}),
        cluster=f"picture {number}",
        relation=relation,
    )


def make_rows(told: Sequence[tuple[str, bool, str]]) -> list[VisualRow]:
    return [statement(n, *one) for n, one in enumerate(told)]


def test_the_majority_of_a_relation_and_then_of_all():
    train = make_rows([("a", True, "on"), ("b", True, "on"), ("c", False, "on")] * 2)
    train += make_rows([("d", False, "under"), ("e", True, "near"), ("f", False, "near")])
    probe = fit_probe(train, "relation")
    asked = make_rows([("x", True, "on"), ("x", True, "under"), ("x", True, "near")])
    assert [probe.predict(row) for row in asked] == ["True", "False", "True"]
    assert probe.predict(statement(9, "x", True, "beyond")) == "True"
    assert probe.score(train).num_right == 4 + 1 + 1


def test_a_caption_falls_back_to_its_relation():
    train = make_rows([("a", False, "on"), ("b", True, "on"), ("c", True, "on")])
    train += make_rows([(text, False, "under") for text in "defg"])
    probe = fit_probe(train, "caption")
    asked = make_rows([("a", True, "on"), ("x", True, "on")])
    assert [probe.predict(row) for row in asked] == ["False", "True"]


@pytest.mark.parametrize(("right", "side"), [(60, "above"), (40, None), (20, "below")])
def test_the_test_is_exact_and_two_sided(right: int, side: str | None):
    """The other label of a caption that recurs is as good a sign as the same label."""
    rows = [statement(n, "a", n < right) for n in range(80)]
    score = fit_probe([statement(99, "a", True)], "caption").score(rows)
    assert score.accuracy == right / 80
    outside = sum(comb(80, n) for n in range(81) if comb(80, n) <= comb(80, right))
    assert score.p_value == pytest.approx(outside / 2**80)
    names = [finding.name for finding in check_probe(score, "caption")]
    assert names == ([f"text_probe_{side}_chance"] if side else [])


def test_captions_with_the_opposite_label_are_counted():
    train = make_rows([("a", True, "on"), ("a", False, "on"), ("b", True, "on")])
    test = make_rows([("a", True, "on"), ("b", True, "on"), ("b", False, "on"), ("c", True, "on")])
    (finding,) = find_opposite_captions(train, test)
    assert (finding.count, finding.where) == (2, ("0", "2"))
    assert find_opposite_captions(train, test[3:]) == []


def test_shared_pictures_are_told_for_each_pair_of_splits():
    rows = [statement(n, "a", True) for n in range(4)]
    splits = {"train": rows[:3], "test": [*rows[1:3], rows[1]], "validation": rows[2:]}
    found = find_shared_pictures(splits)
    assert [finding.count for finding in found] == [2, 1, 1]
    assert {finding.level for finding in found} == {"error"}
    assert found[0].message == "2 pictures stand in train and in test."
    assert found[0].where == ("picture 1", "picture 2")
    assert find_shared_pictures({"train": rows[:1], "test": rows[1:]}) == []


def test_nothing_to_probe_is_one_sentence():
    with pytest.raises(DataError, match="no rows to probe"):
        fit_probe([], "relation")
    with pytest.raises(DataError, match="no rows to probe"):
        fit_probe([statement(1, "a", True)], "relation").score([])
