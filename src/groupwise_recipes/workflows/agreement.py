"""How often rules and judge say the same of answers, each asked without the other."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Opinions:
    """What rules and judge say of one answer.

    Attributes:
        rule: 1 right, 0 wrong; None: no rule decides.
        judge: 1 right, 0 wrong; None: it gave no verdict.
    """

    rule: float | None
    judge: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts of answers about which the judge was asked.

    Attributes:
        num_asked: all of them.
        num_verdicts: with a verdict.
        num_both: with a verdict, and a rule that decides.
        num_agreed: of these, both say the same.
        num_judge_only: right by the judge and wrong by the rule.
        num_rule_only: right by the rule and wrong by the judge.
    """

    num_asked: int
    num_verdicts: int
    num_both: int
    num_agreed: int
    num_judge_only: int
    num_rule_only: int

    def to_json(self) -> Mapping[str, int]:
        """Return the counts by name."""
        return asdict(self)


def count_agreement(opinions: Iterable[Opinions]) -> Agreement:
    """Return how often rules and judge say the same."""
    asked = list(opinions)
    told = [one for one in asked if one.judge is not None]
    both = [one for one in told if one.rule is not None]
    return Agreement(
        num_asked=len(asked),
        num_verdicts=len(told),
        num_both=len(both),
        num_agreed=sum(one.rule == one.judge for one in both),
        num_judge_only=sum(one.rule == 0.0 and one.judge == 1.0 for one in both),
        num_rule_only=sum(one.rule == 1.0 and one.judge == 0.0 for one in both),
    )
