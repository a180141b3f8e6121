"""Which recipes measure a finished policy on other labelled rows (``groupwise evaluate``)."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from groupwise.flow.task import Task

CORPUS = Path(__file__).parent / "labelled_rows.jsonl"
FAULTS = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_a_recipe_reads_labelled_rows(fault: dict[str, Any]):
    task = import_module(f"groupwise_recipes.{fault['input']}.task").TASK
    assert type(task).read_labelled is not Task.read_labelled
