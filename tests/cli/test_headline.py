"""The table at the end of a run: what the recipe says first, then how often policies are right."""

from pathlib import Path

import pytest

from groupwise.cli.printing import print_headline
from groupwise.evaluation.metrics import Metric, read_metrics, write_metrics


def make_metric(name: str, value: float, n: int) -> Metric:
    return Metric(name, "test", value, value / 2, (1 + value) / 2, n, "digest")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    metrics = [
        make_metric("sft/accuracy", 0.5, 8),
        make_metric("grpo/accuracy", 0.75, 8),
        make_metric("grpo/missed_defects", 0.25, 4),
        make_metric("grpo/f1:a", 0.33, 8),
    ]
    write_metrics(tmp_path / "evaluate" / "metrics.json", metrics)
    return tmp_path


def test_the_measure_of_the_recipe_stands_before_the_accuracy(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_headline(run, first="missed_defects")
    head, sft, grpo = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = "on test missed defects accuracy 95 % interval n"
    assert head == names.split()
    assert sft == ["sft", "–", "50.0%", "25.0–75.0%", "8"]
    assert grpo == ["grpo", "25.0%", "(12.5–62.5%)", "75.0%", "37.5–87.5%", "8"]


def test_without_one_there_is_no_such_column(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_headline(run)
    head, _, grpo = capsys.readouterr().out.splitlines()
    assert head.split() == ["on", "test", "accuracy", "95", "%", "interval", "n"]
    assert head.index("accuracy") == grpo.index("75.0%")
    assert grpo.split() == ["grpo", "75.0%", "37.5–87.5%", "8"]


def test_without_metrics_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_headline(tmp_path, first="missed_defects")
    assert capsys.readouterr().out == ""


def test_several_splits_are_told_apart(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "evaluate" / "metrics.json"
    other = Metric("grpo/accuracy", "real", 0.5, 0.4, 0.6, 5, "digest")
    write_metrics(path, [*read_metrics(path), other])
    print_headline(run)
    head, *_, last = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[:3] == ["policy", "split", "accuracy"]
    assert last == ["grpo", "real", "50.0%", "40.0–60.0%", "5"]


def test_who_gave_no_answer_is_told_if_somebody_did_not(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "evaluate" / "metrics.json"
    invalid = [make_metric("sft/invalid_rate", 1.0, 8), make_metric("grpo/invalid_rate", 0.0, 8)]
    write_metrics(path, [*read_metrics(path), invalid[1]])
    print_headline(run)
    assert "no answer" not in capsys.readouterr().out
    write_metrics(path, [*read_metrics(path), invalid[0]])
    print_headline(run, first="missed_defects")
    head, sft, grpo = capsys.readouterr().out.splitlines()
    assert head.index("missed defects") < head.index("no answer") < head.index("accuracy")
    assert sft.split()[:4] == ["sft", "–", "100.0%", "50.0%"]
    assert grpo.split()[:4] == ["grpo", "25.0%", "(12.5–62.5%)", "0.0%"]
    assert max(map(len, (head, sft, grpo))) < 80
