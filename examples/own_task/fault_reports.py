"""Is this fault report urgent? A whole recipe of one's own: a Task on the usual way.

From this folder: ``groupwise run fault_reports:FaultReports --config fault_reports.yaml``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from groupwise.core import Completion, Example, Score, write_json
from groupwise.data.columns import TableSettings
from groupwise.data.examples import read_examples, write_examples
from groupwise.data.tables import digest_table, load_table
from groupwise.judges import LogitJudge
from groupwise.rewards import LabelMatch, LabelParser, RewardCase, RewardSet
from groupwise.run.settings import DataSettings, FlowConfig
from groupwise.run.task import Estimate, Part, Task
from groupwise.training.settings import RowsOfEpoch, SftRow, SftSettings


class FaultConfig(FlowConfig):
    """The settings of every recipe, and two of our own.

    Attributes:
        table: the rows, and what their columns mean.
        brief: weight of the reward for short answers.
    """

    data: DataSettings = DataSettings()
    sft: SftSettings | None = None
    table: TableSettings
    answer: LabelParser
    brief: float = 0.1


class Brief:
    """A reward of our own: 1 for at most 8 tokens."""

    name = "brief"

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score; it never depends on whether the answer is right."""
        return Score(1.0 if len(completion.token_ids) <= 8 else 0.0)


class FaultReports(Task[FaultConfig]):
    """Is this fault report urgent?"""

    config_type = FaultConfig
    # What each part reads of the config: a changed setting redoes the stages that use it.
    parts: ClassVar = {
        "data": Part("table answer"),
        "parser": Part("answer"),
        "warmup": Part("answer"),
        "rewards": Part("answer brief", code=__name__),
    }

    def inputs(self, config: FaultConfig) -> Mapping[str, str]:
        """Return the digest of the rows: a changed row redoes what read it."""
        return {"table": digest_table(config.table)}

    def prepare(self, config: FaultConfig, folder: Path) -> None:
        """Write the splits; rows of one machine stay together."""
        loaded = load_table(config.table, folder, seed=config.seed)
        for name, examples in loaded.splits.items():
            write_examples(folder / f"{name}.jsonl", examples)
        source = {"num_rows": loaded.num_rows, "drops": loaded.drops.to_json()}
        write_json(folder / "source.json", source)

    def parser(self, config: FaultConfig) -> LabelParser:
        """Return what reads answers, in training as in the evaluation."""
        return config.answer

    def warmup(self, config: FaultConfig, folder: Path) -> RowsOfEpoch:
        """Return what SFT teaches before GRPO: the labels of the training rows."""
        examples = read_examples(folder / "train.jsonl")
        rows = [SftRow(one, config.answer.write(str(one.label))) for one in examples]
        return lambda _: rows

    def rewards(self, config: FaultConfig, judge: LogitJudge | None = None) -> RewardSet:
        """Return what GRPO is rewarded by: the label, and a little for short answers."""
        parts = {"label": (LabelMatch(config.answer), 1.0), "brief": (Brief(), config.brief)}
        return RewardSet(parts)

    def weigh(self, config: FaultConfig) -> Mapping[str, float]:
        """Return the weights."""
        return {"label": 1.0, "brief": config.brief}

    def make_case(self, config: FaultConfig, folder: Path) -> RewardCase:
        """Return what the rewards are audited with, before anything is trained on them."""
        return RewardCase(
            rewards=self.rewards(config),
            examples=read_examples(folder / "train.jsonl"),
            parser=config.answer,
        )

    def estimate(self, config: FaultConfig) -> Estimate:
        """Return what the dry run says; rows that cannot be loaded are told by it, too."""
        loaded = load_table(config.table, Path(), seed=config.seed)
        rows = [(one, config.answer.write(str(one.label))) for one in loaded.splits["train"]]
        return Estimate(
            num_prompts=len(rows), num_sft_rows=len(rows), rows=rows, sources=loaded.sources
        )
