"""The other ways to Stage B: lines that are given, a published base that is taught, English."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from recipe_runs import POLICIES, RecipeJob

from groupwise.core import digest_file, read_json, read_jsonl, write_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise_drawn.cabinets import write_cabinets

pytestmark = pytest.mark.slow


def change(job: RecipeJob, **settings: object) -> RecipeJob:
    """Return the job with changed settings; ``__`` in a name stands for a dot."""
    given = {name.replace("__", "."): value for name, value in settings.items()}
    left = {
        name: value for name, value in job.settings.items() if name.partition(".")[0] != "teach"
    }
    return replace(job, settings={**left, **given})


def write_lines(folder: Path) -> list[dict[str, Any]]:
    """Draw photo groups in English; return the lines that Stage A would give of them."""
    index = write_cabinets(
        folder, num_groups=64, seed=0, size=(112, 84), language="en", folders=("passed", "failed")
    )
    found: dict[str, dict[str, Any]] = {}
    for row in read_jsonl(index):
        known = {key: row[key] for key in ("group_id", "mission", "label")}
        one = found.setdefault(row["group_id"], {**known, "images": [], "per_image": {}})
        one["images"].append(row["photo"])
        one["per_image"][f"image_{len(one['images'])}"] = row["description"]
    return list(found.values())


def test_lines_of_stage_a_are_enough_and_words_may_be_english(
    job: RecipeJob, tmp_path: Path, command_line: CommandLine
) -> None:
    rows = write_lines(tmp_path / "drawn")
    broken = {**rows[0], "group_id": "b", "per_image": {}}
    write_jsonl(tmp_path / "lines.jsonl", [*rows, broken])
    names = json.dumps([str(tmp_path / "lines.jsonl")])
    given = change(job, teach="null", data__teach_share=0, data__summaries=names)
    run = tmp_path / "run"
    done = command_line(*replace(given, config="english").list_arguments(run))
    assert done.returncode == 0, done.stderr
    parts = ("warmup", "train", "validation", "test")
    data = {name: read_examples(run / "stage_b_data" / f"{name}.jsonl") for name in parts}
    asked = [example for own in data.values() for example in own]
    assert {example.label for example in data["test"]} == {"pass", "fail"}
    lines = {json.dumps(row["per_image"]) for row in rows}
    assert len(asked) == len(rows)
    assert {json.dumps(example.fields["stage_a_summaries"]) for example in asked} == lines
    assert not (run / "summarize").exists()
    metrics = read_metrics(run / "evaluate" / "metrics.json")
    assert {one.policy for one in metrics} == POLICIES - {"picture_only"}
    text = (run / "report.md").read_text()
    assert "Stage A was not run here" in text
    assert "64 of 65 lines are used; 1 were dropped (1 x wrong keys)" in text
    assert "Recall fail" in text
    assert "通过" not in text
    out = tmp_path / "answers.jsonl"
    command_line("predict", run, tmp_path / "drawn", "--out", out)
    answers = read_jsonl(out)
    assert len(answers) == 64
    assert all("cannot describe photos" in row["reason"] for row in answers)


def test_a_published_base_is_taught_from_what_is_written_about_photos(
    job: RecipeJob, tiny_run: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    base, drawn = tiny_run / "teach_stage_a" / "untaught", tiny_run / "prepare" / "drawn"
    before = digest_file(base)
    taught = change(
        job,
        model__base=base,
        data__root=drawn,
        data__photo_labels="{file: descriptions.jsonl, column: description}",
        teach="{epochs: 1, batch_size: 8, learning_rate: 1e-3, photos_per_epoch: 16, "
        "save_every_steps: 2, trainable: {method: lora, lora: {rank: 4, alpha: 8}}}",
    )
    run = tmp_path / "run"
    done = command_line(*taught.list_arguments(run, "--until", "summarize"))
    assert done.returncode == 0, done.stderr
    policy = run / "teach_stage_a" / "policy"
    assert not (policy / "adapter_config.json").exists()
    weights = "model.safetensors"
    assert (policy / weights).read_bytes() != (base / weights).read_bytes()
    assert digest_file(base) == before
    trained = {row["part"]: row for row in read_json(policy.parent / "trainable.json", list)}
    assert trained["vision"]["num_trainable"] == 0
    assert sum(row["num_trainable"] for row in trained.values()) > 0
    texts = {row["photo"]: row["description"] for row in read_jsonl(drawn / "descriptions.jsonl")}
    rows = read_jsonl(run / "prepare" / "descriptions.jsonl")
    assert rows
    assert all(texts[row["photo"]] == row["description"] for row in rows)
    assert list((run / "summarize").glob("*.jsonl"))
