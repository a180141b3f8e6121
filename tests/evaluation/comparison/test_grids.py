"""Grids: systems × cells, with cells that have not run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.core import write_jsonl
from groupwise.evaluation.comparison import Comparison, render_html, render_markdown
from groupwise.evaluation.comparison.differences import MAX_COMPARISONS, choose_pairs
from groupwise.evaluation.comparison.material import GridAxis
from groupwise.evaluation.comparison.training import read_logs

Compare = Callable[..., Comparison]


def test_a_whole_grid_is_recommended_from(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    assert found.is_fair
    (pair,) = found.versus
    assert (pair.num_worse, pair.num_clear_worse, pair.num_tested) == (2, 2, 2)
    assert found.recommendation.system == "0.15"
    assert found.recommendation.reasons[0].kind == "evidence.grid"
    assert found.recommendation.reasons[0].values["mean"] == pytest.approx(-pair.mean)
    assert "★" in render_html(found)


def test_a_cell_that_has_not_run_stops_the_recommendation(compare_grid: Compare) -> None:
    states = {("0.12", 240): "waiting"}
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, states=states)
    assert [reason.kind for reason in found.recommendation.reasons] == ["reason.missing"]
    (pair,) = found.versus
    assert [gap.why_none for gap in pair.gaps] == ["", "missing"]
    assert pair.mean == pair.gaps[0].difference
    assert found.mean_of("0.12") == found.cells_of("0.12")[0].value
    (row,) = [row for row in pair.by_axis[0].rows if row.value == "240"]
    assert (row.mean, row.num_compared, row.num_cells) == (None, 0, 1)


def test_a_failed_cell_is_told_with_its_error(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, states={("0.15", 120): "failed"})
    (notice,) = [one for one in found.notices if one.kind == "notice.failed"]
    assert notice.values == {"name": "0.15", "at": ("120",), "error": "out of memory"}
    assert "out of memory" in render_html(found)
    assert "失败" in render_markdown(found, language="zh")


def test_nested_item_sets_are_declared(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    (notice,) = [one for one in found.notices if one.kind == "notice.nested"]
    assert notice.values == {"axis": "evaluation.num_items"}
    assert found.axes == (GridAxis("evaluation.num_items", ("120", "240")),)


def test_item_sets_that_only_overlap_are_not_called_nested(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, first=8)
    assert "notice.nested" not in [one.kind for one in found.notices]


def test_an_unfair_grid_has_no_marks(compare_grid: Compare) -> None:
    changes = {
        "evaluate/conditions.json:data/train/digest": "other",
        "evaluate/conditions.json:parser/labels": ["yes"],
        "manifest.json:config/sft/epochs": 9,
    }
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, changes=changes)
    assert found.versus[0].num_clear_worse == 2
    assert found.recommendation.system is None
    aspects = [one.values["aspect"] for one in found.notices if one.level == "error"]
    assert aspects == ["data", "parser", "config"]
    page = render_html(found).split("</style>")[1]
    assert "★" not in page
    assert "strong" not in page


def test_an_axis_that_changed_nothing_is_remarked(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.8, "0.15": 0.9}, sizes=(120,))
    assert "same_axis" not in [one.values.get("reason") for one in found.notices]
    same = compare_grid({"0.12": 0.8}, sizes=(120, 121))
    assert "same_axis" not in [one.values.get("reason") for one in same.notices]


def test_one_system_has_nothing_to_be_held_against(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.8})
    assert found.versus == ()
    assert [reason.kind for reason in found.recommendation.reasons] == ["reason.one_system"]
    assert "0.12" in render_html(found)


def test_curves_have_a_band_over_the_runs_of_a_system(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    (curve,) = [c for c in found.curves if (c.system, c.key) == ("0.12", "loss")]
    assert (curve.num_runs, len(curve.steps)) == (2, 10)
    assert curve.low[0] == pytest.approx(1.12)
    assert curve.high[0] == pytest.approx(1.24)
    assert curve.mean[0] == pytest.approx(1.18)
    rows = [row for row in found.epochs if row.system == "0.12"]
    assert [(row.epoch, row.num_runs) for row in rows] == [(1, 2), (2, 2)]
    assert rows[0].values["reward"] == pytest.approx(0.5)
    assert rows[1].values["reward"] == pytest.approx(1.0)
    assert "kl" not in rows[0].values


def test_pairs_are_all_until_that_is_too_many() -> None:
    assert choose_pairs("abc", 4) == [("a", "b"), ("a", "c"), ("b", "c")]
    names = [str(n) for n in range(30)]
    assert len(names) * 29 / 2 > MAX_COMPARISONS
    assert choose_pairs(names, 1) == [("0", name) for name in names[1:]]


def test_only_numbers_of_a_log_are_read(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "epoch": 0.5, "loss": 2, "kl": None, "reward": True, "entropy": "high"},
        {"step": 2, "epoch": 1.0, "loss": 1.5, "other": 3.0},
        {"heldout/accuracy": 0.5},
    ]
    write_jsonl(tmp_path / "grpo/metrics.jsonl", rows)
    (log,) = read_logs(tmp_path, None).values()
    assert (log.read("loss").steps, log.read("loss").values) == ((1, 2), (2.0, 1.5))
    assert not any(map(log.read, ("kl", "reward", "entropy", "heldout/accuracy")))
    assert read_logs(tmp_path, ["sft"]) == {}
