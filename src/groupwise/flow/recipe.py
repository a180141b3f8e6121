"""A recipe of a Task, found by its import path so that nothing is imported before it is needed."""

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import ConfigError, Example, Say, derive_seed, describe_duration
from groupwise.pipeline import Preview, Recipe, RewardSource, Sampler, Step, digest_models

if TYPE_CHECKING:
    from groupwise.flow.task import Task
    from groupwise.rewards import RewardCase

_PER_PROMPT = 4


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
        found = load()
        part = found.parts["rewards"]

        def collect(view: Any, run: Path) -> "RewardCase":
            return found.make_case(view, run / found.data_stage)

        return RewardSource(
            collect,
            uses=("audit", found.data_stage),
            reads=part.reads,
            code=part.code,
            inputs=found.reward_inputs,
            sampler=make_sampler(found),
        )

    has_rewards = isinstance(task, str) or "rewards" in task.parts
    usual: dict[str, Any] = {"rewards": find_rewards if has_rewards else None}
    return Recipe(plan=plan, preview=preview, task=load, **{**usual, **named})


def make_sampler(task: "Task[Any]") -> Sampler[Any]:
    """Return how answers of a task's base to training prompts are drawn, as GRPO will draw them.

    They are about as many as asked for, four to a prompt, by the ids of the prompts. The first
    prompt is asked alone: from its time follows what is said of the others.
    """
    from groupwise.flow.stages import ASKED

    def draw(
        config: Any, run: Path, examples: Sequence[Example], number: int, say: Say
    ) -> Mapping[str, Sequence[str]]:
        from groupwise.flow.asking import choose_items, open_policy
        from groupwise.inference.local import LocalModel
        from groupwise.inference.model import Sampling

        base = task.find_base(config, run)
        if config.model.is_tiny and not Path(base).is_dir():
            raise ConfigError(
                f"--sample needs the base, and {config.model.base} is built by the run",
                fix="leave it out here; `groupwise audit --sample` builds the base first",
            )
        size = min(number, _PER_PROMPT)
        asked = choose_items(examples, derive_seed(config.seed, "sampled"), -(-number // size))
        engine = LocalModel(open_policy(config, base), batch_size=config.evaluation.batch_size)
        sampling = Sampling(
            temperature=config.grpo.temperature,
            max_new_tokens=config.grpo.max_new_tokens,
            seed=derive_seed(config.seed, "sample"),
        )
        started = time.perf_counter()
        found = engine.generate(asked[:1], sampling=sampling, num_completions=size)
        each_s = time.perf_counter() - started
        left = describe_duration(each_s * (len(asked) - 1))
        say(
            f"{size * len(asked)} answers of the base are sampled, {size} to a prompt: at most "
            f"{left}, as the first {size} took {each_s:.1f} s"
        )
        found = [
            *found,
            *engine.generate(asked[1:], sampling=sampling, num_completions=size),
        ]
        return {
            example.id: [one.text for one in drawn]
            for example, drawn in zip(asked, found, strict=True)
        }

    def read_inputs(config: Any) -> Mapping[str, str]:
        return digest_models({"model.base": None if config.model.is_tiny else config.model.base})

    return Sampler(draw, reads=f"{ASKED} grpo.temperature", inputs=read_inputs)
