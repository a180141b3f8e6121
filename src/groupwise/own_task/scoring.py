"""What answers earn and are measured by: built-in rewards, functions of the user's own, judges.

Judges are asked while GRPO trains, and only looked at by the audit. The base reads answers for the
reward ``fluency``, whose threshold is fixed before anything is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from groupwise.core import Completion, Example, Score, digest_json, read_json, write_json
from groupwise.data.examples import read_splits
from groupwise.evaluation.predictions import REWARD, Measure
from groupwise.inference.model import Model
from groupwise.inference.opening import open_model
from groupwise.judges import ModelJudge, Question, ReplyCache, build_judge
from groupwise.own_task import config as settings
from groupwise.own_task.config import FLUENT, JudgePart, RewardPart, TaskConfig, show_name
from groupwise.rewards import (
    AnswerFormat,
    Fluency,
    FunctionReward,
    Judged,
    Lowest,
    Parser,
    Reward,
    RewardCase,
    RewardSet,
    TokenF1,
    find_threshold,
)
from groupwise.run.steps import StepContext
from groupwise.run.task import Task

if TYPE_CHECKING:
    from groupwise.models.policy import Policy

STAGE = "fluency"
PERCENTILE, NUM_ANSWERS = 5, 128
_FILE = "threshold.json"
_BUILT_IN_ZH = {"correct": "正确", "format": "格式", "token_f1": "词元 F1", "fluency": "流畅度"}


@lru_cache(maxsize=1)
def _load_base(name: str, dtype: str, max_pixels: int | None, quantization: Any) -> "Policy":
    """Load the base once: it reads samples, held-out answers and those of every policy.

    It is a copy of its own, so what trains never touches it, whatever ``trainable`` says.
    """
    from groupwise.models.policy import load_policy

    return load_policy(name, dtype=dtype, max_pixels=max_pixels, quantization=quantization)


def _open_base(task: Task[Any], config: Any, run: Path) -> "Policy":
    name, model = str(task.find_base(config, run)), config.model
    return _load_base(name, model.dtype, model.max_pixels, model.quantization)


def fix_threshold(task: Task[Any], context: StepContext) -> None:
    """Write what 95 % of the base's own greedy answers to training prompts reach."""
    from groupwise.run.asking import answer_greedily, choose_items

    config = context.config
    train = read_splits(context.output_of(task.data_stage), "train")["train"]
    base = _open_base(task, config, context.run)
    answers = answer_greedily(base, config, choose_items(train, config.seed, NUM_ANSWERS))
    threshold = find_threshold(base, answers, percentile=PERCENTILE)
    write_json(
        context.folder / _FILE,
        {"threshold": threshold, "percentile": PERCENTILE, "num_answers": len(answers)},
    )


class Judges(dict[str, ModelJudge]):
    """The judges of a training by the names of their rewards, and the base that reads answers."""

    fluency: Fluency | None = None

    def report(self) -> dict[str, Any]:
        """Return what all of them counted together, and each of them."""
        reports = {name: judge.report() for name, judge in self.items()}
        found = cast("list[dict[str, Any]]", list(reports.values()))
        num_questions = sum(one["num_questions"] for one in found)
        num_silent = sum(sum(one["no_verdicts"].values()) for one in found)
        return {
            "judge": ", ".join(reports),
            "version": digest_json({name: judge.version for name, judge in self.items()}),
            "num_questions": num_questions,
            "no_verdict_rate": num_silent / num_questions if num_questions else None,
            "judges": reports,
        }


def list_judged(config: TaskConfig) -> dict[str, JudgePart]:
    """Return the rewards that a judge gives."""
    return {name: part for name, part in config.rewards.items() if isinstance(part, JudgePart)}


class ScoredTask(Task[TaskConfig]):
    """The rewards and measures that a config names."""

    def parser(self, config: TaskConfig) -> Parser:
        """Return the parser of the answer's kind."""
        return config.answer

    def judge(self, config: TaskConfig, folder: Path) -> Judges:
        """Return the judges among the rewards, opened, and the base that reads answers.

        Models are loaded, or servers made ready to be asked; replies are kept in ``folder``.
        """
        parts = list_judged(config)
        cache = ReplyCache(folder / "judge.sqlite") if parts else None
        judges = Judges(
            {name: _make_judge(p, open_model(p.judge), cache=cache) for name, p in parts.items()}
        )
        if "fluency" in config.rewards:
            judges.fluency = self._open_fluency(config, folder.parent)
        return judges

    def _open_fluency(self, config: TaskConfig, run: Path) -> Fluency:
        threshold = read_json(run / STAGE / _FILE, dict)["threshold"]
        return Fluency(_open_base(self, config, run), threshold=threshold)

    def explain_bound_rewards(self, config: TaskConfig) -> str | None:
        """Return that fluency needs the threshold of the run."""
        told = "fluency is read by the base, with the threshold of this run"
        return told if "fluency" in config.rewards else None

    def rewards(self, config: TaskConfig, judge: Judges | None = None) -> RewardSet:
        """Return the rewards with their weights; what is not open can only be looked at."""
        single: dict[str, Reward] = {}
        combined: dict[str, RewardPart] = {}
        for name, part in config.rewards.items():
            if isinstance(part, JudgePart):
                opened = (judge or {}).get(name) or _make_judge(part)
                single[name] = _make_judged(part, opened, config)
            elif part.all_of:
                combined[name] = part
            elif name == "fluency":
                opened = None if judge is None else judge.fluency  # judges without one are empty
                single[name] = opened or Fluency()
            elif ":" in name:
                single[show_name(name)] = _call_function(name, part, config, kind=part.kind)
            elif name == "format":
                single[name] = AnswerFormat(config.answer)
            else:
                is_f1 = name == "token_f1"
                single[name] = TokenF1(config.answer) if is_f1 else config.answer.make_reward()
        made = {
            **single,
            **{
                name: Lowest(name, [single[one] for one in part.all_of], kind=part.kind)
                for name, part in combined.items()
            },
        }
        return RewardSet(
            {name: (made[name], weight) for name, weight in self.weigh(config).items()}
        )

    def audit_on(
        self, config: TaskConfig, examples: Sequence[Example], targets: Mapping[str, str]
    ) -> RewardCase:
        """Return the case of the audit; evaluation reads answers by the same parser.

        The reference answer of a row is its target where it has one: a reward for the way to the
        answer may ask for more than the answer alone.
        """
        labels = {e.id: str(e.label) for e in examples}

        def write_answer(example: Example, label: str) -> str:
            before, _, behind = targets.get(example.id, "").rpartition(labels[example.id])
            text, answer = f"{before}{label}{behind}", config.answer
            gives_label = before and answer.measure(replace(example, label=label), text) == 1.0
            return text if gives_label else answer.write(label)

        return RewardCase(
            rewards=self.rewards(config),
            examples=examples,
            parser=config.answer,
            write_answer=write_answer,
            max_new_tokens=config.grpo.max_new_tokens,
            uncounted=["fluency"] if "fluency" in config.rewards else [],
        )

    def weigh(self, config: TaskConfig) -> Mapping[str, float]:
        """Return the weights by the names that reports show."""
        return {show_name(name): part.weight for name, part in config.rewards.items()}

    def list_measures(self, config: TaskConfig) -> Sequence[Measure]:
        """Return the user's measures and, where rows have no reference, what the rewards pay."""
        own = [part.define(show_name(name)) for name, part in config.measures.items()]
        if not _pays_measurably(config):
            return own
        paid = [show_name(name) for name in config.rewards if name not in config.measures]
        if len(config.rewards) == 1:
            paid = []  # the only reward is the whole one
        parts = {n: settings.MeasurePart(title_zh=_BUILT_IN_ZH.get(n)) for n in paid}
        return [*own, REWARD, *(part.define(name) for name, part in parts.items())]

    def list_compared(self, config: TaskConfig) -> Sequence[str]:
        """Return all of them."""
        return [one.name for one in self.list_measures(config)]

    def score_answers(
        self,
        config: TaskConfig,
        run: Path,
        examples: Sequence[Example],
        answers: Sequence[Completion],
    ) -> Sequence[Mapping[str, float]]:
        """Return the values of each answer by the names of ``list_measures``."""
        columns: dict[str, list[float | None]] = {}
        pays, judges = _pays_measurably(config), Judges()
        # With a reference rewards are no measures, and stages that measure do not read them.
        if FLUENT in config.measures or (pays and "fluency" in config.rewards):
            judges.fluency = self._open_fluency(config, run)
        if pays:
            scores = self.rewards(config, judges).score_batch(examples, answers)
            columns[REWARD.name] = [score.value for score in scores]
            for name in map(show_name, config.rewards):
                columns[name] = [score.breakdown[name] for score in scores]
        for name, part in config.measures.items():
            if ":" in name and show_name(name) not in columns:
                measure = _call_function(name, part, config, kind="other")
                scores = measure.score_batch(examples, answers)
                columns[show_name(name)] = [score.value for score in scores]
        if FLUENT in config.measures and judges.fluency is not None:
            read = [score.value for score in judges.fluency.score_batch(examples, answers)]
            columns[FLUENT] = [None if value is None else float(value == 1.0) for value in read]
        for name, part in config.measures.items():
            if part.all_of:
                parts = zip(*(columns[one] for one in part.all_of), strict=True)
                columns[name] = [None if None in values else min(values) for values in parts]
        rows = zip(*columns.values(), strict=True) if columns else [()] * len(examples)
        return [
            {name: value for name, value in zip(columns, row, strict=True) if value is not None}
            for row in rows
        ]


def _pays_measurably(config: TaskConfig) -> bool:
    """Return whether the reward is a measure: without a reference, and where no judge is asked."""
    return not config.has_reference and not list_judged(config)


def _call_function(
    name: str, part: settings.FunctionPart, config: TaskConfig, *, kind: Any
) -> FunctionReward:
    told = {"kind": kind, "messages": part.messages, "values": part.values}
    return FunctionReward(name, parser=config.answer, **told)


def _make_judge(
    part: JudgePart, responder: Model | None = None, *, cache: ReplyCache | None = None
) -> ModelJudge:
    """Return a judge; without a responder it can only be looked at."""
    asked = part.judge.model_copy(update={"labels": tuple(part.scale)})
    unasked = cast("Model", object())
    return cast(
        "ModelJudge", build_judge(asked, responder or unasked, are_pairs=False, cache=cache)
    )


def _make_judged(part: JudgePart, judge: ModelJudge, config: TaskConfig) -> Judged:
    """Return the reward; what is no answer earns nothing and is not asked about."""

    def ask(example: Example, completion: Completion) -> Question | Score:
        found = config.answer.parse(completion.text, example)
        if found.label is None:
            return Score(0.0, found.reason, invalid=True)
        texts = {
            **{name: str(value) for name, value in example.fields.items()},
            "question": example.prompt[-1].text,
            "reference": str(example.label),
            "answer": completion.text,
        }
        return Question(texts, example.pictures if part.pictures else ())

    return Judged(judge, ask=ask, pay=part.scale)
