"""What replies earn: totals, rows without a label, the consistency of reasons, the audit."""

import pytest
from group_words import PARSER, VERDICTS, make_question
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.core import Completion, Example
from groupwise.rewards import RewardCase, audit_rewards, describe_weights
from groupwise_recipes.group_qc.rewards import (
    GroupRewards,
    make_rewards,
)

TOTAL = 1.2
LINES = st.sampled_from(["通过", "不通过", "", " ", "理由：好", "理由:", "理由: 未见", "其他"])


def make_group(label: str | None, name: str = "g") -> Example:
    summaries = {"图片_1": "接地线×1/未连接", "图片_2": "无关图片"}
    return make_question("BBU接地线检查", ["接地线连接"], summaries, group=name, label=label)


def score(text: str, label: str | None) -> float | None:
    value = make_rewards(GroupRewards(), PARSER).score(make_group(label), Completion(text)).value
    return None if value is None else value * TOTAL


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("通过\n理由：好", 1.2),
        ("通过", 1.0),
        ("\n通过\n理由：好", 1.0),
        ("通过\n\n理由：好", 1.0),
        ("不通过\n理由：好", 0.2),
        ("不通过", 0.0),
        ("合格\n理由：好", 0.0),
        ("", 0.0),
    ],
)
def test_totals(text: str, total: float) -> None:
    assert score(text, "通过") == pytest.approx(total)


@given(
    st.one_of(st.text(), st.lists(LINES).map("\n".join)),
    st.sampled_from(VERDICTS),
)
def test_totals_are_one_of_four(text: str, label: str) -> None:
    total = score(text, label)
    assert total is not None
    assert min(abs(total - allowed) for allowed in (0, 0.2, 1.0, 1.2)) < 1e-9


@pytest.mark.parametrize("label", [None, "pass", "合格", ""])
@pytest.mark.parametrize("text", ["通过\n理由：好", "garbage"])
def test_without_a_valid_label_nothing_is_scored(label: str | None, text: str) -> None:
    assert score(text, label) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("通过\n理由：图片_2接地线已连接", 1.0),
        ("通过\n理由：图片_3接地线已连接", 0.0),
        ("通过\n理由：图片_0接地线已连接", 0.0),
        ("通过\n理由：接地线未连接", 0.0),
        ("通过\n理由：划痕不影响使用", 1.0),
        ("不通过\n理由：接地线未连接", 1.0),
        ("不通过\n理由：均符合要求", 0.0),
        ("不通过\n理由：线缆不符合要求", 1.0),
        ("不通过", 0.0),
    ],
)
def test_consistency_of_reasons(text: str, value: float) -> None:
    reward = make_rewards(GroupRewards(), PARSER).rewards["consistency"]
    assert reward(make_group("通过"), Completion(text)).value == value


def test_consistency_is_logged_and_weighs_nothing() -> None:
    rewards = make_rewards(GroupRewards(), PARSER)
    found = rewards.score(make_group("通过"), Completion("通过\n理由：图片_9好"))
    assert found.value == 1.0
    assert found.breakdown["consistency"] == 0.0
    assert (
        describe_weights(GroupRewards().model_dump())
        == "label 0.8333, format 0.1667, consistency 0"
    )


def test_a_weight_counts() -> None:
    with pytest.raises(ValidationError, match="weight 0"):
        GroupRewards(label=0, format=0)


@pytest.mark.parametrize("consistency", [0.0, 0.2])
def test_the_reward_audit_finds_no_fault(consistency: float) -> None:
    groups = [make_group(VERDICTS[n % 2], str(n)) for n in range(20)]
    audit = audit_rewards(
        RewardCase(make_rewards(GroupRewards(consistency=consistency), PARSER), groups, PARSER)
    )
    assert [finding.name for finding in audit.errors] == []
    # The form sets no limit to a reason; ``grpo.max_new_tokens`` does.
    assert [finding.name for finding in audit.findings] == ["reward/length-is-free"]
