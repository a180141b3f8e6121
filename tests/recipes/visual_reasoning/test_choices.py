"""What the choices alone tell."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Example, Message, make_example
from groupwise_recipes.visual_reasoning.choices import choose_rule, name_longest, predict_choices
from groupwise_recipes.visual_reasoning.measuring import mark_silent
from groupwise_recipes.visual_reasoning.task import TASK

SHORT, LONG = ("on", "in", "at"), ("on", "far away from it", "at")
LABELS = st.sampled_from(["A", "B", "C", "A, B", "A, C", "B, C"])


def ask(label: str, options: Sequence[str] = SHORT, number: int = 0) -> Example:
    asked = [Message("user", f"Where is thing {number}?")]
    return make_example(asked, cluster=str(number), label=label, fields={"options": [*options]})


def state(label: str, number: int = 0) -> Example:
    return make_example([Message("user", f"Thing {number} is red.")], cluster="s", label=label)


def answer(train: Sequence[Example], test: Sequence[Example]) -> list[str | None]:
    return [one.predicted for one in predict_choices(train, test)]


def test_the_rule_that_is_best_in_training_answers() -> None:
    spoken = [state("False")]
    test = [ask("A"), ask("C", LONG), *spoken]
    assert answer([ask("C"), ask("C"), ask("A"), *spoken], test) == ["C", "C", "False"]
    several = [ask("A, B"), ask("A, B"), ask("A, C"), ask("A"), *spoken]
    assert answer(several, test) == ["A, B", "A, B", "False"]
    longest = [ask("B", LONG), ask("A", LONG[1:]), ask("C", ("x", "y", "longer")), *spoken]
    assert answer(longest, test) == ["A", "B", "False"]


def test_of_equals_the_first_is_taken() -> None:
    tied = [ask("B"), ask("A"), state("True")]
    assert answer(tied, [ask("C"), state("True")]) == ["A", "True"]
    assert name_longest(ask("A", ("one", "two"))) == "A"


def test_statements_get_their_own_commonest_label() -> None:
    test = [ask("C"), state("True")]
    train = [ask("C"), state("True", 1), state("False", 2), state("False", 3)]
    assert answer(train, test) == ["C", "False"]
    [_, silent] = predict_choices([ask("C")], test)
    assert (silent.predicted, silent.reason) == (None, "there is no statement in training")


def test_one_answer_to_all_is_left_to_the_majority_label() -> None:
    assert predict_choices([ask("C")], [ask("A"), ask("B", LONG)]) == []


def test_without_choices_there_is_no_such_rival() -> None:
    assert predict_choices([ask("A")], [state("True")]) == []
    assert predict_choices([state("True")], [ask("A")]) == []


@given(st.lists(st.tuples(LABELS, st.permutations(LONG)), min_size=1, max_size=12))
def test_no_constant_answer_is_right_more_often_in_training(
    rows: list[tuple[str, list[str]]],
) -> None:
    train = [ask(label, options, number) for number, (label, options) in enumerate(rows)]
    rule = choose_rule(train)
    num_right = sum(rule(one) == one.label for one in train)
    labels = [one.label for one in train]
    assert num_right >= max(map(labels.count, labels))
    assert num_right >= sum(name_longest(one) == one.label for one in train)


def test_it_is_told_among_the_baselines_and_does_not_reason() -> None:
    [found] = [one for one in TASK.baselines if one.name == "choices"]
    [marked] = mark_silent([found], "boxes")
    assert marked.inapplicable == ("alignment",)
