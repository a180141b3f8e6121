"""What is workflows' own: problems are asked, programs are answers, an executor runs them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.core import (
    Example,
    Finding,
    Message,
    digest_file,
    digest_json,
    dump_config,
    load_config,
)
from groupwise.data.examples import DropLog, read_examples
from groupwise.rewards import Parsed, RewardCase, RewardSet, describe_weights
from groupwise.run.stages import ASKED, Stage, digest_models, keep_stages, list_usual_stages
from groupwise.run.steps import StepContext
from groupwise.run.task import Estimate, Part, Task
from groupwise_recipes.workflows.config import RewardSettings, ScoringSettings, WorkflowsConfig
from groupwise_recipes.workflows.deciding import Mode
from groupwise_recipes.workflows.estimate import estimate_run
from groupwise_recipes.workflows.measuring import MEASURES, OPTIMISE_PROMPT, find_in_scoring
from groupwise_recipes.workflows.parser import WorkflowParser
from groupwise_recipes.workflows.problem_loading import ProblemSource, load_problems
from groupwise_recipes.workflows.problems import (
    MIX_REPORT,
    SPLITS,
    ask_about_problem,
    find_in_mix,
    make_warmup_rows,
    prepare_problems,
    read_warmup,
)
from groupwise_recipes.workflows.rewards import Success, make_success
from groupwise_recipes.workflows.scoring import ProgramScorer, read_problem

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Metric
    from groupwise.evaluation.predictions import Prediction, RunPolicy
    from groupwise.evaluation.report.page import Section
    from groupwise.inference.settings import ModelSource
    from groupwise.serving import Request
    from groupwise.training.settings import RowsOfEpoch
    from groupwise_recipes.workflows.predictor import WorkflowPredictor
    from groupwise_recipes.workflows.rivals import Rival

_OWN = "groupwise_recipes.workflows"
_PROGRAMS = (
    f"{_OWN}.programs {_OWN}.operators {_OWN}.execution {_OWN}.calls {_OWN}.once {_OWN}.outcome "
    f"{_OWN}.executor_stub groupwise.sandbox"
)
_MEASURED = "executor judge"
_RULES = f"{_OWN}.deciding {_OWN}.scoring {_OWN}.rewards {_OWN}.parser {_OWN}.auditing"
_DECIDES = f"{_PROGRAMS} {_RULES} groupwise.rewards groupwise.judges"


class Workflows(Task[WorkflowsConfig]):
    """A policy writes a program over operators for each problem; its answer is rewarded."""

    config_type = WorkflowsConfig
    parts: ClassVar = {
        "data": Part(
            "data prompt assign_first language",
            f"{_OWN}.problems {_OWN}.wording {_OWN}.operators",
        ),
        "audit": Part("data.warmup_share data.mix executor.stub reward.mode"),
        "parser": Part(_MEASURED, _DECIDES),
        "warmup": Part("sft", f"{_OWN}.forms"),
        "rewards": Part("executor judge reward", _DECIDES),
        "measures": Part(
            f"{_MEASURED} rivals prompt assign_first language",
            f"{_OWN}.measuring {_OWN}.agreement {_OWN}.sections {_OWN}.rivals {_OWN}.forms",
        ),
    }
    things = "problems"
    slices = ("problem_type", "source")
    measures = MEASURES
    measured_from = "rivals"
    looks_back = True

    def inputs(self, config: WorkflowsConfig) -> Mapping[str, str]:
        """Return what the files of the mix and a model in this process are known by."""
        mix = config.data.mix
        files = {} if mix is None else {"data.mix": _digest_mix(mix)}
        models = {
            f"{name}.model.model": one.model
            for name, one in _list_models(config)
            if one is not None
        }
        return {**files, **digest_models(models)}

    def stages(self, config: WorkflowsConfig) -> list[Stage]:
        """Return the usual stages without a control, and the choice of fixed programs."""
        usual = keep_stages(list_usual_stages(self, config), sft_control=None)
        place = [one.name for one in usual].index("baselines")
        rivals = Stage(
            name="rivals",
            work=_run_rivals,
            summary="fixed programs, tried on validation problems",
            reads="seed",
            parts=("parser", "measures"),
            uses="prepare",
        )
        stages = [*usual[:place], rivals, *usual[place:]]
        if config.gepa is not None:
            place = [one.name for one in stages].index("evaluate")
            stages.insert(place, _make_search(config))
            evaluate = stages[place + 1]
            stages[place + 1] = replace(evaluate, uses=f"{evaluate.uses} {OPTIMISE_PROMPT}")
        return [_without_control(one) for one in stages]

    def prepare(self, config: WorkflowsConfig, folder: Path) -> None:
        """Put problems into splits."""
        prepare_problems(config, folder)

    def find_in_data(self, config: WorkflowsConfig, prepared: Path) -> Sequence[Finding]:
        """Return what the mix has to say."""
        return find_in_mix(config)

    def find_in_settings(self, config: WorkflowsConfig) -> Sequence[Finding]:
        """Return that figures are of a stub or by a judge alone."""
        return find_in_scoring(config)

    def parser(self, config: WorkflowsConfig) -> WorkflowParser:
        """Return what says whether a text is a program."""
        return WorkflowParser()

    def warmup(self, config: WorkflowsConfig, folder: Path) -> "RowsOfEpoch":
        """Return programs that are drawn without a look at the problem, new in every epoch."""
        assert config.sft is not None
        return make_warmup_rows(read_warmup(folder), seed=config.seed)

    def judge(self, config: WorkflowsConfig, folder: Path) -> ProgramScorer:
        """Return what runs programs and decides what is rewarded, as ``reward.mode`` says."""
        return _open(config, folder.parent, mode=config.reward.mode)

    def rewards(self, config: WorkflowsConfig, judge: ProgramScorer | None = None) -> RewardSet:
        """Return the reward of a right answer."""
        from groupwise_recipes.workflows.auditing import open_offline

        return RewardSet({Success.name: (make_success(config.reward, judge or open_offline()), 1)})

    def explain_bound_rewards(self, config: WorkflowsConfig) -> str | None:
        """Return that a stub knows the problems of its own run alone."""
        is_stub = config.executor.model is None
        return "their executor is a stub, which knows the run's own problems" if is_stub else None

    def make_case(self, config: WorkflowsConfig, folder: Path) -> RewardCase:
        """Return the reward, and programs that return a text, without any executor."""
        from groupwise_recipes.workflows.auditing import make_case

        return make_case(config, folder)

    def weigh(self, config: WorkflowsConfig) -> Mapping[str, float]:
        """Return that success is all."""
        return {Success.name: 1.0}

    def describe_weights(self, config: WorkflowsConfig) -> str:
        """Return how answers are decided."""
        return f"{describe_weights(self.weigh(config))} ({config.reward.mode})"

    def read_answers(
        self, config: WorkflowsConfig, run: Path, examples: Sequence[Example], texts: Sequence[str]
    ) -> Sequence[Parsed]:
        """Return the answers of programs, all of them run at once."""
        from groupwise_recipes.workflows.measuring import read_scored, refuse_faults

        pairs = [(read_problem(e), text) for e, text in zip(examples, texts, strict=True)]
        found = _open(config, run).score_all(pairs)
        refuse_faults(found)
        return [read_scored(*pair) for pair in zip(examples, found, strict=True)]

    def measure_heldout(
        self, config: WorkflowsConfig, examples: Sequence[Example], texts: Sequence[str]
    ) -> Mapping[str, float]:
        """Return the share of different programs among the greedy ones."""
        return {"distinct": len(set(texts)) / len(texts)}

    def predict_baselines(
        self,
        config: WorkflowsConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the answers of fixed programs."""
        from groupwise_recipes.workflows.measuring import predict_rival

        scorer = _open(config, context.run)
        rivals = _list_rivals(config, context)
        return [one for rival in rivals for one in predict_rival(scorer, rival, test)]

    def policies(self, context: StepContext) -> "Sequence[RunPolicy]":
        """Return the fixed programs, the untrained policy, and what was trained."""
        from groupwise_recipes.workflows.prompt_stage import describe_optimised

        rivals = [one.describe() for one in _list_rivals(context.config, context)]
        *before, last = (one for one in super().policies(context) if one.kind != "baseline")
        return [*rivals, *before, *describe_optimised(context), last]

    def complete(
        self,
        config: WorkflowsConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the predictions with what their programs cost, and those under GEPA's prompt."""
        from groupwise_recipes.workflows.measuring import complete_predictions
        from groupwise_recipes.workflows.prompt_stage import answer_optimised

        known = {example.id: example for example in test}
        optimised = answer_optimised(self, context, test)
        last = predictions[-1].policy if predictions else ""
        place = sum(one.policy != last for one in predictions)
        found = [*predictions[:place], *optimised, *predictions[place:]]
        return complete_predictions(_open(config, context.run), known, found)

    def describe(
        self,
        config: WorkflowsConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
        metrics: "Sequence[Metric]",
        test: Sequence[Example],
    ) -> "Sequence[Section]":
        """Return what programs cost, which were written, and what rules and judge say of them."""
        from groupwise.evaluation.predictions import Policies
        from groupwise_recipes.workflows.measuring import OWN, predict_own
        from groupwise_recipes.workflows.prompt_stage import find_search
        from groupwise_recipes.workflows.sections import make_sections

        own = predict_own(_open(config, context.run), predictions, test)
        policies = Policies((*self.policies(context), OWN))
        return make_sections([*predictions, *own], config, policies, optimised=find_search(context))

    def read_labelled(
        self, config: WorkflowsConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the problems of a user's own file, in the forms that a mix reads."""
        del folder
        loaded = load_problems(ProblemSource(name="own", path=str(path), part="test"))
        problems = [*loaded.train, *loaded.test]
        if config.executor.stub:
            from groupwise_recipes.workflows.opening import teach_stub

            teach_stub(context.run, problems)
        return [ask_about_problem(config, one) for one in problems], loaded.drops

    def make_question(self, config: WorkflowsConfig, request: "Request", folder: Path) -> Example:
        """Return what is asked about a problem."""
        from groupwise_recipes.workflows.predictor import read_asked

        del folder
        return ask_about_problem(config, read_asked(request))

    def open_predictor(
        self, config: WorkflowsConfig, policy: str | Path, run: Path
    ) -> "WorkflowPredictor":
        """Return what writes a program for a problem and runs it with the run's executor."""
        from groupwise_recipes.workflows.predictor import WorkflowPredictor

        return WorkflowPredictor(self, config, policy, run=run)

    def estimate(self, config: WorkflowsConfig) -> Estimate:
        """Return problems by split, and the prompt of each."""
        return estimate_run(config)

    def describe_prompt(self, config: WorkflowsConfig) -> Sequence[Message]:
        """Return the prompt with its place for a problem."""
        return [Message("user", config.prompt)]


def _open(config: WorkflowsConfig, run: Path, *, mode: Mode = "rules_first") -> ProgramScorer:
    """Return the scorer of a run, the same every time: it keeps what was scored.

    What is measured is decided by rules first, whatever is rewarded: runs that are rewarded
    otherwise are compared by one truth.
    """
    decided = RewardSettings(mode=mode)
    sections = {"executor": config.executor, "judge": config.judge, "reward": decided}
    values = {name: one and dump_config(one) for name, one in sections.items()}
    return _open_once(json.dumps(values, sort_keys=True), run.resolve())


@lru_cache(maxsize=4)
def _open_once(settings: str, run: Path) -> ProgramScorer:
    from groupwise_recipes.workflows.opening import open_scorer

    return open_scorer(load_config(ScoringSettings, json.loads(settings)), run)


def _without_control(stage: Stage) -> Stage:
    """There are no labels for programs, so nothing can be taught instead of rewarded."""
    return replace(stage, uses=" ".join(n for n in stage.uses.split() if n != "sft_control"))


def _list_rivals(config: WorkflowsConfig, context: StepContext) -> "list[Rival]":
    from groupwise_recipes.workflows.rivals import list_rivals, read_tried

    tried = read_tried(context.output_of("rivals"))
    return list_rivals(tried)


def _digest_mix(mix: Path) -> str:
    paths = [*(mix / f"{name}.jsonl" for name in SPLITS), mix / MIX_REPORT]
    return digest_json([digest_file(path) for path in paths if path.exists()])


def _list_models(config: WorkflowsConfig) -> "list[tuple[str, ModelSource | None]]":
    """Return the models that are asked beside the policy, by the sections that name them."""
    return [
        ("executor", config.executor.model),
        ("judge", config.judge and config.judge.model),
        ("gepa", config.gepa and config.gepa.model),
    ]


def _make_search(config: WorkflowsConfig) -> Stage:
    return Stage(
        name=OPTIMISE_PROMPT,
        work=_run_search,
        summary="GEPA: a prompt in as many executions as GRPO had",
        reads=f"{ASKED} data.budget gepa prompt assign_first language",
        parts=("parser", "rewards"),
        uses="prepare grpo" if config.sft is None else "prepare sft grpo",
        code=f"{_OWN}.prompt_search {_OWN}.prompt_stage {_OWN}.reflecting {_OWN}.problems",
    )


def _run_search(task: Any, context: StepContext) -> None:
    from groupwise_recipes.workflows.prompt_stage import run_search

    scorer = _open(context.config, context.run, mode=context.config.reward.mode)
    run_search(task, context, scorer)


def _run_rivals(task: Any, context: StepContext) -> None:
    from groupwise_recipes.workflows.rivals import run_rivals

    validation = read_examples(context.output_of("prepare") / "validation.jsonl")
    scorer = _open(context.config, context.run)
    run_rivals(scorer, context, [read_problem(example) for example in validation])


TASK = Workflows()
