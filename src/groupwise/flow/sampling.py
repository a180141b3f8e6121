"""Answers of the untrained policy to training prompts, for the audit of rewards."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import ConfigError, Example, Say, derive_seed, describe_duration
from groupwise.flow.stages import ASKED
from groupwise.flow.task import Task
from groupwise.pipeline import Sampler, digest_models

_PER_PROMPT = 4


def make_sampler(task: Task[Any]) -> Sampler[Any]:
    """Return how answers of a task's base are drawn, as GRPO will draw them."""

    def draw(
        config: Any, run: Path, examples: Sequence[Example], number: int, say: Say
    ) -> Mapping[str, Sequence[str]]:
        return draw_answers(task, config, run, examples, number=number, say=say)

    def read_inputs(config: Any) -> Mapping[str, str]:
        return digest_models({"model.base": None if config.model.is_tiny else config.model.base})

    return Sampler(draw, reads=f"{ASKED} grpo.temperature", inputs=read_inputs)


def draw_answers(
    task: Task[Any],
    config: Any,
    run: Path,
    examples: Sequence[Example],
    *,
    number: int,
    say: Say,
) -> dict[str, list[str]]:
    """Return about ``number`` answers, four to a prompt, by the ids of the prompts.

    The first prompt is asked alone: from its time follows what is said of the others.
    """
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

    def ask(some: Sequence[Example]) -> list[list[str]]:
        drawn = engine.generate(some, sampling=sampling, num_completions=size)
        return [[one.text for one in each] for each in drawn]

    started = time.perf_counter()
    found = ask(asked[:1])
    each_s = time.perf_counter() - started
    left_s = each_s * (len(asked) - 1)
    say(
        f"{size * len(asked)} answers of the base are sampled, {size} to a prompt: "
        f"at most {describe_duration(left_s)}, as the first {size} took {each_s:.1f} s"
    )
    found += ask(asked[1:])
    return {example.id: texts for example, texts in zip(asked, found, strict=True)}
