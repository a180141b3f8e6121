"""What is the recipe's own: rows of any table, asked, read and rewarded as a config says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.core import Example, Finding, open_picture
from groupwise.data import DropLog, ask_about_row, digest_table
from groupwise.flow import Estimate, Part, Task, estimate_picture
from groupwise.rewards import Parser, RewardCase, RewardSet
from groupwise.serving import Request
from groupwise_recipes.task.config import TaskConfig
from groupwise_recipes.task.functions import digest_functions, split_function
from groupwise_recipes.task.rewards import make_case, make_rewards, show_name
from groupwise_recipes.task.rows import (
    load_rows,
    prepare_rows,
    read_findings,
    read_labelled_rows,
    read_warmup,
)

if TYPE_CHECKING:
    from groupwise.judges import LogitJudge
    from groupwise.training import RowsOfEpoch

_REWARDS = "groupwise.rewards groupwise_recipes.task.rewards groupwise_recipes.task.functions"
_ROLE_TOKENS = 8


class OwnTask(Task[TaskConfig]):
    """A user's own rows and rewards."""

    parts: ClassVar = {
        "data": Part("data answer", "groupwise.data.tables groupwise_recipes.task.rows"),
        "parser": Part("answer", "groupwise.rewards"),
        "measures": Part("answer"),
        "rewards": Part("answer rewards", _REWARDS),
    }

    def inputs(self, config: TaskConfig) -> Mapping[str, str]:
        """Return digests of the rows with their pictures, and of the reward functions."""
        return {"data.columns": digest_table(config.data), **self.reward_inputs(config)}

    def reward_inputs(self, config: TaskConfig) -> Mapping[str, str]:
        """Return digests of the reward functions by name."""
        files = {name: split_function(name)[0] for name in config.rewards if ":" in name}
        return {f"rewards.{name}": digest_functions(file) for name, file in files.items()}

    def prepare(self, config: TaskConfig, folder: Path) -> None:
        """Split the rows."""
        prepare_rows(config, folder)

    def find_in_data(self, config: TaskConfig, prepared: Path) -> Sequence[Finding]:
        """Return where the rows of each split come from, and what to know of them."""
        return read_findings(prepared)

    def parser(self, config: TaskConfig) -> Parser:
        """Return the parser of the answer's kind."""
        return config.answer

    def warmup(self, config: TaskConfig, folder: Path) -> "RowsOfEpoch":
        """Return the rows with a target."""
        return read_warmup(folder)

    def rewards(self, config: TaskConfig, judge: "LogitJudge | None" = None) -> RewardSet:
        """Return the rewards."""
        return make_rewards(config)

    def make_case(self, config: TaskConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training prompts."""
        return make_case(config, folder)

    def weigh(self, config: TaskConfig) -> Mapping[str, float]:
        """Return the weights by the names that reports show."""
        return {show_name(name): part.weight for name, part in config.rewards.items()}

    def picture_columns(self, config: TaskConfig) -> Sequence[str]:
        """Return those of the rows."""
        return config.data.columns.pictures

    def read_labelled(
        self, config: TaskConfig, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the rows of other files with the same columns."""
        return read_labelled_rows(config, path, folder)

    def make_question(self, config: TaskConfig, request: Request, folder: Path) -> Example:
        """Return the prompt of a row."""
        return ask_about_row(config.data, request.row, request.pictures, folder)

    def estimate(self, config: TaskConfig) -> Estimate:
        """Return rows, sources and lengths; the rewards are loaded, and what stops them is told."""
        make_rewards(config)
        with TemporaryDirectory() as folder:
            loaded = load_rows(config, Path(folder))
            examples = [e for found in loaded.splits.values() for e in found]
            longest = max(_estimate_tokens(config, example) for example in examples)
        train = loaded.splits["train"]
        texts = list(loaded.targets.values()) or [str(example.label) for example in train]
        dropped = "".join(f"; {num:,} x {why}" for why, num in loaded.drops.counts.items())
        used = f"{len(examples):,} of {loaded.num_rows:,} used{dropped}"
        splits = ", ".join(f"{name} {len(found):,}" for name, found in loaded.splits.items())
        told = [("warning", finding.message) for finding in loaded.findings]
        return Estimate(
            num_prompts=len(train),
            num_sft_rows=sum(example.id in loaded.targets for example in train),
            tokens_per_prompt=longest,
            tokens_per_answer=max(map(_estimate_text, texts)),
            facts=[*told, ("rows", used), ("splits", splits)],
        )


def _estimate_text(text: str) -> int:
    """Return about how many tokens a text has: 4 Latin letters, or a Chinese character, in each."""
    return sum(not character.isascii() for character in text) + -(-len(text) // 4)


def _estimate_tokens(config: Any, example: Example) -> int:
    sizes = [open_picture(picture).size for picture in example.pictures]
    texts = sum(_estimate_text(message.text) + _ROLE_TOKENS for message in example.prompt)
    return texts + sum(estimate_picture(config, size) for size in sizes)


TASK = OwnTask()
