"""What rewards tell of completions is counted, and nothing is lost between rows."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Fact, RewardError, Score
from groupwise.rewards import RewardSet
from groupwise.training.grpo import RewardFunction
from groupwise.training.log import FactCounts

NAMES = {
    "is": st.booleans(),
    "number": st.floats(0, 1000),
    "word": st.sampled_from("abc"),
    "word/x": st.sampled_from("abc"),
    "word/y": st.sampled_from("abc"),
}
TOLD = st.lists(st.fixed_dictionaries({}, optional=NAMES), max_size=30)


def count(*facts: Mapping[str, Fact]) -> FactCounts:
    found = FactCounts()
    found.add(facts)
    return found


def test_shares_have_counts_numbers_have_means_and_texts_are_tallied() -> None:
    rows = [
        {"executed": True, "correct": True, "tokens": 10, "program/math": "one"},
        {"executed": True, "correct": False, "tokens": 20, "program/math": "one"},
        {"executed": False, "correct": False, "program/code": "two", "failed": "error"},
        {"no value": "connection"},
    ]
    assert count(*rows).tabulate() == {
        "reward/executed": pytest.approx(2 / 3),
        "reward/correct": pytest.approx(1 / 3),
        "reward/commonest_program/math": 1.0,
        "reward/commonest_program/code": 1.0,
        "mean/tokens": 15.0,
        "reward/collapsed": 0.0,
        "facts": {
            "num": 4,
            "shares": {
                "executed": [2, 3],
                "correct": [1, 3],
                "commonest_program/code": [1, 1],
                "commonest_program/math": [2, 2],
            },
            "sums": {"tokens": [30, 2]},
            "texts": {
                "failed": {"num": 1, "different": 1, "commonest": [["error", 1]]},
                "no value": {"num": 1, "different": 1, "commonest": [["connection", 1]]},
                "program/code": {"num": 1, "different": 1, "commonest": [["two", 1]]},
                "program/math": {"num": 2, "different": 1, "commonest": [["one", 2]]},
            },
        },
    }


@pytest.mark.parametrize(
    ("programs", "collapsed"),
    [
        ({"math": "aab", "code": "a"}, 1.0),
        ({"math": "aab", "code": "b"}, 0.0),
        ({"math": "abb", "code": "b", "qa": "a"}, 0.0),
        ({"math": "aaa"}, None),
    ],
)
def test_one_text_that_is_the_commonest_of_all_kinds_is_a_collapse(
    programs: Mapping[str, str], collapsed: float | None
) -> None:
    facts = [{f"program/{kind}": text} for kind, texts in programs.items() for text in texts]
    assert count(*facts).tabulate().get("reward/collapsed") == collapsed


def test_nothing_told_is_nothing_logged() -> None:
    assert FactCounts().tabulate() == count({}, {}).tabulate() == {}


@given(TOLD)
def test_counts_add_up(facts: list[Mapping[str, Fact]]) -> None:
    row = count(*facts).tabulate()
    if not any(facts):
        assert row == {}
        return
    told = row["facts"]
    assert told["num"] == len(facts)
    for name, (part, num) in told["shares"].items():
        assert 0 <= part <= num <= len(facts)
        assert row[f"reward/{name}"] == part / num
    for name, one in told["texts"].items():
        assert one["num"] == sum(name in each for each in facts)
        assert one["num"] == sum(number for _, number in one["commonest"])
        assert one["different"] == len(one["commonest"])
    assert told["shares"].get("is", [0, 0])[1] == sum("is" in each for each in facts)


@given(TOLD, TOLD)
def test_processes_that_count_apart_count_what_one_would(
    mine: list[Mapping[str, Fact]], others: list[Mapping[str, Fact]]
) -> None:
    joined = count(*mine)
    joined.merge(count(*others))
    whole = count(*mine, *others)
    assert (joined.num, joined.shares, joined.texts) == (whole.num, whole.shares, whole.texts)
    assert joined.sums == whole.sums


class Teller:
    """Tells what a text says."""

    kind = "other"

    def __init__(self, name: str, **facts: Fact) -> None:
        self.name = name
        self.facts = facts

    def __call__(self, example: object, completion: Completion) -> Score:
        return Score(None if completion.text == "none" else 1.0, facts=self.facts)


def test_what_all_parts_tell_is_told_also_where_there_is_no_value(text_examples) -> None:
    both = RewardSet({"a": (Teller("a", x=True), 1.0), "b": (Teller("b", y="z"), 0.0)})
    for text in ("some", "none"):
        assert both.score(text_examples[0], Completion(text)).facts == {"x": True, "y": "z"}


@pytest.mark.parametrize("name", ["x", "a"])
def test_one_name_is_one_fact(text_examples, name: str) -> None:
    both = RewardSet({"a": (Teller("a", x=True), 1.0), "b": (Teller("b", **{name: 1.0}), 0.0)})
    with pytest.raises(RewardError, match=f"got {name}"):
        both.score(text_examples[0], Completion("some"))


def test_facts_of_a_row_are_those_since_the_row_before(text_examples) -> None:
    function = RewardFunction(
        text_examples, RewardSet({"a": (Teller("a", x=True), 1.0)}), end_token_ids=[7]
    )

    def score(texts: Sequence[str]) -> None:
        function(
            completions=[[{"role": "assistant", "content": text}] for text in texts],
            completion_ids=[[7]] * len(texts),
            place=[0] * len(texts),
            log_metric=lambda *_: None,
        )

    score(["some", "none"])
    score(["some"])
    assert function.tell_facts()["facts"]["shares"] == {"x": [3, 3]}
    assert function.tell_facts() == {}
    score(["some"])
    assert function.tell_facts()["facts"]["num"] == 1
