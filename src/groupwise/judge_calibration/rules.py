"""Judges that follow a rule: their figures are known beforehand, so they check the measuring.

Any model judge worth its calls does better than these.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from groupwise.core import JudgeError, digest_json
from groupwise.judges import NoVerdict, Question, Verdict

RuleName = Literal["always_first", "longer", "shorter"]
FIRST, SECOND = "first", "second"


def _choose_first(question: Question) -> str | None:
    return FIRST


def _choose_longer(question: Question) -> str | None:
    first, second = (len(question.texts[name]) for name in (FIRST, SECOND))
    return None if first == second else FIRST if first > second else SECOND


def _choose_shorter(question: Question) -> str | None:
    longer = _choose_longer(question)
    return None if longer is None else SECOND if longer == FIRST else FIRST


_RULES: Mapping[RuleName, Callable[[Question], str | None]] = {
    "always_first": _choose_first,
    "longer": _choose_longer,
    "shorter": _choose_shorter,
}


class RuleJudge:
    """Decides pairs by a rule; two answers of the same length have no longer one.

    Args:
        rule: ``always_first``, ``longer`` or ``shorter`` (in characters).
    """

    def __init__(self, rule: RuleName) -> None:
        self.rule: RuleName = rule
        self.name = rule
        self.labels = (FIRST, SECOND)
        self.version = digest_json(self.describe())

    def describe(self) -> dict[str, object]:
        """Return what verdicts depend on beside the question."""
        return {"kind": type(self).__name__, "rule": self.rule, "labels": list(self.labels)}

    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict of the rule.

        Raises:
            JudgeError: if the question has no pair of answers.
        """
        if not {FIRST, SECOND} <= set(question.texts):
            raise JudgeError(
                f"the rule {self.rule} needs a pair of answers", got=sorted(question.texts)
            )
        label = _RULES[self.rule](question)
        if label is None:
            return NoVerdict("undecided", "both answers are equally long", self.version)
        chances = {name: float(name == label) for name in self.labels}
        return Verdict(label, 1.0, chances, self.version)
