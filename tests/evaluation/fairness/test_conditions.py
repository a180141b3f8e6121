"""Conditions as a file, and the digests and counts that they are made of."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import TypeAdapter
from run_folders import CONDITIONS, write_weights

from groupwise.core import (
    Example,
    Message,
    append_jsonl,
    make_example,
    write_json,
)
from groupwise.evaluation import (
    CONDITIONS_FILE,
    Conditions,
    Measure,
    describe_examples,
    describe_rows,
    digest_prompts,
    digest_weights,
    read_recorded,
    write_conditions,
)


def make_items(question: str = "Is it on-task?") -> list[Example]:
    return [
        make_example(
            [Message("user", f"任务 {n}: {question}")], cluster=f"g{n // 2}", label="yn"[n % 2]
        )
        for n in range(4)
    ]


def test_conditions_come_back_as_they_were_written(tmp_path: Path) -> None:
    own = TypeAdapter(tuple[Measure, ...]).validate_python(CONDITIONS["measures"])
    conditions = Conditions(**{**CONDITIONS, "measures": own})
    write_conditions(tmp_path / CONDITIONS_FILE, conditions)
    assert json.loads((tmp_path / CONDITIONS_FILE).read_text()) == CONDITIONS
    assert read_recorded(tmp_path) == asdict(conditions) | {"measures": own}
    assert own[0].title_zh == "漏检"


def test_conditions_of_another_version_are_kept_as_they_are(tmp_path: Path) -> None:
    assert read_recorded(tmp_path) is None
    write_json(tmp_path / CONDITIONS_FILE, {"retrieval": {"k": 5}})
    assert read_recorded(tmp_path) == {"retrieval": {"k": 5}}


def test_examples_are_counted_by_label_and_cluster() -> None:
    found = describe_examples(make_items())
    assert {key: found[key] for key in found if key != "digest"} == {
        "num_rows": 4,
        "num_clusters": 2,
        "num_rows:n": 2,
        "num_rows:y": 2,
    }


def test_free_answers_are_told_by_a_digest_alone() -> None:
    [first, *_] = make_items()
    items = [replace(first, id=str(n), label=f"reference {n}") for n in range(30)]
    found = describe_examples(items)
    assert found.keys() == {"digest", "num_rows", "num_clusters", "num_labels", "labels"}
    assert (found["num_rows"], found["num_labels"]) == (30, 30)
    other = [*items[:-1], replace(items[-1], label="another reference")]
    assert describe_examples(other)["labels"] != found["labels"]


def test_order_counts_for_data_and_not_for_prompts() -> None:
    items = make_items()
    assert describe_examples(items)["digest"] != describe_examples(items[::-1])["digest"]
    assert digest_prompts(items) == digest_prompts(items[::-1])
    assert digest_prompts(items) != digest_prompts(make_items("Is it off-task?"))
    assert digest_prompts(items) != digest_prompts(items[:3])


def test_rows_take_further_counts(tmp_path: Path) -> None:
    for number in range(3):
        append_jsonl(tmp_path / "queries.jsonl", {"n": number})
    found = describe_rows(tmp_path / "queries.jsonl", num_queries_with_a_positive=1)
    assert (found["num_rows"], found["num_queries_with_a_positive"]) == (3, 1)


def test_weights_are_known_by_content_wherever_they_are(tmp_path: Path) -> None:
    for place, value in (("a", 1.0), ("b/c", 1.0), ("d", 2.0)):
        write_weights(tmp_path / place, value)
    write_json(tmp_path / "b/c/tokenizer.json", {"other": True})
    digests = [digest_weights(tmp_path / place) for place in ("a", "b/c", "d")]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
    assert digest_weights(tmp_path) is None
