from pathlib import Path

import pytest

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.report.phrases import Phrases
from groupwise.judge_calibration import report
from groupwise.judge_calibration.measures import JudgeMeasures
from groupwise.judge_calibration.report import list_notices

PHRASES = Phrases("en", own=Path(report.__file__).with_name("phrases.yaml"))
NO_DROPS = {"drops": {"total": 0, "counts": {}}}
GOOD = {
    "agreement": (0.8, 0.7, 0.9),
    "kappa": (0.6, 0.4, 0.8),
    "flip_rate": (0.05, 0.0, 0.2),
    "no_verdict_rate": (0.0, 0.0, 0.1),
    "length_bias": (0.02, -0.1, 0.1),
}


def notice(facts=NO_DROPS, **changes):
    values = {name: ends for name, ends in (GOOD | changes).items() if ends}
    metrics = [Metric(f"j/{name}", "all", *ends, 100, "d") for name, ends in values.items()]
    metrics.append(Metric("j/flip_rate", "Hard", 0.9, 0.8, 1.0, 10, "e"))
    found = list_notices(JudgeMeasures("j", ("a", "b"), tuple(metrics), {}), facts)
    return [(one.level, PHRASES.say(one).replace("\u00a0", " ")) for one in found]


def test_a_good_judge_gets_none():
    assert notice() == []


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        (
            {"kappa": (0.1, -0.1, 0.3)},
            "error",
            "is not shown to be better than chance: Cohen's κ is 0.100 (−0.100 to 0.300).",
        ),
        ({"kappa": (-0.4, -0.5, -0.3)}, "error", "is worse than chance: Cohen's κ is −0.400"),
        ({"agreement": None, "kappa": None}, "error", "The judge gave no verdict at all."),
        ({"no_verdict_rate": (0.25, 0.2, 0.3)}, "warning", "No verdict in 25.0 % of the calls"),
        ({"flip_rate": (0.11, 0.0, 0.2)}, "warning", "11.0 % of the verdicts change with the"),
        ({"length_bias": (0.2, 0.1, 0.3)}, "warning", "prefers the longer answer more often"),
        ({"length_bias": (-0.2, -0.3, -0.1)}, "warning", "shorter answer more often than people"),
    ],
)
def test_what_a_reader_must_know(changes, level, words):
    [(given, text)] = notice(**changes)
    assert given == level
    assert words in text


def test_the_gravest_comes_first_and_drops_are_told():
    facts = {"drops": {"total": 3, "counts": {"repeated": 2, "empty answer": 1}}}
    found = notice(facts, kappa=(0.0, -0.1, 0.1), flip_rate=(0.5, 0.4, 0.6))
    assert [level for level, _ in found] == ["error", "warning", "info"]
    assert found[-1][1] == "3 rows of the data were not used: 2 repeated, 1 empty answer."
