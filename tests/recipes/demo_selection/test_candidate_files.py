import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lists import POOL, make_list, make_query

from groupwise.core import DataError, RunError, read_jsonl, write_jsonl
from groupwise_recipes.demo_selection.candidate_files import CandidateFile, read_candidates
from groupwise_recipes.demo_selection.candidates import Candidate, RecordedQuery, Recording
from groupwise_recipes.demo_selection.conditions import Conditions
from groupwise_recipes.demo_selection.published_files import read_published, write_published

KNOWN = Conditions("sampler", "prompt", "decoding", "answerer")
FIRST = make_query("1", [make_list(), make_list((101, 100), temperature=1.3, log_prob=-2.5)])
SECOND = make_query("2", [make_list((POOL[7], POOL[0]), answer=None)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "candidates.jsonl"


def test_a_recording_grows_and_is_continued(path):
    with CandidateFile(path, KNOWN) as rows:
        rows.append(FIRST)
        assert rows.finished == {"1"}
    with path.open("a") as stream:
        stream.write('{"query_id": "2", "quest')
    with CandidateFile(path, KNOWN) as rows:
        assert rows.finished == {"1"}, "a torn row is asked again"
        rows.append(SECOND)
        with pytest.raises(DataError, match="finished"):
            rows.append(FIRST)
    assert read_candidates(path) == Recording((FIRST, SECOND), KNOWN)


def test_a_recording_is_not_continued_under_other_conditions(path):
    with CandidateFile(path, KNOWN) as rows:
        rows.append(FIRST)
    other = replace(KNOWN, prompt="another", correct_above=0.5)
    with pytest.raises(RunError, match="got another prompt, correct_above; record into a new file"):
        CandidateFile(path, other)
    held = CandidateFile(path, KNOWN)
    with pytest.raises(RunError, match="another process"):
        CandidateFile(path, KNOWN)
    held.close()
    CandidateFile(path, KNOWN).close()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no recorded candidates"),
        ([asdict(FIRST)], "no file of recorded candidates; read a published one by"),
        ([{"query_id": "_meta", "conditions": {"promt": "x"}}], "first row"),
        ([{"query_id": "_meta", "conditions": {}}, {**asdict(FIRST), "pol": 1}], "query 1 is not"),
        ([{"query_id": "_meta", "conditions": {}}, {"query_id": "1"}], "question_id: Field"),
        ([{"query_id": "_meta", "conditions": {}}], "a recording has no queries"),
    ],
)
def test_what_is_no_recording_is_named(path, rows, words):
    write_jsonl(path, rows)
    with pytest.raises(DataError) as caught:
        read_candidates(path)
    assert words in str(caught.value)


ITEMS = st.one_of(st.integers(0, 99), st.text(max_size=3))
FAILED = (None, None, None)
RESULTS = st.sampled_from([FAILED, ("net", 1.0, True), ("a", 0.3, True), ("", 0.0, False)])


@st.composite
def make_queries(draw):
    pool = draw(st.lists(ITEMS, min_size=3, max_size=6, unique=True))
    two = st.permutations(pool).map(lambda ids: tuple(ids[:2]))
    lists = draw(st.lists(two, unique=True, max_size=4))
    candidates = []
    for ids in lists:
        answer, accuracy, correct = draw(RESULTS)
        mode = None if accuracy is None else "vqaEval"
        log_prob = draw(st.none() | st.floats(-9, 0))
        made = draw(st.sampled_from(["beam", "sample", "retrieval", "random"]))
        candidates.append(Candidate(ids, made, None, log_prob, answer, accuracy, correct, mode))
    texts = st.lists(st.text(max_size=4), max_size=3).map(tuple)
    return draw(ITEMS), draw(st.text(max_size=5)), draw(texts), tuple(pool), tuple(candidates)


@settings(max_examples=40)
@given(st.lists(make_queries(), min_size=1, max_size=3))
def test_both_forms_give_back_what_was_written(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("forms")
    queries = tuple(
        RecordedQuery(str(place), number, None, question, answers, pool, candidates)
        for place, (number, question, answers, pool, candidates) in enumerate(drawn)
    )
    recording = Recording(queries, KNOWN)
    with CandidateFile(folder / "own.jsonl", KNOWN) as rows:
        for query in queries:
            rows.append(query)
    assert read_candidates(folder / "own.jsonl") == recording
    write_published(recording, folder / "published.json")
    found = read_published(folder / "published.json")
    assert found.recording == recording
    assert found.drops.total == 0
    write_published(recording, folder / "bare.json", with_pools=False)
    bare = read_published(folder / "bare.json").recording
    assert bare.queries == tuple(replace(query, pool=None) for query in queries)
    assert len(read_jsonl(folder / "own.jsonl")) == 1 + len(queries)
    assert "candidate_pool_ids" not in json.loads((folder / "bare.json").read_text())["0"]
