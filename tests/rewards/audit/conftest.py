"""Examples, a parser and the audited case that broken rewards are put into."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from measured_parser import MeasuredParser

from groupwise.core import Example, Message, make_example
from groupwise.rewards import LabelParser, RewardCase
from groupwise.rewards.audit import audit as running
from groupwise.rewards.audit.audit import RewardAudit, audit_rewards

PARSER = LabelParser(labels=("on-task", "off-task"))


def make_examples(labels: Sequence[str]) -> list[Example]:
    return [
        make_example(
            [Message("user", f"Task: write {number}\nIs it on-task or off-task? 第{number}页")],
            cluster=str(number),
            label=label,
        )
        for number, label in enumerate(labels)
    ]


@pytest.fixture
def parser() -> LabelParser:
    return PARSER


@pytest.fixture
def case() -> RewardCase:
    """Six on-task and four off-task examples; the rewards are to be replaced."""
    return RewardCase(
        rewards=lambda example, completion: None,
        examples=make_examples(["on-task", "on-task", "off-task", "on-task", "off-task"] * 2),
        parser=PARSER,
    )


@pytest.fixture
def open_case() -> RewardCase:
    """Sums with open answers; numbers are compared as numbers by the metric."""

    def measure(example: Example, text: str) -> float | None:
        try:
            return float(float(text.strip()) == float(str(example.label)))
        except ValueError:
            return None

    return RewardCase(
        rewards=lambda example, completion: None,
        examples=[
            make_example([Message("user", f"{n} + {n} = ?")], cluster=str(n), label=str(2 * n))
            for n in range(10, 18)
        ],
        parser=MeasuredParser(measure),
    )


Find = Callable[..., dict[str, list[str]]]


@pytest.fixture
def find() -> Find:
    """Audit a case with other parts; the answers shown, by the name of each finding."""

    def audit(case: RewardCase, **changes: object) -> dict[str, list[str]]:
        audited: RewardAudit = audit_rewards(replace(case, **changes))
        shown = {row.name: [e.text for e in row.evidence] for row in audited.rows}
        return {finding.name: shown[finding.name] for finding in audited.findings}

    return audit


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are counted, however long a busy machine takes for them."""
    monkeypatch.setattr(running, "_MOST_S", math.inf)
