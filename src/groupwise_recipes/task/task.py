"""What is the recipe's own: rows of any table, asked, read and rewarded as a config says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from groupwise.core import Example, Finding
from groupwise.data import DropLog, ask_about_row, digest_table
from groupwise.flow import Estimate, Part, Task
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
        """Return rows, sources and lengths; the rewards are loaded: what stops them is reported."""
        make_rewards(config)
        with TemporaryDirectory() as folder:
            loaded = load_rows(config, Path(folder))
        train = loaded.splits["train"]
        write, taught = config.answer.write, loaded.targets
        dropped = "".join(f"; {num:,} x {why}" for why, num in loaded.drops.counts.items())
        num_used = sum(map(len, loaded.splits.values()))
        return Estimate(
            num_prompts=len(train),
            num_sft_rows=sum(example.id in taught for example in train),
            rows=[(e, taught.get(e.id) or write(str(e.label))) for e in train],
            sources=loaded.sources,
            facts=[
                *(("warning", finding.message) for finding in loaded.findings),
                ("rows", f"{num_used:,} of {loaded.num_rows:,} used{dropped}"),
            ],
        )


TASK = OwnTask()
