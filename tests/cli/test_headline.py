"""The table at the end of a run: what the recipe says first, then how often policies are right."""

from pathlib import Path

import pytest

from groupwise.cli.headline import print_headline
from groupwise.evaluation import Metric, write_metrics


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
    names = "policy split missed defects accuracy 95 % interval n"
    assert head == names.split()
    assert sft == ["sft", "test", "–", "50.0%", "25.0%", "–", "75.0%", "8"]
    shown = "grpo test 25.0% (12.5% – 62.5%) 75.0% 37.5% – 87.5% 8"
    assert grpo == shown.split()


def test_without_one_there_is_no_such_column(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_headline(run)
    head, _, grpo = capsys.readouterr().out.splitlines()
    assert head.split() == ["policy", "split", "accuracy", "95", "%", "interval", "n"]
    assert head.index("accuracy") == grpo.index("75.0%")
    assert grpo.split() == ["grpo", "test", "75.0%", "37.5%", "–", "87.5%", "8"]


def test_without_metrics_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_headline(tmp_path, first="missed_defects")
    assert capsys.readouterr().out == ""
