"""What a round is made of: people's answers and old rows, never the held-out set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from said_things import LABELS, SIDES, TEACHING, TESTING, Talk
from small_task import LORA

from groupwise.core import DataError, Example, read_json
from groupwise.data import read_examples
from groupwise.data.leakage import check_clusters
from groupwise.feedback import order_by_priority, write_items
from groupwise.learning import RoundConfig
from groupwise.learning.round import prepare_round

Prepare = Callable[..., dict[str, list[Example]]]


@pytest.fixture
def prepare(origin: Path, talk: Talk, tmp_path: Path) -> Prepare:
    """Prepare a round from what was said, and return its splits."""

    def prepare(**data: Any) -> dict[str, list[Example]]:
        items = tmp_path / "items.jsonl"
        write_items(items, order_by_priority(talk.store.list_items()))
        config = RoundConfig.model_validate(
            {
                "model": {**LORA["model"], "base": str(origin / "grpo" / "policy")},
                "data": {
                    "origin": origin,
                    "items": items,
                    "asked": items,
                    "pictures": talk.store.pictures.folder,
                    "sides": SIDES,
                    **data,
                },
                "sft": LORA["sft"],
                "grpo": LORA["grpo"],
                "served": "v0",
                "candidate": 1,
            }
        )
        folder = tmp_path / "prepare"
        folder.mkdir()
        prepare_round(config, folder)
        names = ("train", "validation", "test")
        return {name: read_examples(folder / f"{name}.jsonl") for name in names}

    return prepare


def _count_drops(tmp_path: Path) -> dict[str, int]:
    return read_json(tmp_path / "prepare" / "source.json", dict)["drops"]["counts"]


def test_old_rows_are_replayed_beside_what_was_said(talk: Talk, prepare: Prepare) -> None:
    talk.fill(TEACHING[:4])
    train = prepare(replay=1.0)["train"]
    said = [one for one in train if "answer" in one.fields]
    assert [one.label for one in said] == [LABELS[1]] * 4
    assert {one.cluster for one in said} == {*TEACHING[:4]}
    assert len(train) == 8


def test_nothing_is_replayed_where_nothing_is_wanted(talk: Talk, prepare: Prepare) -> None:
    talk.fill(TEACHING[:4])
    assert len(prepare(replay=0.0)["train"]) == 4


def test_the_held_out_set_is_the_origins_and_never_trained_on(
    talk: Talk, prepare: Prepare, origin: Path, tmp_path: Path
) -> None:
    """Nor is what asks the same as one of its rows, or is of one of its sessions."""
    test = read_examples(origin / "prepare" / "test.jsonl")
    talk.fill(TEACHING[:4])
    teaching = next(one.cluster for one in test if SIDES.find(one.cluster) == "teaches")
    for shown in (
        talk.show(TEACHING[4], question=test[0].prompt[0].text.replace("？", "?")),
        talk.show(teaching),
    ):
        talk.say(shown, LABELS[1])
    splits = prepare()
    assert [one.id for one in splits["test"]] == [one.id for one in test]
    assert {one.cluster for one in splits["train"]}.isdisjoint(one.cluster for one in test)
    assert _count_drops(tmp_path) == {
        "its picture or text is tested": 1,
        "its session is tested": 1,
    }


def test_what_is_of_a_session_of_the_validation_is_not_learned(
    talk: Talk, prepare: Prepare, origin: Path, tmp_path: Path
) -> None:
    """The audit would end the round: a session stands in one split alone."""
    validation = read_examples(origin / "prepare" / "validation.jsonl")
    talk.fill(TEACHING[:4])
    session = next(one.cluster for one in validation if SIDES.find(one.cluster) == "teaches")
    talk.say(talk.show(session), LABELS[1])
    splits = prepare()
    assert check_clusters(splits) == []
    assert len(splits["validation"]) == len(validation)
    assert _count_drops(tmp_path) == {"its session is validated": 1}


def test_what_cannot_be_learned_is_dropped_and_counted(
    talk: Talk, prepare: Prepare, tmp_path: Path
) -> None:
    good = talk.fill(TEACHING[:3])
    talk.fill(TESTING[:2])
    for shown, label in (
        (talk.show(TEACHING[0], question=good[0].row["question"]), LABELS[1]),
        (talk.show(TEACHING[4]), "紫色"),
        (talk.show(TEACHING[5], question=" "), LABELS[1]),
    ):
        talk.say(shown, label)
    splits = prepare()
    assert _count_drops(tmp_path)["its session is of the other side"] == 2
    assert _count_drops(tmp_path)["a label that there is not"] == 1
    source = read_json(tmp_path / "prepare" / "source.json", dict)
    assert source["num_rows"] == sum(map(len, splits.values())) + source["drops"]["total"]


def test_a_round_with_nothing_to_learn_says_why(talk: Talk, prepare: Prepare) -> None:
    talk.fill(TESTING[:2])
    with pytest.raises(DataError, match="nothing that can be learned"):
        prepare()
