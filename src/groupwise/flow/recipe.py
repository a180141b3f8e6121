"""A recipe of a Task, found by its import path so that nothing is imported before it is needed."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.pipeline import Preview, Recipe, RewardSource, Step

if TYPE_CHECKING:
    from groupwise.flow.task import Task
    from groupwise.rewards import RewardCase


def make_recipe(where: str, **named: Any) -> Recipe[Any]:
    """Return the recipe of the Task at ``where`` (``module:name``).

    Args:
        where: where to import the task from, an instance of ``Task``.
        **named: the other fields of the ``Recipe``.
    """

    def load() -> "Task[Any]":
        return EntryPoint("task", where, "groupwise.tasks").load()

    def plan(config: Any, run: Path) -> list[Step]:
        from groupwise.flow.stages import plan_stages

        return plan_stages(load(), config, run)

    def preview(config: Any) -> Preview:
        from groupwise.flow.preview import preview_run

        return preview_run(load(), config)

    def find_rewards() -> RewardSource[Any]:
        task = load()
        part = task.parts["rewards"]

        def collect(view: Any, run: Path) -> "RewardCase":
            return task.make_case(view, run / task.data_stage)

        uses = ("audit", task.data_stage)
        return RewardSource(collect, uses=uses, reads=part.reads, code=part.code)

    return Recipe(plan=plan, preview=preview, rewards=find_rewards, **named)
