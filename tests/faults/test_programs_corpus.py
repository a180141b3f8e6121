"""The corpus of programs ends as its labels say: forged passes earn nothing, right programs do."""

import json
from pathlib import Path

import pytest
from sandbox_host import needs_bubblewrap

from groupwise.core import Completion, Message, make_example
from groupwise.rewards import CodeTests
from groupwise.sandbox import Limits

pytestmark = needs_bubblewrap

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "programs.jsonl").read_text(encoding="utf-8").splitlines()
]
ALLOWED = {"passed": (1.0,), "passed or refused": (1.0, None), "not passed": (0.0, None)}


def mark(row):
    """Return the row as a case; one that is not mended yet has to fail, and says why."""
    later = row.get("unmended")
    marks = [pytest.mark.xfail(reason=later, strict=True)] if later else []
    return pytest.param(row, id=row["name"], marks=marks)


@pytest.mark.parametrize("row", [mark(row) for row in ROWS])
def test_program_ends_as_the_corpus_says(row):
    fields = {name: row[name] for name in ("tests", "entry_point", "solution") if name in row}
    prompt = [Message("user", row.get("prompt", "Write it."))]
    example = make_example(prompt, cluster="c", fields=fields)
    reward = CodeTests(limits=Limits(timeout_s=row.get("timeout_s", 5.0)))
    score = reward(example, Completion(row["program"]))
    assert score.value in ALLOWED[row["expected"]], (score.reason, row["why"])


def test_names_are_unique():
    assert len({row["name"] for row in ROWS}) == len(ROWS)
