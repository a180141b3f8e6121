import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from run_folders import POLICIES

from groupwise.core import write_json, write_jsonl
from groupwise.evaluation import (
    Metric,
    Policies,
    Prediction,
    compare_pairs,
    compute_metrics,
    read_predictions,
    write_comparisons,
    write_metrics,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.page import LANGUAGES, Language, Statement, Words
from groupwise.evaluation.report import build_report, render_html

LABELS = ("on-task", "off-task")
Run = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path, make_table: Callable[..., list[Prediction]]) -> Run:
    """A small run without anything to warn of, except what is changed."""

    def make(answers: dict[str, list[str | None]] | None = None, num: int = 120) -> Path:
        truths = [LABELS[n % 2] for n in range(num)]
        wrong = [LABELS[1 - n % 2] if n % 10 == 0 else LABELS[n % 2] for n in range(num)]
        given = answers or {"majority": ["on-task"] * num, "grpo": wrong}
        items = [
            replace(item, text=f"{policy} says {item.text}")
            for policy, column in given.items()
            for item in make_table(list(zip(truths, column, strict=True)), policy=policy)
        ]
        write_predictions(tmp_path / "evaluate/predictions.jsonl", items)
        metrics = compute_metrics(items, labels=LABELS)
        write_metrics(tmp_path / "evaluate/metrics.json", metrics)
        write_policies(tmp_path, POLICIES)
        write_json(tmp_path / "audit/audit.json", {"findings": [], "splits": {}})
        write_json(tmp_path / "manifest.json", {"recipe": "r", "config": {}})
        return tmp_path

    return make


def list_notices(run: Path) -> list[tuple[str, str]]:
    return [(one.level, say(one)) for one in build_report(run).notices]


def say(notice: Statement) -> str:
    return Words("en", policies=Policies(POLICIES)).say(notice).replace("\u00a0", " ")


def test_a_clean_run_has_no_warnings(make_run: Run) -> None:
    assert list_notices(make_run()) == []


def test_files_that_are_needed_and_missing(tmp_path: Path) -> None:
    found = build_report(tmp_path).notices
    assert [notice.source for notice in found] == [
        "evaluate/predictions.jsonl",
        "evaluate/metrics.json",
        "audit/audit.json",
        "manifest.json",
    ]


def test_audit_errors_come_first_and_accepted_findings_are_said(make_run: Run) -> None:
    run = make_run()
    findings = [
        {"level": "info", "name": "a", "message": "Fine.", "count": 1},
        {"level": "warning", "name": "b", "message": "Odd.", "count": 1},
        {"level": "info", "name": "c", "message": "Known.", "count": 1, "accepted": True},
        {"level": "error", "name": "d", "message": "Leak.", "count": 1},
    ]
    write_json(run / "audit/audit.json", {"findings": findings})
    assert list_notices(run) == [
        ("error", "Data: Leak."),
        ("warning", "Data: Odd."),
        ("warning", "Accepted by the configuration: Known."),
    ]


def test_warnings_of_any_step_are_shown(make_run: Run) -> None:
    run = make_run()
    rows = [{"level": "warning", "message": "Sampling fell back to one by one."}]
    write_json(run / "grpo/warnings.json", rows)
    found = build_report(run).notices
    assert [(say(n), n.source) for n in found] == [
        ("Sampling fell back to one by one.", "grpo/warnings.json")
    ]


def test_steps_of_different_libraries_are_told(make_run: Run) -> None:
    run = make_run()
    for step, version in {"sft": "2.12.0", "grpo": "2.13.0"}.items():
        write_json(run / step / "step.json", {"packages": {"torch": version, "trl": "1.16.0"}})
    text = "The steps were made with different versions of torch (2.13.0: grpo; 2.12.0: sft)."
    assert ("warning", text) in list_notices(run)


def test_many_invalid_answers(make_run: Run) -> None:
    column: list[str | None] = [LABELS[n % 2] for n in range(120)]
    run = make_run({"grpo": [None] * 6 + column[6:]})
    assert list_notices(run) == []
    run = make_run({"grpo": [None] * 7 + column[7:]})
    ((level, text),) = list_notices(run)
    assert level == "warning"
    assert text.startswith("5.8 % of the answers of GRPO on test are inv")


def test_metrics_of_other_items_than_the_predictions(make_run: Run) -> None:
    run = make_run()
    rows = (run / "evaluate/predictions.jsonl").read_text().splitlines()
    write_jsonl(run / "evaluate/predictions.jsonl", map(json.loads, rows[:-1]))
    ((level, text),) = list_notices(run)
    assert level == "error"
    assert "metrics of GRPO were computed on other items" in text


def test_policies_measured_on_different_items(make_run: Run) -> None:
    run = make_run()
    metrics: list[dict[str, Any]] = json.loads((run / "evaluate/metrics.json").read_text())
    for row in metrics:
        if row["name"].startswith("grpo/"):
            row["split_digest"] = "other"
    write_json(run / "evaluate/metrics.json", metrics)
    texts = [text for level, text in list_notices(run) if level == "error"]
    assert any("measured on 2 different sets of items" in text for text in texts)


def test_small_splits(make_run: Run) -> None:
    ((_, text),) = list_notices(make_run(num=99))
    assert "99 items in 99 clusters" in text


def test_policy_not_above_a_blind_baseline(make_run: Run) -> None:
    half = [LABELS[n % 2] if n % 4 else "off-task" for n in range(120)]
    truths = [LABELS[n % 2] for n in range(120)]
    found = list_notices(make_run({"text_only": truths[:100] + half[100:], "grpo": half}))
    assert any("GRPO is not clearly above the best baseline" in text for _, text in found)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "why", ["right", "at the baseline", "alike", "worse than its start", "as the base"]
)
def test_only_a_policy_that_is_shown_to_be_of_use_is_offered_and_coloured(
    why: str, language: Language, make_run: Run
) -> None:
    truths: list[str | None] = [LABELS[n % 2] for n in range(120)]
    same: list[str | None] = ["on-task"] * 120
    worse = [LABELS[0] if n % 3 == 0 else truth for n, truth in enumerate(truths)]
    given = {
        "right": {"majority": same, "sft": worse, "grpo": truths},
        "at the baseline": {"majority": worse, "sft": same, "grpo": worse},
        "alike": {"majority": same, "sft": truths, "grpo": same},
        "worse than its start": {"majority": same, "sft": truths, "grpo": worse},
        "as the base": {"majority": same, "prompt": truths, "sft": worse, "grpo": truths},
    }[why]
    run = make_run(given)
    write_json(run / "evaluate/verbs.json", ["serve", "export-model"])
    items = read_predictions(run / "evaluate/predictions.jsonl")
    pairs = [(name, "grpo") for name in ("prompt", "sft") if name in given]
    write_comparisons(run / "evaluate/comparisons.json", compare_pairs(items, pairs))
    html = render_html(build_report(run), language=language)
    assert ("groupwise serve" in html) == (why == "right")
    assert ("export-model" in html) == (why == "right")
    assert ('class="tile card first good"' in html) == (why == "right")


@pytest.mark.parametrize("missed", [0.2, 1.0])
def test_a_policy_that_misses_every_defect_is_not_coloured(missed: float, make_run: Run) -> None:
    truths: list[str | None] = [LABELS[n % 2] for n in range(120)]
    run = make_run({"majority": ["on-task"] * 120, "grpo": truths})
    rows: list[dict[str, Any]] = json.loads((run / "evaluate/metrics.json").read_text())
    (mine,) = [row for row in rows if row["name"] == "grpo/accuracy"]
    rows.append({**mine, "name": "grpo/missed", "value": missed, "low": missed, "high": missed})
    write_json(run / "evaluate/metrics.json", rows)
    own = {"name": "missed", "title": "Missed", "title_zh": "漏检", "is_higher_better": False}
    write_json(run / "evaluate/conditions.json", {"measures": [own]})
    html = render_html(build_report(run), language="en")
    assert ('class="tile card first good"' in html) == (missed < 1)


def test_text_that_gives_the_answer_away(make_run: Run) -> None:
    truths: list[str | None] = [LABELS[n % 2] for n in range(120)]
    half: list[str | None] = ["on-task"] * 120
    seen = {"majority": half, "text_only": [*truths[:80], *half[80:]], "grpo": truths}
    found = [text for _, text in list_notices(make_run(seen))]
    assert found == [
        "On test, the text alone gives part of the answer away: Text only reaches 83.3 %, "
        "the majority label 50.0 %."
    ]


def test_training_that_changed_no_answer(make_run: Run) -> None:
    run = make_run()
    rows = map(json.loads, (run / "evaluate/predictions.jsonl").read_text().splitlines())
    items = [Prediction(**{**row, "pictures": ()}) for row in rows if row["policy"] == "grpo"]
    twin = [*items, *(replace(item, policy="sft") for item in items)]
    write_predictions(run / "evaluate/predictions.jsonl", twin)
    write_metrics(run / "evaluate/metrics.json", compute_metrics(twin, labels=LABELS))
    ((_, text),) = list_notices(run)
    assert "SFT warm-up and GRPO give the same text for every item" in text


@pytest.mark.parametrize(("step", "title"), [("grpo", "GRPO"), ("second_round", "second_round")])
def test_training_signals(step: str, title: str, make_run: Run) -> None:
    run = make_run()
    rows = [{"step": n, "reward": 1.0, "dead_groups": 0.2 if n < 8 else 0.9} for n in range(12)]
    write_jsonl(run / f"{step}/metrics.jsonl", rows)
    (check, dead) = list_notices(run)
    assert check[0] == "warning"
    assert f"on-policy check left no result for {title}" in check[1]
    assert dead[0] == "info"
    assert f"last quarter of {title}, 90.0 % of the groups were dead" in dead[1]


def test_one_answer_for_everything_is_told_of_each_policy(make_run: Run) -> None:
    same: list[str | None] = ["on-task"] * 120
    turns: list[str | None] = ["on-task", "off-task"] * 60
    answers = {"majority": same, "text_only": same, "sft": turns, "grpo": same}
    found = [text for _, text in list_notices(make_run(answers)) if "gives one answer" in text]
    assert found == [
        "Text only gives one answer for all 120 items of test: on-task.",
        "GRPO gives one answer for all 120 items of test: on-task.",
    ]


def test_metric_names_without_predictions_still_show(tmp_path: Path) -> None:
    metric = Metric("mine/accuracy", "dev", 0.5, 0.4, 0.6, 100, "d")
    write_json(tmp_path / "evaluate/metrics.json", [asdict(metric)])
    report = build_report(tmp_path)
    assert list(report.main) == ["mine"]


def test_faults_of_the_rewards_that_were_accepted_come_first(make_run: Run) -> None:
    run = make_run()
    fault = {
        "level": "error",
        "name": "reward/pays-empty",
        "message": "An empty answer.",
        "count": 2,
    }
    findings = [
        {"level": "warning", "name": "reward/length-is-free", "message": "Long.", "count": 1},
        {"level": "info", "name": "reward/pays-stuffing", "message": "Listed.", "count": 1},
        {**fault, "accepted": True, "where": ["'' earns 1 on ab", "'' earns 1 on cd"]},
    ]
    write_json(run / "audit_rewards/audit.json", {"findings": findings})
    assert list_notices(run) == [
        (
            "error",
            "Accepted with --accept reward/pays-empty: An empty answer. "
            "For example, '' earns 1 on ab.",
        ),
        ("warning", "Rewards: Long."),
    ]
