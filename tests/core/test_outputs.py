"""What a run left is held against the digests that it wrote down."""

import shutil
from pathlib import Path

import pytest

from groupwise.core import (
    RunError,
    RunFolder,
    check_folder,
    check_records,
    digest_file,
    read_json,
    write_json,
    write_text,
)

SIBLINGS = {"audit/audit.json": "[1]", "audit/notes.txt": "seen"}
FILES = {
    **SIBLINGS,
    "grpo/metrics.jsonl": '{"step": 1}\n',
    "grpo/policy/config.json": "{}",
    "grpo/policy/model.safetensors": "weights",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for path, text in FILES.items():
        write_text(run / path, text)
    for step in ("audit", "grpo"):
        own = [path for path in FILES if path.startswith(f"{step}/")]
        write_json(run / step / "step.json", {"outputs": {p: digest_file(run / p) for p in own}})
    RunFolder(run).write_manifest(recipe="r", config={"a": 1.5, "b": "é"}, inputs={}, seed=3)
    return run


def test_a_run_that_nobody_changed_is_whole_wherever_it_lies(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(run)
    assert RunFolder(copy).read_manifest()["config"] == {"a": 1.5, "b": "é"}
    check_records(copy)
    check_folder(copy, "grpo/policy")


@pytest.mark.parametrize("change", [{"seed": 4}, {"config": {"a": 1.5}}, {"more": 1}])
def test_a_manifest_that_was_changed_is_refused(run: Path, change: dict[str, object]) -> None:
    path = RunFolder(run).manifest_path
    write_json(path, read_json(path, dict) | change)
    with pytest.raises(RunError, match=r"manifest.json was changed since its run wrote it; got"):
        RunFolder(run).read_manifest()


def test_a_manifest_without_a_recipe_is_damaged(run: Path) -> None:
    write_json(RunFolder(run).manifest_path, {"config": {}})
    with pytest.raises(RunError, match=r"manifest.json is damaged; got no recipe in it"):
        RunFolder(run).read_manifest()


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("audit/audit.json", "audit/audit.json, which was changed"),
        ("audit/sections.json", "audit/sections.json, which was added"),
        ("grpo/metrics.jsonl", "grpo/metrics.jsonl, which was changed"),
        ("grpo/policy/config.json", "grpo/policy/config.json, which was changed"),
    ],
)
def test_records_that_are_not_those_of_the_step_are_refused(run: Path, path: str, how: str) -> None:
    write_text(run / path, "[2]")
    with pytest.raises(RunError, match=f"{run} is not what its steps wrote; got {how}; take"):
        check_records(run)


def test_only_records_of_finished_steps_are_looked_at(run: Path) -> None:
    write_text(run / "audit/notes.txt", "other")
    write_text(run / "grpo/policy/model.safetensors", "others")
    (run / "grpo/policy/config.json").unlink()
    write_text(run / "sft/metrics.jsonl", "{}")
    check_records(run)
    write_text(run / "grpo/metrics.jsonl", "{}")
    check_records(run, "audit")


def test_what_is_written_for_people_may_be_written_again(run: Path) -> None:
    outputs = {"report.html": "a", "report/plots.json": "b"}
    write_json(run / "report/step.json", {"outputs": outputs})
    write_text(run / "report/plots.json", "[]")
    check_records(run)


def test_a_marker_leads_nowhere_else(run: Path, tmp_path: Path) -> None:
    """Neither a way out of the run is followed, nor a marker of another shape a bug."""
    write_text(tmp_path / "secret.json", "{}")
    write_json(run / "audit/step.json", {"outputs": {"audit/../../secret.json": "d"}})
    for path in SIBLINGS:
        (run / path).unlink()
    check_records(run)
    write_json(run / "audit/step.json", {"outputs": ["audit/audit.json"]})
    with pytest.raises(RunError, match=r"audit/step.json is damaged"):
        check_records(run)


@pytest.mark.parametrize(
    ("path", "text", "how"),
    [
        ("model.safetensors", "other", "changed"),
        ("pytorch_model.bin", "pickle", "added"),
        ("config.json", None, "gone"),
    ],
)
def test_a_policy_is_file_by_file_what_its_step_wrote(
    run: Path, path: str, text: str | None, how: str
) -> None:
    if text is None:
        (run / "grpo/policy" / path).unlink()
    else:
        write_text(run / "grpo/policy" / path, text)
    with pytest.raises(RunError, match=f"got grpo/policy/{path}, which (was|is) {how}"):
        check_folder(run, "grpo/policy")
