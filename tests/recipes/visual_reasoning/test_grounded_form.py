"""What the boxes of a grounded reasoning earn: the rules of the study, in its answer form."""

import pytest

from groupwise.core import Completion, Message, make_example
from groupwise.rewards import BoxIou, BoxParser, LabelParser

TAGS = ("think", "answer")
REWARD = BoxIou(BoxParser(tags=TAGS, tag="think", words=True))
REFERENCES = [[10, 20, 30, 60, "red ball"], [40, 20, 80, 60, "chair"]]
BALL, CHAIR = "[10,20,30,60 red ball]", "[40,20,80,60 chair]"


@pytest.mark.parametrize(
    ("reasoning", "value"),
    [
        (f"{BALL} {CHAIR} The red ball is left of the chair.", 1.0),
        (f"{CHAIR} is right of {BALL}", 1.0),
        (f"{BALL} is alone", 0.5),
        (f"{BALL} {CHAIR} {CHAIR}", 2 / 3),
        (f"{BALL} {CHAIR} [80,60,40,20 chair]", 2 / 3),
        (f"{BALL} {CHAIR} [40,20,80 chair]", 2 / 3),
        (f"[20,20,40,60 red ball] {CHAIR}", (1 / 3 + 1) / 2),
        ("[80,60,40,20 chair]", 0.0),
        ("The red ball is left of the chair.", 0.0),
    ],
)
def test_boxes_in_the_reasoning_are_matched_one_to_one(reasoning: str, value: float):
    item = make_example([Message("user", "?")], cluster="a", fields={"boxes": REFERENCES})
    text = f" <think>{reasoning}</think><answer>True</answer>"
    assert REWARD(item, Completion(text)).value == pytest.approx(value)
    assert LabelParser(labels=("True", "False"), tags=TAGS).parse(text).label == "True"
    late = REWARD(item, Completion(f"{text} Yes."))
    assert (late.value, late.invalid) == (0.0, True)
