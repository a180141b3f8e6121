"""What is visual_reasoning's own: statements about pictures, reasoned about with boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from groupwise.core import Example, Finding, Message, read_json, write_json
from groupwise.data.examples import DropLog, read_examples
from groupwise.rewards import Parser, RewardCase, RewardSet
from groupwise.run.recipe import Preview
from groupwise.run.stages import Stage, digest_models, keep_stages, list_usual_stages
from groupwise.run.steps import StepContext
from groupwise.run.task import Estimate, Part, Task
from groupwise_recipes.visual_reasoning.answers import find_parser
from groupwise_recipes.visual_reasoning.asking import prepare_rows, read_labelled_rows
from groupwise_recipes.visual_reasoning.auditing import make_case
from groupwise_recipes.visual_reasoning.bias import BIAS, BIAS_NAME, read_findings
from groupwise_recipes.visual_reasoning.box_rivals import (
    ONE_PLACE,
    OTHER_SCENE,
    predict_one_place,
    predict_other_scene,
)
from groupwise_recipes.visual_reasoning.choices import CHOICES, predict_choices
from groupwise_recipes.visual_reasoning.config import (
    AlignmentSettings,
    VisualConfig,
    choose_alignment,
)
from groupwise_recipes.visual_reasoning.judging import (
    ModelEntailment,
    RuleEntailment,
    open_judge,
    open_model_judge,
)
from groupwise_recipes.visual_reasoning.loading import digest_rows, estimate_run
from groupwise_recipes.visual_reasoning.measuring import (
    MEASURES,
    complete_predictions,
    describe_checkpoint,
    make_rewards,
    mark_silent,
)
from groupwise_recipes.visual_reasoning.teaching import (
    find_gaps,
    is_drawn,
    make_warmup_rows,
    read_warmup,
    see_picture,
)
from groupwise_recipes.visual_reasoning.traces import find_traced, sample_traces, teach_traces

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Metric
    from groupwise.evaluation.predictions import Prediction, RunPolicy
    from groupwise.evaluation.report.page import Section
    from groupwise.training.settings import RowsOfEpoch

_OWN = "groupwise_recipes.visual_reasoning"
_TRAINED = ("sft", "grpo", "sft_control")
_KINDS = "data.aokvqa data.drivingvqa"
_JUDGED = "alignment data"


def _name(modules: str) -> str:
    """Return the full names of the recipe's own modules."""
    return " ".join(f"{_OWN}.{name}" for name in modules.split())


_JUDGES = (
    f"{_name('judging judge_reply entailment claims wording phrases prompts')} groupwise.judges"
)


class VisualReasoning(Task[VisualConfig]):
    """Statements about pictures are true or false; the reasoning says where things are."""

    config_type = VisualConfig
    parts: ClassVar = {
        "data": Part(
            "data prompt choice_prompt inputs vision_epochs sft.targets sft.traces",
            _name("asking traces inputs boxes loading scenes rows sources variants bias probe"),
        ),
        "audit": Part("sft.targets", _name("teaching")),
        "parser": Part(_KINDS, _name("answers")),
        "warmup": Part(
            "sft.targets sft.descriptions sft.traces sft.traces_kept",
            _name("teaching traces reasoning boxes"),
        ),
        "rewards": Part(
            f"rewards {_JUDGED}", f"groupwise.rewards {_name('measuring answers')} {_JUDGES}"
        ),
        "measures": Part(
            f"sft.targets checkpoint {_JUDGED}",
            _name("measuring answers choices box_rivals teaching sections") + f" {_JUDGES}",
        ),
    }
    things = "statements"
    slices = ("relation", "source", BIAS)
    measures = MEASURES
    baselines = (*Task.baselines, CHOICES, OTHER_SCENE, ONE_PLACE)

    def inputs(self, config: VisualConfig) -> Mapping[str, str]:
        """Return what data sets, a judge in this process and a traced policy are known by."""
        model = config.alignment and config.alignment.model
        judge = {} if model is None else digest_models({"alignment.model.model": model.model})
        run = config.sft and config.sft.traces
        traced = digest_models({"sft.traces": find_traced(run)}) if run else {}
        return {**digest_rows(config), **judge, **traced}

    def stages(self, config: VisualConfig) -> list[Stage]:
        """Return the usual ones; of a published checkpoint those that train nothing."""
        usual = list_usual_stages(self, config)
        if config.checkpoint is None:
            return usual
        trained = dict.fromkeys(_TRAINED)
        kept = keep_stages(usual, **trained)
        return [
            replace(one, uses=" ".join(name for name in one.uses.split() if name not in trained))
            for one in kept
        ]

    def prepare(self, config: VisualConfig, folder: Path) -> None:
        """Draw or read the rows of each split."""
        prepare_rows(config, folder)
        if config.sft and config.sft.traces:
            sample_traces(config.sft.traces, folder, seed=config.seed)

    def pretrain(self, context: StepContext, base: Path) -> None:
        """Let a tiny base learn to see the drawn pictures of the warm-up."""
        epochs = context.config.vision_epochs
        if not epochs:
            return
        from groupwise_recipes.visual_reasoning.vision import pretrain_vision

        found = pretrain_vision(
            base,
            [see_picture(one) for one in read_warmup(context.folder) if one.fields.get("things")],
            seed=context.config.seed,
            epochs=epochs,
            say=context.say,
        )
        write_json(context.folder / "vision.json", found)
        context.say(f"the vision encoder tells {fmean(found.values()):.1%} of held-out facts")

    def find_in_data(self, config: VisualConfig, prepared: Path) -> Sequence[Finding]:
        """Return what words alone tell, pictures of several splits, and what rows leave out."""
        found = read_findings(read_json(prepared / BIAS_NAME, dict))
        return [*found, *find_gaps(prepared, config.sft and config.sft.targets)]

    def show_warmup(self, config: VisualConfig, prepared: Path) -> Sequence[Example]:
        """Return the pictures of the warm-up."""
        return read_warmup(prepared)

    def parser(self, config: VisualConfig) -> Parser:
        """Return the one reader of ``<think>…</think><answer>…</answer>``."""
        return find_parser(config.data)

    def warmup(self, config: VisualConfig, folder: Path) -> "RowsOfEpoch":
        """Return the written reasoning or the traces, the same in every epoch."""
        given, examples = config.sft, read_warmup(folder)
        assert given is not None
        rows = (
            make_warmup_rows(examples, given.targets, descriptions=given.descriptions)
            if given.traces is None
            else teach_traces(examples, kept=given.traces_kept)
        )
        return lambda _: rows

    def judge(self, config: VisualConfig, folder: Path) -> ModelEntailment | None:
        """Return the model that judges reasoning, where that is rewarded."""
        found = choose_alignment(config)
        if found is None or found.model is None or not config.rewards.alignment:
            return None
        return open_model_judge(found, folder)

    def rewards(self, config: VisualConfig, judge: ModelEntailment | None = None) -> RewardSet:
        """Return the rewards; a model is asked about reasoning only where that is rewarded."""
        found = choose_alignment(config)
        is_rule = found is not None and found.model is None
        return make_rewards(config.rewards, RuleEntailment() if is_rule else judge)

    def make_case(self, config: VisualConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training questions."""
        return make_case(config, read_examples(folder / "train.jsonl"))

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
        """Return the usual ones, what choices alone tell, and boxes that see no picture."""
        found = super().predict_baselines(config, context, train, test)
        return [
            *found,
            *predict_choices(train, test),
            *predict_other_scene(test),
            *predict_one_place(train, test),
        ]

    def policies(self, context: StepContext) -> "Sequence[RunPolicy]":
        """Return the usual ones, and which of them do not reason."""
        sft, checkpoint = context.config.sft, context.config.checkpoint
        usual = super().policies(context)
        listed = usual if checkpoint is None else describe_checkpoint(usual)
        return mark_silent(listed, sft and sft.targets, checkpoint=checkpoint)

    def show(
        self, config: VisualConfig, context: StepContext, test: Sequence[Example]
    ) -> Sequence[Example]:
        """Return items without depth pictures, which look alike in all splits."""
        return [example.with_pictures(example.pictures[:1]) for example in test]

    def complete(
        self,
        config: VisualConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the predictions with the IoU of their boxes and what the judge says of them."""
        found = _choose_judge(config, test)
        return complete_predictions(
            {example.id: example for example in test},
            predictions,
            policies=self.policies(context),
            judge=found and open_judge(found, context.folder),
        )

    def describe(
        self,
        config: VisualConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
        metrics: "Sequence[Metric]",
        test: Sequence[Example],
    ) -> "Sequence[Section]":
        """Return the test sets side by side, how far reasoning entails answers, and its faults."""
        from groupwise.evaluation.predictions import Policies
        from groupwise_recipes.visual_reasoning.sections import make_sections, make_source_sections

        listed = Policies(tuple(self.policies(context)))
        # A checkpoint that is measured on other data is no policy of the run's own.
        asked = listed.sort(one.policy for one in predictions)
        others = [listed.find(name) for name in asked if listed.find(name).kind == "unknown"]
        policies = Policies((*listed.listed, *others))
        sections, judge = make_source_sections(metrics, policies), _choose_judge(config, test)
        if judge is not None:
            sections += make_sections(predictions, metrics, policies=policies, judge=judge)
        return sections

    def read_labelled(
        self, config: VisualConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the rows of a table, or of the data sets that a YAML file names."""
        return read_labelled_rows(config, context.output_of("prepare"), path, folder)

    def preview(self, config: VisualConfig) -> Preview:
        """Return the usual one; of a published checkpoint without what trainings would take."""
        found = super().preview(config)
        if config.checkpoint is None:
            return found
        facts = [one for one in found.facts if not one[0].startswith(("sft", "grpo", "memory"))]
        return replace(found, facts=facts, later={})

    def estimate(self, config: VisualConfig) -> Estimate:
        """Return rows by split, and tokens of a prompt."""
        return estimate_run(config)

    def describe_prompt(self, config: VisualConfig) -> Sequence[Message]:
        """Return the question behind a picture."""
        return [Message("user", config.prompt)]


def _choose_judge(config: VisualConfig, test: Sequence[Example]) -> AlignmentSettings | None:
    """Return what judges reasoning about these items: rules do so for drawn scenes alone."""
    found = choose_alignment(config)
    is_judged = found is not None and (found.model is not None or all(map(is_drawn, test)))
    return found if is_judged else None


TASK = VisualReasoning()
