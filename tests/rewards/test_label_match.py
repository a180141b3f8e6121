import pytest

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import AnswerFormat, LabelMatch, LabelParser, Reward

PARSER = LabelParser(labels=("on-task", "off-task"))


def make_item(label: str | None) -> Example:
    return make_example([Message("user", "Is it on-task?")], cluster="g", label=label)


@pytest.mark.parametrize(
    ("text", "label", "value"),
    [
        ("on-task", "on-task", 1.0),
        ("Classification: Off Task.", "off-task", 1.0),
        ("on-task", "off-task", 0.0),
        ("off-task Confidence: 99%", "on-task", 0.0),
    ],
)
def test_a_parsed_label_is_compared(text: str, label: str, value: float) -> None:
    score = LabelMatch(PARSER)(make_item(label), Completion(text))
    assert (score.value, score.invalid) == (value, False)


@pytest.mark.parametrize("label", PARSER.labels)
@pytest.mark.parametrize(
    "text", ["", "on-task off-task", "not on-task", "Is it on-task?", "on-task " * 200]
)
def test_invalid_output_earns_nothing_whatever_the_truth(text: str, label: str) -> None:
    score = LabelMatch(PARSER)(make_item(label), Completion(text))
    assert score == Score(0.0, PARSER.parse(text).reason, invalid=True)


def test_without_a_label_there_is_no_score() -> None:
    assert LabelMatch(PARSER)(make_item(None), Completion("on-task")) == Score(None, "no label")


def test_a_label_that_no_answer_can_give_is_an_error() -> None:
    with pytest.raises(RewardError, match="one of on-task, off-task"):
        LabelMatch(PARSER)(make_item("On-Task"), Completion("on-task"))


def test_both_rewards_follow_the_protocol() -> None:
    assert isinstance(LabelMatch(PARSER), Reward)
    assert isinstance(AnswerFormat(PARSER), Reward)
