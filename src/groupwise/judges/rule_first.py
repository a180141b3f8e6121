"""Where a rule decides, the rule decides; the judge is only measured against it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from groupwise.core import JudgeError, derive_seed
from groupwise.inference import on_shared_loop
from groupwise.judges.judge import Judge, NoVerdict, Question, Verdict
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.versioned import Versioned

Rule = Callable[[Question], str | None]
"""Returns a label where the rule decides the question, else None."""

_SEED_RANGE = 2**31


class RuleFirstJudge(Versioned):
    """Asks the judge where the rule does not decide, and measures it where the rule does.

    Args:
        rule: decides, or returns None.
        judge: asked where the rule does not decide.
        rule_version: to be changed whenever the rule is.
        measured_share: of the questions that the rule decides and the judge is asked as well; the
            same questions every time.
        name: for people.

    Raises:
        JudgeError: if ``measured_share`` is not in [0, 1].
    """

    def __init__(
        self,
        rule: Rule,
        judge: Judge,
        *,
        rule_version: str,
        measured_share: float = 1.0,
        name: str = "rule first",
    ) -> None:
        if not 0.0 <= measured_share <= 1.0:
            raise JudgeError("measured_share is wrong", got=measured_share, expected="[0, 1]")
        self.rule = rule
        self.inner = judge
        self.rule_version = rule_version
        self.measured_share = measured_share
        self.name = name
        self.labels = tuple(judge.labels)
        self.ledger = Ledger(name, StopSettings(max_no_verdict_rate=1.0))
        self.num_ruled = 0
        self.num_compared = 0
        self.num_agreed = 0
        self.num_judge_silent = 0

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        inner = dict(self.inner.describe())
        return {"kind": type(self).__name__, "rule": self.rule_version, "judge": inner}

    def report(self) -> dict[str, Any]:
        """Return how often the rule decided and how far the judge agrees with it.

        ``agreement`` is the share of the compared questions on which both gave the same label;
        None if there were none. Questions on which the judge was silent are counted apart.
        """
        return {
            "num_questions": self.ledger.num_questions,
            "num_ruled": self.num_ruled,
            "num_compared": self.num_compared,
            "num_agreed": self.num_agreed,
            "num_judge_silent": self.num_judge_silent,
            "agreement": self.num_agreed / self.num_compared if self.num_compared else None,
        }

    @on_shared_loop
    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the rule's verdict, with confidence 1, or else the judge's.

        Raises:
            JudgeError: as the judge, or if the rule gives a label that the judge does not have.
        """
        label = self.rule(question)
        result: Verdict | NoVerdict
        if label is None:
            result = await self.inner.judge(question)
        else:
            result = await self._rule(question, label)
        self.ledger.record(result)
        return result

    async def _rule(self, question: Question, label: str) -> Verdict:
        if label not in self.labels:
            raise JudgeError(
                "the rule gives a label that the judge does not have",
                got=repr(label),
                expected=", ".join(self.labels),
            )
        self.num_ruled += 1
        ruled = Verdict(
            label,
            1.0,
            {name: float(name == label) for name in self.labels},
            self.version,
            reason="decided by the rule",
        )
        if derive_seed("measured", question.digest) >= self.measured_share * _SEED_RANGE:
            return ruled
        return self._compare(ruled, await self.inner.judge(question))

    def _compare(self, ruled: Verdict, judged: Verdict | NoVerdict) -> Verdict:
        if isinstance(judged, NoVerdict):
            self.num_judge_silent += 1
        else:
            self.num_compared += 1
            self.num_agreed += judged.label == ruled.label
        return replace(ruled, usage=judged.usage)
