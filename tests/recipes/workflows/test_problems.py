"""Problems into splits: every type on every side, or a refusal; and what a report says first."""

import json
from pathlib import Path

import pytest
from workflow_problems import CHOICE, CODE, SUM

from groupwise.core import DataError, dump_config, write_jsonl
from groupwise.data import Problem
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.problems import SPLITS, choose_examples
from groupwise_recipes.workflows.task import TASK

BASE = {
    "model": {"base": "tiny-qwen2", "max_pixels": 16384},
    "sft": {"epochs": 1},
    "grpo": {},
    "executor": {"stub": {}},
}


def write_mix(folder: Path, *problems: Problem) -> Path:
    """Write a mix whose splits hold eight of each of the problems."""
    for split in SPLITS:
        rows = [
            {**dump_config(one), "id": f"{split}{one.id}{n}", "problem": f"{n}{split}{one.problem}"}
            | ({} if one.cluster == "same" else {"cluster": f"{split}{one.id}{n}"})
            for one in problems
            for n in range(8)
        ]
        write_jsonl(folder / f"{split}.jsonl", rows)
    return folder


def configure(mix: Path, **more: object) -> WorkflowsConfig:
    return WorkflowsConfig.model_validate({**BASE, "data": {"mix": mix}, **more})


def test_every_type_is_on_both_sides_of_the_warm_up(tmp_path: Path) -> None:
    examples, drops = choose_examples(configure(write_mix(tmp_path, SUM, CODE, CHOICE)))
    kinds = {name: {one.fields["problem_type"] for one in rows} for name, rows in examples.items()}
    assert all(found == {"math", "code", "qa"} for found in kinds.values())
    assert set(kinds) == {*SPLITS, "warmup"}
    assert drops.total == 0


def test_a_type_that_one_cluster_takes_away_from_grpo_is_refused(tmp_path: Path) -> None:
    alone = CHOICE.model_copy(update={"cluster": "same"})
    with pytest.raises(DataError, match="the split train has no problem of type qa"):
        choose_examples(configure(write_mix(tmp_path, SUM, alone)))


def test_a_type_that_is_never_measured_is_refused(tmp_path: Path) -> None:
    mix = write_mix(tmp_path, SUM, CODE)
    rows = (mix / "test.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if json.loads(row)["problem_type"] == "math"]
    (mix / "test.jsonl").write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(DataError, match="the split test has no problem of type code"):
        choose_examples(configure(mix))


def list_findings(config: WorkflowsConfig) -> set[str]:
    told = [*TASK.find_in_settings(config), *TASK.find_in_data(config, Path())]
    return {one.name for one in told}


def test_what_a_report_says_first(tmp_path: Path) -> None:
    mix = write_mix(tmp_path, SUM)
    assert list_findings(configure(mix)) == {"executor_stub", "mix_without_report"}
    finding = {"level": "warning", "name": "trains_on_test_part", "message": "!", "count": 1}
    (mix / "mix.json").write_text(json.dumps({"findings": [finding]}), encoding="utf-8")
    judged = configure(
        mix, executor={"model": {"model": "m"}}, judge={}, reward={"mode": "judge_only"}
    )
    assert list_findings(judged) == {"judge_only", "trains_on_test_part"}


def test_another_report_of_the_mix_is_another_input(tmp_path: Path) -> None:
    config = configure(write_mix(tmp_path, SUM))
    before = TASK.inputs(config)
    (tmp_path / "mix.json").write_text('{"findings": []}', encoding="utf-8")
    assert TASK.inputs(config) != before
