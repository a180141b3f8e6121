"""The corpus of answers is counted as its labels say: each row is one answer to one label."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from groupwise.core import Message, make_example
from groupwise.rewards import AnswerSettings

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]
SAID = {1.0: "right", 0.0: "wrong", None: "invalid"}


def mark(row):
    """Return the row as a case; one that is not mended yet has to fail, and says why."""
    later = row.get("unmended")
    marks = [pytest.mark.xfail(reason=later, strict=True)] if later else []
    return pytest.param(row, id=row["name"], marks=marks)


@pytest.mark.parametrize("row", [mark(row) for row in ROWS])
def test_answer_is_counted_as_the_corpus_says(row):
    parser = TypeAdapter(AnswerSettings).validate_python(row["settings"])
    example = make_example(
        [Message("user", "?")], cluster="c", label=row["label"], fields=row.get("fields", {})
    )
    said = SAID[parser.measure(example, row["answer"])]
    assert said == row["expected"], row["why"]


def test_names_are_unique():
    assert len({row["name"] for row in ROWS}) == len(ROWS)
