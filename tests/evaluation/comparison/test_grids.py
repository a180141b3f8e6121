"""Grids: signs, means and trends of differences, and cells that have not run or are of others."""

import re
from dataclasses import replace

import pytest
from compared_runs import list_notices, list_reasons, make_grid, render

from groupwise.evaluation.compare import Comparison, compare_results
from groupwise.evaluation.predictions import Language, Measure
from groupwise.evaluation.report.comparison import list_findings, tell_comparison
from groupwise.evaluation.report.phrases import LANGUAGES
from groupwise.evaluation.result_table import ResultTable

PLACES = [("1", "200", str(shots)) for shots in range(1, 5)]
AXES = {"epoch": ("1", "2"), "shots": ("1", "2")}
ARROWS = {
    (system, epoch, shots): value
    for epoch, shots, x, y in (
        *(("1", "1", 0.57, 0.58), ("2", "1", 0.60, 0.58)),
        *(("1", "2", 0.50, 0.50), ("2", "2", 0.49, 0.50)),
    )
    for system, value in (("x", x), ("y", y))
}


def test_differences_keep_their_sign(published: Comparison) -> None:
    (pair,) = published.pairs
    assert (pair.first, pair.second) == ("0.12", "0.15")
    gaps = {gap.cell: gap for gap in pair.gaps}
    assert [round(100 * gaps[at].difference, 6) for at in PLACES] == [-1.8, -0.5, 1.2, 0.0]
    assert (pair.counts, pair.num_tested) == ((2, 4, 2), 0)
    assert pair.mean == pytest.approx(-0.00275)
    text = render(published)[1].replace("\u00a0", " ")
    told = "−0.3 points on average over 8 of 32 cells, best gain +1.2, worst loss −1.8; better in 2"
    assert f"beta 0.12 − beta 0.15: {told}, worse in 4, equal in 2;" in text


def test_nothing_is_computed_from_cells_that_have_not_run(published: Comparison) -> None:
    (pair,) = published.pairs
    empty = [gap for gap in pair.gaps if gap.cell[1] != "200"]
    assert len(empty) == 24
    assert {(gap.difference, gap.why_none) for gap in empty} == {(None, "missing")}
    text = render(published)[1].replace("\u00a0", " ")
    for size in ("100", "400", "800"):
        assert f"\n| {size} | ? (over 0 of 8) | ? |" in text
    assert "\n| 200 | −0.3 ⬇️ (over 8 of 8) | ±0.0 ➡️ |" in text


@pytest.mark.parametrize(
    ("language", "epochs", "none"),
    [
        ("en", "Epoch 1, 2 are identical", "No recommendation"),
        ("zh", "Epoch 1, 2 在全部", "不作推荐"),
    ],
)
def test_what_is_alike_or_missing_comes_first_and_nothing_is_recommended(
    published: Comparison, language: Language, epochs: str, none: str
) -> None:
    lines = list(tell_comparison(published, language=language))
    (line,) = [line for line in lines if epochs in line]
    assert "trained" in line or "训练" in line
    assert none in lines
    assert list_reasons(published) == ["missing"]
    for text in render(published, language):
        places = [text.index(mark) for mark in (epochs, "−1.8", "−0.5", "+1.2", "±0.0")]
        assert places[0] < min(places[1:])
        assert "★" not in text


def test_one_equal_pair_of_values_may_be_chance() -> None:
    found = compare_results(make_grid({"epoch": ("1", "2")}, {("x", "1"): 0.5, ("x", "2"): 0.5}))
    assert "same_epochs" not in list_notices(found)


def change(table: ResultTable, **changes: object) -> Comparison:
    """Return the comparison of a table whose last result is another."""
    *others, last = table.results
    return compare_results(replace(table, results=(*others, replace(last, **changes))))


@pytest.mark.parametrize("is_higher_better", [False, True])
def test_a_grid_has_arrows_trends_and_a_direction(is_higher_better: bool) -> None:
    measure = Measure("errors", "Errors", "错误", is_higher_better=is_higher_better)
    found = compare_results(make_grid(AXES, ARROWS, measure=measure))
    (pair,) = found.pairs
    assert pair.counts == ((1, 2, 1) if is_higher_better else (2, 1, 1))
    text = render(found)[1].replace("\u00a0", " ")
    for row in ("| 1 | −1.0 ⬇️ | ±0.0 ➡️ |", "| 2 | +2.0 ⬆️ | −1.0 ⬇️ |"):
        assert row in text
    # By shots: the mean over epochs, and its change.
    assert "\n| 1 | +0.5 ⬆️ (over 2 of 2) | +3.0 ⬆️ |" in text
    assert "\n| 2 | −0.5 ⬇️ (over 2 of 2) | −1.0 ⬇️ |" in text
    ends = ("+2.0", "−1.0") if is_higher_better else ("−1.0", "+2.0")
    assert "best gain {}, worst loss {};".format(*ends) in text


def test_a_trend_is_told_only_where_all_epochs_have_the_same_cells() -> None:
    found = change(make_grid(AXES, ARROWS), value=None, state="waiting")
    text = render(found, "zh")[1].replace("\u00a0", " ")
    assert re.search(r"\n\| 1 \| \+0\.5 ⬆️ [^|]*\| \+3\.0 ⬆️ \|", text)
    assert re.search(r"\n\| 2 \| ±0\.0 ➡️ [^|]*\| \? \|", text)


def test_values_of_other_items_are_not_subtracted() -> None:
    found = change(make_grid(AXES, ARROWS), digest="b")
    *others, gap = found.pairs[0].gaps
    assert (gap.difference, gap.why_none) == (None, "other_items")
    assert all(one.difference is not None for one in others)
    assert "other_items" in list_reasons(found)


@pytest.mark.parametrize(("language", "word"), [("en", "does not apply"), ("zh", "不适用")])
def test_a_measure_that_does_not_apply_is_no_missing_run(language: Language, word: str) -> None:
    grid = make_grid({"shots": ("1",)}, {("x", "1"): 0.5, ("y", "1"): 0.5})
    found = change(grid, value=None, state="inapplicable")
    assert found.pairs[0].gaps[0].why_none == "inapplicable"
    assert "missing" not in [*list_notices(found), *list_reasons(found)]
    shown = render(found, language)[1]
    assert word in shown
    row = next(line for line in shown.splitlines() if line.startswith("| ") and "beta y" in line)
    assert "–" in row
    assert "?" not in row


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_grid_without_any_cell_is_told_and_not_an_error(language: Language) -> None:
    found = compare_results(make_grid({"epoch": ()}, {}), pairs=[("x", "y")])
    (told,) = [one for one in list_findings(found) if one.kind == "finding.not_compared"]
    assert told.values["why"].kind == "why.missing"
    assert any("x" in line and "y" in line for line in tell_comparison(found, language=language))
