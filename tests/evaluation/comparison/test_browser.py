"""The report in a headless browser, at desktop and phone width, in both languages.

Skipped where there is no Chromium; ``CHROMIUM`` names another one.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compared_runs import make_answers

from groupwise.evaluation.compare import Comparison
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report.comparison import write_comparison
from groupwise.evaluation.report.phrases import LANGUAGES

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
COLUMN = """(column) => [...document.querySelectorAll('.headline tbody tr')].map(
  (row) => row.cells[column].firstChild.textContent.trim())"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: "playwright.Browser") -> Iterator[Callable[..., "playwright.Page"]]:
    """Open a file without a network; nothing may go wrong in it, and it may ask for nothing."""
    faults, requests = list[str](), list[str]()

    def open_page(path: Path, width: int = 1200) -> "playwright.Page":
        context = browser.new_context(viewport={"width": width, "height": 844}, offline=True)
        page = context.new_page()
        page.on("console", lambda one: faults.append(one.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda one: requests.append(one.url))
        page.goto(path.as_uri())
        for picture in page.locator("img").all():  # each is loaded when it comes into view
            picture.scroll_into_view_if_needed()
            picture.evaluate("(one) => one.decode()")
            assert 250 < picture.bounding_box()["width"] <= width
        assert page.evaluate(OVERFLOW) <= 0
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        return page

    yield open_page
    assert faults == []


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["published", "grid", "runs"])
def test_pages_read_well(
    published: Comparison,
    compare: Callable[..., Comparison],
    compare_grid: Callable[..., Comparison],
    visit: Callable[..., "playwright.Page"],
    tmp_path: Path,
    kind: str,
    language: Language,
    width: int,
) -> None:
    found = published
    if kind != "published":
        answers = [make_answers(0.6), make_answers(0.95)]
        found = compare(answers) if kind == "runs" else compare_grid({"0.12": 0.6, "0.15": 0.95})
    page = visit(write_comparison(found, tmp_path / "out", language=language), width)
    assert page.locator("figure img").count() == (kind == "runs")
    first = page.locator(".notices li").first
    assert first.is_visible()
    if kind == "published":
        assert "?" in first.inner_text()
        assert "−1.8" in page.locator("#differences").inner_text()


def test_tables_sort_up_and_down(
    compare: Callable[..., Comparison], visit: Callable[..., "playwright.Page"], tmp_path: Path
) -> None:
    answers = [make_answers(x, name=str(x)) for x in (0.75, 0.55, 0.95)]
    found = compare(answers, ({}, {}, {}))
    page = visit(write_comparison(found, tmp_path / "out"))
    order = {cell.system: cell.value for cell in found.cells}
    head = page.locator(".headline th", has_text="Value")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.evaluate(COLUMN, 0) == sorted(order, key=lambda name: order[name])
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert page.evaluate(COLUMN, 0) == sorted(order, key=lambda name: -order[name])
    page.locator(".headline th", has_text="System").locator("button").click()
    assert page.evaluate(COLUMN, 0) == sorted(order)
    assert head.get_attribute("aria-sort") is None


def test_cells_that_have_not_run_sort_last_both_ways(
    published: Comparison, visit: Callable[..., "playwright.Page"], tmp_path: Path
) -> None:
    table = visit(write_comparison(published, tmp_path)).locator("#differences table.matrix").last
    for _ in range(2):
        table.locator("th", has_text="shots 1").locator("button").click()
        texts = table.locator("tbody tr td:nth-child(3)").all_inner_texts()
        assert [x.split("\n")[0] for x in texts] == ["−1.8\u00a0⬇️", "−1.8\u00a0⬇️", *["?"] * 6]
