"""The base that reads answers, and what it finds fluent: fixed before anything is trained."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import read_json, write_json
from groupwise.data.examples import read_splits
from groupwise.flow.task import Task
from groupwise.pipeline import StepContext
from groupwise.rewards import Fluency, find_threshold

if TYPE_CHECKING:
    from groupwise.models.policy import Policy
    from groupwise.models.settings import Quantization

STAGE = "fluency"
PERCENTILE, NUM_ANSWERS = 5, 128
_FILE = "threshold.json"


def fix_threshold(task: Task[Any], context: StepContext) -> None:
    """Write what 95 % of the base's own greedy answers to training prompts reach."""
    from groupwise.flow.asking import answer_greedily, choose_items

    config = context.config
    train = read_splits(context.output_of(task.data_stage), "train")["train"]
    base = _open_base(task.find_base(config, context.run), config.model)
    answers = answer_greedily(base, config, choose_items(train, config.seed, NUM_ANSWERS))
    threshold = find_threshold(base, answers, percentile=PERCENTILE)
    write_json(
        context.folder / _FILE,
        {"threshold": threshold, "percentile": PERCENTILE, "num_answers": len(answers)},
    )


def open_fluency(task: Task[Any], config: Any, run: Path) -> Fluency:
    """Return the reward of a run, with the base loaded."""
    threshold = read_json(run / STAGE / _FILE, dict)["threshold"]
    return Fluency(_open_base(task.find_base(config, run), config.model), threshold=threshold)


def _open_base(name: str | Path, model: Any) -> "Policy":
    return _load_base(str(name), model.dtype, model.max_pixels, model.quantization)


@lru_cache(maxsize=1)
def _load_base(
    name: str, dtype: str, max_pixels: int | None, quantization: "Quantization | None"
) -> "Policy":
    """Load the base once: it reads samples, held-out answers and those of every policy.

    It is a copy of its own, so what trains never touches it, whatever ``trainable`` says.
    """
    from groupwise.models.policy import load_policy

    return load_policy(name, dtype=dtype, max_pixels=max_pixels, quantization=quantization)
