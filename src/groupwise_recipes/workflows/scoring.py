"""From what a policy wrote to what it is worth: checked, run, decided; each program once."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core import Example, load_config
from groupwise_recipes.workflows.deciding import Decider, Decision
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.operators import signatures
from groupwise_recipes.workflows.outcome import Outcome
from groupwise_recipes.workflows.problem_sets import Problem
from groupwise_recipes.workflows.programs import Checked, check_program, describe_shape

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
    def shape(self) -> str:
        """What the program does, whatever its comments and names; empty if it was refused."""
        return describe_shape(self.checked.source) if self.checked.source else ""

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
        """Return what came of each text as a program for its problem, in order."""
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
