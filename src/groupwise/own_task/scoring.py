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
from groupwise.own_task.config import (
    FLUENT,
    JudgePart,
    MeasurePart,
    RewardPart,
    TaskConfig,
    show_name,
)
from groupwise.rewards import (
    AnswerFormat,
    Fluency,
    FunctionReward,
    Judged,
    Lowest,
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
    from groupwise.models.settings import Quantization


STAGE = "fluency"
PERCENTILE, NUM_ANSWERS = 5, 128
_FILE = "threshold.json"


def fix_threshold(task: Task[Any], context: StepContext) -> None:
    """Write what 95 % of the base's own greedy answers to training prompts reach."""
    from groupwise.run.asking import answer_greedily, choose_items

    config = context.config
    train = read_splits(context.output_of(task.data_stage), "train")["train"]
    base = _open_base(task.find_base(config, context.run), config.model)
    answers = answer_greedily(base, config, choose_items(train, config.seed, NUM_ANSWERS))
    threshold = find_threshold(base, answers, percentile=PERCENTILE)
    write_json(
        context.folder / _FILE,
        {"threshold": threshold, "percentile": PERCENTILE, "num_answers": len(answers)},
    )


def open_fluency(task: Task[Any], config: Any, run: Path) -> Fluency:
    """Return the reward of a run, with the base loaded."""
    threshold = read_json(run / STAGE / _FILE, dict)["threshold"]
    return Fluency(_open_base(task.find_base(config, run), config.model), threshold=threshold)


def _open_base(name: str | Path, model: Any) -> "Policy":
    return _load_base(str(name), model.dtype, model.max_pixels, model.quantization)


@lru_cache(maxsize=1)
def _load_base(
    name: str, dtype: str, max_pixels: int | None, quantization: "Quantization | None"
) -> "Policy":
    """Load the base once: it reads samples, held-out answers and those of every policy.

    It is a copy of its own, so what trains never touches it, whatever ``trainable`` says.
    """
    from groupwise.models.policy import load_policy

    return load_policy(name, dtype=dtype, max_pixels=max_pixels, quantization=quantization)


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


def digest_prompts(config: TaskConfig) -> Mapping[str, str]:
    """Return digests of the judges' prompts by their setting."""
    prompts = {
        name: p.judge.find_prompt(are_pairs=False) for name, p in list_judged(config).items()
    }
    return {f"rewards.{name}.judge.prompt": one.digest for name, one in prompts.items() if one}


def open_judges(config: TaskConfig, folder: Path) -> Judges:
    """Load the models, or make ready to ask their servers; replies are kept in ``folder``."""
    parts = list_judged(config)
    cache = ReplyCache(folder / "judge.sqlite") if parts else None
    return Judges(
        {
            name: make_judge(part, open_model(part.judge), cache=cache)
            for name, part in parts.items()
        }
    )


def make_judge(
    part: JudgePart, responder: Model | None = None, *, cache: ReplyCache | None = None
) -> ModelJudge:
    """Return a judge; without a responder it can only be looked at."""
    settings = part.judge.model_copy(update={"labels": tuple(part.scale)})
    unasked = cast("Model", object())
    judge = build_judge(settings, responder or unasked, are_pairs=False, cache=cache)
    return cast("ModelJudge", judge)


def make_judged(part: JudgePart, judge: ModelJudge, config: TaskConfig) -> Judged:
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


def make_rewards(config: TaskConfig, judges: Judges | None = None) -> RewardSet:
    """Return the rewards with their weights; what is not open can only be looked at."""

    def make(name: str, part: RewardPart | JudgePart) -> Reward:
        if isinstance(part, JudgePart):
            return make_judged(part, (judges or {}).get(name) or make_judge(part), config)
        if name == "fluency":
            return Fluency() if judges is None or judges.fluency is None else judges.fluency
        return _make_reward(name, part, config)

    single = {
        show_name(name): make(name, part)
        for name, part in config.rewards.items()
        if isinstance(part, JudgePart) or not part.all_of
    }
    combined = {
        name: Lowest(name, [single[one] for one in part.all_of], kind=part.kind)
        for name, part in config.rewards.items()
        if isinstance(part, RewardPart) and part.all_of
    }
    made = {**single, **combined}
    weights = {show_name(name): part.weight for name, part in config.rewards.items()}
    return RewardSet({name: (made[name], weight) for name, weight in weights.items()})


def make_case(
    config: TaskConfig, examples: Sequence[Example], targets: Mapping[str, str]
) -> RewardCase:
    """Return the rewards and the training prompts; evaluation reads answers by the same parser.

    The reference answer of a row is its target where it has one: a reward for the way to the
    answer may ask for more than the answer alone.
    """
    labels = {e.id: str(e.label) for e in examples}

    def write_answer(example: Example, label: str) -> str:
        before, _, behind = targets.get(example.id, "").rpartition(labels[example.id])
        text = f"{before}{label}{behind}"
        gives_label = before and config.answer.measure(replace(example, label=label), text) == 1.0
        return text if gives_label else config.answer.write(label)

    return RewardCase(
        rewards=make_rewards(config),
        examples=examples,
        parser=config.answer,
        write_answer=write_answer,
        max_new_tokens=config.grpo.max_new_tokens,
        uncounted=["fluency"] if "fluency" in config.rewards else [],
    )


def _make_reward(name: str, part: RewardPart, config: TaskConfig) -> Reward:
    if ":" in name:
        return FunctionReward(
            name,
            kind=part.kind,
            messages=part.messages,
            values=part.values,
            parser=config.answer,
        )
    if name == "format":
        return AnswerFormat(config.answer)
    return TokenF1(config.answer) if name == "token_f1" else config.answer.make_reward()


_BUILT_IN_ZH = {"correct": "正确", "format": "格式", "token_f1": "词元 F1", "fluency": "流畅度"}


def list_measures(config: TaskConfig) -> tuple[Measure, ...]:
    """Return the user's measures and, where rows have no reference, what the rewards pay."""
    own = [part.define(show_name(name)) for name, part in config.measures.items()]
    if not pays_measurably(config):
        return tuple(own)
    paid = [show_name(name) for name in config.rewards if name not in config.measures]
    if len(config.rewards) == 1:
        paid = []  # the only reward is the whole one
    parts = {name: MeasurePart(title_zh=_BUILT_IN_ZH.get(name)) for name in paid}
    return (*own, REWARD, *(part.define(name) for name, part in parts.items()))


def pays_measurably(config: TaskConfig) -> bool:
    """Return whether the reward is a measure: without a reference, and where no judge is asked."""
    return not config.has_reference and not list_judged(config)


def score_answers(
    config: TaskConfig,
    examples: Sequence[Example],
    answers: Sequence[Completion],
    *,
    fluency: Fluency | None = None,
) -> list[Mapping[str, float]]:
    """Return the values of each answer by the names of ``list_measures``."""
    columns: dict[str, list[float | None]] = {}
    if pays_measurably(config):
        judges = Judges()
        judges.fluency = fluency
        scores = make_rewards(config, judges).score_batch(examples, answers)
        columns[REWARD.name] = [score.value for score in scores]
        for name in map(show_name, config.rewards):
            columns[name] = [score.breakdown[name] for score in scores]
    for name, part in config.measures.items():
        if ":" in name and show_name(name) not in columns:
            measure = FunctionReward(
                name,
                kind="other",
                messages=part.messages,
                values=part.values,
                parser=config.answer,
            )
            columns[show_name(name)] = [
                score.value for score in measure.score_batch(examples, answers)
            ]
    if FLUENT in config.measures and fluency is not None:
        read = [score.value for score in fluency.score_batch(examples, answers)]
        columns[FLUENT] = [None if value is None else float(value == 1.0) for value in read]
    for name, part in config.measures.items():
        if part.all_of:
            parts = zip(*(columns[one] for one in part.all_of), strict=True)
            columns[name] = [_find_lowest(values) for values in parts]
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(examples)
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in rows
    ]


def _find_lowest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None
