"""What GRPO is rewarded by: right answers; and what is watched of programs beside it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from groupwise.core import Completion, Example, Score
from groupwise.rewards import Reward, RewardKind, RewardSet
from groupwise_recipes.workflows.config import RewardSettings
from groupwise_recipes.workflows.scoring import ProgramScorer, ScoredProgram, read_problem


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
    counts = Counter(one.shape for one in found)
    return [1.0 / counts[one.shape] for one in found]


def _count_commonest(_: Sequence[Example], found: Sequence[ScoredProgram]) -> list[float | None]:
    commonest = find_commonest(found)
    return [float(one.shape == commonest) for one in found]


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
    """Return the shape of the commonest program that was not refused; empty if all were."""
    counts = Counter(one.shape for one in found if one.shape)
    return counts.most_common(1)[0][0] if counts else ""
