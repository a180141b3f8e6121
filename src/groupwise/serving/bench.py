"""The judge behind the policy: it is asked where the policy is not sure, for a bounded time.

Where it gives no verdict the policy's answer stands, and a person should look.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

from groupwise.core import Example
from groupwise.judges import Judge, NoVerdict, Question, Verdict
from groupwise.serving.meters import Meters
from groupwise.serving.predictor import Answer
from groupwise.serving.settings import ScreensSettings

_NONE = "no verdict: "


@dataclass(frozen=True, slots=True)
class Decision:
    """What is answered, and who decided it.

    Attributes:
        label: None: there is no answer.
        confidence: of who decided, in [0, 1], or None where not known.
        decided_by: None where nobody did.
        needs_person: whether a person should look.
        judge: what the judge said, for people; None: it was not asked.
        judge_label: its verdict; None: it gave none.
        judge_probability: that it gives its label, in [0, 1].
    """

    label: str | None
    confidence: float | None
    decided_by: Literal["policy", "judge"] | None
    needs_person: bool
    judge: str | None = None
    judge_label: str | None = None
    judge_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Screens:
    """What stands behind a server of screens.

    Attributes:
        judge: asked where the policy is not sure; its labels are those of the policy. None: nobody.
    """

    judge: Judge | None = None


def take_answer(answer: Answer) -> Decision:
    """Return the decision of a policy that nobody stands behind."""
    decided_by = None if answer.answer is None else "policy"
    return Decision(answer.answer, answer.confidence, decided_by, answer.needs_person)


class Bench:
    """Decides on answers about a screen and a task.

    Args:
        judge: its labels are those of the policy; None: there is none.
        settings: when and for how long it is asked.
        meters: what is counted.
    """

    def __init__(self, judge: Judge | None, settings: ScreensSettings, meters: Meters) -> None:
        self._judge = judge
        self._settings = settings
        self._meters = meters
        self._places = asyncio.Semaphore(settings.max_judge_at_once)

    async def decide(self, answer: Answer, question: Example, task: str) -> Decision:
        """Return the policy's answer if it is sure, else the judge's if it has one."""
        own = take_answer(answer)
        if own.confidence is not None and own.confidence >= self._settings.ask_judge_below:
            return own
        self._meters.unsure.inc()
        unsure = replace(own, needs_person=True)
        if self._judge is None:
            return unsure
        found = await self._ask(self._judge, Question({"task": task}, question.pictures))
        if isinstance(found, str):
            self._meters.judged.labels("no verdict").inc()
            return replace(unsure, judge=_NONE + found)
        is_agreed = found.label == own.label
        self._meters.judged.labels("agreed" if is_agreed else "disagreed").inc()
        return self._adopt(found)

    async def _ask(self, judge: Judge, question: Question) -> Verdict | str:
        """Return a verdict that counts, or why there is none."""
        limit_s = self._settings.judge_timeout_s
        try:
            found = await asyncio.wait_for(self._wait(judge, question), limit_s)
        except TimeoutError:
            return f"none within {limit_s:g} s"
        except Exception as error:  # noqa: BLE001 (whatever it is, the policy's answer stands)
            return f"the judge failed ({type(error).__name__})"
        if isinstance(found, NoVerdict):
            return f"the judge failed ({found.cause})"
        if found.is_flipped:
            return "it changed with the order of the options"
        return found

    async def _wait(self, judge: Judge, question: Question) -> Verdict | NoVerdict:
        async with self._places:
            return await judge.judge(question)

    def _adopt(self, verdict: Verdict) -> Decision:
        probability = verdict.probabilities[verdict.label]
        return Decision(
            label=verdict.label,
            confidence=probability,
            decided_by="judge",
            needs_person=probability < self._settings.ask_judge_below,
            judge=f"{verdict.label} ({probability:.2f})",
            judge_label=verdict.label,
            judge_probability=probability,
        )
