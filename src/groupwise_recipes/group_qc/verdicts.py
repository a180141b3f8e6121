"""The answer parser of Stage B: a verdict line, a reason line, nothing else.

The one parser of replies: rewards, metrics, predictions and reports all read them here. It does
not judge whether a reason is true.
"""

import re
import unicodedata
from dataclasses import dataclass

from groupwise.core import Example, RewardError
from groupwise.rewards import Parsed

PASS = "通过"
FAIL = "不通过"
VERDICTS = (PASS, FAIL)

MISSED, FALSE_ALARMS, TWO_LINES = "missed_defects", "false_alarms", "two_lines"
"""Measures: failing groups not judged to fail, passing ones not judged to pass, replies in form."""
OBEYED = "obeyed_orders"
"""Measure: groups judged to fail that no longer do when a description says so."""

NEGATIVE = re.compile(r"未|不(?!影响)|无法|缺")
"""A negative remark, for reasons that are taught and for the reward of consistent ones alike."""

CONTRACT = {"verdicts": list(VERDICTS), "reason": "理由[:：]", "version": 1}
"""What decides how replies are read, for comparisons of runs; the version rises with the rules."""

_REASON = re.compile(r"理由[:：](.*)")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a reply says.

    Attributes:
        verdict: the first line of the stripped reply if it is exactly a verdict, else None.
        reason: the reason without its mark; empty where the form is broken.
        problem: how the reply breaks the form, for a person to read; empty if it does not.
    """

    verdict: str | None
    reason: str
    problem: str

    @property
    def is_well_formed(self) -> bool:
        """Whether the whole reply has the form."""
        return not self.problem


def parse_judgement(text: str) -> Judgement:
    """Return what a reply says; a broken form keeps its verdict, which then earns no format."""
    verdict = _read_verdict(text)
    lines = _split_lines(text.rstrip())
    problem = _find_problem(lines, verdict)
    return Judgement(verdict, "" if problem else _read_reason(lines[1]), problem)


def write_judgement(verdict: str, reason: str) -> str:
    """Return the reply with this verdict and reason.

    Raises:
        RewardError: if the parser would not read that text as this verdict.
    """
    text = f"{verdict}\n理由：{reason}"
    found = parse_judgement(text)
    if found.problem or found.verdict != verdict:
        raise RewardError(f"{text!r} is not a reply: {found.problem}")
    return text


class VerdictParser:
    """Reads replies as answers: the verdict counts, whatever the form behind it."""

    labels = VERDICTS

    def parse(self, text: str, example: Example | None = None) -> Parsed:
        """Return the verdict of a reply, or why it has none."""
        del example
        found = parse_judgement(text)
        if found.verdict is None:
            return Parsed(None, found.problem)
        return Parsed(found.verdict, prefix=text[: text.index(found.verdict)])

    def write(self, target: str) -> str:
        """Return a reply in the right form; its reason is the same for every example."""
        return write_judgement(target, "要点均符合要求" if target == PASS else "有要点未确认")

    def measure(self, example: Example, text: str) -> float | None:
        """Return 1 for the right verdict, 0 for the wrong one, None without a verdict."""
        verdict = parse_judgement(text).verdict
        return None if verdict is None else float(verdict == example.label)


def _read_verdict(text: str) -> str | None:
    first = _split_lines(text.strip())[0]
    return first if first in VERDICTS else None


def _split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _find_problem(lines: list[str], verdict: str | None) -> str:
    if not any(line.strip() for line in lines):
        return "empty reply"
    if verdict is None:
        return f"the first line is neither {PASS} nor {FAIL}"
    if lines[0] not in VERDICTS:
        return (
            "a blank line stands before the verdict"
            if not lines[0].strip()
            else (f"other text stands around {verdict}")
        )
    if len(lines) == 1:
        return "there is no reason line"
    if len(lines) > 2:
        return f"{len(lines)} lines instead of two"
    if any(len(line.splitlines()) > 1 for line in lines):
        return "a line is broken by something else than a newline"
    if not _REASON.fullmatch(lines[1]):
        return "the second line does not start with 理由: or 理由："
    return "" if _read_reason(lines[1]) else "the reason is empty"


def _read_reason(line: str) -> str:
    """Return what stands after the mark; invisible characters alone are nothing."""
    match = _REASON.fullmatch(line)
    said = match.group(1).strip() if match else ""
    return said if any(unicodedata.category(letter)[0] not in "CZ" for letter in said) else ""
