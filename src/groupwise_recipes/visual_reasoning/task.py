"""What is visual_reasoning's own: statements about pictures, reasoned about with boxes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from groupwise.core import Example, Message
from groupwise.data import read_examples
from groupwise.flow import Estimate, Part, Task, estimate_picture
from groupwise.pipeline import StepContext
from groupwise.rewards import LabelParser, RewardCase, RewardSet
from groupwise_recipes.visual_reasoning.asking import (
    PARSER,
    make_warmup_rows,
    prepare_rows,
    read_warmup,
    write_answer,
)
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.loading import digest_rows
from groupwise_recipes.visual_reasoning.measuring import (
    MEASURES,
    OTHER_SCENE,
    complete_predictions,
    make_rewards,
    predict_other_scene,
)

if TYPE_CHECKING:
    from groupwise.evaluation import Prediction
    from groupwise.training import RowsOfEpoch

_OWN = "groupwise_recipes.visual_reasoning"
_DATA_MODULES = ("asking", "loading", "scenes", "rows", "sources")
_TARGET_TOKENS, _TEXT_TOKENS = 60, 40


class VisualReasoning(Task[VisualConfig]):
    """Statements about pictures are true or false; the reasoning says where things are."""

    config_type = VisualConfig
    parts: ClassVar = {
        "data": Part("data prompt", " ".join(f"{_OWN}.{name}" for name in _DATA_MODULES)),
        "parser": Part("", f"{_OWN}.asking"),
        "warmup": Part("sft.targets", f"{_OWN}.asking"),
        "rewards": Part("rewards", f"groupwise.rewards {_OWN}.measuring"),
        "measures": Part("", f"{_OWN}.measuring"),
    }
    things = "statements"
    slices = ("relation", "source")
    measures = MEASURES
    baselines = (*Task.baselines, OTHER_SCENE)

    def inputs(self, config: VisualConfig) -> Mapping[str, str]:
        """Return what the data sets are known by."""
        return digest_rows(config)

    def prepare(self, config: VisualConfig, folder: Path) -> None:
        """Draw or read the rows of each split."""
        prepare_rows(config, folder)

    def show_warmup(self, config: VisualConfig, prepared: Path) -> Sequence[Example]:
        """Return the pictures of the warm-up."""
        return read_warmup(prepared)

    def parser(self, config: VisualConfig) -> LabelParser:
        """Return the one reader of ``<think>…</think><answer>…</answer>``."""
        return PARSER

    def warmup(self, config: VisualConfig, folder: Path) -> "RowsOfEpoch":
        """Return the written reasoning, the same in every epoch."""
        rows = make_warmup_rows(read_warmup(folder), config.sft.targets)
        return lambda _: rows

    def rewards(self, config: VisualConfig, judge: None = None) -> RewardSet:
        """Return the rewards."""
        return make_rewards(config.rewards)

    def make_case(self, config: VisualConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training questions; right answers have boxes if they pay."""
        targets = "boxes" if config.rewards.box_iou else "answer"
        return RewardCase(
            rewards=self.rewards(config),
            examples=read_examples(folder / "train.jsonl"),
            parser=PARSER,
            write_answer=lambda example, label: write_answer(example, label, targets),
        )

    def weigh(self, config: VisualConfig) -> Mapping[str, float]:
        """Return the weights of the parts."""
        return config.rewards.model_dump()

    def predict_baselines(
        self,
        config: VisualConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the usual ones, and what another scene's boxes earn where there are boxes."""
        found = super().predict_baselines(config, context, train, test)
        has_boxes = all(example.fields.get("boxes") for example in test)
        return [*found, *(predict_other_scene(test) if has_boxes else ())]

    def complete(
        self,
        config: VisualConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
    ) -> "list[Prediction]":
        """Return the predictions with the IoU of their boxes."""
        test = read_examples(context.output_of("prepare") / "test.jsonl")
        return complete_predictions({example.id: example for example in test}, predictions)

    def estimate(self, config: VisualConfig) -> Estimate:
        """Return statements by split, and tokens of a prompt."""
        drawn = config.data.drawn
        num_rows = 0 if drawn is None else 2 * drawn.num_pairs
        side = 448 if drawn is None else drawn.side
        share = config.data.warmup_share
        return Estimate(
            num_prompts=round(num_rows * (1 - share)),
            num_sft_rows=round(num_rows * share),
            tokens_per_prompt=estimate_picture(config, (side, side)) + _TEXT_TOKENS,
            tokens_per_answer=_TARGET_TOKENS,
        )

    def describe_prompt(self, config: VisualConfig) -> Sequence[Message]:
        """Return the question behind a picture."""
        return [Message("user", config.prompt)]


TASK = VisualReasoning()
