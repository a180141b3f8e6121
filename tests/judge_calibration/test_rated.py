import json

import pytest
from real_data import find_real

from groupwise.core import DataError, write_json, write_jsonl
from groupwise.judge_calibration.verdicts import load_rated

PAIR = {"question": "Name a colour.", "answer_a": "Red.", "answer_b": "Seven.", "preferred": "a"}
ANSWER = {"question": "Name a colour.", "answer": "Red.", "label": "good"}
LLMBAR = {"input": "Name a colour.", "output_1": "Seven.", "output_2": "红色。", "label": 2}


def load(tmp_path, *rows):
    write_jsonl(tmp_path / "rated.jsonl", rows)
    return load_rated(tmp_path / "rated.jsonl")


def test_pairs(tmp_path):
    found = load(tmp_path, PAIR, PAIR | {"answer_b": "Blue, I think.", "preferred": "b"})
    assert found.are_pairs
    assert found.labels == ("a", "b")
    assert [item.label for item in found.items] == ["a", "b"]
    assert found.items[0].answers == ("Red.", "Seven.")
    assert found.items[0].cluster == found.items[1].cluster, "one question, one cluster"


def test_single_answers_with_labels_of_any_kind(tmp_path):
    other = ANSWER | {"answer": "7", "label": False, "subset": "x/y", "cluster": "mine"}
    found = load(tmp_path, ANSWER, other)
    assert not found.are_pairs
    assert found.labels == ("false", "good")
    assert (found.items[1].subset, found.items[1].cluster) == ("x/y", "mine")


def test_llmbar_folders_are_subsets(tmp_path):
    write_json(tmp_path / "Natural" / "dataset.json", [LLMBAR])
    write_json(tmp_path / "Adversarial" / "Manual" / "dataset.json", [LLMBAR | {"label": 1}])
    found = load_rated(tmp_path)
    assert [(item.subset, item.label) for item in found.items] == [
        ("Adversarial/Manual", "a"),
        ("Natural", "b"),
    ]
    alone = load_rated(tmp_path / "Natural" / "dataset.json")
    assert [(item.subset, item.answers) for item in alone.items] == [("", ("Seven.", "红色。"))]


def test_every_row_that_is_not_used_is_counted(tmp_path):
    found = load(
        tmp_path,
        PAIR,
        PAIR,
        PAIR | {"preferred": "tie"},
        PAIR | {"answer_a": "  "},
        PAIR | {"answer_a": "Seven. "},
    )
    assert len(found.items) == 1
    assert found.drops.counts == {
        "both answers are the same": 1,
        "empty answer": 1,
        "people saw no difference": 1,
        "repeated": 1,
    }


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (PAIR | {"preferred": "c"}, "preferred is wrong; got 'c'"),
        (PAIR | {"preferd": "a"}, "is not a rated answer"),
        ({"question": "q", "answer": "a"}, "is not a rated answer"),
        (ANSWER | {"answer": 3}, "answer is not a text; got 3"),
        (ANSWER | {"label": None}, "label is wrong; got None"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, row, words):
    with pytest.raises(DataError, match=r"rated\.jsonl row 2") as caught:
        load(tmp_path, PAIR, row)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "content", ["{", "{}", "[3]", json.dumps([LLMBAR | {"label": True}]), json.dumps([{"a": 1}])]
)
def test_what_is_not_llmbar(tmp_path, content):
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(DataError):
        load_rated(tmp_path / "dataset.json")


def test_sources_without_anything_to_compare(tmp_path):
    for rows in ((), (PAIR | {"preferred": "tie"},)):
        with pytest.raises(DataError, match="no rated answer"):
            load(tmp_path, *rows)
    with pytest.raises(DataError, match="mixes pairs and single answers"):
        load(tmp_path, PAIR, ANSWER)
    with pytest.raises(DataError, match="cannot read"):
        load_rated(tmp_path / "none.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no dataset\.json"):
        load_rated(tmp_path / "empty")


def test_llmbar_itself():
    found = load_rated(find_real("llmbar"))
    assert len(found.items) + found.drops.total == 419
    assert found.drops.total == 0
    assert {item.subset for item in found.items} == {
        "Natural",
        *(f"Adversarial/{name}" for name in ("GPTInst", "GPTOut", "Manual", "Neighbor")),
    }
