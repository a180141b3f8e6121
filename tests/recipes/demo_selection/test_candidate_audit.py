from dataclasses import replace
from itertools import permutations

import pytest
from recorded_lists import POOL, make_entry, make_list, make_pointer, make_query

from groupwise.core import DataError, read_json, write_json
from groupwise_recipes.demo_selection.candidate_audit import (
    CandidateLimits,
    audit_candidates,
    render_candidate_audit,
    write_candidate_audit,
)
from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.conditions import Conditions
from groupwise_recipes.demo_selection.published_files import read_published

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
    assert "| queries with a positive list | 5/800 (0.6%) |" in text
    assert "| mean reward | 0.0020 |" in text
    assert "| positive lists | 8/8000 (0.1%) |" in text
    assert "| queries whose rewards are all equal | 795/800 (99.4%) |" in text
    assert "| queries by number of different rewards | 1: 795, 2: 5 |" in text
    assert "| lists by reward | 0: 7992, 2: 8 |" in text
    assert "| failed evaluations | 0/8000 (0.0%) |" in text
    assert "| lists by method | beam: 4000, retrieval: 800, sample: 3200 |" in text
    levels = [finding.level for finding in found.findings]
    assert levels == ["error", "error", "warning"]
    assert "**error** `few_positive_queries`: Only 5/800 (0.6%) queries" in text
    assert "at least 10% of them" in text
    named = audit_candidates(recording, mode="hard_plus_soft", name="rl.json")
    assert "`few_positive_queries`: rl.json: only 5/800" in render_candidate_audit(named)
    assert "**error** `equal_rewards`: All lists of 795/800 (99.4%) queries" in text
    assert "**warning** `pools_not_recorded`: The pools of 800 queries" in text
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
    assert "| queries with a positive list | 664/800 (83.0%) |" in text
    assert "| positive lists | 4264/8000 (53.3%) |" in text
    assert "| mean reward | 1.0264 |" in text
    assert "| lists by reward | 0: 3736, 1.9: 3168, 2: 1096 |" in text
    assert "| a list is positive where | accuracy > 0 |" in text
    assert f"| digest of the recording | {recording.digest} |" in text
    assert found.findings == ()
    assert "Nothing was found." in text
    found.refuse_errors()


def make_rows(*answers, pool=POOL, **more):
    """Return the lists of a query with these answers."""
    return [
        make_list([pool[place] for place in ids], answer, **more)
        for ids, answer in zip(LISTS, answers, strict=False)
    ]


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


def test_figures_leave_out_what_failed():
    figures = audit(GOOD, FAILED, ALL_FAILED).figures
    assert (figures.num_queries, figures.num_lists, figures.num_failed) == (3, 7, 3)
    assert (figures.num_positive_queries, figures.num_positive_lists) == (2, 2)
    assert figures.mean_reward == 1.0
    assert figures.distinct_rewards == {0: 1, 2: 2}
    assert figures.num_equal_queries == 1
    assert figures.rewards == {0.0: 2, 2.0: 2}
    assert audit(ALL_FAILED).figures.mean_reward is None
    assert "| mean reward | none |" in render_candidate_audit(audit(ALL_FAILED))


def test_positive_is_what_the_definition_says():
    query = make_query("1", make_rows("a", "blue"))
    assert audit(query).figures.num_positive_lists == 1
    strict = Conditions(correct_above=0.5)
    assert audit(query, conditions=strict).figures.num_positive_lists == 0
    assert audit(query, conditions=strict).correct == "accuracy > 0.5"


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
    ],
)
def test_figures_warn_and_then_stop(queries, found):
    assert find(*queries) == found


def test_errors_come_first():
    levels = [finding.level for finding in audit(GOOD, *[EVEN] * 3, FAILED).findings]
    assert levels == ["error", "warning"]


def test_limits_are_settings():
    limits = CandidateLimits(min_positive_queries=0, max_equal_queries=1, max_failed=1)
    assert set(find(POOR, ALL_FAILED, limits=limits).values()) == {"warning"}
    audit(POOR, limits=limits).refuse_errors()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (replace(GOOD, query_id="100"), {"query_in_own_pool": "error"}),
        (
            replace(GOOD, query_id="100", pool=None),
            {"query_in_own_pool": "error", "pools_not_recorded": "warning"},
        ),
        (replace(GOOD, query_id="105", pool=None), {"pools_not_recorded": "warning"}),
        (
            make_query("1", make_rows("net", "blue", scored_by="fallback")),
            {"scored_otherwise": "warning"},
        ),
        (
            make_query("1", make_rows("net", "blue", scored_by=None)),
            {"scored_otherwise": "warning"},
        ),
        (make_query("1", make_rows("net", "blue", correct=True)), {"correct_differs": "warning"}),
        (
            replace(GOOD, answers=("blue",) * 6 + ("net",) * 4),
            {"accuracy_differs": "warning"},
        ),
        (UNANIMOUS, {}),
    ],
)
def test_what_is_wrong_with_lists_is_named(query, found):
    assert find(query) == found


def test_pools_of_different_sizes_are_told():
    more = make_query("2", make_rows("net", "blue"), (*POOL, 108))
    assert find(GOOD, more) == {"pool_sizes": "warning"}


def test_rewards_are_those_of_the_mode():
    recording = Recording((make_query("1", make_rows("net", "a", "blue", None)),))
    figures = audit_candidates(recording, mode="separated").figures
    assert figures.rewards == {0.0: 1, 2.3: 1, 3.0: 1}
    assert figures.distinct_rewards == {3: 1}
    assert list(audit_candidates(recording, mode="hard_only").figures.rewards) == [0.0, 1.0]


def test_an_audit_is_written_for_programs_and_people(tmp_path):
    found = audit(GOOD, POOR)
    assert write_candidate_audit(found, tmp_path) is found
    values = read_json(tmp_path / "candidates.json", dict)
    assert values["figures"]["num_positive_queries"] == 1
    assert values["digest"] == found.digest
    assert (tmp_path / "candidates.md").read_text() == render_candidate_audit(found)
