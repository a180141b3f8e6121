"""Both languages say the same with the same numbers, and nothing is left unsaid."""

import re
import string
from pathlib import Path
from typing import get_args

import pytest
from compared_runs import make_grid

import groupwise
import groupwise_recipes
from groupwise.evaluation.alarms import AlarmName
from groupwise.evaluation.compare import compare_results
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import ACCURACY, Policies
from groupwise.evaluation.report import phrases as forms
from groupwise.evaluation.report.comparison import ComparisonLayout
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases, Statement, load_phrases

ROOT = Path(groupwise.__file__).parent
SHARED = ROOT / "evaluation/report/phrases.yaml"
FILES = [
    path
    for package in (ROOT, Path(groupwise_recipes.__file__).parent)
    for path in sorted(package.rglob("phrases.yaml"))
    if path.parent.name != "phrases"
]


def list_places(text: str) -> set[tuple[str, str | None]]:
    return {(name, form) for _, name, form, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_both_languages_have_every_phrase_with_the_same_numbers(path: Path) -> None:
    known = {**load_phrases(SHARED), **load_phrases(path)}
    values = {"coefficient": 0.5, "codes": ["a"], "list": ["a"]}
    values |= {"each": [Statement("none")], "interval": (0.1, 0.2), "measure": ACCURACY}
    values |= {"titles": ["a"], "values": [("a", 0.5)], "sides": ["a"], "place": ("1",)}
    values |= {"clause": {"en": "because"}}
    compared = compare_results(make_grid({"epoch": ("1",)}, {("a", "1"): 0.5}))
    phrases = ComparisonLayout(compared, "en")
    for key, phrase in load_phrases(path).items():
        assert set(phrase) == set(LANGUAGES), key
        assert list_places(phrase["en"]) == list_places(phrase["zh"]), key
        for _, form in list_places(phrase["en"]):
            value = values.get(form or "", "a" if form in ("policy", "code", "said") else 1)
            is_count = f"count.{form}" in known
            assert not form or is_count or phrases.format_field(value, form), key


def test_every_shared_phrase_is_used_and_every_used_one_is_there() -> None:
    sources = [ROOT / "evaluation", ROOT / "judge_calibration", ROOT / "cli"]
    found = [path for one in sources for path in one.rglob("*.py")]
    found += [*ROOT.rglob("report/templates/*.j2"), *ROOT.parent.glob("groupwise_recipes/**/*.py")]
    text = "\n".join(path.read_text() for path in found)
    known = load_phrases(SHARED)
    quoted = set(re.findall(r"""["']([\w.]+)["']""", text))
    built = ("count.", "level.", "series.", "field.", "part.", "step.")
    built += ("aspect.", "kind.", "power.", "reason.", "why.", "notice.", "recommended_")
    built += ("alarm.", "advice.", "verdict.", "run.above", "run.below", "run.close")
    ours = "\n".join(path.read_text() for path in ROOT.glob("evaluation/report/*.py"))
    quoted |= set(re.findall(r"(\w+)=self\._\1\(", ours))  # the parts of a report
    assert {key for key in known if not key.startswith(built)} <= quoted
    said = set(re.findall(r'(?:say|Statement|_warn)\(\s*"([\w.]+)"', ours))
    assert said <= set(known)
    for kind in ("alarm", "advice"):
        assert {f"{kind}.{name}" for name in get_args(AlarmName)} <= set(known)


def test_forms_put_numbers_into_words() -> None:
    values = {"policy": "a", "difference": -0.018, "ends": (-0.05, 0.0), "p": 1e-5}
    english, chinese = (Phrases(name).say("run.other", **values) for name in LANGUAGES)
    assert english == "a (−1.8 points, −5.0\u00a0to\u00a0±0.0, p\u00a0<\u00a00.001)"
    assert chinese == "a（−1.8 个百分点，−5.0\u00a0至\u00a0±0.0，p\u00a0<\u00a00.001）"
    assert Phrases("en").count(1, "cell") == "1\u00a0cell"
    assert Phrases("en").count(1088, "item") == "1\u202f088\u00a0items"
    assert Phrases("zh").count(1, "item") == "1\u00a0个样本"
    absent = Phrases("en").say("run.absent", names=["{x.y} {0}"])
    assert absent == "Not there: \ue000{x.y} {0}\ue001."


def test_names_that_nobody_knows_stay_as_they_are() -> None:
    titles = [
        Phrases(name, policies=Policies()).title_policy("teach_stage_a") for name in LANGUAGES
    ]
    assert titles == ["Stage A taught", "教阶段 A"]
    assert Phrases("zh").title_policy("mine") == "mine"
    assert Phrases("zh").title("series", "own") == "own"
    assert Phrases("zh").translate("Nobody ever said this.") == "Nobody ever said this."
    message = "3 clusters stand in more than one split; split by cluster."
    assert Phrases("zh").translate(message).startswith("3 个簇")
    assert Phrases("en").translate(message) == message


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (forms.format_share, 0.9421, "94.2 %"),
        (forms.format_share, None, "–"),
        (forms.format_points, 0.1234, "+12.3"),
        (forms.format_points, -0.0004, "±0.0"),
        (lambda value: Phrases("en").format_field(value, "p"), 0.0121, "p = 0.012"),
        (lambda value: Phrases("en").format_field(value, "p"), 0.0009, "p < 0.001"),
        (forms.format_p_cell, 0.0121, "0.012"),
        (forms.format_p_cell, 1e-9, "< 0.001"),
        (forms.format_duration, 0.0039, "3.9 ms"),
        (forms.format_duration, 0.085, "85 ms"),
        (forms.format_duration, 1.23, "1.23 s"),
        (forms.format_duration, 3600, "60 min"),
        (forms.format_duration, 7500, "2 h 05 min"),
        (forms.format_count, 12345, "12 345"),
        (forms.format_coefficient, -0.5, "−0.500"),
        (forms.format_plain, 2e-5, "2e-05"),
        (forms.format_plain, -421.26, "−421.3"),
    ],
)
def test_a_number_looks_the_same_everywhere(form, value, text) -> None:
    assert form(value).replace("\u00a0", " ").replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("measure", "value", "interval"),
    [
        ("accuracy", "50.0 %", "25.0–75.0 %"),
        ("ece", "0.500", "0.250–0.750"),
        ("latency_p50_s", "500 ms", "250 ms–750 ms"),
        ("kappa", "0.500", "0.250 to 0.750"),
        ("length_bias", "+50.0", "+25.0 to +75.0"),
    ],
)
def test_metrics_are_formatted_by_their_kind(measure: str, value: str, interval: str) -> None:
    metric = Metric(f"grpo/{measure}", "test", 0.5, 0.25, 0.75, 10, "d")
    shown = [one.replace("\u00a0", " ") for one in forms.format_metric(metric)]
    assert shown == [value, interval]
