"""The corpus of answers is counted as its labels say: each row is one answer to one label."""

from corpora import each_row
from pydantic import TypeAdapter

from groupwise.core import Message, make_example
from groupwise.rewards import AnswerSettings

SAID = {1.0: "right", 0.0: "wrong", None: "invalid"}


@each_row("answers")
def test_answer_is_counted_as_the_corpus_says(row):
    parser = TypeAdapter(AnswerSettings).validate_python(row["settings"])
    example = make_example(
        [Message("user", "?")], cluster="c", label=row["label"], fields=row.get("fields", {})
    )
    said = SAID[parser.measure(example, row["answer"])]
    assert said == row["expected"], row["why"]
