"""``groupwise export``: what is written, and sentences for mistakes."""

from pathlib import Path

import pytest

from groupwise.evaluation import Prediction, write_predictions
from groupwise.evaluation.interchange import read_parquet


@pytest.fixture
def exporting(tiny):
    items = [
        Prediction("i", "g", "test", policy, "on-task", "on-task", text="在任务上")
        for policy in ("sft", "grpo")
    ]
    write_predictions(tiny.work / "runs/tiny-demo/evaluate/predictions.jsonl", items)
    return tiny


def test_a_real_process_writes_parquet(exporting):
    exporting.use_real_torch()
    done = exporting.run("export", "runs/tiny-demo", "--out", "rows.parquet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 predictions of sft, grpo\nwritten: rows.parquet\n"
    items, described = read_parquet(exporting.work / "rows.parquet")
    assert [item.policy for item in items] == ["sft", "grpo"]
    assert described["run"] == "tiny-demo"


def test_one_policy_goes_into_a_folder_under_the_runs_name(exporting):
    (exporting.work / "out").mkdir()
    done = exporting.call("export", "runs/tiny-demo:grpo", "--format", "csv", "--out", "out")
    assert done.stdout == "1 predictions of grpo\nwritten: out/tiny-demo.csv\n"
    lines = (exporting.work / "out/tiny-demo.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert "在任务上" in lines[1]


def test_harness_results_are_written(exporting):
    done = exporting.call("export", "runs/tiny-demo", "--format", "lm-eval", "--out", "out")
    assert done.returncode == 0
    written = [line.removeprefix("written: ") for line in done.stdout.splitlines()[1:]]
    assert [Path(path).parent.name for path in written] == ["tiny-demo__sft", "tiny-demo__grpo"]
    assert all((exporting.work / path).is_file() for path in written)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs/none", "--out", "x"), "runs/none has nothing to export"),
        (("runs/tiny-demo:sfd", "--out", "x"), "has no policy 'sfd'; got sft, grpo"),
        (("runs/tiny-demo", "--format", "lm-eval", "--out", "source.txt"), "source.txt is a file"),
    ],
)
def test_mistakes_are_one_sentence(exporting, arguments: tuple[str, ...], said: str):
    done = exporting.call("export", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
