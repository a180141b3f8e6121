"""The report in a headless browser, at desktop and phone width, in both languages.

Skipped where there is no Chromium; ``CHROMIUM`` names another one.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compared_runs import make_answers

from groupwise.evaluation import LANGUAGES, Comparison, Language, write_comparison

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WIDTHS = (1200, 390)
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
UNDRAWN = "[...document.images].filter((one) => !one.complete || !one.naturalWidth).length"
COLUMN = """(column) => [...document.querySelectorAll('.headline tbody tr')].map(
  (row) => row.cells[column].firstChild.textContent.trim())"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


class Visit:
    """A page with what went wrong in it and everything it asked the network for."""

    def __init__(self, page: "playwright.Page", path: Path) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda one: self.faults.append(one.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda one: self.requests.append(one.url))
        page.goto(path.as_uri())


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: "playwright.Browser") -> Iterator[Callable[[Path, int], Visit]]:
    """Open a file without a network at a width."""
    contexts: list[playwright.BrowserContext] = []

    def open_page(path: Path, width: int) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": 844}, offline=True)
        contexts.append(context)
        return Visit(context.new_page(), path)

    yield open_page
    for context in contexts:
        context.close()


def check_page(visit: Visit, path: Path) -> None:
    assert visit.page.evaluate(OVERFLOW) <= 0
    for picture in visit.page.locator("img").all():  # each is loaded when it comes into view
        picture.scroll_into_view_if_needed()
        picture.evaluate("(one) => one.decode()")
    assert visit.page.evaluate(UNDRAWN) == 0
    assert visit.faults == []
    assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_published_table_reads_well(
    published: Comparison,
    visit: Callable[[Path, int], Visit],
    tmp_path: Path,
    language: Language,
    width: int,
) -> None:
    path = write_comparison(published, tmp_path, language=language)
    found = visit(path, width)
    check_page(found, path)
    first = found.page.locator(".notices li").first
    assert first.is_visible()
    assert "5/800" in first.inner_text()
    assert "−1.8" in found.page.locator("#differences").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_plots_of_a_grid_are_seen(
    compare_grid: Callable[..., Comparison],
    visit: Callable[[Path, int], Visit],
    tmp_path: Path,
    language: Language,
    width: int,
) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    path = write_comparison(found, tmp_path / "out", language=language)
    opened = visit(path, width)
    check_page(opened, path)
    plots = opened.page.locator("figure img")
    assert plots.count() == 2
    for number in range(plots.count()):
        plots.nth(number).scroll_into_view_if_needed()
        box = plots.nth(number).bounding_box()
        assert box is not None
        assert 250 < box["width"] <= width


def test_tables_sort_up_and_down(
    compare: Callable[..., Comparison], visit: Callable[[Path, int], Visit], tmp_path: Path
) -> None:
    answers = [make_answers(x, name=str(x)) for x in (0.75, 0.55, 0.95)]
    found = compare(answers, ({}, {}, {}))
    opened = visit(write_comparison(found, tmp_path / "out"), 1200)
    order = {cell.system: cell.value for cell in found.cells}
    head = opened.page.locator(".headline th", has_text="Value")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert opened.page.evaluate(COLUMN, 0) == sorted(order, key=lambda name: order[name])
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert opened.page.evaluate(COLUMN, 0) == sorted(order, key=lambda name: -order[name])
    name = opened.page.locator(".headline th", has_text="System")
    name.locator("button").click()
    assert opened.page.evaluate(COLUMN, 0) == sorted(order)
    assert head.get_attribute("aria-sort") is None
    assert opened.faults == []


def test_cells_that_have_not_run_sort_last_both_ways(
    published: Comparison, visit: Callable[[Path, int], Visit], tmp_path: Path
) -> None:
    opened = visit(write_comparison(published, tmp_path), 1200)
    table = opened.page.locator("#differences table.heat").last
    for _ in range(2):
        table.locator("th", has_text="shots 1").locator("button").click()
        shown = [
            text.split("\n")[0]
            for text in table.locator("tbody tr td:nth-child(3)").all_inner_texts()
        ]
        assert shown == ["−1.8\u00a0⬇️", "−1.8\u00a0⬇️", *["?"] * 6]
