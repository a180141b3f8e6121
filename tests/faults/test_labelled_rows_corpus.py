"""Which recipes measure a finished policy on other labelled rows (``groupwise evaluate``)."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from groupwise.flow import Task

CORPUS = Path(__file__).parent / "labelled_rows.jsonl"
FAULTS = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


def mark(fault: dict[str, Any]) -> Any:
    left = fault.get("open")
    marks = [pytest.mark.xfail(strict=True, reason=left)] if left else []
    return pytest.param(fault, id=fault["name"], marks=marks)


@pytest.mark.parametrize("fault", [mark(fault) for fault in FAULTS])
def test_a_recipe_reads_labelled_rows(fault: dict[str, Any]):
    task = import_module(f"groupwise_recipes.{fault['input']}.task").TASK
    assert type(task).read_labelled is not Task.read_labelled
