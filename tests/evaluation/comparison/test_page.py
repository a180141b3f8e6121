"""The page of a comparison: the same numbers in every form and language, nothing from elsewhere."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from compared_runs import make_answers, render
from run_folders import VARIED
from written_pages import list_plots

from groupwise.evaluation.compare import Comparison
from groupwise.evaluation.predictions import Language, Prediction
from groupwise.evaluation.report.comparison import (
    lay_out_comparison,
    tell_comparison,
    write_comparison,
)
from groupwise.evaluation.report.page import Table, render_svg
from groupwise.evaluation.report.phrases import LANGUAGES

Compare = Callable[..., Comparison]


class Page(HTMLParser):
    """Collects tags that are not closed, and every address in the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def two_answers() -> list[list[Prediction]]:
    return [make_answers(0.6), make_answers(0.95)]


def find_tables(found: Comparison, language: Language = "en") -> dict[tuple[str, ...], Table]:
    """Return the tables of a page that are not folded or beside others, by their heads."""
    parts = lay_out_comparison(found, language).parts
    tables = [one for part in parts for one in part.blocks if hasattr(one, "head")]
    return {one.head: one for one in tables}


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_are_whole_and_need_nothing_else(compare_grid: Compare, language: Language) -> None:
    text, _ = render(compare_grid({"0.12": 0.6, "0.15": 0.95}), language)
    page = Page(text)
    assert page.open == []
    assert all(one.startswith(("#", "data:image/svg+xml")) for one in page.addresses)
    assert f'<html lang="{language}">' in text
    assert "@import" not in text
    assert "url(" not in text
    assert "★" in text


def test_what_users_named_cannot_break_the_page(compare: Compare) -> None:
    rows = two_answers()
    for row in (row for answers in rows for row in answers):
        object.__setattr__(row, "text", "<script>alert(1)</script>|`x`")
    page, _ = render(compare(rows))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert Page(page).open == []


def test_the_three_files_say_the_same(compare: Compare, tmp_path: Path) -> None:
    found = compare(two_answers())
    for language in LANGUAGES:
        html = write_comparison(found, tmp_path / "out", language=language)
        markdown = html.with_suffix(".md").read_text()
        values = json.loads(html.with_suffix(".json").read_text())
        assert values["cells"][0]["value"] == found.cells[0].value
        assert values["pairs"][0]["gaps"][0]["p_holm"] == found.pairs[0].gaps[0].p_holm < 0.05
        assert (values["recommended"], values["table"]["is_fair"]) == ("second", True)
        assert values["findings"][1]["values"]["difference"] == found.pairs[0].mean
        assert (html.read_text(), markdown) == render(found, language)
        linked = re.findall(r"\]\((comparison/[^)]+)\)", markdown)
        assert linked
        assert all((tmp_path / "out" / name).is_file() for name in linked)


def test_an_unfair_comparison_marks_nothing(compare: Compare, compare_grid: Compare) -> None:
    other = {"evaluate/conditions.json:data/train/digest": "other"}
    pair = compare(two_answers(), ({}, {**VARIED, **other}))
    for found in (pair, compare_grid({"0.12": 0.6, "0.15": 0.95}, changes=other)):
        page = render(found)[0].split("</style>")[1]
        assert "★" not in page
        assert "strong" not in page
    assert '<td class="strong"' in render(compare(two_answers()))[0]


def test_results_and_tests_have_n_interval_clusters_and_digest(compare: Compare) -> None:
    found = compare(two_answers())
    tables = find_tables(found)
    name, value, invalid, n, digest = tables["System", "Value", "Invalid", "n", "Digest"].rows[0]
    cell = found.cells[0]
    assert (invalid.text, cell.invalid_rate) == ("0.0\u00a0%", 0)
    assert (name.text, name.note, n.text, n.note) == ("first", "grpo", "240", "60\u00a0clusters")
    assert value.order == cell.value
    assert value.note == f"{100 * cell.low:.1f}–{100 * cell.high:.1f}\u00a0%"
    assert digest.text == cell.digest[:8]
    (row,) = next(table.rows for head, table in tables.items() if head[0] == "Pair")
    test = found.pairs[0].gaps[0].test
    assert row[0].text == "first − second"
    assert row[1].text.endswith("★")
    assert row[4].text == f"{test.num_b_only} : {test.num_a_only}"


@pytest.mark.parametrize("measure", ["accuracy", "missed"])
def test_items_are_ticked_where_they_are_right(measure: str, compare: Compare) -> None:
    rows = two_answers()
    for row in (row for answers in rows for row in answers):
        object.__setattr__(row, "scores", {"missed": float(row.predicted != row.label)})
    found = compare(rows, measure=measure)
    shown = find_tables(found)["Item", "Truth", "first", "second"].rows
    one, two = ({row.example_id: row for row in side if row.policy == "grpo"} for side in rows)
    unlike = [n for n in sorted(one) if one[n].is_correct != two[n].is_correct]
    assert [row[0].hint for row in shown] == unlike[:20]
    for item, truth, *answers in shown:
        assert truth.text == one[item.hint].label
        for side, cell in zip((one, two), answers, strict=True):
            assert cell.text == side[item.hint].text
            assert cell.note == ("✓" if side[item.hint].is_correct else "✗")
    assert f"first 20 of {len(unlike)}" in render(found)[1].replace("\u00a0", " ")
    title = "Missed (less is better) · test" if measure == "missed" else "Accuracy · test"
    assert title in render(found)[1]


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", ("One training per side says nothing about the method", "checkpoints")),
        ("zh", ("每一方只训练一次，说明不了方法的优劣", "检查点")),
    ],
)
def test_one_training_per_side_is_called_a_pair_of_checkpoints(
    language: Language, said: tuple[str, str], compare: Compare
) -> None:
    lines = list(tell_comparison(compare(two_answers()), language=language))
    assert any(said[0] in line for line in lines)
    (title,) = [line for line in lines if line.startswith(("Recommended", "这些检查点中推荐"))]
    assert said[1] in title


def test_failed_cells_and_unlike_counts_are_told(compare_grid: Compare, tmp_path: Path) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, states={("0.15", 120): "failed"})
    assert "0.15 (num_items 120) failed: out of memory" in "".join(tell_comparison(found))
    assert "运行失败" in render(found, "zh")[1]


def test_plots_keep_their_text_and_are_the_same_every_time(compare: Compare) -> None:
    found = compare(two_answers())
    panels = list_plots(lay_out_comparison(found, "zh"))
    assert [panel.name for panel in panels] == ["differences"]
    for panel in panels:
        svg = render_svg(panel)
        assert svg == render_svg(panel)
        for text in ("差值（百分点）", "first − second"):
            assert f">{text}</text>" in svg.decode()
        assert panel.alt == "准确率 · test: first − second −31.2 (−37.8\u00a0至\u00a0−24.9)"
