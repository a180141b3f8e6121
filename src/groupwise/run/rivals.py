"""Rivals of GRPO where rewards score samples: what the same base reaches with the same rewards.

Three need no training on rewards: the best of several samples, the base's own best answers shown
as demonstrations, and SFT on the base's own best samples (rejection sampling).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise import core
from groupwise.core import Completion, Example, Message, Score
from groupwise.data.examples import read_splits
from groupwise.evaluation.predictions import Policies, Prediction, RunPolicy
from groupwise.evaluation.report.page import Section
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise.rewards import RewardSet
from groupwise.run.asking import make_policy
from groupwise.run.settings import RivalSettings
from groupwise.run.stages import Stage
from groupwise.run.steps import StepContext

if TYPE_CHECKING:
    from groupwise.models.policy import Policy
    from groupwise.run.task import Task

BEST_OF, DEMONSTRATIONS, REJECTION = "best_of", "demonstrations", "rejection"
SAMPLES_FILE = "samples.json"
_PHRASES = Path(__file__).with_name("phrases.yaml")
_NUM_TRIED = 8
"""Training questions that are sampled for each demonstration."""
_SAMPLES_EACH = 4


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sampled answers to one question, in the order of sampling, each scored by the rewards."""

    example: Example
    answers: Sequence[Completion]
    scores: Sequence[Score]

    @property
    def values(self) -> list[float]:
        """What each answer earns; what cannot be scored stands below all others."""
        return [-1.0 if score.value is None else score.value for score in self.scores]

    @property
    def best(self) -> Completion:
        """The first of the answers that earn most."""
        return self.answers[self.values.index(max(self.values))]


def list_rivals(
    settings: RivalSettings, policies: Sequence[RunPolicy], context: StepContext
) -> list[RunPolicy]:
    """Return a run's policies with the rivals that are run, before the last one."""
    *before, last = policies
    num, shown = settings.best_of, settings.demonstrations
    found: list[RunPolicy] = []
    if shown:
        found.append(make_policy(DEMONSTRATIONS, numbers={"shown": shown}))
    if num:
        found.append(make_policy(BEST_OF, numbers={"num": num}))
    if REJECTION in context.uses:
        counts = core.read_json(context.output_of(REJECTION) / SAMPLES_FILE, dict)
        numbers = {"kept": counts["num_kept"], "drawn": counts["num_samples"]}
        origin = {"trained_from": last.trained_from, "trained_on": ("train",)}
        found.append(make_policy(REJECTION, numbers=numbers, **origin))
    return [*before, *found, last]


def insert_rivals(settings: RivalSettings, stages: Sequence[Stage], reads: str) -> list[Stage]:
    """Return the stages with that of rejection sampling behind GRPO, if it is to be run.

    ``reads`` is what decides how answers are drawn and scored.
    """
    found: list[Stage] = []
    for one in stages:
        is_behind = settings.rejection_sampling and one.name in ("evaluate", "report")
        found.append(replace(one, uses=f"{one.uses} {REJECTION}") if is_behind else one)
        if settings.rejection_sampling and one.name == "grpo":
            found.append(
                Stage(
                    name=REJECTION,
                    work="rivals:run_rejection",
                    summary="rival: SFT on the best of as many samples",
                    reads=f"{reads} sft grpo",
                    parts=("parser", "rewards"),
                    uses=f"{one.uses} grpo",
                )
            )
    return found


def tell_rivals(settings: RivalSettings, policies: Sequence[RunPolicy]) -> list[Section]:
    """Return what the report says of the rivals that were not run, by language."""
    names = (
        *([] if settings.demonstrations else [DEMONSTRATIONS]),
        *([] if settings.best_of else [BEST_OF]),
        *([] if settings.rejection_sampling else [REJECTION]),
    )
    if not names:
        return []
    known = Policies(tuple(policies))
    phrases = [Phrases(name, policies=known, own=_PHRASES) for name in LANGUAGES]
    return [
        Section(
            one.say("rivals"),
            one.say("rivals_absent", names=one.join(map(one.say, names))),
            language=one.language,
        )
        for one in phrases
    ]


def draw(
    policy: Policy,
    examples: Sequence[Example],
    rewards: RewardSet,
    config: Any,
    *,
    num_samples: int,
    purpose: str,
    report_progress: Callable[[int, int], None] | None = None,
) -> list[Drawn]:
    """Return sampled answers to each question, scored; drawn as GRPO draws."""
    from groupwise.inference.local import LocalModel
    from groupwise.inference.model import Sampling

    grpo = config.grpo
    sampling = Sampling(
        temperature=grpo.temperature,
        top_p=grpo.top_p,
        max_new_tokens=grpo.max_new_tokens,
        seed=core.derive_seed(config.seed, purpose),
    )
    engine = LocalModel(policy, batch_size=max(1, config.evaluation.batch_size // num_samples))
    groups = engine.generate(
        examples, sampling=sampling, num_completions=num_samples, report_progress=report_progress
    )
    asked = [example for example in examples for _ in range(num_samples)]
    scores = rewards.score_batch(asked, [answer for group in groups for answer in group])
    return [
        Drawn(example, group, scores[n * num_samples : (n + 1) * num_samples])
        for n, (example, group) in enumerate(zip(examples, groups, strict=True))
    ]


def ask_rivals(
    task: Task[Any], policy: Policy, splits: Mapping[str, Sequence[Example]], context: StepContext
) -> list[Prediction]:
    """Return what demonstrations and the best of several samples reach on ``test``.

    Greedy answers behind so many ``train`` questions with their best sampled answers; and those
    that earn most of several samples: so many times the work of one. A TrainingError if there are
    fewer training questions than are to be shown.
    """
    from groupwise.run.asking import answer_greedily, ask_policy

    config, settings = context.config, context.config.rivals
    rewards, found = None, list[Prediction]()
    if settings.demonstrations or settings.best_of:
        rewards = task.rewards(config, task.judge(config, context.folder))
    if rewards is not None and (num := settings.demonstrations):
        train = splits["train"]
        if len(train) < num:
            raise core.TrainingError(
                "too few training questions", got=len(train), expected=f"{num} or more"
            )
        drawn = draw(
            policy,
            _shuffle(train, config.seed, DEMONSTRATIONS)[: num * _NUM_TRIED],
            rewards,
            config,
            num_samples=_SAMPLES_EACH,
            purpose=DEMONSTRATIONS,
            report_progress=core.ProgressLine("questions sampled for demonstrations", context.say),
        )
        shown = sorted(drawn, key=lambda one: -max(one.values))[:num]
        rows = [{"id": d.example.id, "text": d.best.text, "reward": max(d.values)} for d in shown]
        core.write_jsonl(context.folder / "demonstrations.jsonl", rows)

        def show(examples: Sequence[Example], **named: Any) -> list[Completion]:
            asked = [show_before(example, shown) for example in examples]
            return answer_greedily(policy, config, asked, **named)

        found += ask_policy(task, policy, splits["test"], context, name=DEMONSTRATIONS, answer=show)
    if rewards is not None and (num := settings.best_of):

        def choose(examples: Sequence[Example], **named: Any) -> list[Completion]:
            drawn = draw(
                policy, examples, rewards, config, num_samples=num, purpose=BEST_OF, **named
            )
            return [one.best for one in drawn]

        found += ask_policy(task, policy, splits["test"], context, name=BEST_OF, answer=choose)
    return found


def show_before(example: Example, shown: Sequence[Drawn]) -> Example:
    """Return a question behind solved ones, each a turn of the user's and its answer."""

    def drop_system(prompt: Sequence[Message]) -> Sequence[Message]:
        return prompt[1:] if prompt[0].role == "system" else prompt

    question = drop_system(example.prompt)
    turns = [*example.prompt[: len(example.prompt) - len(question)]]
    for one in shown:
        turns += [*drop_system(one.example.prompt), Message("assistant", one.best.text)]
    return replace(example, prompt=(*turns, *question))


def run_rejection(task: Task[Any], context: StepContext) -> None:
    """Teach what GRPO starts from its own best samples, of as many as GRPO has drawn.

    Of each question's samples the best is taught, where another one earned less.
    """
    from groupwise.run.training import keep_trained, open_start
    from groupwise.training.checkpoints import Workspace
    from groupwise.training.settings import SftRow, SftSettings
    from groupwise.training.sft import train_sft

    config = context.config
    policy = open_start(task, context)
    train = read_splits(context.output_of(task.data_stage), "train")["train"]
    rewards = task.rewards(config, task.judge(config, context.folder))
    num_drawn = int(core.read_json(context.output_of("grpo") / "budget.json", dict)["num_samples"])
    size = config.grpo.group_size
    found: list[Drawn] = []
    num_asked = num_drawn // size
    for epoch, start in enumerate(range(0, num_asked, len(train))):
        # Each question at most once in a pass, every pass in an order of its own.
        questions = _shuffle(train, config.seed, f"{REJECTION} {start}")[: num_asked - start]
        what = f"questions sampled for rejection, pass {epoch + 1}"
        found += draw(
            policy,
            questions,
            rewards,
            config,
            num_samples=size,
            purpose=f"{REJECTION} {epoch}",
            report_progress=core.ProgressLine(what, context.say),
        )
    kept = [one for one in found if max(one.values) > min(one.values)]
    if not kept:
        raise core.TrainingError(
            "there is nothing to teach: all samples of every question earn the same",
            got=f"{len(found)} questions",
            fix="leave rivals.rejection_sampling out",
        )
    rows = [SftRow(one.example, one.best.text) for one in kept]
    settings = config.sft or SftSettings(trainable=config.grpo.trainable)
    workspace = Workspace(context.folder, core.derive_seed(config.seed, REJECTION))
    keep_trained(train_sft(policy, lambda _: rows, settings, workspace=workspace), context)
    counts = {"num_samples": len(found) * size, "num_kept": len(kept)}
    core.write_json(context.folder / SAMPLES_FILE, counts)
    budget = context.folder / "budget.json"
    core.write_json(budget, {**core.read_json(budget, dict), "num_samples": counts["num_samples"]})


def _shuffle(examples: Sequence[Example], seed: int, purpose: str) -> list[Example]:
    return sorted(examples, key=lambda example: core.derive_seed(seed, purpose, example.id))
