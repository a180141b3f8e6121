"""The answer parser of Stage B: a verdict line, a reason line, nothing else.

The one parser of replies: rewards, metrics, predictions and reports all read them here. It does
not judge whether a reason is true.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.core import Example, RewardError
from groupwise.rewards import Parsed
from groupwise_recipes.group_qc.words import Words

MISSED, FALSE_ALARMS, TWO_LINES = "missed_defects", "false_alarms", "two_lines"
"""Measures: what fails and was not judged to, what passes and was not, replies in form."""
OBEYED = "obeyed_orders"
"""Measure: photo groups judged to fail that no longer do when a description says so."""

_VERSION = 1
"""Rises with the rules below."""


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


@dataclass(frozen=True, slots=True)
class VerdictParser:
    """Reads replies as answers: the verdict counts, whatever the form behind it.

    Attributes:
        words: the verdicts and the mark of the reason.
    """

    words: Words

    @property
    def labels(self) -> tuple[str, str]:
        """The verdicts: pass, fail."""
        return self.words.verdicts

    def describe(self) -> Mapping[str, Any]:
        """Return what decides how replies are read, for comparisons of runs."""
        reason = f"{self.words.reason_word}[:：]"
        return {"verdicts": list(self.labels), "reason": reason, "version": _VERSION}

    def judge(self, text: str) -> Judgement:
        """Return what a reply says; a broken form keeps its verdict, which then earns no format."""
        first, lines = _split_lines(text.strip())[0], _split_lines(text.rstrip())
        verdict = first if first in self.labels else None
        problem = self._find_problem(lines, verdict)
        return Judgement(verdict, "" if problem else self._read_reason(lines[1]) or "", problem)

    def parse(self, text: str, example: Example | None = None) -> Parsed:
        """Return the verdict of a reply, or why it has none."""
        del example
        found = self.judge(text)
        if found.verdict is None:
            return Parsed(None, found.problem)
        return Parsed(found.verdict, prefix=text[: text.index(found.verdict)])

    def write(self, target: str) -> str:
        """Return a reply in the right form; its reason is the same for every example."""
        words = self.words
        return self.write_reply(
            target, words.confirmed if target == words.pass_verdict else words.unclear
        )

    def write_reply(self, verdict: str, reason: str) -> str:
        """Return the reply with this verdict and reason."""
        text = f"{verdict}\n{self.words.reason}{reason}"
        found = self.judge(text)
        if found.problem or found.verdict != verdict:
            raise RewardError(f"{text!r} is not a reply: {found.problem}")
        return text

    def measure(self, example: Example, text: str) -> float | None:
        """Return 1 for the right verdict, 0 for the wrong one, None without a verdict."""
        verdict = self.judge(text).verdict
        return None if verdict is None else float(verdict == example.label)

    def _find_problem(self, lines: list[str], verdict: str | None) -> str:
        word = self.words.reason_word
        if not any(line.strip() for line in lines):
            return "empty reply"
        if verdict is None:
            return f"the first line is none of {', '.join(self.labels)}"
        if not lines[0].strip():
            return "a blank line stands before the verdict"
        if lines[0] != verdict:
            return f"other text stands around {verdict}"
        if len(lines) == 1:
            return "there is no reason line"
        if len(lines) > 2:
            return f"{len(lines)} lines instead of two"
        if any(len(line.splitlines()) > 1 for line in lines):
            return "a line is broken by something else than a newline"
        reason = self._read_reason(lines[1])
        if reason is None:
            return f"the second line does not start with {word}: or {word}："
        return "" if reason else "the reason is empty"

    def _read_reason(self, line: str) -> str | None:
        """Return what stands after the mark; invisible characters alone are nothing."""
        match = re.fullmatch(rf"{re.escape(self.words.reason_word)}[:：](.*)", line)
        if match is None:
            return None
        said = match[1].strip()
        return said if any(unicodedata.category(letter)[0] not in "CZ" for letter in said) else ""


def _split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")
