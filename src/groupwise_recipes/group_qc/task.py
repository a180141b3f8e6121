"""What is group_qc's own: Stage A before the usual way, and what inspectors ask first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.core import Example, digest_json, dump_config, read_json, write_json
from groupwise.data import DropLog, read_examples
from groupwise.evaluation import (
    MAJORITY,
    PICTURE_ONLY,
    TEXT_ONLY,
    Metric,
    Policies,
    Prediction,
    Section,
)
from groupwise.flow import POLICY, Ask, Estimate, Part, Stage, Task, list_usual_stages
from groupwise.pipeline import StepContext
from groupwise.rewards import RewardCase, RewardSet
from groupwise.serving import Request
from groupwise_recipes.group_qc.baselines import predict_baselines
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.data_stages import run_audit, run_prepare, run_stage_b_data
from groupwise_recipes.group_qc.estimate import estimate_run
from groupwise_recipes.group_qc.groups import digest_source, find_root, show_photos
from groupwise_recipes.group_qc.measure import (
    MEASURES,
    measure_missions,
    score_defects,
    show_group,
)
from groupwise_recipes.group_qc.orders import try_orders
from groupwise_recipes.group_qc.predictor import GroupQcPredictor, list_requests
from groupwise_recipes.group_qc.rewards import make_case, make_rewards
from groupwise_recipes.group_qc.sections import make_sections
from groupwise_recipes.group_qc.stage_b import choose_few, draw_heldout, make_label_rows
from groupwise_recipes.group_qc.summarize import count_attempts, run_summarize
from groupwise_recipes.group_qc.teach import TEACH_STEP, find_base, run_teach
from groupwise_recipes.group_qc.verdicts import (
    CONTRACT,
    MISSED,
    TWO_LINES,
    VerdictParser,
    parse_judgement,
)

if TYPE_CHECKING:
    from groupwise.judges import LogitJudge
    from groupwise.training import RowsOfEpoch

_OWN = "groupwise_recipes.group_qc"
_DATA = "data.root data.missions"
_SUMMARIES_ONLY = replace(
    TEXT_ONLY,
    title="Summaries' words",
    title_zh="摘要用词",
    note="words of the summaries, without a language model",
    note_zh="只看摘要用词，没有语言模型",
    blind_to=(),
)


class GroupQc(Task[GroupQcConfig]):
    """Groups of photos become lines of text; what is trained is the judgement of those."""

    config_type = GroupQcConfig
    parts: ClassVar = {
        "parser": Part(code=f"{_OWN}.verdicts"),
        "warmup": Part("sft.num_groups", f"{_OWN}.stage_b {_OWN}.verdicts"),
        "rewards": Part("rewards", f"groupwise.rewards {_OWN}.rewards {_OWN}.verdicts"),
        "measures": Part("data.root", f"{_OWN}.orders"),
    }
    data_stage = "stage_b_data"
    measured_from = "prepare"
    things = "groups"
    slices: ClassVar = ("task_type",)
    measures = MEASURES
    headline = MISSED
    baselines = (MAJORITY, _SUMMARIES_ONLY, PICTURE_ONLY)

    def inputs(self, config: GroupQcConfig) -> Mapping[str, str]:
        """Return what the photos and the table of missions are known by."""
        photos = {} if config.data.root is None else {"data.root": digest_source(config.data)}
        return {**photos, "data.missions": digest_json(dump_config(config.data.load_missions()))}

    def facts(self, config: GroupQcConfig, run: Path) -> Mapping[str, Any]:
        """Return what summaries depend on, wherever they are made, and how often they failed."""
        return {"summaries": config.summaries.describe(), "retry": count_attempts(run)}

    def stages(self, config: GroupQcConfig) -> list[Stage]:
        """Return Stage A and the rows of Stage B before the usual stages."""
        has_server = config.summaries.server is not None
        taught = f"prepare {TEACH_STEP}" if config.model.is_preset else "prepare"
        teach = _make_stage(
            TEACH_STEP,
            run_teach,
            "a tiny model learns to describe photos",
            reads=f"seed {POLICY} {_DATA} teach",
            uses="prepare",
            code=f"{_OWN}.prompts {_OWN}.reading",
        )
        own = [
            _make_stage(
                "prepare", run_prepare, "groups of photos into splits", reads="seed model.base data"
            ),
            _make_stage(
                "audit",
                run_audit,
                "what the data can be trusted for",
                reads="data.root data.mirror_invariant",
                uses="prepare",
            ),
            *([teach] if config.model.is_preset else []),
            _make_stage(
                "summarize",
                run_summarize,
                "Stage A: a line about every photo",
                # Behind a server is what summaries name there; the base need not be here.
                reads=f"{'' if has_server else POLICY} {_DATA} summaries retry",
                uses=taught,
                code=f"{_OWN}.prompts {_OWN}.summaries",
            ),
            _make_stage(
                "stage_b_data",
                run_stage_b_data,
                "summaries into questions",
                reads=f"model.base {_DATA} data.warmup_share data.budget",
                uses=f"{taught} summarize",
                code=f"{_OWN}.prompts {_OWN}.orders {_OWN}.verdicts",
            ),
        ]
        usual = [one for one in list_usual_stages(self, config) if one.name not in _REPLACED]
        return [*own, *usual]

    def parser(self, config: GroupQcConfig) -> VerdictParser:
        """Return what reads two-line replies."""
        return VerdictParser()

    def describe_parser(self, config: GroupQcConfig) -> Mapping[str, Any]:
        """Return the verdicts, the mark of the reason and the version of the rules."""
        return dict(CONTRACT)

    def warmup(self, config: GroupQcConfig, folder: Path) -> "RowsOfEpoch":
        """Return a few labelled groups, each with a reason made by rule."""
        examples = read_examples(folder / "warmup.jsonl")
        return make_label_rows(choose_few(examples, config.sft.num_groups, seed=config.seed))

    def control(
        self, config: GroupQcConfig, examples: Sequence[Example], ask: Ask
    ) -> "RowsOfEpoch":
        """Return the labels of GRPO's groups, each with a reason made by rule."""
        return make_label_rows(examples)

    def rewards(self, config: GroupQcConfig, judge: "LogitJudge | None" = None) -> RewardSet:
        """Return the rewards."""
        return make_rewards(config.rewards)

    def make_case(self, config: GroupQcConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training groups."""
        return make_case(config.rewards, folder / "train.jsonl")

    def weigh(self, config: GroupQcConfig) -> Mapping[str, float]:
        """Return the weights of the rewards."""
        return config.rewards.by_name

    def choose_heldout(
        self, config: GroupQcConfig, examples: Sequence[Example]
    ) -> Sequence[Example]:
        """Return validation groups in which missions and labels have their shares."""
        return draw_heldout(examples, config.evaluation.num_heldout_items, seed=config.seed)

    def measure_heldout(
        self, examples: Sequence[Example], texts: Sequence[str]
    ) -> Mapping[str, float]:
        """Return the share of replies in form."""
        return {TWO_LINES: sum(parse_judgement(text).is_well_formed for text in texts) / len(texts)}

    def predict_baselines(
        self,
        config: GroupQcConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> list[Prediction]:
        """Return the majority, the summaries' words and the photos' thumbnails."""
        shown = [self.show(config, context, rows) for rows in (train, test)]
        return predict_baselines(*shown, split="test", seed=config.seed)

    def probe(
        self, ask: Ask, examples: Sequence[Example], texts: Sequence[str]
    ) -> list[dict[str, float]]:
        """Return whether a group that rightly fails is let off when a description says so."""
        return try_orders(ask, examples, texts)

    def show(
        self, config: GroupQcConfig, context: StepContext, test: Sequence[Example]
    ) -> list[Example]:
        """Return the questions with the photos of their groups."""
        return show_photos(test, config, context.output_of("prepare"))

    def complete(
        self, config: GroupQcConfig, context: StepContext, predictions: Sequence[Prediction]
    ) -> list[Prediction]:
        """Return the predictions with missed defects, false alarms and photos."""
        root = find_root(config, context.output_of("prepare"))
        return [score_defects(show_group(one, root)) for one in predictions]

    def describe(
        self,
        config: GroupQcConfig,
        context: StepContext,
        predictions: Sequence[Prediction],
        metrics: Sequence[Metric],
    ) -> list[Section]:
        """Return missed defects, missions and what trained; measures by mission are kept."""
        missions = measure_missions(predictions, seed=config.seed)
        rows = {name: [asdict(metric) for metric in own] for name, own in missions.items()}
        write_json(context.folder / "missions.json", rows)
        failed = read_json(context.output_of(self.data_stage) / "failed.json", dict)
        trainable = context.output_of("grpo") / "trainable.json"
        policies = Policies(tuple(self.policies(context)))
        return make_sections(
            metrics, missions, policies=policies, failed=failed, trainable=trainable
        )

    def list_requests(self, config: GroupQcConfig, path: Path) -> tuple[Sequence[Request], DropLog]:
        """Return the groups of a folder of photos; a verdict in its folders' names is not read."""
        return list_requests(config, path)

    def open_predictor(self, config: GroupQcConfig, policy: str | Path) -> GroupQcPredictor:
        """Return what goes through both stages."""
        return GroupQcPredictor(self, config, policy)

    def estimate(self, config: GroupQcConfig) -> Estimate:
        """Return groups, tokens and sources."""
        return estimate_run(config)

    def find_base(self, config: GroupQcConfig, run: Path) -> str | Path:
        """Return the one base of both stages."""
        return find_base(config, run)

    def list_sources(self, config: GroupQcConfig) -> str:
        """Return the questions and, where it is taught here, the base."""
        return f"{self.data_stage} {TEACH_STEP}" if config.model.is_preset else self.data_stage


_REPLACED = ("prepare", "audit")


def _make_stage(
    name: str, work: Callable[[StepContext], None], summary: str, **declared: Any
) -> Stage:
    return Stage(name=name, work=lambda _, context: work(context), summary=summary, **declared)


TASK = GroupQc()
