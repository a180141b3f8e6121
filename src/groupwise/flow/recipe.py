"""A recipe of a Task, found by its import path so that nothing is imported before it is needed."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.pipeline import Preview, Recipe, RewardSource, Step

if TYPE_CHECKING:
    from groupwise.flow.task import Task
    from groupwise.rewards import RewardCase


def make_recipe(task: "Task[Any] | str", **named: Any) -> Recipe[Any]:
    """Return the recipe of a Task.

    Args:
        task: the task, or where to import it from when it is needed (``module:name``).
        **named: the other fields of the ``Recipe``; ``rewards=None`` where none are audited.
    """

    def load() -> "Task[Any]":
        if isinstance(task, str):
            return EntryPoint("task", task, "groupwise.tasks").load()
        return task

    def plan(config: Any, run: Path) -> list[Step]:
        from groupwise.flow.stages import plan_stages

        return plan_stages(load(), config, run)

    def preview(config: Any) -> Preview:
        return load().preview(config)

    def find_rewards() -> RewardSource[Any]:
        from groupwise.flow.sampling import make_sampler

        found = load()
        part = found.parts["rewards"]

        def collect(view: Any, run: Path) -> "RewardCase":
            return found.make_case(view, run / found.data_stage)

        uses = ("audit", found.data_stage)
        return RewardSource(
            collect,
            uses=uses,
            reads=part.reads,
            code=part.code,
            inputs=found.reward_inputs,
            sampler=make_sampler(found),
        )

    has_rewards = isinstance(task, str) or "rewards" in task.parts
    usual: dict[str, Any] = {"rewards": find_rewards if has_rewards else None}
    return Recipe(plan=plan, preview=preview, task=load, **{**usual, **named})
