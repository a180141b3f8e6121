import pytest

from groupwise.core import Completion, Message, Score, make_example
from groupwise.rewards import AnswerFormat, LabelParser

PARSER = LabelParser(labels=("on-task", "off-task"), describe=("Screen",))
ITEM = make_example([Message("user", "Is it?")], cluster="g", label="on-task")


@pytest.mark.parametrize("text", ["on-task", "off-task", "Screen: video. off-task"])
def test_an_answer_earns_all_whether_right_or_wrong(text: str) -> None:
    score = AnswerFormat(PARSER)(ITEM, Completion(text))
    assert (score.value, score.invalid) == (1.0, False)


@pytest.mark.parametrize("text", ["", "Screen: . on-task", "on-task, off-task", "yes"])
def test_anything_else_earns_nothing_and_is_counted(text: str) -> None:
    reason = PARSER.parse(text).reason
    assert AnswerFormat(PARSER)(ITEM, Completion(text)) == Score(0.0, reason, invalid=True)
