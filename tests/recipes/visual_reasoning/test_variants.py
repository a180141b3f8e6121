"""Biased variants by the keep rule, and both sides of test."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ConfigError, DataError
from groupwise_recipes.visual_reasoning.rows import VisualRow
from groupwise_recipes.visual_reasoning.variants import bias_rows, divide_by_bias


def statement(number: int, relation: str | None, label: str) -> VisualRow:
    return VisualRow(
        id=str(number),
        source="made",
        split="train",
        text=f"The cup is {relation} the table.",
        answers=frozenset({label}),
        cluster=str(number),
        relation=relation,
    )


def make_rows(told: Sequence[tuple[str, bool]]) -> list[VisualRow]:
    return [statement(n, relation, str(label)) for n, (relation, label) in enumerate(told)]


ROWS = st.lists(st.tuples(st.sampled_from(["on", "under", "near"]), st.booleans()), max_size=60)
KEEPS = st.sampled_from([0, 0.1, 0.29, 0.6, 0.7, 0.8, 1])


@given(told=ROWS, keep=KEEPS, seed=st.integers(0, 5))
def test_the_keep_rule_holds(told: list[tuple[str, bool]], keep: float, seed: int):
    rows = make_rows(told)
    variant = bias_rows(rows, keep=keep, seed=seed)
    assert list(variant.rows) == [row for row in rows if row in variant.rows]
    assert len({row.id for row in variant.rows}) == len(variant.rows)
    before = Counter((row.relation, row.answer) for row in rows)
    after = Counter((row.relation, row.answer) for row in variant.rows)
    for relation, label in variant.kept_labels.items():
        other = "True" if label == "False" else "False"
        assert after[relation, label] == before[relation, label] >= before[relation, other]
        assert after[relation, other] == round(keep * 100) * before[relation, other] // 100
        is_tie = before[relation, label] == before[relation, other]
        assert (relation in variant.ties) == is_tie


@given(told=ROWS, seed=st.integers(0, 5))
def test_variants_lie_inside_each_other(told: list[tuple[str, bool]], seed: int):
    rows = make_rows(told)
    kept = [{r.id for r in bias_rows(rows, keep=k, seed=seed).rows} for k in (0, 0.6, 0.8, 1)]
    assert kept[0] <= kept[1] <= kept[2] <= kept[3] == {row.id for row in rows}


def test_a_share_is_the_decimal_it_is_written_as():
    """In floats, 0.7 * 90 is a little less than 63."""
    rows = make_rows([("on", True)] * 100 + [("on", False)] * 90)
    assert len(bias_rows(rows, keep=0.7, seed=0).rows) == 163


def test_the_seed_chooses_the_label_of_a_tie_and_which_rows_stay():
    rows = make_rows([("on", True), ("on", False)] * 5 + [("under", True)] * 9 + [("under", False)])
    chosen = {bias_rows(rows, keep=0, seed=seed).kept_labels["on"] for seed in range(20)}
    assert chosen == {"True", "False"}
    assert {bias_rows(rows, keep=0, seed=s).kept_labels["under"] for s in range(20)} == {"True"}
    more = make_rows([("on", True)] * 10 + [("on", False)] * 6)
    kept = {tuple(r.id for r in bias_rows(more, keep=0.5, seed=s).rows) for s in range(20)}
    assert len(kept) > 1


def test_both_sides_of_test():
    variant = bias_rows(make_rows([("on", True), ("under", False)]), keep=0.6, seed=0)
    test = make_rows([("on", True), ("on", False), ("under", True), ("near", True)])
    sides = divide_by_bias(test, variant.kept_labels)
    assert [row.id for row in sides.aligned] == ["0"]
    assert [row.id for row in sides.conflicting] == ["1", "2"]
    assert [row.id for row in sides.unknown] == ["3"]


def test_what_cannot_be_biased_is_refused():
    row = statement(1, "on", "True")
    with pytest.raises(DataError, match="1 rows appear twice; got 1"):
        bias_rows([row, row], keep=0.6, seed=0)
    with pytest.raises(DataError, match="expected a statement that tells a relation"):
        bias_rows([statement(1, None, "True")], keep=0.6, seed=0)
    for keep in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="keep is no share"):
            bias_rows([row], keep=keep, seed=0)
