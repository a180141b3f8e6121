import pytest

from groupwise.cli.progress import ProgressLine, describe_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "about 0 s"), (89, "about 89 s"), (100, "about 2 min"), (9000, "about 2.5 h")],
)
def test_durations(seconds, words):
    assert describe_duration(seconds) == words


def test_lines_come_every_few_seconds_and_at_the_end(capsys):
    moments = iter([0.0, 30.0, 31.0, 40.0, 41.0])
    line = ProgressLine("verdicts", every_s=5, clock=lambda: next(moments))
    for num_done in (10, 12, 30, 50):
        line(num_done, 50)
    # 20 more in 10 s after a slow start: the 20 that are left take 10 s
    assert capsys.readouterr().err.splitlines() == [
        "10 of 50 verdicts",
        "30 of 50 verdicts, about 10 s left",
        "50 of 50 verdicts",
    ]
