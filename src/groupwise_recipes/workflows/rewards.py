"""What GRPO is rewarded by, right answers, and what it tells of programs for those who watch."""

from collections.abc import Sequence

from groupwise.core import Completion, Example, Fact, Score
from groupwise.rewards import RewardKind
from groupwise_recipes.workflows.config import RewardSettings
from groupwise_recipes.workflows.scoring import ProgramScorer, ScoredProgram, read_problem


class Success:
    """1 if the program's answer is right; 0 for failures.

    Args:
        scorer: of programs.
        kind: what it rests on.
    """

    name = "success"

    def __init__(self, scorer: ProgramScorer, *, kind: RewardKind = "truth") -> None:
        self.scorer = scorer
        self.kind: RewardKind = kind

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one program."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score for each pair, in order; None where the executor or judge failed."""
        found = score_pairs(self.scorer, examples, completions)
        return [
            self._pay(scored, str(example.fields["problem_type"]))
            for scored, example in zip(found, examples, strict=True)
        ]

    def _pay(self, scored: ScoredProgram, kind: str) -> Score:
        worth = scored.worth
        if worth is None:
            return Score(None, scored.explanation, facts=tell_facts(scored, kind))
        refused = scored.checked.refusal is not None
        told = {**tell_facts(scored, kind), f"{self.name}/{kind}": worth}
        return Score(worth, scored.explanation, invalid=refused, facts=told)


def make_success(settings: RewardSettings, scorer: ProgramScorer) -> Success:
    """Return the reward of programs that a scorer scores."""
    return Success(scorer, kind="judgement" if settings.mode == "judge_only" else "truth")


def score_pairs(
    scorer: ProgramScorer, examples: Sequence[Example], completions: Sequence[Completion]
) -> list[ScoredProgram]:
    """Return what came of each completion as a program for its example, in order."""
    pairs = zip(examples, completions, strict=True)
    return scorer.score_all([(read_problem(one), text.text) for one, text in pairs])


def tell_facts(scored: ScoredProgram, kind: str) -> dict[str, Fact]:
    """Return what is told of a program for a problem of a type.

    A program without a value (``no value``: of the executor or the judge) is in none of the
    shares; of the others it is told whether they ``executed``, and why not: ``refused`` by the
    check or ``failed`` in their run.
    """
    found: dict[str, Fact] = {}
    if scored.shape:
        found[f"program/{kind}"] = scored.shape.partition("\n")[2]
    if scored.outcome is not None:
        found["tokens"] = scored.outcome.tokens
    if scored.outcome is not None and scored.outcome.cost:
        found["cost"] = scored.outcome.cost
    if scored.decision is not None and scored.decision.asked:
        found["no_verdict"] = scored.decision.value is None
    if not scored.is_known:
        return {**found, "no value": scored.reason or "no verdict"}
    is_right = scored.worth == 1.0
    found |= {"executed": scored.has_run, "correct": is_right, f"correct/{kind}": is_right}
    if not scored.has_run:
        found["refused" if scored.checked.refusal else "failed"] = scored.reason
    return found
