"""A finished policy on other labelled data: a tiny run, its results, and what is compared."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from small_task import LORA, SmallConfig, SmallTask

from groupwise.core import ConfigError, DataError, RunError, read_json, read_jsonl, write_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.flow import Task, evaluate_on, open_run, run

SEEN = 3


@pytest.fixture
def rows(finished: Path, tmp_path: Path) -> Path:
    """Other rows: new ones, some that training has seen, and one with a label of another task."""
    known = [one.prompt[0].text for one in read_examples(finished / "prepare" / "train.jsonl")]
    texts = [f"新螺栓{number}的力矩是{number}，合格吗？" for number in range(9)]
    texts += [f" {text} " for text in known[:SEEN]]
    labelled = [{"question": t, "label": ("合格", "不合格")[n % 2]} for n, t in enumerate(texts)]
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [*labelled, {"question": "?", "label": "紫色"}])
    return path


@pytest.mark.parametrize("policy", ["grpo", pytest.param("prompt", marks=pytest.mark.slow)])
def test_a_policy_is_measured_on_other_rows_as_its_run_measured_it(
    policy: str, finished: Path, tmp_path: Path
) -> None:
    """The run's own test rows as a file: the same answers, texts, probabilities and numbers."""
    test = read_examples(finished / "prepare" / "test.jsonl")
    own = tmp_path / "test.jsonl"
    write_jsonl(own, [{"question": e.prompt[0].text, "label": e.label} for e in test])
    out = tmp_path / policy
    evaluate_on(open_run(finished), own, out=out, policy=policy)
    before = read_predictions(finished / "evaluate" / "predictions.jsonl")
    after = read_predictions(out / "evaluate" / "predictions.jsonl")
    assert [_show(one) for one in after if one.policy == policy] == [
        _show(one) for one in before if one.policy == policy
    ]
    known = {m.name: m.value for m in read_metrics(finished / "evaluate" / "metrics.json")}
    found = {m.name: m.value for m in read_metrics(out / "evaluate" / "metrics.json")}
    measured = {f"{policy}/accuracy", f"{policy}/invalid_rate", "majority/accuracy"}
    assert measured <= set(found)
    assert {name: found[name] for name in measured} == {name: known[name] for name in measured}


def _show(one: Any) -> tuple[Any, ...]:
    return one.example_id, one.label, one.predicted, one.text, one.probabilities


def test_what_training_has_seen_is_told_and_left_out_of_a_second_number(
    finished: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    found = evaluate_on(open_run(finished), rows, out=out)
    assert (found.num_rows, found.drops.counts, found.num_seen) == (13, {"no such label": 1}, SEEN)
    assert "text_in_two_splits" in {finding.name for finding in found.audit.warnings}
    sizes = {m.name: m.n for m in read_metrics(out / "evaluate" / "metrics.json")}
    assert sizes["grpo/accuracy"] == 12
    assert sizes["grpo/accuracy[seen_in_training=yes]"] == SEEN
    assert sizes["grpo/accuracy[seen_in_training=no]"] == 12 - SEEN
    manifest = read_json(out / "manifest.json", dict)
    origin = manifest["evaluated"]
    assert (origin["run"], origin["policy"]) == (str(finished), "grpo")
    report = (out / "report.md").read_text()
    assert origin["weights"] in report
    assert origin["data_digest"] in report
    assert "no such label" in report
    assert [one.name for one in read_policies(out).listed if one.kind != "baseline"] == [
        "prompt",
        "sft",
        "grpo",
    ]
    assert not list(out.rglob("*.safetensors"))


def test_the_same_call_continues_and_another_is_refused(
    finished: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, opened = tmp_path / "out", open_run(finished)
    with monkeypatch.context() as patch:
        patch.setattr("groupwise.flow.other_data.measure_policies", _stop)
        with pytest.raises(KeyboardInterrupt):
            evaluate_on(opened, rows, out=out)
    with monkeypatch.context() as patch:
        patch.setattr("groupwise.flow.other_data.ask_policy", _stop)
        evaluate_on(opened, rows, out=out)
    before = (out / "evaluate" / "predictions.jsonl").read_bytes()
    assert [row["run"] for row in read_jsonl(tmp_path / "looks.jsonl")] == ["out"]
    with pytest.raises(RunError, match="holds another evaluation; got policy grpo"):
        evaluate_on(opened, rows, out=out, policy="sft")
    write_jsonl(rows, read_jsonl(rows)[:5])
    with pytest.raises(RunError, match="holds another evaluation; got data_digest"):
        evaluate_on(opened, rows, out=out)
    assert (out / "evaluate" / "predictions.jsonl").read_bytes() == before
    for folder in (finished, tmp_path):
        with pytest.raises(RunError, match="has files that are no evaluation on other data"):
            evaluate_on(opened, rows, out=folder)
    for verb in (open_run, lambda folder: run(SmallTask, SmallConfig(**LORA), out=folder)):
        with pytest.raises(RunError, match="holds an evaluation of the run"):
            verb(out)


def _stop(*given: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_checkpoint_is_a_policy(finished: Path, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate_on(open_run(finished), rows, out=out, policy="grpo/checkpoint-1")
    (policy,) = [one for one in read_policies(out).listed if one.step == "grpo"]
    assert (policy.name, policy.title) == ("grpo-checkpoint-1", "GRPO, step 1")
    assert (policy.trained_from, policy.budget) == ("sft", {"num_steps": 1})
    asked = {one.policy for one in read_predictions(out / "evaluate" / "predictions.jsonl")}
    assert "grpo-checkpoint-1" in asked
    with pytest.raises(RunError, match=r"no policy of .* 'grpo/checkpoint-7'"):
        evaluate_on(open_run(finished), rows, out=tmp_path / "7", policy="grpo/checkpoint-7")


def test_what_cannot_be_evaluated_is_said(
    finished: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_run(finished)
    with pytest.raises(ConfigError, match="there is no file or folder"):
        evaluate_on(opened, tmp_path / "nowhere", out=tmp_path / "out")
    monkeypatch.setattr(SmallTask, "read_labelled", Task.read_labelled)
    with pytest.raises(ConfigError, match="SmallTask reads no labelled rows of other data"):
        evaluate_on(opened, rows, out=tmp_path / "out")


@pytest.mark.slow
def test_rows_that_cannot_be_used_take_no_folder(
    finished: Path, rows: Path, tmp_path: Path
) -> None:
    text, out = rows.read_text(encoding="utf-8"), tmp_path / "out"
    write_jsonl(rows, [])
    with pytest.raises(DataError):
        evaluate_on(open_run(finished), rows, out=out)
    assert [path.name for path in out.iterdir() if not path.name.startswith(".")] == []
    other = tmp_path / "other.jsonl"
    other.write_text(text, encoding="utf-8")
    assert evaluate_on(open_run(finished), other, out=out).num_rows == len(text.splitlines())


@pytest.mark.slow
def test_two_policies_on_the_same_rows_are_compared_by_item(
    finished: Path, rows: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    for policy in ("sft", "grpo"):
        done = command_line("evaluate", f"{finished}:{policy}", rows, "--out", policy)
        assert done.returncode == 0, done.stderr
        assert "13 rows, 12 asked" in done.stdout
        assert "seen in training: 3 rows" in done.stdout
        assert "not used: 1 no such label" in done.stderr
    done = command_line("compare", "sft", "grpo", "--out", "both")
    assert done.returncode == 0, done.stderr
    both = json.loads((tmp_path / "both" / "comparison.json").read_text())
    assert both["table"]["is_fair"], done.stdout
    assert [(one["system"], one["policy"]) for one in both["table"]["results"]] == [
        ("sft", "sft"),
        ("grpo", "grpo"),
    ]
    done = command_line("compare", "sft", finished, "--out", "apart")
    apart = json.loads((tmp_path / "apart" / "comparison.json").read_text())
    assert not apart["table"]["is_fair"]
    assert "they were measured on different items" in done.stdout
