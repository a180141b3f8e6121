"""Tables, shading, plots and files: the same numbers in every form, nothing from elsewhere."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from compared_runs import make_answers

from groupwise.evaluation.comparison import Comparison, render_html, write_comparison
from groupwise.evaluation.comparison.grids import tabulate_summary
from groupwise.evaluation.comparison.layout import choose_words, lay_out
from groupwise.evaluation.comparison.plots import MAX_ROWS, plot_forests
from groupwise.evaluation.comparison.sides import show_count, show_value
from groupwise.evaluation.comparison.tables import tabulate_results
from groupwise.evaluation.page import LANGUAGES, Scale, list_plots
from groupwise.evaluation.page.canvas import render_svg

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


def test_pages_are_whole_and_need_nothing_else(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    for language in LANGUAGES:
        text = render_html(found, language=language)
        page = Page(text)
        assert page.open == []
        assert all(one.startswith(("#", "data:image/svg+xml")) for one in page.addresses)
        assert f'<html lang="{language}">' in text
        assert "@import" not in text
        assert "url(" not in text


def test_what_users_named_cannot_break_the_page(compare_two: Compare) -> None:
    bad = "<script>alert(1)</script>|`x`"
    rows = [make_answers(0.6), make_answers(0.9)]
    for answers in rows:
        for row in answers:
            object.__setattr__(row, "text", bad)
    page = render_html(compare_two(rows))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert Page(page).open == []


def test_the_json_is_the_data(compare_two: Compare, tmp_path: Path) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.9)])
    written = write_comparison(found, tmp_path / "out")
    values = json.loads(written.data.read_text())
    assert values["cells"][0]["value"] == found.cells[0].value
    assert values["versus"][0]["gaps"][0]["test"]["p_value_holm"] < 0.05
    assert values["recommendation"]["system"] == "second"
    linked = re.findall(r"\]\((comparison/[^)]+)\)", written.markdown.read_text())
    assert linked
    assert all((tmp_path / "out" / name).is_file() for name in linked)


def test_results_have_n_interval_clusters_and_digest(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.9)])
    table = tabulate_results(found, choose_words(found, "en"), ["#000"] * 2)
    heads = ("System", "Value", "95\u00a0% interval", "Invalid", "n", "Clusters", "Digest")
    assert table.head == heads
    name, value, interval, invalid, n, clusters, digest = table.rows[0]
    cell = found.cells[0]
    assert (invalid.text, cell.invalid_rate) == ("0.0\u00a0%", 0)
    assert (name.text, n.text, clusters.text) == ("first", "240", "60")
    assert value.order == cell.value
    assert interval.text == f"{100 * cell.low:.1f}–{100 * cell.high:.1f}\u00a0%"
    assert (digest.text, digest.hint) == (cell.digest[:8], cell.digest)


def test_the_summary_of_a_pair_has_its_test(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.9)])
    (row,) = tabulate_summary(found, choose_words(found, "en")).rows
    test = found.versus[0].gaps[0].test
    assert row[0].text == "first − second"
    assert row[1].text.endswith("★")
    assert row[5].text == f"{test.num_b_only} : {test.num_a_only}"
    assert row[6].order == test.num_items_needed


def test_shades_grow_with_the_value_and_stay_readable() -> None:
    scale = Scale(0.4, 0.9)
    low, middle, high = map(scale.shade_value, (0.4, 0.65, 0.9))
    assert len({low, middle, high}) == 3
    assert low.endswith("#1f2328")
    assert high.endswith("#ffffff")
    around = Scale(-0.02, 0.01)
    assert around.shade_difference(0.0).startswith("background:#ffffff")
    assert around.shade_difference(0.01) != around.shade_difference(-0.01)
    assert Scale(0.5, 0.5).shade_value(0.5).startswith("background:#")


def test_counts_are_shown_with_what_they_are_a_part_of() -> None:
    table = {"num_queries": 800, "num_queries_with_a_positive": 5, "num": 3, "mean": 0.5}
    assert show_count("num_queries_with_a_positive", table) == "5/800"
    assert show_count("num_queries", {"num_queries": 800}) == "800"
    assert show_count("mean", table) == "0.5"
    assert show_count("absent", table) == "–"
    assert show_value("0" * 31 + "f") == "0" * 8
    assert show_value("预算") == "预算"
    assert show_value(["a", None]) == '["a", null]'


def test_plots_keep_their_text_and_are_the_same_every_time(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    panels = list_plots(lay_out(found, "zh"))
    names = [panel.name for panel in panels]
    assert names == ["curve-grpo-loss", "curve-grpo-reward", "forest-1"]
    for panel in panels:
        svg = render_svg(panel.draw, panel.size)
        assert svg == render_svg(panel.draw, panel.size)
        assert b"<text" in svg
        assert panel.alt
    forest = render_svg(panels[-1].draw, panels[-1].size).decode()
    assert "差值（百分点）" in forest
    assert "num_items 240" in forest


@pytest.mark.parametrize("num_sizes", [MAX_ROWS + 6])
def test_a_forest_shows_the_largest_differences(compare_grid: Compare, num_sizes: int) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.8}, sizes=tuple(range(40, 40 + 4 * num_sizes, 4)))
    (forest,) = plot_forests(found, choose_words(found, "en"))
    shown = forest.alt.split("; ")
    assert len(shown) == MAX_ROWS
    assert forest.title == f"beta 0.12 − 0.15 (the {MAX_ROWS} largest of {num_sizes})"
    largest = max(found.versus[0].gaps, key=lambda gap: abs(gap.difference))
    assert any(f"num_items {largest.coordinates[0]}:" in text for text in shown)
