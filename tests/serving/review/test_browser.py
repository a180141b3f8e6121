"""The page in a headless browser: keys, Tab, two people at once, narrow screens, both languages.

Skipped where there is no Chromium; ``CHROMIUM`` names another one.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.feedback import name_person

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
AXE = Path(__file__).parents[2] / "fixtures" / "axe" / "axe.min.js"
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
UNDRAWN = "[...document.images].filter((one) => one.complete && !one.naturalWidth).length"
LANGUAGE = "document.documentElement.lang"
FINDINGS = """async () => (await axe.run()).violations
  .filter((one) => ['serious', 'critical'].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.html)}`)"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


class Visit:
    """Somebody's own browser window at the page, with what went wrong in it."""

    def __init__(self, context: "playwright.BrowserContext", url: str) -> None:
        self.page = context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda one: self.faults.append(one.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.goto(f"{url}/review")

    def log_in(self, name: str) -> None:
        """Type a name and the token, and press Enter."""
        self.page.locator("#name").press_sequentially(name)
        self.page.keyboard.press("Tab")
        self.page.keyboard.type("geheimnis")
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/review/")

    def press(self, key: str, told: str) -> None:
        """Press a key and wait for what the page says of it."""
        self.page.keyboard.press(key)
        playwright.expect(self.page.locator("#told")).to_have_text(told)

    def find_findings(self) -> list[str]:
        """Return what axe finds that keeps people out."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        return self.page.evaluate(FINDINGS)


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: "playwright.Browser", serve) -> Iterator[Callable[..., Visit]]:
    """Open the page; all of a test are at one server."""
    url = str(serve(token="geheimnis").base_url).rstrip("/")
    contexts: list[playwright.BrowserContext] = []

    def open_one(width: int = 1200, locale: str = "en-US", **options: Any) -> Visit:
        size = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=size, locale=locale, **options))
        return Visit(contexts[-1], url)

    yield open_one
    for context in contexts:
        context.close()


def test_keys_say_what_is_right_and_take_it_back(visit, remember, store, draw):
    for number in range(3):
        row = {"task": f"task {number}"}
        remember(f"{number}", 0.5 + number / 10, [draw(size=(640, 480))], row=row)
    ann = visit()
    ann.log_in("ann")
    task = ann.page.locator("dd", has_text="task")
    playwright.expect(task).to_have_text("task 0")
    ann.press("f", "You said: 通过.")
    playwright.expect(task).to_have_text("task 1")
    playwright.expect(ann.page.locator("h2")).to_be_focused()
    ann.press("j", "You said: 不通过.")
    ann.press("u", "Your last word is taken back.")
    playwright.expect(task).to_have_text("task 1")
    ann.press("s", "Skipped; others may be asked.")
    playwright.expect(task).to_have_text("task 2")
    ann.page.keyboard.press("Control+f")
    ann.page.keyboard.press("x")
    ann.page.get_by_role("button", name="不通过").click()
    playwright.expect(ann.page.locator("h2")).to_have_text("Nothing waits for you.")
    labels = {item.shown.id: item.label for item in store.list_items()}
    assert labels == {"0": "通过", "2": "不通过"}
    assert ann.page.evaluate(UNDRAWN) == 0
    assert ann.faults == []


def test_tab_reaches_everything_and_enter_presses_it(visit, remember, store, draw):
    remember("a", contents=[draw()], row={"task": "long " * 200})
    ann = visit()
    ann.log_in("ann")
    reached: list[str] = []
    for _ in range(8):
        ann.page.keyboard.press("Tab")
        reached.append(ann.page.evaluate("document.activeElement.innerText.slice(0, 4).trim()"))
    assert reached[:3] == ["Log", "中文", ""]
    assert [text.split()[0] for text in reached[3:7]] == ["通过", "不通过", "Skip", "long"]
    for _ in range(3):
        ann.page.keyboard.press("Shift+Tab")
    ann.press("Enter", "You said: 不通过.")
    assert store.list_items()[0].label == "不通过"


def test_two_people_at_once_are_asked_different_things(visit, remember, store):
    for number in range(4):
        remember(f"{number}", row={"task": f"task {number}"})
    ann, bob = visit(), visit()
    ann.log_in("ann")
    bob.log_in("bob")
    for _ in range(2):
        ann.press("f", "You said: 通过.")
        bob.press("j", "You said: 不通过.")
        for one in (ann, bob):
            one.page.evaluate("document.getElementById('told').textContent = ''")
    people = {name_person(name, b"a secret of the tests"): name for name in ("ann", "bob")}
    said = {i.shown.id: [people[g.person] for g in i.labels] for i in store.list_items()}
    assert sorted(said) == ["0", "1", "2", "3"]
    assert sorted(said.values()) == [["ann"], ["ann"], ["bob"], ["bob"]]


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_page_reads_well_and_keeps_nobody_out(visit, remember, store, draw, locale):
    hostile = "<script>window.isBroken = 1</script><img src=x onerror='window.isBroken = 1'>"
    row = {"task": "w" * 2000, "note": hostile, "url" * 60: "https://" + "a" * 300}
    for number in range(2):
        pictures = [draw(size=(800, 450)), draw("red", size=(64, 1500))]
        remember(f"{number}", 0.5, pictures, row=row, version="v" * 100)
    kept = store.find("0").pictures
    store.pictures.delete(kept[1])
    ann = visit(360, locale, bypass_csp=True)
    assert ann.find_findings() == []
    ann.log_in("n" * 200)
    assert ann.find_findings() == []
    ann.press("f", {"en-US": "You said: 通过.", "zh-CN": "您说的是：通过。"}[locale])
    assert ann.page.evaluate(LANGUAGE) == locale[:2]
    assert ann.page.evaluate("window.isBroken") is None
    for width in (360, 1200):
        ann.page.set_viewport_size({"width": width, "height": 800})
        assert ann.page.evaluate(OVERFLOW) <= 0
    ann.page.get_by_role("link", name={"en-US": "中文", "zh-CN": "English"}[locale]).click()
    assert ann.page.evaluate(LANGUAGE) != locale[:2]
    assert ann.faults == []


def test_a_server_that_does_not_answer_and_a_refusal_are_told(visit, remember, store):
    remember("a")
    ann = visit()
    ann.log_in("ann")
    ann.page.route("**/say", lambda route: route.abort())
    ann.press("f", "The server did not answer; nothing was recorded. Try again.")
    ann.page.unroute("**/say")
    ann.page.locator("[name=form]").evaluate_all("(all) => all.forEach((one) => one.value = '')")
    ann.press("f", "The form is of another session; load the page again. Nothing was recorded.")
    ann.page.reload()
    ann.press("f", "You said: 通过.")
    assert len(store.list_items()) == 1
