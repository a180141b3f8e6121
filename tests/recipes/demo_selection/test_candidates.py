"""Candidates of demo_selection: made, grouped and audited."""

import math
from dataclasses import asdict, replace
from itertools import permutations

import pytest
import torch
from recorded_lists import POOL, make_entry, make_list, make_pointer, make_query
from torch.nn.functional import normalize

from groupwise.core import DataError, RewardError, read_json, write_json
from groupwise.data.examples import DropLog
from groupwise_recipes.demo_selection.candidate_audit import (
    CandidateLimits,
    audit_candidates,
    render_candidate_audit,
    write_candidate_audit,
)
from groupwise_recipes.demo_selection.candidate_groups import make_groups
from groupwise_recipes.demo_selection.candidates import Recording, drop_repeated
from groupwise_recipes.demo_selection.conditions import (
    SAME_IN_EVALUATION,
    Conditions,
    digest_items,
    find_differences,
)
from groupwise_recipes.demo_selection.features import FeatureTable
from groupwise_recipes.demo_selection.published_files import read_published

KNOWN = Conditions("sampler", "prompt", "decoding", "answerer")


def record(*queries, conditions=KNOWN):
    return Recording(tuple(queries), conditions)


def test_positions_follow_the_order_of_the_list_and_need_a_pool():
    query = make_query("1", [make_list((103, 100)), make_list((100, 103))])
    assert [query.find_positions(one) for one in query.candidates] == [(3, 0), (0, 3)]
    bare = make_query("1", [make_list()], pool=None)
    with pytest.raises(DataError, match=r"pool of query 1 was not recorded; give its pools"):
        bare.find_positions(make_list())


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


def test_differences_are_told_in_sentences_and_what_is_known_of_neither_differs():
    found = find_differences(BASE.describe(), change(prompt=None, sampler="more").describe())
    assert found == {
        "sampler": "Different sampler of the pools: sampler and more.",
        "prompt": "Different prompt: prompt and not known.",
    }
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


FIRST = make_query("1", [make_list((103, 100), "a"), make_list((100, 103), None), make_list()])
SECOND = make_query("2", [make_list((101, 107), "blue")], POOL[::-1])


def make_table(ids, seed):
    drawn = torch.randn(2, len(ids), 6, generator=torch.Generator().manual_seed(seed))
    pictures, texts = normalize(drawn, dim=-1)
    return FeatureTable(tuple(map(str, ids)), pictures, texts, "digest")


QUERIES, TRAIN = make_table([2, 1, 3], 0), make_table([99, *POOL], 1)


def make(*queries, mode="separated", asked=QUERIES, train=TRAIN):
    return make_groups(Recording(tuple(queries)), queries=asked, train=train, mode=mode)


def test_lists_are_positions_in_the_pool_with_rewards_and_features():
    groups = make(FIRST, SECOND)
    assert groups.present.tolist() == [[True, False, True], [True, False, False]]
    assert groups.lists[0, 0].tolist() == [3, 0]
    assert groups.lists[1, 0].tolist() == [6, 0]
    assert groups.rewards[0].nan_to_num(-1).tolist() == pytest.approx([2.3, -1, 3])
    assert (groups.rewards[1, 0], groups.max_reward) == (0, 3)
    assert groups.queries.equal(QUERIES.joined[[1, 0]])
    assert groups.pools[0].equal(TRAIN.joined[1:])
    assert groups.pools[1].equal(TRAIN.joined[1:].flip(0))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"queries": [replace(FIRST, pool=None)]}, DataError, "pool of query 1 was not recorded"),
        (
            {"queries": [FIRST, replace(SECOND, pool=(*POOL, 99))]},
            DataError,
            r"different sizes; got \[8, 9\]",
        ),
        ({"queries": [replace(FIRST, query_id="7")]}, DataError, "no features: query 7"),
        ({"train": make_table(POOL[1:], 1)}, DataError, "1 of 8 have no features: train item 100"),
        ({"queries": [replace(FIRST, candidates=())]}, DataError, "do not fit together"),
        ({"mode": "both"}, RewardError, "no such reward mode"),
    ],
)
def test_what_cannot_be_trained_on_is_named(given, error, words):
    with pytest.raises(error, match=words):
        make(*given.pop("queries", [FIRST]), **given)


METHODS = (*["beam"] * 5, *["sample"] * 4, *["retrieval"] * 3, *["random"] * 2)
LISTS = list(permutations(range(5), 2))


def audit(*queries, limits=None, conditions=None):
    if len({query.query_id for query in queries}) < len(queries):
        queries = [replace(query, query_id=f"q{n}") for n, query in enumerate(queries)]
    recording = Recording(tuple(queries), conditions or Conditions())
    return audit_candidates(recording, mode="hard_plus_soft", limits=limits)


def find(*queries, **options):
    return {one.name: one.level for one in audit(*queries, **options).findings}


def write_file(path, answers, *, num_lists, with_pools):
    """Write 800 queries, each with the answers given and wrong ones up to ``num_lists``."""
    pool = POOL if with_pools else None
    entries = {}
    for number in range(800):
        told = [*answers[number], *["blue"] * (num_lists - len(answers[number]))]
        pointers = [
            make_pointer(
                ids if with_pools else [POOL[place] for place in ids],
                answer,
                pointer_global=[POOL[place] for place in ids],
                gen_method=method,
            )
            for ids, answer, method in zip(LISTS, told, METHODS, strict=False)
        ]
        entries[str(1000 + number)] = make_entry(1000 + number, pointers, pool)
    write_json(path, {**entries, "_meta": {}})
    return read_published(path).recording


@pytest.mark.slow
def test_the_published_file_without_rewards(tmp_path):
    # 8 lists of 2.0 in 5 queries: 16 / 8000 = 0.0020.
    answers = [["net"] * 2] * 3 + [["net"]] * 2 + [[]] * 795
    recording = write_file(tmp_path / "rl.json", answers, num_lists=10, with_pools=False)
    found = audit_candidates(recording, mode="hard_plus_soft")
    text = render_candidate_audit(found)
    for line in (
        "| queries with a positive list | 5/800 (0.6%) |",
        "| mean reward | 0.0020 |",
        "| positive lists | 8/8000 (0.1%) |",
        "| queries whose rewards are all equal | 795/800 (99.4%) |",
        "| queries by number of different rewards | 1: 795, 2: 5 |",
        "| lists by reward | 0: 7992, 2: 8 |",
        "| failed evaluations | 0/8000 (0.0%) |",
        "| lists by method | beam: 4000, retrieval: 800, sample: 3200 |",
        "**error** `few_positive_queries`: Only 5/800 (0.6%) queries",
        "at least 10% of them",
        "**error** `equal_rewards`: All lists of 795/800 (99.4%) queries",
        "**warning** `pools_not_recorded`: The pools of 800 queries",
    ):
        assert line in text
    levels = [finding.level for finding in found.findings]
    assert levels == ["error", "error", "warning"]
    named = audit_candidates(recording, mode="hard_plus_soft", name="rl.json")
    assert "`few_positive_queries`: rl.json: only 5/800" in render_candidate_audit(named)
    with pytest.raises(DataError, match=r"found 2 error\(s\)"):
        found.refuse_errors()


@pytest.mark.slow
def test_the_published_file_with_rewards(tmp_path):
    # 4264 of 8000 lists in 664 queries: 1096 of 2.0 and 3168 of 1.9 are 8211.2 = 8000 x 1.0264.
    told = ["net"] * 1096 + ["mesh"] * 3168
    answers = [told[number::664] for number in range(664)] + [[]] * 136
    recording = write_file(tmp_path / "rl.json", answers, num_lists=10, with_pools=True)
    found = audit_candidates(recording, mode="hard_plus_soft")
    text = render_candidate_audit(found)
    for line in (
        "| queries with a positive list | 664/800 (83.0%) |",
        "| mean reward | 1.0264 |",
        "| positive lists | 4264/8000 (53.3%) |",
        "| lists by reward | 0: 3736, 1.9: 3168, 2: 1096 |",
        "| a list is positive where | accuracy > 0 |",
        f"| digest of the recording | {recording.digest} |",
        "Nothing was found.",
    ):
        assert line in text
    assert found.findings == ()
    found.refuse_errors()


def make_rows(*answers, pool=POOL, **more):
    """Return the lists of a query with these answers."""
    return [
        make_list([pool[place] for place in ids], answer, **more)
        for ids, answer in zip(LISTS, answers, strict=False)
    ]


def make_good(pool=POOL, **more):
    return make_query("1", make_rows("net", "blue", pool=pool, **more), pool)


GOOD = make_query("good", make_rows("net", "blue"))
POOR = make_query("poor", make_rows("blue", "blue"))
EVEN = make_query("even", make_rows("net", "net"))
FAILED = make_query("failed", make_rows("net", "blue", None))
ALL_FAILED = make_query("lost", make_rows(None, None))


# The official script compares unanimous answers as they stand: "Net" is none of them.
UNANIMOUS = replace(
    make_query("1", [make_list(), replace(make_list((101, 100)), answer="Net", accuracy=0.0)]),
    answers=("net",) * 10,
)


def test_figures_leave_out_what_failed_and_positive_is_what_the_definition_says():
    figures = audit(GOOD, FAILED, ALL_FAILED).figures
    assert (figures.num_queries, figures.num_lists, figures.num_failed) == (3, 7, 3)
    assert (figures.num_positive_queries, figures.num_positive_lists) == (2, 2)
    assert (figures.mean_reward, figures.distinct_rewards) == (1.0, {0: 1, 2: 2})
    assert (figures.num_equal_queries, figures.rewards) == (1, {0.0: 2, 2.0: 2})
    assert audit(ALL_FAILED).figures.mean_reward is None
    assert "| mean reward | none |" in render_candidate_audit(audit(ALL_FAILED))
    query = make_query("1", make_rows("a", "blue"))
    assert audit(query).figures.num_positive_lists == 1
    strict = audit(query, conditions=Conditions(correct_above=0.5))
    assert (strict.figures.num_positive_lists, strict.correct) == (0, "accuracy > 0.5")


@pytest.mark.parametrize(
    ("queries", "found"),
    [
        ([GOOD], {}),
        ([GOOD, *[POOR] * 2], {"few_positive_queries": "warning", "equal_rewards": "warning"}),
        ([GOOD, *[POOR] * 10], {"few_positive_queries": "error", "equal_rewards": "error"}),
        ([GOOD, *[EVEN] * 2], {"equal_rewards": "warning"}),
        ([GOOD, *[EVEN] * 10], {"equal_rewards": "error"}),
        ([*[GOOD] * 10, FAILED], {"failed_evaluations": "warning"}),
        ([GOOD, FAILED], {"failed_evaluations": "error"}),
        ([replace(GOOD, query_id="100")], {"query_in_own_pool": "error"}),
        (
            [replace(GOOD, query_id="100", pool=None)],
            {"query_in_own_pool": "error", "pools_not_recorded": "warning"},
        ),
        ([replace(GOOD, query_id="105", pool=None)], {"pools_not_recorded": "warning"}),
        ([make_good(scored_by="fallback")], {"scored_otherwise": "warning"}),
        ([make_good(scored_by=None)], {"scored_otherwise": "warning"}),
        ([make_good(correct=True)], {"correct_differs": "warning"}),
        ([replace(GOOD, answers=("blue",) * 6 + ("net",) * 4)], {"accuracy_differs": "warning"}),
        ([UNANIMOUS], {}),
        ([GOOD, make_good(pool=(*POOL, 108))], {"pool_sizes": "warning"}),
    ],
)
def test_what_is_wrong_with_lists_is_named_and_figures_warn_and_then_stop(queries, found):
    assert find(*queries) == found


def test_errors_come_first_and_limits_are_settings():
    levels = [finding.level for finding in audit(GOOD, *[EVEN] * 3, FAILED).findings]
    assert levels == ["error", "warning"]
    limits = CandidateLimits(min_positive_queries=0, max_equal_queries=1, max_failed=1)
    assert set(find(POOR, ALL_FAILED, limits=limits).values()) == {"warning"}
    audit(POOR, limits=limits).refuse_errors()


def test_rewards_are_those_of_the_mode():
    recording = Recording((make_query("1", make_rows("net", "a", "blue", None)),))
    figures = audit_candidates(recording, mode="separated").figures
    assert (figures.rewards, figures.distinct_rewards) == ({0.0: 1, 2.3: 1, 3.0: 1}, {3: 1})
    assert list(audit_candidates(recording, mode="hard_only").figures.rewards) == [0.0, 1.0]


def test_an_audit_is_written_for_programs_and_people(tmp_path):
    found = audit(GOOD, POOR)
    assert write_candidate_audit(found, tmp_path) is found
    values = read_json(tmp_path / "candidates.json", dict)
    assert (values["figures"]["num_positive_queries"], values["digest"]) == (1, found.digest)
    assert (tmp_path / "candidates.md").read_text() == render_candidate_audit(found)
