"""A run's rewards, opened again by the plug-in file of another trainer."""

import os
from collections.abc import Mapping
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from pathlib import Path

from groupwise.core import Example, dump_config, load_config, read_json, write_json
from groupwise.data import read_examples, write_examples
from groupwise.flow.finished import FinishedRun
from groupwise.pipeline import find_recipe
from groupwise.rewards import RewardSet

_RECORD = "run.json"
_EXAMPLES = "examples.jsonl"


@dataclass(frozen=True, slots=True)
class RebuiltRewards:
    """The rewards of a run, its judge opened, and what is asked.

    Attributes:
        rewards: as GRPO has them.
        examples: by id.
    """

    rewards: RewardSet
    examples: Mapping[str, Example]


def write_record(
    run: FinishedRun, examples: list[Example], folder: Path, *, final: Path
) -> list[Path]:
    """Write what ``open_rewards`` reads; return the files.

    Args:
        run: whose rewards they are.
        examples: with pictures below ``folder``.
        folder: of the plug-in file, as it is written.
        final: where that folder will be.
    """
    record, asked = folder / _RECORD, folder / _EXAMPLES
    here = os.path.relpath(Path.cwd(), final)
    known = {"recipe": run.recipe.name, "config": dump_config(run.config), "relative_to": here}
    write_json(record, known)
    write_examples(asked, examples)
    return [record, asked]


def open_rewards(folder: Path) -> RebuiltRewards:
    """Return the rewards of a run from a folder that ``export_for_trainer`` wrote.

    Relative paths in the config are those of the folder in which the export was made, as long as
    it is where it was. The judge keeps its replies below ``folder`` unless its config names a file.

    Raises:
        DataError: if a file is missing or damaged.
        ConfigError: if the recipe is not installed, or takes its settings no more.
        ModelError: if the judge's model cannot be loaded.
    """
    known = read_json(folder / _RECORD, dict)
    inside = folder.resolve()
    home = inside / known["relative_to"]
    kept = inside / "judge"
    kept.mkdir(exist_ok=True)
    with chdir(home) if home.is_dir() else nullcontext():
        recipe = find_recipe(known["recipe"])
        assert recipe.task is not None
        task = recipe.task()
        config = load_config(recipe.load_config_type(), known["config"])
        rewards = task.rewards(config, task.judge(config, kept))
    examples = read_examples(inside / _EXAMPLES)
    return RebuiltRewards(rewards, {example.id: example for example in examples})
