"""Looks at a test split: counted by its items over the runs of a folder, whatever it is called."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from run_folders import LABELS, make_run

from groupwise.core import (
    Harmless,
    Message,
    RunError,
    append_jsonl,
    is_locked,
    make_example,
    read_jsonl,
    write_json,
)
from groupwise.evaluation import results
from groupwise.evaluation.compare import compare_results
from groupwise.evaluation.metrics import compute_metrics, write_metrics
from groupwise.evaluation.predictions import Prediction, digest_items, read_predictions
from groupwise.evaluation.report.comparison import tell_comparison
from groupwise.evaluation.report.phrases import Phrases
from groupwise.evaluation.report.run import Report
from groupwise.evaluation.result_table import Question, Result, read_runs
from groupwise.evaluation.results import list_looks, record_look, state_looks

ITEMS = [
    make_example([Message("user", [f"{number}?"])], cluster="1", label=label)
    for number, label in enumerate(("yes", "no", "yes"))
]
DIGEST = digest_items(
    Prediction(one.id, "1", "test", "grpo", str(one.label), "yes") for one in ITEMS
)


def start(folder: Path, seed: int = 0, **config: Any) -> Path:
    values: Mapping[str, Any] = {
        "recipe": "r",
        "config": {"seed": seed, "beta": 0.1, "batch": 8, **config},
        "effects": {"batch": asdict(Harmless("x", "x"))},
        "inputs": {},
        "seed": seed,
    }
    write_json(folder / "manifest.json", values)
    return folder


def say(run: Path, language: Any = "en") -> str:
    told = " ".join(Phrases(language).say(one) for one in state_looks(run, DIGEST))
    return told.replace("\u00a0", " ")


def test_looks_are_counted_by_items_over_runs_and_kept_when_folders_are_renamed(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    for seed in range(3):
        record_look(start(runs / f"s{seed}", seed), ITEMS[::-1])
    record_look(start(runs / "other"), ITEMS[:2])
    assert say(runs / "s0") == (
        "This test split has been looked at 3 times by runs in runs (1 config, 3 seeds)."
    )
    (runs / "s0").rename(runs / "first")
    record_look(start(runs / "batches", batch=1), ITEMS)
    assert "4 times by runs in runs (1 config, 3 seeds)" in say(runs / "first")
    record_look(start(runs / "betas", beta=0.2), ITEMS)
    runs.rename(tmp_path / "all")
    assert "5 times by runs in all (2 configs, 3 seeds)" in say(tmp_path / "all/first")
    shutil.move(tmp_path / "all/first", tmp_path / "alone/first")
    assert say(tmp_path / "alone/first") == (
        "This test split has been looked at 1 time by runs in alone (1 config, 1 seed)."
    )
    assert "看过这个测试集 1 次" in say(tmp_path / "alone/first", "zh").replace(" ", " ")


def test_settings_that_changed_between_many_looks_are_a_warning(tmp_path: Path) -> None:
    for number in range(4):
        run = start(tmp_path / f"runs/{number}", beta=number)
        record_look(run, ITEMS)
        levels = [one.level for one in state_looks(run, DIGEST)]
        assert levels == ["warning" if number == 3 else "info"]
    assert "the best would still be expected up to 1.0 standard errors above" in say(run)


def test_what_goes_on_after_an_interruption_is_the_same_look(tmp_path: Path) -> None:
    run = start(tmp_path / "runs/one")
    for is_continued, num in ((False, 1), (True, 1), (False, 2)):
        record_look(run, ITEMS, is_continued=is_continued)
        assert len(list_looks(run, DIGEST)) == num


def test_cells_of_a_sweep_and_evaluations_inside_a_run_count_with_the_other_runs(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    record_look(start(runs / "one"), ITEMS)
    write_json(runs / "beta/sweep.json", {})
    record_look(start(runs / "beta/cells/beta=1", beta=1), ITEMS)
    record_look(start(runs / "one/july", beta=2), ITEMS)
    assert len(read_jsonl(runs / "looks.jsonl")) == 3
    for run in ("one", "beta/cells/beta=1", "one/july"):
        assert "3 times by runs in runs (3 configs, 1 seed)" in say(runs / run)
    (runs / "looks.jsonl").unlink()
    assert "2 times by runs in runs" in say(runs / "beta/cells/beta=1")


def test_a_line_is_appended_under_the_lock_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So two processes that look at once lose none."""
    held: list[bool] = []
    keep = results.append_jsonl

    def append(path: Path, row: Mapping[str, Any]) -> None:
        held.append(is_locked(path.with_name(".looks.lock")))
        keep(path, row)

    monkeypatch.setattr(results, "append_jsonl", append)
    record_look(start(tmp_path / "runs/one"), ITEMS)
    assert held == [True, True]


def test_a_look_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    run = start(tmp_path / "runs/one")
    (tmp_path / "runs/looks.jsonl").mkdir()
    with pytest.raises(RunError, match=r"cannot be recorded in .*runs \(Is a directory"):
        record_look(run, ITEMS)


def test_the_report_and_the_comparison_say_how_often_their_items_were_looked_at(
    tmp_path: Path,
) -> None:
    runs = [make_run(tmp_path / f"runs/{n}", {"manifest.json:config/grpo/beta": n}) for n in "12"]
    sources = [Result(run.name, folder=str(run)) for run in runs]
    question = Question(factors=("grpo.beta",), chosen=("grpo.beta",))
    table = read_runs(sources, question)
    assert "looks" not in " ".join(one.kind for one in table.notices)
    look = {"time": "t", "run": "1", "seed": 0, "items": table.results[0].digest}
    for number in range(6):
        row = {**look, "name": str(number), "config": str(number % 4)}
        append_jsonl(tmp_path / f"runs/{number % 2 + 1}/looks.jsonl", row)
    comparison = compare_results(read_runs(sources, question))
    kinds = {one.kind: one for one in comparison.notices}
    assert kinds["looks_many"].values["num"] == 6
    assert kinds["notice.chosen_on_test"].values["keys"] == ("grpo.beta",)
    told = " ".join(tell_comparison(comparison))
    assert "Settings chosen on the test split: this sweep compares grpo.beta by" in told
    assert "other items with groupwise evaluate RUN ROWS." in told
    answers = read_predictions(runs[0] / "evaluate/predictions.jsonl")
    write_metrics(runs[0] / "evaluate/metrics.json", compute_metrics(answers, labels=LABELS))
    report = Report(runs[0])
    assert [one.values["num"] for one in report.notices if one.kind == "looks_many"] == [6]
