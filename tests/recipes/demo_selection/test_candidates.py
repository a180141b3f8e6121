import math
from dataclasses import asdict, replace

import pytest
from recorded_lists import POOL, make_list, make_query

from groupwise.core import DataError
from groupwise.data import DropLog
from groupwise_recipes.demo_selection.candidates import Recording, drop_repeated
from groupwise_recipes.demo_selection.conditions import (
    SAME_IN_EVALUATION,
    Conditions,
    digest_items,
    find_differences,
)

KNOWN = Conditions("sampler", "prompt", "decoding", "answerer")


def record(*queries, conditions=KNOWN):
    return Recording(tuple(queries), conditions)


def test_positions_follow_the_order_of_the_list():
    query = make_query("1", [make_list((103, 100)), make_list((100, 103))])
    assert [query.find_positions(one) for one in query.candidates] == [(3, 0), (0, 3)]


@pytest.mark.parametrize(
    ("lists", "pool", "words"),
    [
        ([make_list((100, 99))], POOL, "an item that is not in the pool; got [100, 99]"),
        ([make_list((100, 100))], POOL, "no item, or one twice"),
        ([make_list(())], POOL, "no item, or one twice"),
        ([make_list(), make_list(answer="blue")], POOL, "has a list twice; got [100, 101]"),
        ([make_list()], (100, 101, 100), "the pool of query 1 has an item twice; got 100"),
        ([replace(make_list(), accuracy=1.3)], POOL, "out of range; got 1.3"),
        ([replace(make_list(), accuracy=math.nan)], POOL, "out of range; got nan"),
    ],
)
def test_a_query_that_does_not_fit_is_named(lists, pool, words):
    with pytest.raises(DataError) as caught:
        make_query("1", lists, pool)
    assert words in str(caught.value)
    assert "query 1" in str(caught.value)


def test_a_recording_has_different_queries_and_lists_of_one_length():
    with pytest.raises(DataError, match="no queries"):
        record()
    with pytest.raises(DataError, match="a query twice; got 1"):
        record(make_query("1", []), make_query("1", []))
    with pytest.raises(DataError, match="different lengths; got 1 of 1, 2 of 2"):
        record(
            make_query("1", [make_list(), make_list((101, 100))]),
            make_query("2", [make_list((100,))]),
        )


def test_hard_and_soft_values_follow_the_definition_of_correct():
    wrong_way = make_list(answer="a", correct=False)
    lists = [make_list(), wrong_way, make_list(answer="blue", correct=True), make_list(answer=None)]
    query = make_query("1", [replace(one, ids=(100 + n,)) for n, one in enumerate(lists)])
    found = record(query)
    assert [found.read_values(one) for one in query.candidates] == [
        (1.0, 1.0),
        (1.0, 0.3),
        (0.0, 0.0),
        None,
    ]
    stricter = replace(found, conditions=Conditions(correct_above=0.5))
    assert stricter.read_values(wrong_way) == (0.0, 0.3)
    assert stricter.conditions.correct == "accuracy > 0.5"
    recorded = replace(found, conditions=Conditions(correct_above=None))
    assert recorded.read_values(wrong_way) == (0.0, 0.3)
    assert recorded.read_values(lists[2]) == (1.0, 0.0)
    assert recorded.conditions.correct == "as recorded"
    with pytest.raises(DataError, match="no recorded vqa_correct"):
        recorded.read_values(make_list())


def test_lists_that_are_repeated_are_counted_and_order_counts():
    lists = [
        make_list((1, 2)),
        make_list((2, 1)),
        make_list((1, 2), method="random"),
        make_list((1, 2), answer="blue"),
        make_list((3, 4), answer=None),
        make_list((3, 4), method="random"),
    ]
    drops = DropLog()
    kept = drop_repeated(lists, drops, where="query 1")
    assert kept == [lists[0], lists[1], lists[5]], "one whose evaluation failed gives way"
    assert drops.counts == {"repeated list with another result": 2, "repeated list": 1}


def test_positions_need_a_pool():
    bare = record(make_query("1", [make_list()], pool=None))
    with pytest.raises(DataError, match=r"pool of query 1 was not recorded; give its pools"):
        bare.queries[0].find_positions(make_list())


BASE = record(make_query("1", [make_list()]), make_query("2", [make_list()]))


def change(**conditions):
    return replace(BASE, conditions=replace(KNOWN, **conditions))


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (replace(BASE, queries=BASE.queries[::-1]), []),
        (record(make_query("1", [make_list()])), ["data", "items", "pools"]),
        (record(*(make_query(n, [make_list(answer="a")]) for n in "12")), ["data"]),
        (record(*(make_query(n, [make_list()], POOL[::-1]) for n in "12")), ["data", "pools"]),
        (record(*(make_query(n, [make_list()], None) for n in "12")), ["data", "pools"]),
        (change(sampler="another"), ["sampler"]),
        (change(prompt="another"), ["prompt"]),
        (change(decoding=None), ["decoding"]),
        (change(answerer="another"), ["answerer"]),
        (change(correct_above=0.5), ["correct"]),
    ],
)
def test_two_recordings_say_in_what_they_differ(other, names):
    found = find_differences(BASE.describe(), other.describe())
    assert list(found) == names
    assert list(find_differences(other.describe(), BASE.describe())) == names


def test_differences_are_told_in_sentences():
    found = find_differences(BASE.describe(), change(prompt=None, sampler="more").describe())
    assert found == {
        "sampler": "Different sampler of the pools: sampler and more.",
        "prompt": "Different prompt: prompt and not known.",
    }


def test_what_is_known_of_neither_differs_unless_the_data_are_the_same():
    bare = record(*(replace(query, pool=None) for query in BASE.queries), conditions=Conditions())
    assert bare.describe()["pools"] is None
    assert find_differences(bare.describe(), bare.describe()) == {}
    fewer = replace(bare, queries=bare.queries[:1])
    found = find_differences(bare.describe(), fewer.describe(), names=("prompt", "correct"))
    assert found == {"prompt": "The prompt cannot be compared: not known of either."}


def test_an_evaluation_is_compared_with_the_recording_it_was_trained_on():
    evaluation = {**KNOWN.describe(), "items": digest_items(["7", "8"]), "data": BASE.digest}
    ours = BASE.describe()
    assert find_differences(ours, evaluation, names=SAME_IN_EVALUATION) == {}
    fixed = evaluation | {"sampler": "first 64"}
    assert list(find_differences(ours, fixed, names=SAME_IN_EVALUATION)) == ["sampler"]
    other = evaluation | {"items": digest_items([8, 9]), "data": "another"}
    assert list(find_differences(evaluation, other, names=("data", "items"))) == ["data", "items"]
    assert digest_items([8, 7]) == evaluation["items"]


def test_the_digest_is_that_of_the_content():
    assert BASE.digest == replace(BASE, conditions=Conditions(), notes={"x": 1}).digest
    for field, value in {"pool": None, "candidates": (), "question": "Why?"}.items():
        changed = replace(BASE.queries[0], **{field: value})
        assert record(changed, BASE.queries[1]).digest != BASE.digest
    assert asdict(KNOWN)["correct_above"] == 0.0
