"""Files of demo_selection: candidates, given lists, and published ones."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lists import ANSWERS, POOL, make_entry, make_list, make_pointer, make_query
from tables import read_tables

from groupwise.core import (
    DataError,
    Message,
    RunError,
    make_example,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise_recipes.demo_selection.candidate_files import CandidateFile, read_candidates
from groupwise_recipes.demo_selection.candidates import Candidate, RecordedQuery, Recording
from groupwise_recipes.demo_selection.conditions import Conditions
from groupwise_recipes.demo_selection.given_lists import GIVEN, read_given, read_lists, write_given
from groupwise_recipes.demo_selection.published_files import read_published, write_published

TABLES = read_tables(__file__)
KNOWN = Conditions("sampler", "prompt", "decoding", "answerer")
FIRST = make_query("1", [make_list(), make_list((101, 100), temperature=1.3, log_prob=-2.5)])
SECOND = make_query("2", [make_list((POOL[7], POOL[0]), answer=None)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "candidates.jsonl"


def test_a_recording_grows_and_is_continued_under_the_same_conditions_alone(path):
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
        with pytest.raises(RunError, match="another process"):
            CandidateFile(path, KNOWN)
    assert read_candidates(path) == Recording((FIRST, SECOND), KNOWN)
    other = replace(KNOWN, prompt="another", correct_above=0.5)
    with pytest.raises(RunError, match="got another prompt, correct_above; record into a new file"):
        CandidateFile(path, other)
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
    assert (found.recording, found.drops.total) == (recording, 0)
    write_published(recording, folder / "bare.json", with_pools=False)
    bare = read_published(folder / "bare.json").recording
    assert bare.queries == tuple(replace(query, pool=None) for query in queries)
    assert len(read_jsonl(folder / "own.jsonl")) == 1 + len(queries)
    assert "candidate_pool_ids" not in json.loads((folder / "bare.json").read_text())["0"]


NUM_ITEMS = 12
GIVEN_ITEMS = [
    make_example(
        [Message("user", f"What is number {n}?")],
        cluster=str(n),
        fields={"question": f"What is number {n}?", "question_id": 1000 + 7 * n, "answers": []},
    )
    for n in range(NUM_ITEMS)
]
NAMES = {
    "item ids": [one.id for one in GIVEN_ITEMS],
    "question ids": [1000 + 7 * n for n in range(NUM_ITEMS)],
    "places in the data set": list(range(NUM_ITEMS)),
}


def write_lists(path, names, *, with_pools=True, shift=0):
    """Write a file of four queries whose pools are the last eight items."""
    pool = names[4:]
    entries = {}
    for n in range(4):
        pointers = [
            make_pointer([1, 0], pointer_global=[pool[1], pool[0]]),
            make_pointer([2, 7], answer="blue", pointer_global=[pool[2], pool[7]]),
        ]
        entry = make_entry(0, pointers, pool if with_pools else None)
        entry["query"] |= {
            "query_id": names[n],
            "question_id": GIVEN_ITEMS[n].fields["question_id"] + shift,
            "question": f"What is number {n}?",
        }
        entries[str(names[n])] = entry
    write_json(path, entries)
    return path


def read(path, **more):
    return read_given(path, GIVEN_ITEMS, **{"is_whole": True, **more})


@pytest.mark.parametrize("named_by", NAMES)
def test_whatever_names_the_items_they_are_found(tmp_path, named_by):
    found = read(write_lists(tmp_path / "lists.json", NAMES[named_by]))
    assert found.named_by == named_by
    queries = found.found.recording.queries
    assert [one.query_id for one in queries] == [one.id for one in GIVEN_ITEMS[:4]]
    query = queries[2]
    assert query.pool == tuple(one.id for one in GIVEN_ITEMS[4:])
    assert query.candidates[0].ids == (GIVEN_ITEMS[5].id, GIVEN_ITEMS[4].id)


@pytest.mark.parametrize(
    ("names", "shift", "is_whole", "words"),
    [
        ("places in the data set", 0, False, r"not those of the data set.*rows were dropped"),
        (
            "places in the data set",
            1,
            True,
            "as places in the data set 4 do not fit, the first is 0",
        ),
        ("others", 0, True, "names what is no train item; got 5"),
    ],
)
def test_lists_of_another_data_set_are_refused(tmp_path, names, shift, is_whole, words):
    others = {"others": [*NAMES["question ids"][:-1], 5]}
    path = write_lists(tmp_path / "lists.json", {**NAMES, **others}[names], shift=shift)
    with pytest.raises(DataError, match=words):
        read(path, is_whole=is_whole)


def test_without_pools_it_cannot_be_trained_on(tmp_path):
    names = NAMES["question ids"]
    path = write_lists(tmp_path / "bare.json", names, with_pools=False)
    with pytest.raises(DataError, match=r"no pools.*4 queries.*candidate_pool_ids"):
        read_lists(path)


def test_the_seed_draws_the_queries_of_validation_and_what_is_written_is_read(tmp_path):
    path = write_lists(tmp_path / "lists.json", NAMES["question ids"])
    given = read(path)

    def split(seed, **more):
        sides = given.split(seed=seed, **{"num_validation": 1, "num_anchors": 800, **more})
        return {name: {q.query_id for q in side.queries} for name, side in sides.items()}

    sides = split(0)
    assert (len(sides["validation"]), len(sides["anchors"])) == (1, 3)
    assert not sides["validation"] & sides["anchors"]
    assert split(0) == sides
    assert len({tuple(split(seed)["validation"]) for seed in range(20)}) > 1
    assert len(split(0, num_anchors=2)["anchors"]) == 2
    with pytest.raises(DataError, match="too few queries"):
        split(0, num_validation=4)
    recorded = given.split(num_validation=1, num_anchors=3, seed=0)
    write_given(given, recorded, tmp_path / "recorded", path)
    for name, side in recorded.items():
        assert read_candidates(tmp_path / "recorded" / f"{name}.jsonl").queries == side.queries
    facts = read_json(tmp_path / "recorded" / GIVEN, dict)
    assert (facts["file"], facts["ids"], facts["num_lists"]) == ("lists.json", "question ids", 8)


def load(folder, *pointers, pool=POOL, pools=None, meta=None):
    values = {"7": make_entry(7, pointers, pool)} | ({} if meta is None else {"_meta": meta})
    write_json(folder / "rl.json", values)
    return read_published(folder / "rl.json", pools=pools)


def list_ids(found):
    return [one.ids for one in found.recording.queries[0].candidates]


def test_the_form_with_pools(tmp_path):
    found = load(
        tmp_path,
        make_pointer([3, 0], pointer_global=[103, 100], temperature=1.3, gen_method="sample"),
        make_pointer([0, 3], answer="a"),
        meta={"beams": 5},
    )
    (query,) = found.recording.queries
    assert (query.query_id, query.question_id, query.image_id) == ("7", "7", 458752)
    assert (query.question, query.answers, query.pool) == ("What is it?", ANSWERS, POOL)
    first, second = query.candidates
    assert (first.ids, first.method, first.temperature) == ((103, 100), "sample", 1.3)
    assert (first.log_prob, first.answer, first.scored_by) == (-1.5, "net", "vqaEval")
    assert (first.accuracy, first.correct) == (1.0, True)
    assert (second.ids, second.accuracy) == ((100, 103), 0.3)
    assert (found.recording.notes, found.recording.conditions) == ({"beams": 5}, Conditions())


@pytest.mark.parametrize(
    "pointer",
    [
        make_pointer([3, 0], pointer_global=[103, 100]),
        make_pointer([103, 100], pointer_pos=[3, 0]),
        make_pointer([103, 100], pointer_global=[103, 100]),
        make_pointer([3, 0], pointer_global=[103, 100], pointer_pos=[3, 0]),
    ],
)
def test_the_form_without_pools_names_train_ids(tmp_path, pointer):
    found = load(tmp_path, pointer, pool=None)
    assert list_ids(found) == [(103, 100)]
    assert found.recording.queries[0].pool is None


def test_pools_may_be_given(tmp_path):
    named = make_pointer([103, 100], pointer_global=[103, 100])
    for pointer in (named, make_pointer([3, 0])):
        found = load(tmp_path, pointer, pool=None, pools={"7": POOL})
        assert list_ids(found) == [(103, 100)]
        assert found.recording.queries[0].pool == POOL
    assert load(tmp_path, make_pointer([3, 0]), pools={"7": POOL}).recording == found.recording
    with pytest.raises(DataError, match="not in the pool"):
        load(tmp_path, named, pool=None, pools={"7": POOL[1:]})
    with pytest.raises(DataError, match="another pool than the one given"):
        load(tmp_path, make_pointer([3, 0]), pools={"7": POOL[::-1]})


@pytest.mark.parametrize("failure", [{"eval_failed": True}, {"vqa_eval_mode": "error"}])
def test_an_evaluation_that_failed_is_no_zero(tmp_path, failure):
    found = load(tmp_path, make_pointer([0, 1], answer="blue", **failure))
    (candidate,) = found.recording.queries[0].candidates
    assert (candidate.accuracy, candidate.correct, candidate.answer) == (None, None, None)


def test_lists_that_appear_twice_are_counted_and_an_entry_has_the_id_it_stands_under(tmp_path):
    rows = [make_pointer([0, 1]), make_pointer([1, 0]), make_pointer([0, 1], gen_method="random")]
    found = load(tmp_path, *rows)
    assert list_ids(found) == [(100, 101), (101, 100)]
    assert (found.num_lists, found.drops.counts) == (3, {"repeated list": 1})
    write_json(tmp_path / "rl.json", {"8": make_entry(7, rows[:1])})
    with pytest.raises(DataError, match="query 8 has another query_id; got 7"):
        read_published(tmp_path / "rl.json")


@pytest.mark.parametrize(("pointers", "pool", "words"), TABLES["what_does_not_fit_is_named"])
def test_what_does_not_fit_is_named(tmp_path, pointers, pool, words):
    pointers = [p if isinstance(p, dict) else make_pointer(p[0], **p[1]) for p in pointers]
    with pytest.raises(DataError) as caught:
        load(tmp_path, *pointers, pool=POOL if pool else None)
    assert words in str(caught.value)


def test_what_is_written(tmp_path):
    failed = make_list((100, 103), answer=None)
    recording = Recording((make_query("7", [make_list((103, 100)), failed]),))
    write_published(recording, tmp_path / "rl.json")
    values = read_json(tmp_path / "rl.json", dict)
    assert values["7"]["candidate_pool_ids"] == list(POOL)
    assert values["7"]["query"]["gt_answers_norm"] == [*["net"] * 6, *["mesh"] * 3, ""]
    first, second = values["7"]["pointer_candidates"]
    assert (first["pointer"], first["pointer_global"]) == ([3, 0], [103, 100])
    assert (first["vqa_correct"], first["vqa_acc_score"], first["eval_failed"]) == (1, 1.0, False)
    assert (second["vqa_acc_score"], second["vqa_eval_mode"]) == (None, "error")
    write_published(recording, tmp_path / "rl.json", with_pools=False)
    (entry, _meta) = read_json(tmp_path / "rl.json", dict).values()
    assert [row["pointer"] for row in entry["pointer_candidates"]] == [[103, 100], [100, 103]]
    bare = Recording((make_query("7", [failed], pool=None),))
    with pytest.raises(DataError, match="was not recorded"):
        write_published(bare, tmp_path / "rl.json")
