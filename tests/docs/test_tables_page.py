"""The docs give a file of cells that can be read, and their first page lists all systems."""

from pathlib import Path

from page_blocks import list_blocks

from assemble import DOCS
from groupwise.evaluation.published import read_published


def test_the_file_of_cells_in_the_docs_is_one(tmp_path: Path) -> None:
    (text,) = [one.text for one in list_blocks(DOCS / "comparing.md") if one.kind == "json"]
    path = tmp_path / "cells.json"
    path.write_text(text, encoding="utf-8")
    found = read_published(path)
    assert found.systems == ("0.12", "0.15")
    assert len([one for one in found.results if one.value is not None]) == 2


def test_the_first_page_lists_all_systems() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for name in ("demo_selection", "group_qc", "on_task", "visual_reasoning", "workflows"):
        assert f"groupwise_recipes/{name}/README.md" in text, name
