"""A Task of somebody else, from Python: the whole way, with a warm-up and without one."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from small_task import LORA, GreedyTask, LeakyTask, SmallConfig, SmallTask

from groupwise import core
from groupwise.core import ConfigError, DataError, RunError
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.run import training
from groupwise.run.evaluating import evaluate_on
from groupwise.run.predict import (
    Served,
    find_source,
    name_version,
    open_run,
    predict_rows,
    write_served,
)
from groupwise.run.recipe import find_recipe
from groupwise.run.running import find_address, run
from groupwise.run.task import Task
from groupwise.run.training import rate_baselines

SMALL: dict[str, Any] = {name: values for name, values in LORA.items() if name != "sft"}
WARMUP = {"epochs": 1, "batch_size": 4, "learning_rate": 1e-3}


def test_a_task_with_a_warmup_runs_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, looked_at = watch_training(monkeypatch)
    said: list[str] = []
    grpo = SMALL["grpo"] | {"validation": {"every_steps": 1}}
    warmup = WARMUP | {"validation": {"every_steps": 1, "select": "last"}}
    config = SmallConfig(**SMALL | {"grpo": grpo, "sft": warmup})
    out = run(SmallTask, config, out=tmp_path / "run", say=said.append)
    metrics = read_metrics(out / "evaluate" / "metrics.json")
    taught = out / "sft" / "policy"
    assert opened == [out / "prepare" / "base", taught, taught]
    assert looked_at == {one.id for one in read_examples(out / "prepare" / "validation.jsonl")[:2]}
    policies = {metric.policy for metric in metrics if metric.measure == "accuracy"}
    assert policies == {"majority", "text_only", "joint", "prompt", "sft", "sft_control", "grpo"}
    assert said[0] == "[1/9] prepare: data into splits"
    assert any("evaluate run in" in line for line in said)
    assert json.loads((out / "manifest.json").read_text())["recipe"] == "small_task:SmallTask"
    described = read_policies(out)
    assert [one.name for one in described.listed] == described.sort(policies)
    assert described.find("sft").budget["num_samples"] == 8
    for name in ("sft", "sft_control", "grpo"):
        one, looked = described.find(name), core.read_json(out / name / "selection.json", dict)
        assert one.budget["num_looks"] == one.budget["num_steps"] == len(looked["looks"])
        assert one.budget["num_validation_items"] == 2
        step = (
            f"weights of step {looked['kept_step']} of {looked['last_step']}, chosen on validation"
        )
        assert step in one.note
        assert looked["select"] == ("last" if name == "sft" else "best")
    assert "chosen on validation" in (out / "report.html").read_text()
    assert described.find("text_only").blind_to == ()
    assert [one.name for one in described.list_ancestors("grpo")] == ["prompt", "sft", "grpo"]
    check_predictions(out)
    rated = rate_baselines(SmallTask(), config, out)
    assert set(rated) == {"words", "words in their order", "majority"}
    assert all(0 <= share <= 1 for share in rated.values())
    said.clear()
    run(SmallTask, config, out=out, say=said.append)
    assert sum("reused" in line for line in said) == 9


def watch_training(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Path], set[str]]:
    """Return what trainings start from, in order, and the ids of rows that they look at."""
    opened: list[Path] = []
    looked_at: set[str] = set()
    open_policy, check_heldout = training.open_policy, training.check_heldout

    def open_and_note(config: Any, base: Any) -> Any:
        opened.append(Path(base))
        return open_policy(config, base)

    def check_and_note(task: Any, policy: Any, heldout: Any, *given: Any, **named: Any) -> Any:
        looked_at.update(one.id for one in heldout)
        return check_heldout(task, policy, heldout, *given, **named)

    monkeypatch.setattr(training, "open_policy", open_and_note)
    monkeypatch.setattr(training, "check_heldout", check_and_note)
    return opened, looked_at


def test_errors_of_the_data_audit_stop_a_run_before_it_trains(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the data audit found 2 error\(s\)"):
        run(LeakyTask, SmallConfig(**SMALL), out=tmp_path / "run", say=lambda _: None)
    assert not (tmp_path / "run" / "grpo").exists()


def check_predictions(out: Path) -> None:
    """Compare what each policy predicts for the test rows with what was evaluated."""
    test = read_examples(out / "prepare" / "test.jsonl")
    questions = [{"question": example.prompt[0].text} for example in test]
    core.write_jsonl(out / "asked.jsonl", questions)
    evaluated = read_predictions(out / "evaluate" / "predictions.jsonl")
    for name in ("prompt", "sft", "grpo"):
        answers = out / f"{name}.jsonl"
        predict_rows(open_run(out), out / "asked.jsonl", out=answers, policy=name)
        rows = core.read_jsonl(answers)
        known = {one.example_id: one for one in evaluated if one.policy == name}
        for row, example in zip(rows, test, strict=True):
            one = known[example.id]
            assert (row["text"], row["answer"]) == (one.text, one.predicted)
            chance = None if one.predicted is None else (one.probabilities or {})[one.predicted]
            assert row["confidence"] == pytest.approx(chance, abs=1e-5)


def test_without_a_warmup_grpo_starts_from_the_base(tmp_path: Path) -> None:
    out = run(SmallTask, SmallConfig(**SMALL), out=tmp_path / "run", say=lambda _: None)
    policies = {metric.policy for metric in read_metrics(out / "evaluate" / "metrics.json")}
    assert policies == {"majority", "text_only", "joint", "prompt", "grpo"}
    assert not (out / "sft").exists()
    assert [one.step for one in read_policies(out).list_ancestors("grpo")] == [None, "grpo"]


def test_a_stage_that_reads_what_is_not_declared_stops(tmp_path: Path) -> None:
    message = "step 'evaluate' reads extra but does not list it in reads"
    with pytest.raises(ValueError, match=message):
        run(GreedyTask, SmallConfig(**SMALL), out=tmp_path / "run", say=lambda _: None)


def test_a_task_without_an_import_path_is_told(tmp_path: Path) -> None:
    class Local(SmallTask):
        """Only here."""

    said: list[str] = []
    run(Local, SmallConfig(**SMALL), out=tmp_path / "run", until="prepare", say=said.append)
    assert said[0].startswith("Local has no import path, so only this process can")
    assert find_address(Local) is None
    assert find_address(SmallTask) == "small_task:SmallTask"


def test_a_recipe_is_found_by_its_import_path() -> None:
    assert find_recipe("small_task:SmallTask").summary == "Is the bolt tight?"
    with pytest.raises(ConfigError, match="nowhere:Task cannot be imported"):
        find_recipe("nowhere:Task")
    with pytest.raises(ConfigError, match="small_task:Absent cannot be imported"):
        find_recipe("small_task:Absent")


@pytest.fixture(scope="module")
def versions(finished):
    run = open_run(finished)
    return {name: name_version(run.open_predictor(name)) for name in ("grpo", "prompt")}


def test_a_loop_folder_serves_what_it_names_whenever_it_is_asked(finished, tmp_path, versions):
    for name, version in versions.items():
        write_served(tmp_path, Served(finished, name, version))
        source = find_source(tmp_path, None)
        opened = source.open()
        assert opened.version == version == source.find_version() == name_version(opened.predictor)
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    assert source.open().version == source.find_version() == versions["grpo"]
    write_served(tmp_path, Served(finished, "prompt", versions["grpo"]))
    with pytest.raises(RunError, match=r"does not have the version that .*served\.json names"):
        source.open()
    (tmp_path / "served.json").write_text("{}")
    with pytest.raises(DataError, match="does not say what is served"):
        source.find_version()


def test_a_run_stays_the_same_and_says_what_to_do(finished, versions):
    source = find_source(finished, "prompt")
    assert source.open().version == versions["prompt"]
    with pytest.raises(core.ServingError, match="alone; serve a loop folder"):
        source.find_version()


def test_a_loop_folder_itself_says_which_policy(finished, tmp_path, versions):
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    with pytest.raises(ConfigError, match="itself says which policy"):
        find_source(tmp_path, "prompt")


def test_the_command_refuses_another_version_than_is_named(
    finished, tmp_path, versions, command_line
):
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    done = command_line("serve", tmp_path, "--dry-run")
    assert (done.returncode, "ready: nothing was served" in done.stdout) == (0, True)
    write_served(tmp_path, Served(finished, "grpo", versions["prompt"]))
    assert "does not have the version" in command_line.refuse("serve", tmp_path, "--dry-run")
    judge = tmp_path / "judge.yaml"
    judge.write_text("model: /nowhere\n")
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    said = command_line.refuse("serve", tmp_path, "--dry-run", "--set", f"screens.judge={judge}")
    assert "has no screens to label" in said


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))


def test_changed_predictions_and_manifests_are_refused(copied: Path) -> None:
    core.check_records(copied)
    predictions = copied / "evaluate" / "predictions.jsonl"
    before = predictions.read_bytes()
    change(predictions)
    with pytest.raises(RunError, match=r"got evaluate/predictions.jsonl, which was changed"):
        core.check_records(copied)
    predictions.write_bytes(before)
    manifest = core.read_json(copied / "manifest.json", dict)
    core.write_json(copied / "manifest.json", {**manifest, "seed": manifest["seed"] + 1})
    with pytest.raises(RunError, match=r"manifest.json was changed since its run wrote it"):
        core.RunFolder(copied).read_manifest()


def test_a_checkpoint_with_other_weights_is_refused(copied: Path) -> None:
    name = min(path.name for path in (copied / "grpo").glob("checkpoint-*"))
    run = open_run(copied)
    assert Path(run.find_policy(f"grpo/{name}")) == copied / "grpo" / name
    change(copied / "grpo" / name / "adapter_model.safetensors")
    with pytest.raises(core.TrainingError, match=r"got another adapter_model.safetensors"):
        run.find_policy(f"grpo/{name}")


def test_a_run_names_no_code_of_its_own(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from within its folder nor from above it; nothing is imported to find out."""
    core.write_text(copied / "evil.py", "from pathlib import Path\nPath('ran').touch()\n")
    manifest = core.read_json(copied / "manifest.json", dict)
    del manifest["digest"]
    for folder, module in ((copied, "evil"), (copied.parent, "run.evil")):
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        core.write_json(copied / "manifest.json", {**manifest, "recipe": f"{module}:RECIPE"})
        with pytest.raises(RunError, match="names code in its own folder as its recipe; got"):
            open_run(copied)
        assert not (folder / "ran").exists()


SEEN = 3


@pytest.fixture
def rows(finished: Path, tmp_path: Path) -> Path:
    """Other rows: new ones, some that training has seen, and one with a label of another task."""
    known = [one.prompt[0].text for one in read_examples(finished / "prepare" / "train.jsonl")]
    texts = [f"新螺栓{number}的力矩是{number}，合格吗？" for number in range(9)]
    texts += [f" {text} " for text in known[:SEEN]]
    labelled = [{"question": t, "label": ("合格", "不合格")[n % 2]} for n, t in enumerate(texts)]
    path = tmp_path / "rows.jsonl"
    core.write_jsonl(path, [*labelled, {"question": "?", "label": "紫色"}])
    return path


@pytest.mark.parametrize("policy", ["grpo", pytest.param("prompt", marks=pytest.mark.slow)])
def test_a_policy_is_measured_on_other_rows_as_its_run_measured_it(
    policy: str, finished: Path, tmp_path: Path
) -> None:
    """The run's own test rows as a file: the same answers, texts, probabilities and numbers."""
    test = read_examples(finished / "prepare" / "test.jsonl")
    own = tmp_path / "test.jsonl"
    core.write_jsonl(own, [{"question": e.prompt[0].text, "label": e.label} for e in test])
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
    out, own = tmp_path / "out", tmp_path / "repeated.jsonl"
    asked = list(core.read_jsonl(rows))
    core.write_jsonl(own, [*asked, asked[0]])
    found, dropped = evaluate_on(open_run(finished), own, out=out), {"no such label": 1}
    dropped |= {"repeats another row": 1}
    assert (found.num_rows, found.drops.counts, found.num_seen) == (14, dropped, SEEN)
    assert "text_in_two_splits" in {finding.name for finding in found.audit.warnings}
    sizes = {m.name: m.n for m in read_metrics(out / "evaluate" / "metrics.json")}
    assert sizes["grpo/accuracy"] == 12
    assert sizes["grpo/accuracy[seen_in_training=yes]"] == SEEN
    assert sizes["grpo/accuracy[seen_in_training=no]"] == 12 - SEEN
    manifest = core.read_json(out / "manifest.json", dict)
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
        patch.setattr("groupwise.run.evaluating.measure_policies", _stop)
        with pytest.raises(KeyboardInterrupt):
            evaluate_on(opened, rows, out=out)
    with monkeypatch.context() as patch:
        patch.setattr("groupwise.run.evaluating.ask_policy", _stop)
        evaluate_on(opened, rows, out=out)
    before = (out / "evaluate" / "predictions.jsonl").read_bytes()
    assert [row["run"] for row in core.read_jsonl(tmp_path / "looks.jsonl")] == ["out"]
    with pytest.raises(RunError, match="holds another evaluation; got policy grpo"):
        evaluate_on(opened, rows, out=out, policy="sft")
    core.write_jsonl(rows, core.read_jsonl(rows)[:5])
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
    core.write_jsonl(rows, [])
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
        done = command_line.succeed("evaluate", f"{finished}:{policy}", rows, "--out", policy)
        assert "13 rows, 12 asked" in done.stdout
        assert "seen in training: 3 rows" in done.stdout
        assert "not used: 1 no such label" in done.stderr
    done = command_line.succeed("compare", "sft", "grpo", "--out", "both")
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
