"""``groupwise export``: sentences for mistakes; what it writes is tested with each format."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs/none", "--format", "verl", "--out", "x"), "runs/none holds no run"),
        (("runs/tiny-demo", "--format", "chat", "--out", "x"), "chat and --rows go together"),
        (
            ("runs/tiny-demo:sft", "--format", "swift", "--out", "x"),
            "got its policy sft",
        ),
    ],
)
def test_mistakes_are_one_sentence(tiny, arguments: tuple[str, ...], said: str):
    done = tiny.call("export", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
