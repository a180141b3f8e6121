"""Lists of a published file, by whatever names it has for the items of a data set."""

from pathlib import Path

import pytest
from recorded_lists import make_entry, make_pointer

from groupwise.core import DataError, Message, make_example, read_json, write_json
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.given_lists import GIVEN, read_given, read_lists, write_given

NUM_ITEMS = 12
ITEMS = [
    make_example(
        [Message("user", f"What is number {n}?")],
        cluster=str(n),
        fields={"question": f"What is number {n}?", "question_id": 1000 + 7 * n, "answers": []},
    )
    for n in range(NUM_ITEMS)
]
NAMES = {
    "item ids": [one.id for one in ITEMS],
    "question ids": [1000 + 7 * n for n in range(NUM_ITEMS)],
    "places in the data set": list(range(NUM_ITEMS)),
}


def write_lists(path: Path, names: list, *, with_pools: bool = True, shift: int = 0) -> Path:
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
            "question_id": ITEMS[n].fields["question_id"] + shift,
            "question": f"What is number {n}?",
        }
        entries[str(names[n])] = entry
    write_json(path, entries)
    return path


def read(path: Path, **more):
    return read_given(path, ITEMS, **{"pools": None, "is_whole": True, **more})


@pytest.mark.parametrize("named_by", NAMES)
def test_whatever_names_the_items_they_are_found(tmp_path: Path, named_by: str) -> None:
    found = read(write_lists(tmp_path / "lists.json", NAMES[named_by]))
    assert found.named_by == named_by
    queries = found.found.recording.queries
    assert [one.query_id for one in queries] == [one.id for one in ITEMS[:4]]
    query = queries[2]
    assert query.pool == tuple(one.id for one in ITEMS[4:])
    assert query.candidates[0].ids == (ITEMS[5].id, ITEMS[4].id)


def test_places_are_not_known_where_rows_were_dropped(tmp_path: Path) -> None:
    path = write_lists(tmp_path / "lists.json", NAMES["places in the data set"])
    with pytest.raises(DataError, match=r"are not those of the data set.*rows were dropped"):
        read(path, is_whole=False)


def test_queries_of_another_data_set_are_refused(tmp_path: Path) -> None:
    path = write_lists(tmp_path / "lists.json", NAMES["places in the data set"], shift=1)
    with pytest.raises(DataError, match="as places in the data set 4 do not fit, the first is 0"):
        read(path)


def test_a_pool_of_other_items_is_refused(tmp_path: Path) -> None:
    names = [*NAMES["question ids"][:-1], 5]
    path = write_lists(tmp_path / "lists.json", names)
    with pytest.raises(DataError, match="names what is no train item; got 5"):
        read(path)


def test_without_pools_they_have_to_be_given(tmp_path: Path) -> None:
    names = NAMES["question ids"]
    path = write_lists(tmp_path / "bare.json", names, with_pools=False)
    with pytest.raises(DataError, match=r"no pools.*4 queries.*data\.recorded_pools"):
        read_lists(path, pools=None)
    write_json(tmp_path / "pools.json", {str(name): names[4:] for name in names[:4]})
    given = read(path, pools=tmp_path / "pools.json")
    whole = read(write_lists(tmp_path / "lists.json", names))
    assert given.found.recording.queries == whole.found.recording.queries
    write_json(tmp_path / "pools.json", {str(names[0]): names[4:]})
    with pytest.raises(DataError, match="3 queries without"):
        read_lists(path, pools=tmp_path / "pools.json")


def test_the_seed_draws_the_queries_of_validation(tmp_path: Path) -> None:
    given = read(write_lists(tmp_path / "lists.json", NAMES["question ids"]))

    def split(seed: int, **more) -> dict[str, set[str]]:
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


def test_what_is_written_is_read_as_if_recorded_here(tmp_path: Path) -> None:
    path = write_lists(tmp_path / "lists.json", NAMES["question ids"])
    given = read(path)
    sides = given.split(num_validation=1, num_anchors=3, seed=0)
    write_given(given, sides, tmp_path / "recorded", path)
    for name, side in sides.items():
        assert read_candidates(tmp_path / "recorded" / f"{name}.jsonl").queries == side.queries
    facts = read_json(tmp_path / "recorded" / GIVEN, dict)
    assert (facts["file"], facts["ids"], facts["num_lists"]) == ("lists.json", "question ids", 8)
