from dataclasses import replace
from typing import Any

import pytest
from run_folders import POLICIES

from groupwise.evaluation import Measure, Metric, PairedComparison, Policies
from groupwise.evaluation.page import Words
from groupwise.evaluation.report import findings
from groupwise.evaluation.report.findings import judge_difference

WORDS = Words("en", policies=Policies(POLICIES))
CLEAR = PairedComparison(
    policy_a="sft",
    policy_b="grpo",
    split="test",
    n=400,
    num_clusters=50,
    difference=0.08,
    low=0.03,
    high=0.13,
    num_a_only=10,
    num_b_only=42,
    num_same_answer=340,
    p_value=0.0001,
    p_value_clustered=0.001,
    p_value_holm=0.002,
    split_digest="d",
)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def describe_comparison(*values: Any) -> str:
    return WORDS.say(findings.describe_comparison(*values))


def state_findings(split: str, by_policy: Any, comparisons: Any, num_clusters: int) -> list[str]:
    found = findings.state_findings(
        split, by_policy, comparisons, WORDS.policies, num_clusters=num_clusters
    )
    return [WORDS.say(one) for one in found]


def make_row(policy: str, value: float, *more: Metric) -> dict[str, dict[str, Metric]]:
    metric = Metric(f"{policy}/accuracy", "test", value, value - 0.03, value + 0.03, 400, "d")
    return {policy: {one.measure: one for one in (metric, *more)}}


def test_clear_difference_in_words() -> None:
    assert plain(describe_comparison(CLEAR)) == (
        "GRPO gets 8.0 points more right than SFT warm-up (95 % interval +3.0 to +13.0; "
        "p = 0.001 by clusters, p = 0.002 after Holm): 42 items only GRPO has right, "
        "10 only SFT warm-up."
    )


def test_worse_is_said_as_worse() -> None:
    worse = replace(CLEAR, difference=-0.08, low=-0.13, high=-0.03)
    assert "GRPO gets 8.0 points fewer right than SFT warm-up" in plain(describe_comparison(worse))
    assert judge_difference(worse) == -1


@pytest.mark.parametrize(
    "change",
    [
        {"p_value_holm": 0.05},
        {"low": -0.001},
        {"low": 0.0},
        {"p_value_holm": 0.9, "p_value": 0.0001, "p_value_clustered": 0.2},
    ],
)
def test_what_is_not_shown_is_not_claimed(change: dict[str, float]) -> None:
    unclear = replace(CLEAR, **change)
    assert judge_difference(unclear) == 0
    assert "cannot be told apart" in describe_comparison(unclear)


def test_a_clear_difference_that_rests_on_few_clusters_says_so() -> None:
    few, many = replace(CLEAR, num_carrying=7.2), replace(CLEAR, num_carrying=20.0)
    unclear = replace(few, low=-0.01)
    by_policy = {**make_row("sft", 0.85), **make_row("grpo", 0.93)}
    said = [" ".join(state_findings("test", by_policy, [one], 50)) for one in (few, many, unclear)]
    assert "The difference rests on few clusters: about 7 carry" in said[0]
    assert all("rests on few" not in one for one in said[1:])
    (several,) = findings.remark_carrying([few, replace(few, num_carrying=9.0), many])
    told = WORDS.say(several)
    assert told.startswith("2 of these differences rest on few clusters: the one with fewest on")
    assert "about 7." in told


def test_paragraph_from_numbers() -> None:
    invalid = Metric("grpo/invalid_rate", "test", 0.01, 0.0, 0.03, 400, "d")
    metrics = [
        Metric("grpo/recall:on-task", "test", 0.9, 0.8, 1, 200, "d"),
        Metric("grpo/recall:off-task", "test", 0.96, 0.9, 1, 200, "d"),
        Metric("grpo/ece", "test", 0.041, 0.03, 0.05, 400, "d"),
        Metric("grpo/latency_p50_s", "test", 0.085, 0.08, 0.09, 400, "d"),
    ]
    by_policy = {
        **make_row("majority", 0.5),
        **make_row("text_only", 0.52),
        **make_row("grpo", 0.93, invalid, *metrics),
    }
    unclear = replace(CLEAR, policy_a="sft_control", p_value_holm=0.3, low=-0.01)
    other = replace(CLEAR, split="dev", policy_a="prompt")
    found = state_findings("test", by_policy, [CLEAR, unclear, other], 50)
    assert plain(" ".join(found)) == (
        "On test (400 items in 50 clusters), GRPO is right in 93.0 % of the cases "
        "(95 % interval 90.0–96.0 %). That is 8.0 points above SFT warm-up (+3.0 to +13.0, "
        "p = 0.002). On these items it cannot be told apart from SFT control (+8.0 points, "
        "−1.0 to +13.0, p = 0.300). The best of the 2 baselines, "
        "Text only, reaches 52.0 %. Of the items that are on-task it finds 90.0 %, of those that "
        "are off-task 96.0 %. 1.0 % of its answers are invalid. Its confidence differs from its "
        "accuracy by 4.1 points on average. Half of the answers take no more than 85 ms. All of "
        "this is about these checkpoints: intervals and tests draw items, not trainings. One "
        "training per side says nothing about the method; for that, train each side with several "
        "seeds."
    )


def test_nothing_is_said_without_numbers() -> None:
    assert state_findings("test", {}, [], 0) == []
    only = state_findings("test", make_row("grpo", 0.9), [], 0)
    assert [plain(text) for text in only] == [
        "On test (400 items), GRPO is right in 90.0 % of the cases (95 % interval 87.0–93.0 %)."
    ]


def test_join_words() -> None:
    assert [Words("en").join_all(x) for x in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (Measure("missed", "Missed", "漏检", is_higher_better=False), "8.0 points worse in Missed"),
        (Measure("found", "Found", "检出"), "8.0 points better in Found"),
    ],
)
def test_a_comparison_is_told_in_the_direction_of_its_measure(measure: Measure, said: str) -> None:
    one = replace(CLEAR, measure=measure.name)
    sign = 1 if measure.is_higher_better else -1
    assert judge_difference(one, measure) == sign
    text = plain(describe_comparison(one, measure))
    assert text.startswith(f"GRPO is {said} than SFT warm-up")
    wins = "42 items, SFT warm-up on 10" if sign > 0 else "10 items, SFT warm-up on 42"
    assert text.endswith(f"GRPO is better on {wins}.")


def test_only_differences_of_accuracy_are_told_as_points_of_accuracy() -> None:
    rows = {**make_row("sft", 0.8), **make_row("grpo", 0.9)}
    found = state_findings("test", rows, [replace(CLEAR, measure="missed")], 50)
    assert not [text for text in found if "SFT warm-up" in text]
