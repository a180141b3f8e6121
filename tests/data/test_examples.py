import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixed_prompts import converse

from groupwise.core import DataError, Example, Message, Picture, make_example
from groupwise.data.examples import DropLog, read_examples, write_examples


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3))))
def test_counts_and_rows_add_up_and_the_most_frequent_reason_comes_first(
    drops: list[tuple[str, str]],
) -> None:
    log = DropLog()
    for reason, where in drops:
        log.add(reason, where)
    assert log.total == len(drops) == sum(log.counts.values()) == len(log.rows)
    rows = [{"reason": reason, "where": where} for reason, where in drops]
    assert log.to_json() == {"total": len(drops), "counts": log.counts, "rows": rows}
    assert DropLog.from_json(log.to_json()) == log
    told = list(log.counts.items())
    assert told == sorted(told, key=lambda one: (-one[1], one[0]))


PICTURES = [Picture(Path(f"{name}.png"), name * 32) for name in "abc"]


TURNS = st.lists(st.one_of(st.text(max_size=4), st.sampled_from(PICTURES)), max_size=5)


def make(turns: list[list[str | Picture]]) -> Example:
    prompt = [Message("system", "s"), *converse(turns)]
    return make_example(prompt, cluster="g", fields={"k": [1]})


@given(st.lists(TURNS, min_size=1, max_size=3))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, turns):
    path = tmp_path_factory.mktemp("files") / "rows.jsonl"
    example = make(turns)
    write_examples(path, [example])
    [read] = read_examples(path)
    assert read == example
    assert read.id == make(turns).id


def test_pictures_are_found_from_the_folder_of_the_file(tmp_path: Path):
    (tmp_path / "one" / "pictures").mkdir(parents=True)
    pictures = [Picture(tmp_path / "one" / "pictures" / f"{n}.png", str(n)) for n in range(3)]
    prompt = [Message("user", [pictures[0], "a", pictures[1], "b", pictures[2]])]
    write_examples(tmp_path / "one" / "rows.jsonl", [make_example(prompt, cluster="g")])
    shutil.move(tmp_path / "one", tmp_path / "two")
    [read] = read_examples(tmp_path / "two" / "rows.jsonl")
    folder = tmp_path / "two" / "pictures"
    assert [picture.path for picture in read.pictures] == [folder / f"{n}.png" for n in range(3)]


def test_rows_whose_pictures_open_the_first_turn_are_those_of_before(tmp_path: Path):
    row = {
        "id": "25c6be96a824337f6609c3bd4ef45eef",
        "cluster": "g",
        "label": "yes",
        "prompt": [
            {"role": "system", "text": "s"},
            {"role": "user", "text": "q"},
            {"role": "assistant", "text": "a"},
            {"role": "user", "text": "r"},
        ],
        "pictures": [{"path": f"{n}.png", "digest": n * 32} for n in "ab"],
        "fields": {"k": [1, None, "在"]},
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    [example] = read_examples(path)
    assert example.prompt[1].parts == (*PICTURES[:2], "q")
    again = make_example(
        example.prompt, cluster="g", label=example.label, fields=dict(example.fields)
    )
    assert again.id == row["id"]
    write_examples(path, [example])
    assert json.loads(path.read_text(encoding="utf-8")) == row


@pytest.mark.parametrize(
    "turn",
    [{"role": "user"}, {"role": "user", "text": 3}, {"role": "user", "parts": [{"path": "a.png"}]}],
)
def test_a_row_that_is_no_example_is_named(tmp_path: Path, turn: dict[str, object]):
    row = {"id": "i", "cluster": "g", "label": None, "prompt": [turn], "pictures": [], "fields": {}}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl row 1 is not an example"):
        read_examples(path)
