"""Code in the pages runs: Python as it stands, YAML by the settings that it names.

Blocks of one page share their names, as somebody would type them one after the other. A block that
cannot run here has a reason: ``<!-- not run: why -->`` in the line before it. Lines that begin with
``groupwise`` or ``make`` are checked with those of the READMEs.
"""

from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from page_blocks import BLOCK, list_blocks
from pydantic import BaseModel, TypeAdapter, ValidationError

from assemble import DOCS, ROOT, list_pages
from groupwise.run.recipe import find_recipes
from groupwise.serving import ServeSettings
from groupwise_recipes.workflows.problem_mixes import MixSettings

PAGES = [ROOT / "README.md", *list_pages()]
BLOCKS = [block for page in PAGES for block in list_blocks(page)]
RUN = [block for block in BLOCKS if block.why_not is None]
PYTHON = {
    page.relative_to(ROOT).as_posix(): [block.text for block in blocks]
    for page, blocks in groupby((b for b in RUN if b.kind == "python"), key=lambda b: b.page)
}
SETTINGS = [block.text for block in RUN if block.kind == "yaml"]
KINDS = {"", "python", "yaml", "sh", "json", "jsonl", "csv", "text"}


def test_blocks_are_of_kinds_that_are_checked_or_are_no_code():
    assert {block.kind for block in BLOCKS} <= KINDS
    assert all(len(block.why_not.split()) > 2 for block in BLOCKS if block.why_not is not None)


@pytest.mark.parametrize("page", PYTHON)
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for number, text in enumerate(PYTHON[page], start=1):
        exec(compile(text, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_are_taken(text: str):
    given = yaml.safe_load(text)
    tops = [recipe.load_config_type() for recipe in find_recipes().values()]
    problems = [find_problem(top, given) for top in (*tops, MixSettings, ServeSettings)]
    assert None in problems, problems


def find_problem(section: type[BaseModel], given: dict[str, Any]) -> str | None:
    """Return why settings cannot be some of a section, or None; what is left out is not asked."""
    for name, value in given.items():
        if name not in section.model_fields:
            return f"{section.__name__} has no {name}"
        field = section.model_fields[name]
        annotation, problem = field.annotation, None
        try:
            TypeAdapter(Annotated[(annotation, *field.metadata, None)]).validate_python(value)
        except ValidationError as error:
            problem = str(error)
        if problem and isinstance(annotation, type) and issubclass(annotation, BaseModel):
            problem = find_problem(annotation, value)
        if problem:
            return f"{name}: {problem}"
    return None


def test_settings_that_do_not_exist_are_found():
    top = find_recipes()["on_task"].load_config_type()
    assert find_problem(top, {"grpo": {"beta": 0.1, "group_size": 4}}) is None
    assert find_problem(top, {"grpo": {"num_generations": 4}}) == (
        "grpo: GrpoSettings has no num_generations"
    )
    assert "greater than or equal to 2" in str(find_problem(top, {"grpo": {"group_size": 1}}))


def test_every_page_has_its_blocks_found():
    text = (
        "a\n<!-- not run: it needs a server -->\n```python\nx\n```\n\n```\ngroupwise doctor\n```\n"
    )
    page = DOCS / "index.md"
    found = [(m["kind"], m["why"], m["text"]) for m in BLOCK.finditer(text)]
    assert found == [("python", "it needs a server", "x\n"), ("", None, "groupwise doctor\n")]
    assert list(list_blocks(page))


def test_the_first_page_lists_all_systems() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for name in ("demo_selection", "group_qc", "on_task", "visual_reasoning", "workflows"):
        assert f"groupwise_recipes/{name}/README.md" in text, name
