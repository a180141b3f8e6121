"""Styles in which labels are written: what each is read as, and which labels are refused."""

from typing import Any

import pytest
from corpora import each_row
from pydantic import ValidationError

from groupwise.rewards import LabelParser, Parsed, read_leniently

ENGLISH = LabelParser(labels=("on-task", "off-task"))
DESCRIBING = LabelParser(labels=("on-task", "off-task"), describe=("Screen", "Task"))
PARSERS = {
    "answers": ENGLISH,
    "no_answers": ENGLISH,
    "descriptions": DESCRIBING,
    "no_descriptions": DESCRIBING,
    "chinese": LabelParser(labels=("通过", "不通过")),
    "lenient": LabelParser(labels=("positive", "négative")),
}


@each_row("label_styles")
def test_a_label_is_read_as_the_corpus_says(row: dict[str, Any]) -> None:
    expected = row["expected"]
    if expected == "refused":
        labels = row.get("labels", ENGLISH.labels)
        with pytest.raises(ValidationError):
            LabelParser(labels=tuple(labels), describe=tuple(row.get("describe", ())))
    elif row["kind"] == "lenient":
        assert read_leniently(PARSERS["lenient"], row["text"]) == expected, row["why"]
    else:
        parsed = PARSERS[row["kind"]].parse(row["text"])
        assert parsed == Parsed(**{"label": None, **expected}), row["why"]
