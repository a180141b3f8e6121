"""What is an answer to a statement and to a question with choices: one reader for both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, make_example
from groupwise.rewards import RewardCase, audit_rewards
from groupwise_recipes.visual_reasoning.answers import PARSER, QUESTION_PARSER
from groupwise_recipes.visual_reasoning.config import RewardWeights
from groupwise_recipes.visual_reasoning.measuring import make_rewards, measure_leniently

OPTIONS = ["here", "there", "nowhere", "on the grass"]


def make_item(label: str, *, options: list[str] | None = None) -> Example:
    fields = {} if options is None else {"options": options}
    return make_example([Message("user", "?")], cluster=label, label=label, fields=fields)


def wrap(answer: str) -> str:
    return f"<think>Look.</think><answer>{answer}</answer>"


SETS = st.sets(st.sampled_from("ABCD"), min_size=1)


@given(SETS, SETS, st.randoms(use_true_random=False), st.sampled_from([",", ", ", " ", "、"]))
def test_letters_are_a_set(right: set[str], said: set[str], rng: object, joint: str) -> None:
    letters = sorted(said)
    rng.shuffle(letters)  # pyright: ignore[reportAttributeAccessIssue]
    item = make_item(", ".join(sorted(right)), options=OPTIONS)
    assert QUESTION_PARSER.measure(item, wrap(joint.join(letters))) == float(said == right)


@pytest.mark.parametrize(
    "answer", ["A, A", "A, E", "F", "AC", "", "A, C because", "A, C\nB?", "True", "A or C", "none"]
)
def test_what_is_no_set_of_its_letters_is_invalid(answer: str) -> None:
    item = make_item("A, C", options=OPTIONS)
    assert QUESTION_PARSER.measure(item, wrap(answer)) is None
    scores = make_rewards(RewardWeights()).score_batch([item], [Completion(wrap(answer))])
    assert (scores[0].value, scores[0].invalid) == (0, True)


def test_text_behind_the_answer_is_invalid_and_white_space_before_it_is_not() -> None:
    for item, answer in ((make_item("A, C", options=OPTIONS), "C,A"), (make_item("True"), "True")):
        assert QUESTION_PARSER.measure(item, f"\n {wrap(answer)}") == 1
        assert QUESTION_PARSER.measure(item, f"{wrap(answer)} Yes.") is None


@pytest.mark.parametrize("answer", ["True", "false", "True.", "A", "True, False", "Yes"])
def test_statements_are_read_as_where_there_are_no_choices(answer: str) -> None:
    item, text = make_item("True"), wrap(answer)
    assert QUESTION_PARSER.parse(text, item) == PARSER.parse(text, item)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (wrap("True"), True),
        (f"{wrap('False')} No, it is true.", True),
        ("I think that is TRUE", True),
        ("True, that is: false!", False),
        ("truely", False),
        ("", False),
    ],
)
def test_the_lenient_reader_takes_the_last_word(text: str, right: bool) -> None:
    assert measure_leniently(make_item("True"), text) == {"lenient_accuracy": float(right)}
    assert measure_leniently(make_item("A", options=OPTIONS), text) == {}


@given(st.sampled_from(["True", "False"]), st.sampled_from(["True", "False"]), st.text())
def test_what_is_right_strictly_is_right_leniently(label: str, said: str, thought: str) -> None:
    item, text = make_item(label), f"<think>{thought}</think><answer>{said}</answer>"
    if QUESTION_PARSER.measure(item, text) is not None:
        found = measure_leniently(item, text)["lenient_accuracy"]
        assert found == QUESTION_PARSER.measure(item, text)


def test_what_is_written_is_read_again_without_its_example() -> None:
    for target in ("True", "False", "B", "A, C"):
        assert QUESTION_PARSER.parse(QUESTION_PARSER.write(target)).label == target
    assert QUESTION_PARSER.labels == ()


class Strict:
    """Pays only for letters without spaces, which the metric does not ask for."""

    name = "strict"

    def __call__(self, example: Example, completion: Completion) -> float:
        found = QUESTION_PARSER.parse(completion.text, example)
        is_bare = " " not in completion.text.partition("<answer>")[2]
        return float(found.label == example.label and (is_bare or found.label == "B"))


class Lax:
    """Pays for a right letter among others."""

    name = "lax"

    def __call__(self, example: Example, completion: Completion) -> float:
        found = QUESTION_PARSER.parse(completion.text, example)
        return float(found.label is not None and str(example.label)[0] in found.label)


ITEMS = [
    make_item(label, options=OPTIONS[:num_options])
    for label in ("B", "A, C", "C", "A, B", "B, C")
    for num_options in (3, 4)
] + [make_item(label) for label in ("True", "False")]


def test_a_reward_that_is_stricter_or_laxer_than_the_metric_is_refused() -> None:
    def find_errors(rewards: object) -> set[str]:
        case = RewardCase(rewards=rewards, examples=ITEMS, parser=QUESTION_PARSER)  # pyright: ignore
        return {finding.name for finding in audit_rewards(case).errors}

    assert find_errors(make_rewards(RewardWeights(box_iou=0))) == set()
    assert "reward/stricter-than-metric" in find_errors(Strict())
    assert "reward/pays-wrong-answer" in find_errors(Lax())
