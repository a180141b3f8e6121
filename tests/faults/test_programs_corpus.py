"""The corpus of programs ends as its labels say: forged passes earn nothing, right programs do."""

from corpora import each_row
from sandbox_host import needs_bubblewrap

from groupwise.core import Completion, Message, make_example
from groupwise.rewards import CodeTests
from groupwise.sandbox import Limits

pytestmark = needs_bubblewrap

ALLOWED = {"passed": (1.0,), "passed or refused": (1.0, None), "not passed": (0.0, None)}


@each_row("programs")
def test_program_ends_as_the_corpus_says(row):
    fields = {name: row[name] for name in ("tests", "entry_point", "solution") if name in row}
    prompt = [Message("user", row.get("prompt", "Write it."))]
    example = make_example(prompt, cluster="c", fields=fields)
    reward = CodeTests(limits=Limits(timeout_s=row.get("timeout_s", 5.0)))
    score = reward(example, Completion(row["program"]))
    assert score.value in ALLOWED[row["expected"]], (score.reason, row["why"])
