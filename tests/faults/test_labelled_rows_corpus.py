"""Which recipes measure a finished policy on other labelled rows (``groupwise evaluate``)."""

from importlib import import_module
from typing import Any

from corpora import each_row

from groupwise.run.task import Task


@each_row("labelled_rows")
def test_a_recipe_reads_labelled_rows(row: dict[str, Any]):
    task = import_module(f"groupwise_recipes.{row['input']}.task").TASK
    assert type(task).read_labelled is not Task.read_labelled
