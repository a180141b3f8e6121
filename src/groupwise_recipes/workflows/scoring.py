"""From what a policy wrote to what it is worth: checked, run, decided; each program once."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core import Completion, Example, Score, load_config
from groupwise.data import Problem
from groupwise.rewards import OpenParser, Parsed, Reward, RewardKind, RewardSet
from groupwise_recipes.workflows.config import RewardSettings
from groupwise_recipes.workflows.deciding import Decider, Decision
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.operators import signatures
from groupwise_recipes.workflows.outcome import Outcome
from groupwise_recipes.workflows.programs import Checked, check_program

_MOST_KEPT = 4096


def read_problem(example: Example) -> Problem:
    """Return the problem that an example of this recipe is made of."""
    return load_config(Problem, example.fields["problem"])


@dataclass(frozen=True, slots=True)
class ScoredProgram:
    """What came of a text.

    Attributes:
        checked: the program in it, or why it is refused.
        outcome: of its run; None: it was refused.
        decision: about its answer; None: there is no answer.
    """

    checked: Checked
    outcome: Outcome | None = None
    decision: Decision | None = None

    @property
    def is_known(self) -> bool:
        """Whether it can be said what the program is worth: no fault of executor or judge."""
        if self.outcome is None:
            return True
        if self.outcome.fault == "executor":
            return False
        return self.decision is None or self.decision.value is not None

    @property
    def has_run(self) -> bool:
        """Whether the program ran to its end and gave an answer."""
        return self.outcome is not None and self.outcome.fault is None

    @property
    def worth(self) -> float | None:
        """1 for a right answer, 0 for a wrong one or none, between them for a partly right one."""
        if not self.is_known:
            return None
        return self.decision.value if self.decision else 0.0

    @property
    def worth_if_accepted(self) -> float | None:
        """What it is worth; None if the program was refused or it cannot be said."""
        return None if self.checked.refusal is not None else self.worth

    @property
    def answer(self) -> str | None:
        """What the program returned; None if it did not."""
        return self.outcome.value if self.outcome else None

    @property
    def reason(self) -> str:
        """Why there is no answer, as a word to count by; empty if there is one."""
        if self.checked.refusal is not None:
            return self.checked.refusal.reason
        return self.outcome.reason if self.outcome else ""

    @property
    def explanation(self) -> str:
        """Why it is worth what it is, for a person to read."""
        if self.checked.refusal is not None:
            refusal = self.checked.refusal
            return f"refused ({refusal.reason}, line {refusal.line}): {refusal.message}"
        if self.outcome is not None and self.outcome.fault is not None:
            return f"fault of the {self.outcome.fault} ({self.outcome.reason})"
        return self.decision.reason if self.decision else ""


class ProgramScorer:
    """Checks, runs and decides; what was scored is kept, unless the executor or judge failed.

    Args:
        executor: runs programs.
        decider: decides about answers.
    """

    def __init__(self, executor: Executor, decider: Decider) -> None:
        self.executor = executor
        self.decider = decider
        self.reasons: Counter[str] = Counter()
        self._signatures = signatures(
            {name: one.function for name, one in executor.operators.items()}
        )
        self._kept: OrderedDict[tuple[str, str], ScoredProgram] = OrderedDict()

    def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[ScoredProgram]:
        """Return what came of each text as a program for its problem, in order.

        Raises:
            JudgeError: if the judge failed too often.
        """
        wanted = {(problem.id, text): (problem, text) for problem, text in pairs}
        open_pairs = {key: pair for key, pair in wanted.items() if key not in self._kept}
        found = dict(zip(open_pairs, self._score(list(open_pairs.values())), strict=True))
        for key in wanted:
            found.setdefault(key, self._kept.get(key) or found[key])
        for key, scored in found.items():
            self._keep(key, scored)
        scored = [found[problem.id, text] for problem, text in pairs]
        self.reasons.update(one.reason or "answer" for one in scored)
        return scored

    def report(self) -> dict[str, Any]:
        """Return what was counted, as JSON values."""
        return {
            "reasons": dict(self.reasons),
            "executor": self.executor.report(),
            "deciding": self.decider.report(),
        }

    def _keep(self, key: tuple[str, str], scored: ScoredProgram) -> None:
        if scored.is_known:
            self._kept[key] = scored
            self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def _score(self, pairs: Sequence[tuple[Problem, str]]) -> list[ScoredProgram]:
        checked = [check_program(text, self._signatures) for _, text in pairs]
        runs = [n for n, one in enumerate(checked) if one.refusal is None]
        outcomes = dict(
            zip(
                runs,
                self.executor.run_all([(checked[n].source, pairs[n][0]) for n in runs]),
                strict=True,
            )
        )
        answers = {n: one.value for n, one in outcomes.items() if one.value is not None}
        decisions = dict(
            zip(
                answers,
                self.decider.decide([(pairs[n][0], said) for n, said in answers.items()]),
                strict=True,
            )
        )
        return [
            ScoredProgram(one, outcomes.get(n), decisions.get(n)) for n, one in enumerate(checked)
        ]


class Success:
    """1 if the program's answer is right, less what its executor's tokens cost; 0 for failures.

    A right answer earns at least half and a wrong one nothing, however much either cost.

    Args:
        scorer: of programs.
        kind: what it rests on.
        cost_weight: in [0, 0.5]; what a right answer loses at most.
        cost_tokens: tokens of the executor that cost so much.
    """

    name = "success"
    runs_beside_scoring = True

    def __init__(
        self,
        scorer: ProgramScorer,
        *,
        kind: RewardKind = "truth",
        cost_weight: float = 0.0,
        cost_tokens: int = 1,
    ) -> None:
        self.scorer = scorer
        self.kind: RewardKind = kind
        self.cost_weight = cost_weight
        self.cost_tokens = cost_tokens

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one program."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score for each pair, in order; None where the executor or judge failed."""
        return [self._pay(one) for one in score_pairs(self.scorer, examples, completions)]

    def _pay(self, scored: ScoredProgram) -> Score:
        worth = scored.worth
        if worth is None:
            return Score(None, scored.explanation)
        tokens = scored.outcome.tokens if scored.outcome else 0
        cost = self.cost_weight * min(1.0, tokens / self.cost_tokens)
        refused = scored.checked.refusal is not None
        return Score(worth * (1 - cost), scored.explanation, invalid=refused)


def make_success(settings: RewardSettings, scorer: ProgramScorer) -> Success:
    """Return the reward of programs that a scorer scores."""
    return Success(
        scorer,
        kind="judgement" if settings.mode == "judge_only" else "truth",
        cost_weight=settings.cost_weight,
        cost_tokens=settings.cost_tokens,
    )


def score_pairs(
    scorer: ProgramScorer, examples: Sequence[Example], completions: Sequence[Completion]
) -> list[ScoredProgram]:
    """Return what came of each completion as a program for its example, in order."""
    pairs = zip(examples, completions, strict=True)
    return scorer.score_all([(read_problem(one), text.text) for one, text in pairs])


Look = Callable[[Sequence[Example], Sequence[ScoredProgram]], Sequence[float | None]]
"""Returns a value in [0, 1] for each program of a batch; None: it does not count here."""


class Watched:
    """Something about the programs of a batch that is logged and not rewarded (weight 0).

    Args:
        name: of its curve.
        scorer: of programs.
        look: what it is.
    """

    kind: RewardKind = "other"
    runs_beside_scoring = True

    def __init__(self, name: str, scorer: ProgramScorer, look: Look) -> None:
        self.name = name
        self.scorer = scorer
        self.look = look

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the value of one program."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one value for each pair, in order."""
        found = score_pairs(self.scorer, examples, completions)
        return [Score(value) for value in self.look(examples, found)]


def make_rewards(success: Success, types: Sequence[str]) -> RewardSet:
    """Return the reward, and beside it the curves that ``watch`` shows.

    ``executed`` and ``correct`` are shares of programs; ``correct_math`` and the like are by type,
    ``commonest_math`` the share of the commonest program among those for the type. ``distinct`` is
    the share of different programs, and ``collapsed`` is 1 in batches where one program is the
    commonest for all types.
    """
    looks: dict[str, Look] = {
        "executed": lambda _, found: [_when_known(one, float(one.has_run)) for one in found],
        "correct": lambda _, found: [_when_known(one, float(one.worth == 1.0)) for one in found],
        "distinct": _count_distinct,
        "collapsed": _find_collapse,
    }
    for name in types:
        looks[f"correct_{name}"] = _only(name, looks["correct"])
        looks[f"commonest_{name}"] = _only(name, _count_commonest)
    watched = {name: (Watched(name, success.scorer, look), 0.0) for name, look in looks.items()}
    parts: dict[str, tuple[Reward, float]] = {success.name: (success, 1.0), **watched}
    return RewardSet(parts)


def _when_known(scored: ScoredProgram, value: float) -> float | None:
    return value if scored.is_known else None


def _only(name: str, look: Look) -> Look:
    """Return a look at the problems of one type alone."""

    def look_at(examples: Sequence[Example], found: Sequence[ScoredProgram]) -> list[float | None]:
        chosen = [n for n, one in enumerate(examples) if read_problem(one).problem_type == name]
        values = look([examples[n] for n in chosen], [found[n] for n in chosen])
        by_place = dict(zip(chosen, values, strict=True))
        return [by_place.get(n) for n in range(len(examples))]

    return look_at


def _count_distinct(_: Sequence[Example], found: Sequence[ScoredProgram]) -> list[float | None]:
    """Return for each program one over the number of its like: the mean is the share of kinds."""
    counts = Counter(one.checked.source for one in found)
    return [1.0 / counts[one.checked.source] for one in found]


def _count_commonest(_: Sequence[Example], found: Sequence[ScoredProgram]) -> list[float | None]:
    commonest = find_commonest(found)
    return [float(one.checked.source == commonest) for one in found]


def _find_collapse(
    examples: Sequence[Example], found: Sequence[ScoredProgram]
) -> list[float | None]:
    by_type = share_by_type(examples, found)
    commonest = {find_commonest(programs) for programs in by_type.values()}
    return [float(len(commonest) == 1) if len(by_type) > 1 else None for _ in found]


def share_by_type(
    examples: Sequence[Example], found: Sequence[ScoredProgram]
) -> Mapping[str, list[ScoredProgram]]:
    """Return the programs by the type of their problem."""
    by_type: dict[str, list[ScoredProgram]] = {}
    for example, one in zip(examples, found, strict=True):
        by_type.setdefault(read_problem(example).problem_type, []).append(one)
    return by_type


def find_commonest(found: Sequence[ScoredProgram]) -> str:
    """Return the commonest program that was not refused; empty if all were."""
    counts = Counter(one.checked.source for one in found if one.checked.refusal is None)
    return counts.most_common(1)[0][0] if counts else ""


class WorkflowParser(OpenParser):
    """Programs: a text is an answer if its program passes the checks.

    Attributes:
        operators: that programs may call; the nine, unless a recipe has its own.
    """

    kind: str = "workflow"

    def make_reward(self) -> Reward:
        """Return nothing: what a program is worth takes an executor.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a program is worth what its answer is")

    def _read(self, text: str, example: Example | None) -> Parsed:
        from groupwise_recipes.workflows.operators import OPERATORS

        del example
        checked = check_program(text, signatures(OPERATORS))
        if checked.refusal is not None:
            return Parsed(None, f"{checked.refusal.reason}: {checked.refusal.message}")
        return Parsed(checked.source)
