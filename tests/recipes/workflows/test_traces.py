"""The page of answers step by step: everything of a trace is there, in both languages."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import DataError
from groupwise_recipes.workflows.traces import write_traces

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
USED = {"num_calls": 3, "prompt_tokens": 41, "completion_tokens": 52, "reasoning_tokens": 17}
PROGRAM = "async def workflow(problem):\n    return (await custom(problem, '<b>')).response"


def call(operator: str, *, error: str = "") -> dict[str, Any]:
    return {
        "operator": operator,
        "arguments": {"input": f"given to {operator} <script>alert(1)</script>"},
        "result": None if error else {"response": f"said by {operator}"},
        "error": error,
        "tokens": 31,
        "seconds": 1.25,
        "cost": 0.5,
    }


def answer(name: str, said: str | None, *, executor: str = "gpt", **more: Any) -> dict[str, Any]:
    usage = {**USED, "cost": 2.5}
    details = {"executor": executor, "program": PROGRAM, "calls": [], "usage": usage, **more}
    return {"id": name, "answer": said, "reason": "refused (syntax, line 3)", "details": details}


ROWS = [
    answer("first", "forty-two", calls=[call("custom"), call("review", error="it broke")]),
    answer("second", None),
    {"id": "third", "answer": None, "reason": "a row needs a problem", "details": {}},
]
SHOWN = (
    *("first", "second", "forty-two", "given to custom", "said by custom", "it broke"),
    *("31", "1.25", "0.5", "41", "52", "17", "2.5", "refused (syntax, line 3)"),
)


def test_a_page_shows_every_call(tmp_path: Path):
    english, chinese = write_traces(ROWS, tmp_path / "pages")
    for path in (english, chinese):
        text = path.read_text(encoding="utf-8")
        assert [one for one in SHOWN if one not in text] == []
        assert "third" not in text
        assert "<script>alert" not in text
    assert "Calls of operators" in english.read_text(encoding="utf-8")
    assert "算子调用" in chinese.read_text(encoding="utf-8")
    assert "stub" not in english.read_text(encoding="utf-8")


def test_a_stub_is_named_at_the_top(tmp_path: Path):
    rows = [answer("first", "7", executor="made up by executor-stub, which is no model")]
    text = write_traces(rows, tmp_path)[0].read_text(encoding="utf-8")
    assert text.index("is a stub, not a model") < text.index("async def workflow")


def test_rows_without_a_program_make_no_page(tmp_path: Path):
    with pytest.raises(DataError, match="no answer with a program"):
        write_traces(ROWS[2:], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_page_reads_well_in_a_browser(tmp_path: Path, width: int):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        page = browser.new_page(viewport={"width": width, "height": 844})
        faults: list[str] = []
        page.on("console", lambda one: faults.append(one.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        for path in write_traces(ROWS, tmp_path):
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
            assert page.locator("tbody tr").count() == 2
            assert page.get_by_text("said by custom").is_visible()
        assert faults == []
        browser.close()
