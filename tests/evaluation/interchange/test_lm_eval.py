"""Harness-style results: the schema as documented, and the harness's own readers if installed."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import read_jsonl, write_json
from groupwise.evaluation import Metric, Prediction, write_metrics, write_predictions
from groupwise.evaluation.interchange import read_records, write_lm_eval

# lm_eval/result_schema.py: what a reader finds at the top, and in each sample.
RESULT_KEYS = {
    *("results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better"),
    *("n-samples", "config", "git_hash", "date", "transformers_version", "model_source"),
    *("model_name", "model_name_sanitized", "task_hashes", "total_evaluation_time_seconds"),
}
SAMPLE_KEYS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
TASK = "on_task_test"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "demo"
    items = [
        Prediction(
            example_id=f"{place}",
            cluster="g",
            split="test",
            policy=policy,
            label="在任务上",
            predicted=None if place == 2 else "在任务上",
            reason="no label" if place == 2 else "",
            text=f"答案 {place}",
            fields={"num_shots": 4, "task": "写预算"},
            scores={"f1": 0.5, "target": 0.25},
        )
        for policy in ("sft", "grpo")
        for place in (2, 0, 1)
    ]
    write_predictions(run / "evaluate/predictions.jsonl", items)
    digest = "d" * 32
    metrics = [
        Metric("grpo/accuracy", "test", 2 / 3, 0.2, 0.9, 3, digest),
        Metric("grpo/accuracy[a=b,c]", "test", 0.5, 0.2, 0.9, 2, digest),
        Metric("grpo/brier", "test", 0.25, 0.2, 0.9, 3, digest),
        Metric("grpo/missed", "test", 0.1, 0.0, 0.9, 3, digest),
        Metric("grpo/f_score", "test", 0.5, 0.2, 0.9, 3, digest),
        Metric("sft/accuracy", "test", 1.0, 0.2, 1.0, 1, digest),
    ]
    write_metrics(run / "evaluate/metrics.json", metrics)
    marker = {"finished_at": "2026-03-02T10:00:00+00:00", "duration_s": 12.5}
    write_json(run / "evaluate/step.json", marker)
    own = {"name": "missed", "title": "Missed", "title_zh": "漏检", "is_higher_better": False}
    conditions = {"metrics": {"accuracy": 3}, "decoding": {"temperature": 0.0}, "measures": [own]}
    write_json(run / "evaluate/conditions.json", conditions)
    manifest = {
        "recipe": "on_task",
        "config": {"model": {"base": "tiny-qwen2"}},
        "seed": 7,
        "git_revision": "abc",
        "packages": {"transformers": "5.23.0"},
        "started_at": "2026-03-02T09:00:00+00:00",
    }
    write_json(run / "manifest.json", manifest)
    return run


@pytest.fixture
def results(run: Path, tmp_path: Path) -> dict[str, Any]:
    write_lm_eval(tmp_path / "out", read_records(run))
    path = tmp_path / "out/demo__grpo/results_2026-03-02T10-00-00+00-00.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_each_policy_is_a_model_with_results_and_samples(run: Path, tmp_path: Path):
    written = write_lm_eval(tmp_path / "out", read_records(run))
    date = "2026-03-02T10-00-00+00-00"
    assert [path.relative_to(tmp_path / "out").as_posix() for path in written] == [
        f"demo__sft/results_{date}.json",
        f"demo__grpo/results_{date}.json",
    ]
    assert (written[1].parent / f"samples_{TASK}_{date}.jsonl").is_file()
    assert write_lm_eval(tmp_path / "out", read_records(run)) == written
    assert len(list((tmp_path / "out/demo__grpo").iterdir())) == 2


def test_results_have_the_documented_keys(results: dict[str, Any]):
    assert set(results) == {*RESULT_KEYS, "groupwise"}
    assert results["versions"] == {TASK: 3}
    assert results["n-shot"] == {TASK: 4}
    assert results["n-samples"] == {TASK: {"original": 3, "effective": 3}}
    assert results["higher_is_better"][TASK] == {
        "acc": True,
        "accuracy[a=b;c]": True,
        "brier": False,
        "missed": False,
    }
    listed = {
        m["metric"]: m.get("higher_is_better") for m in results["configs"][TASK]["metric_list"]
    }
    assert (listed["missed"], listed["acc"], listed["f_score"]) == (False, True, None)
    assert results["config"]["model_args"]["pretrained"] == "tiny-qwen2"
    assert results["config"]["gen_kwargs"] == {"temperature": 0.0}
    assert results["config"]["random_seed"] == 7
    assert (results["git_hash"], results["date"]) == ("abc", 1772445600.0)
    assert results["model_name"] == "demo:grpo"
    assert results["groupwise"]["metrics"][0]["low"] == 0.2


def test_values_have_a_standard_error_only_where_it_is_that_of_a_mean(results: dict[str, Any]):
    values = results["results"][TASK]
    assert values["acc,none"] == 2 / 3
    assert values["acc_stderr,none"] == pytest.approx((2 / 9 / 2) ** 0.5)
    assert values["brier_stderr,none"] == "N/A"
    assert values["accuracy[a=b;c],none"] == 0.5
    assert (values["alias"], values["sample_len"]) == (TASK, 3)


def test_samples_have_the_documented_keys(run: Path, tmp_path: Path):
    write_lm_eval(tmp_path / "out", read_records(run, policy="grpo"))
    (path,) = tmp_path.glob("out/demo__grpo/samples_*.jsonl")
    rows = read_jsonl(path)
    assert [row["doc_id"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert set(row) == {*SAMPLE_KEYS, "acc", "invalid_rate", "f1", "score_target"}
        assert row["metrics"] == ["acc", "invalid_rate", "f1", "score_target"]
    assert [row["acc"] for row in rows] == [1.0, 1.0, 0.0]
    assert rows[2]["filtered_resps"] == ["[invalid]"]
    assert rows[0]["resps"] == [["答案 0"]]
    assert rows[0]["target"] == "在任务上"
    assert len({row["doc_hash"] for row in rows}) == 3


def test_what_was_not_recorded_is_left_out(run: Path, tmp_path: Path):
    for name in ("evaluate/conditions.json", "evaluate/metrics.json", "manifest.json"):
        (run / name).unlink()
    (path, _) = write_lm_eval(tmp_path / "out", read_records(run))
    results = json.loads(path.read_text(encoding="utf-8"))
    assert "git_hash" not in results
    assert results["versions"] == {"run_test": None}
    assert "gen_kwargs" not in results["config"]
    assert results["results"]["run_test"] == {
        "name": "run_test",
        "alias": "run_test",
        "sample_len": 3,
    }


def test_the_harness_itself_reads_it(results: dict[str, Any]):
    utils = pytest.importorskip("lm_eval.utils")
    schema = pytest.importorskip("lm_eval.result_schema")
    table = utils.make_table(results)
    assert "|on_task_test|      3|none  |     4|acc" in table
    assert "0.6667|±  |0.3333|" in table
    assert set(results) - set(schema.EvalResults.__annotations__) == {"groupwise"}
    assert utils.sanitize_model_name("demo:grpo") == results["model_name_sanitized"]
    assert utils.get_file_task_name(f"samples_{TASK}_2026-03-02T10-00-00+00-00.jsonl") == TASK
