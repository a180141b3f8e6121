"""Numbers in tables come from the files of results, as these are now."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from assemble import ROOT, render_made
from result_tables import list_shown, list_typed, render

BLOCK = """before
<!-- results: stage_a.json
| way | ratio |
|---|---|
| one by one | {{ r["one by one"].ratio | fixed(1) }} |
-->
| way | ratio |
|---|---|
| one by one | 7.00 |
<!-- end of results -->
after
"""


@pytest.mark.parametrize("page", list_shown(), ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_results_are_those_of_their_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert render(text, page) == text, "make results renders them"
    assert render_made(text) == text, "make results renders what is made from code"
    assert list_typed(text) == [], "numbers that were measured come from benchmarks/results"


def test_a_block_is_rendered_and_says_what_its_file_leaves_out() -> None:
    page = ROOT / "docs" / "x.md"
    found = render(BLOCK, page)
    assert (
        "| one by one | 1.0 |\n\nFrom [stage_a.json](../benchmarks/results/stage_a.json).\n<!"
        in found
    )
    assert render(found, page) == found
    shown = render(BLOCK.replace("stage_a", "grpo_step").replace("one by one", "text"), page)
    assert "grpo_step.json), which does not say its command, commit, machine.\n" in shown
    with pytest.raises(UndefinedError):
        render(BLOCK.replace(".ratio", ".speed"), page)
    with pytest.raises(FileNotFoundError):
        render(BLOCK.replace("stage_a", "nowhere"), page)


def test_what_a_page_has_from_code_is_rendered_between_its_comments() -> None:
    page = "a\n<!-- include: .gitignore -->\nold\n<!-- end of include -->\nb\n"
    found = render_made(page)
    assert found.startswith("a\n<!-- include: .gitignore -->\n```")
    assert "__pycache__/" in found
    assert "old" not in found
    assert found.endswith("```\n<!-- end of include -->\nb\n")


@pytest.mark.parametrize(
    "cell",
    [
        "86.4 %",
        "100 % (98.3–100 %)",
        "+5.4 (2.2 to 8.6)",
        "−0.2",
        "± 3",
        "12.9 times",
        "1.24",
        "2.74 s",
        "5.2×",
        "3 points",
    ],
)
def test_a_measured_number_that_was_typed_is_found(cell: str) -> None:
    assert list_typed(f"| a | {cell} |") == [f"| a | {cell} |"]
    assert list_typed(BLOCK.replace("7.00", cell)) == []


@pytest.mark.parametrize(
    "cell",
    [
        "0.2",
        "1,088",
        "a constant answer has 50 % of two labels",
        "two CPU cores",
        "`0.12`",
        "3.11"[:3],
    ],
)
def test_settings_counts_and_sentences_are_no_measured_numbers(cell: str) -> None:
    assert list_typed(f"| a | {cell} |\n86.4 % in a sentence") == []
