"""What is group_qc's own: Stage A before the usual way, and what inspectors ask first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.core import Example, Message, digest_json, dump_config, read_json, write_json
from groupwise.data.examples import DropLog, read_examples
from groupwise.evaluation.baselines import JOINT, MAJORITY, PICTURE_ONLY, TEXT_ONLY
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Policies, Prediction
from groupwise.evaluation.report.page import Section
from groupwise.evaluation.report.phrases import Phrases
from groupwise.rewards import RewardSet
from groupwise.run.asking import read_temperatures
from groupwise.run.stages import POLICY, Stage, list_usual_stages
from groupwise.run.steps import StepContext
from groupwise.run.task import Ask, Estimate, Part, Task
from groupwise.serving import Request
from groupwise_recipes.group_qc import predictor
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.data_stages import run_audit, run_stage_b_data
from groupwise_recipes.group_qc.estimate import estimate_run
from groupwise_recipes.group_qc.groups import (
    digest_sources,
    find_root,
    has_pictures,
    read_labels,
    run_prepare,
    show_photos,
)
from groupwise_recipes.group_qc.measures import (
    MEASURES,
    make_sections,
    measure_missions,
    predict_baselines,
    say_failed,
    say_given,
    score_defects,
    show_group,
)
from groupwise_recipes.group_qc.photo_lines import make_line_sections, measure_lines
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.rewards import make_rewards
from groupwise_recipes.group_qc.stage_a import count_attempts, run_summarize
from groupwise_recipes.group_qc.stage_b import choose_few, draw_heldout, make_label_rows, try_orders
from groupwise_recipes.group_qc.teach import TEACH_STEP, find_base, run_teach
from groupwise_recipes.group_qc.verdicts import MISSED, TWO_LINES, VerdictParser

if TYPE_CHECKING:
    from groupwise.judges import LogitJudge
    from groupwise.training.settings import RowsOfEpoch

_OWN = "groupwise_recipes.group_qc"
_DATA = "data.root data.summaries data.missions"
_ASKED = "language"
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
        # With ``teach``, which says whether the base is one that was taught here.
        "parser": Part("language teach", f"{_OWN}.verdicts"),
        "warmup": Part("sft.num_groups", f"{_OWN}.stage_b {_OWN}.verdicts"),
        "rewards": Part("rewards language", f"groupwise.rewards {_OWN}.rewards {_OWN}.verdicts"),
        "measures": Part(
            "data.root data.summaries data.photo_labels", f"{_OWN}.stage_b {_OWN}.photo_lines"
        ),
    }
    data_stage = "stage_b_data"
    measured_from = "prepare"
    things = "photo groups"
    slices: ClassVar = ("task_type",)
    measures = MEASURES
    headline = MISSED
    baselines = (MAJORITY, _SUMMARIES_ONLY, PICTURE_ONLY, JOINT)

    def inputs(self, config: GroupQcConfig) -> Mapping[str, str]:
        """Return what the photos and the table of missions are known by."""
        missions = digest_json(dump_config(config.data.load_missions()))
        return {**digest_sources(config.data), "data.missions": missions}

    def facts(self, config: GroupQcConfig, run: Path) -> Mapping[str, Any]:
        """Return what summaries depend on, wherever they are made, and how often they failed."""
        return {"summaries": config.summaries.describe(), "retry": count_attempts(run)}

    def stages(self, config: GroupQcConfig) -> list[Stage]:
        """Return Stage A and the rows of Stage B before the usual stages."""
        usual = list_usual_stages(self, config)
        return [*_list_own_stages(config), *(s for s in usual if s.name not in _REPLACED)]

    def parser(self, config: GroupQcConfig) -> VerdictParser:
        """Return what reads two-line replies."""
        return VerdictParser(config.words)

    def describe_parser(self, config: GroupQcConfig) -> Mapping[str, Any]:
        """Return the verdicts, the mark of the reason and the version of the rules."""
        return self.parser(config).describe()

    def describe_prompt(self, config: GroupQcConfig) -> Sequence[Message]:
        """Return the rules and the question of Stage B, which is what is trained."""
        return open_questions(config).describe()

    def warmup(self, config: GroupQcConfig, folder: Path) -> "RowsOfEpoch":
        """Return a few labelled groups, each with a reason made by rule."""
        examples = read_examples(folder / "warmup.jsonl")
        assert config.sft is not None
        few = choose_few(examples, config.sft.num_groups, config.words, seed=config.seed)
        return make_label_rows(few, self.parser(config))

    def control(
        self, config: GroupQcConfig, examples: Sequence[Example], ask: Ask
    ) -> "RowsOfEpoch":
        """Return the labels of GRPO's groups, each with a reason made by rule."""
        return make_label_rows(examples, self.parser(config))

    def rewards(self, config: GroupQcConfig, judge: "LogitJudge | None" = None) -> RewardSet:
        """Return the rewards."""
        return make_rewards(config.rewards, self.parser(config))

    def weigh(self, config: GroupQcConfig) -> Mapping[str, float]:
        """Return the weights of the rewards."""
        return config.rewards.model_dump()

    def choose_heldout(
        self, config: GroupQcConfig, examples: Sequence[Example]
    ) -> Sequence[Example]:
        """Return validation groups in which missions and labels have their shares."""
        return draw_heldout(examples, config.evaluation.num_heldout_items, seed=config.seed)

    def measure_heldout(
        self, config: GroupQcConfig, examples: Sequence[Example], texts: Sequence[str]
    ) -> Mapping[str, float]:
        """Return the share of replies in form."""
        judge = self.parser(config).judge
        return {TWO_LINES: sum(judge(text).is_well_formed for text in texts) / len(texts)}

    def predict_baselines(
        self,
        config: GroupQcConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> list[Prediction]:
        """Return the majority, the summaries' words and the photos' thumbnails."""
        from groupwise.run.probing import Probes

        shown = [self.show(config, context, rows) for rows in (train, test)]
        base = self.find_base(config, context.run)
        return predict_baselines(
            *shown,
            labels=config.words.verdicts,
            seed=config.seed,
            open_probes=partial(Probes, config, base, context),
        )

    def probe(
        self,
        config: GroupQcConfig,
        ask: Ask,
        examples: Sequence[Example],
        texts: Sequence[str],
    ) -> list[dict[str, float]]:
        """Return whether a group that rightly fails is let off when a description says so."""
        return try_orders(ask, examples, texts, self.parser(config))

    def show(
        self, config: GroupQcConfig, context: StepContext, test: Sequence[Example]
    ) -> list[Example]:
        """Return the questions with the photos of their groups."""
        return show_photos(test, config, context.output_of("prepare"))

    def complete(
        self,
        config: GroupQcConfig,
        context: StepContext,
        predictions: Sequence[Prediction],
        test: Sequence[Example],
    ) -> list[Prediction]:
        """Return the predictions with missed defects, false alarms and photos."""
        data, parser = config.data, self.parser(config)
        root = find_root(data, context.output_of("prepare")) if has_pictures(data) else None
        return [score_defects(show_group(one, root), parser) for one in predictions]

    def describe(
        self,
        config: GroupQcConfig,
        context: StepContext,
        predictions: Sequence[Prediction],
        metrics: Sequence[Metric],
        test: Sequence[Example],
    ) -> list[Section]:
        """Return missed defects, missions and Stage A's lines; measures are kept."""
        verdicts = config.words.verdicts
        missions = measure_missions(predictions, verdicts, seed=config.seed)
        rows = {name: [asdict(metric) for metric in own] for name, own in missions.items()}
        write_json(context.folder / "missions.json", rows)
        sections = make_sections(
            metrics,
            missions,
            policies=Policies(tuple(self.policies(context))),
            verdicts=verdicts,
            say_stage_a=self._choose_stage_a(config, context),
        )
        return [*sections, *self._describe_lines(config, context, predictions)]

    def _describe_lines(
        self, config: GroupQcConfig, context: StepContext, predictions: Sequence[Prediction]
    ) -> list[Section]:
        """Return how Stage A's lines agree with the labels of the run's own photos."""
        if context.folder.parent != context.run:
            return []
        labels = read_labels(config.data, find_root(config.data, context.output_of("prepare")))
        found = measure_lines(predictions, labels or {}, config.words, seed=config.seed)
        if found:
            rows = {name: [asdict(metric) for metric in own] for name, own in found.items()}
            write_json(context.folder / "stage_a.json", rows)
        return make_line_sections(found)

    def _choose_stage_a(
        self, config: GroupQcConfig, context: StepContext
    ) -> Callable[[Phrases], str]:
        """Return what says what became of the groups in Stage A; nothing where it is not theirs."""
        if context.folder.parent != context.run:
            return lambda _: ""
        if config.data.summaries:
            given = read_json(context.output_of("prepare") / "source.json", dict)
            return partial(say_given, given)
        failed = read_json(context.output_of(self.data_stage) / "failed.json", dict)
        return partial(say_failed, failed)

    def list_requests(self, config: GroupQcConfig, path: Path) -> tuple[Sequence[Request], DropLog]:
        """Return the groups of a folder of photos or a file of Stage A; no verdict is read."""
        return predictor.list_requests(config, path)

    def read_labelled(
        self, config: GroupQcConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the labelled groups of a folder of photos or a file of Stage A."""
        return predictor.read_labelled(config, context, path, folder)

    def open_predictor(
        self, config: GroupQcConfig, policy: str | Path, run: Path
    ) -> predictor.GroupQcPredictor:
        """Return what goes through both stages."""
        found = read_temperatures(run)
        return predictor.GroupQcPredictor(self, config, policy, temperatures=found)

    def estimate(self, config: GroupQcConfig) -> Estimate:
        """Return groups, tokens and sources."""
        return estimate_run(config)

    def find_base(self, config: GroupQcConfig, run: Path) -> str | Path:
        """Return the one base of both stages."""
        return find_base(config, run)

    def list_sources(self, config: GroupQcConfig) -> str:
        """Return the questions and, where it is taught here, the base."""
        return f"{self.data_stage} {TEACH_STEP}" if config.teach is not None else self.data_stage


_REPLACED = ("prepare", "audit")


def _list_own_stages(config: GroupQcConfig) -> list[Stage]:
    """Return what stands before the usual stages: groups, Stage A, and the rows of Stage B."""
    is_taught, is_given = config.teach is not None, bool(config.data.summaries)
    taught = f"prepare {TEACH_STEP}" if is_taught else "prepare"
    # Behind a server is what summaries name there; the base need not be here.
    base = "" if config.summaries.server is not None else POLICY
    prepare = Stage(
        name="prepare",
        work=run_prepare,
        summary="photo groups into splits",
        reads="seed data language",
    )
    audit = Stage(
        name="audit",
        work=run_audit,
        summary="what the data can be trusted for",
        reads="data.root data.summaries data.mirror_invariant language",
        uses="prepare",
    )
    teach = Stage(
        name=TEACH_STEP,
        work=run_teach,
        summary="the base learns to describe photos",
        reads=f"seed {POLICY} {_DATA} {_ASKED} teach",
        uses="prepare",
        code=f"{_OWN}.prompts {_OWN}.teach",
        is_shared=True,
    )
    summarize = Stage(
        name="summarize",
        work=run_summarize,
        summary="Stage A: a line about every photo",
        reads=f"{base} {_DATA} {_ASKED} teach summaries retry",
        uses=taught,
        code=f"{_OWN}.prompts {_OWN}.summaries",
    )
    rows = Stage(
        name=GroupQc.data_stage,
        work=run_stage_b_data,
        summary="summaries into questions",
        reads=f"seed model.base model.max_pixels {_DATA} {_ASKED} teach "
        f"data.warmup_share data.budget{'' if config.sft is not None else ' sft'}",
        uses=taught if is_given else f"{taught} summarize",
        parts=() if is_taught or config.sft is None else ("warmup",),
        code=f"{_OWN}.prompts {_OWN}.stage_b {_OWN}.verdicts",
    )
    absent = [*([] if is_taught else [teach]), *([summarize] if is_given else [])]
    return [one for one in (prepare, audit, teach, summarize, rows) if one not in absent]


TASK = GroupQc()
