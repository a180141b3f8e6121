"""What each step of group_qc reads from outside: changed in place, it is redone."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from plan_keys import copy_sources, list_changed, plan, read_keys, run_stand_ins, write_base
from tile_photos import MISSION, list_photos

from groupwise.core import load_config
from groupwise.flow import prediction
from groupwise.pipeline import Step, find_config, find_recipe
from groupwise_recipes.group_qc import predictor
from groupwise_recipes.group_qc.task import TASK

LOADING = {"summarize", "baselines", "sft", "grpo", "sft_control", "evaluate"}
"""The steps that load weights, without the one that teaches a tiny model."""


def plan_photos(root: Path, run: Path, *overrides: str) -> list[Step]:
    return plan("group_qc", run, "tile-tiny", f"data.root={root}", *overrides)


def read_published(run: Path, base: Path | str, *overrides: str) -> dict[str, str]:
    given = (f"model.base={base}", "teach=null", "data.teach_share=0")
    return read_keys(plan("group_qc", run, "demo", *given, *overrides))


def test_a_photo_changed_in_place_redoes_what_read_it(root: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_stand_ins(plan_photos(root, run), run, "prepare")
    again = run_stand_ins(plan_photos(root, run), run, "prepare")
    assert set(again.values()) == {"reused"}
    Image.new("RGB", (32, 32), "white").save(root / list_photos()[3])
    states = run_stand_ins(plan_photos(root, run), run, "prepare")
    redone = {name for name, state in states.items() if state == "run"}
    assert {"prepare", "audit", "teach_stage_a", "summarize", "baselines", "evaluate"} <= redone
    assert {name: states[name] for name in ("sft", "grpo")} == {"sft": "reused", "grpo": "reused"}


def test_a_photo_behind_a_link_and_a_name_that_is_not_unicode_count(
    root: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / MISSION, elsewhere)
    (root / MISSION).symlink_to(elsewhere)
    before = read_keys(plan_photos(root, tmp_path))
    Image.new("RGB", (32, 32), "white").save(root / list_photos()[3])
    after = read_keys(plan_photos(root, tmp_path))
    assert "prepare" in list_changed(before, after)
    (elsewhere / "审核通过" / b"\xff.jpg".decode("utf-8", "surrogateescape")).write_bytes(b"")
    assert "prepare" in list_changed(after, read_keys(plan_photos(root, tmp_path)))


def test_a_table_of_labels_outside_the_root_counts(root: Path, tmp_path: Path) -> None:
    shutil.move(root / "photo_labels.csv", tmp_path / "labels.csv")
    place = "data.photo_labels.file=../labels.csv"
    before = read_keys(plan_photos(root, tmp_path, place))
    with (tmp_path / "labels.csv").open("a") as stream:
        stream.write("more.jpg,free\n")
    assert "prepare" in list_changed(before, read_keys(plan_photos(root, tmp_path, place)))


def test_a_rewritten_mission_is_described_and_judged_anew(tmp_path: Path) -> None:
    table = tmp_path / "missions.yaml"
    text = "missions: {BBU接地线检查: {focus: 接地线, key_points: [%s]}}"
    table.write_text(text % "两端连接", encoding="utf-8")
    before = read_published(tmp_path, write_base(tmp_path / "base"), f"data.missions={table}")
    table.write_text(text % "一端连接", encoding="utf-8")
    after = read_published(tmp_path, tmp_path / "base", f"data.missions={table}")
    assert list_changed(before, after) == {"prepare", "summarize", "stage_b_data"}


def test_replaced_weights_redo_every_step_that_loads_them(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    before = read_published(tmp_path, base)
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    changed = list_changed(before, read_published(tmp_path, base))
    assert changed == LOADING | {"stage_b_data"}


def test_a_base_that_is_served_is_not_read_by_stage_a(tmp_path: Path) -> None:
    served = "summaries.server={url: http://a/v1, model: b}"
    base = write_base(tmp_path / "base")
    before = read_published(tmp_path, base, served)
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert "summarize" not in list_changed(before, read_published(tmp_path, base, served))


@pytest.mark.parametrize(
    ("module", "changed"),
    [
        ("rewards", {"grpo", "audit_rewards"}),
        ("summaries", {"summarize"}),
        ("prompts", {"teach_stage_a", "summarize", "stage_b_data"}),
        ("verdicts", {"stage_b_data", "audit_rewards", *LOADING} - {"summarize"}),
        ("photos", set[str]()),
    ],
)
def test_code_that_is_edited_redoes_what_it_decides(
    root: Path, tmp_path: Path, monkeypatch, module: str, changed: set[str]
) -> None:
    sources = copy_sources(tmp_path / "src", monkeypatch)
    before = read_keys(plan_photos(root, tmp_path))
    with (sources / "groupwise_recipes" / "group_qc" / f"{module}.py").open("a") as stream:
        stream.write("\nEDITED = True\n")
    assert list_changed(before, read_keys(plan_photos(root, tmp_path))) == changed


def test_verdicts_on_new_groups_name_the_base_behind_the_adapter(
    root: Path, tmp_path: Path, monkeypatch
) -> None:
    base, policy = write_base(tmp_path / "base"), tmp_path / "run" / "grpo" / "policy"
    policy.mkdir(parents=True)
    adapter = {"base_model_name_or_path": "../../../base"}
    (policy / "adapter_config.json").write_text(json.dumps(adapter))
    monkeypatch.setattr(prediction, "open_policy", lambda *_: None)
    monkeypatch.setattr(prediction, "make_ask", lambda *_: None)
    monkeypatch.setattr(predictor, "LocalBackend", lambda _: None)
    recipe = find_recipe("group_qc")
    path = find_config(recipe, "tile-tiny")
    config = load_config(recipe.load_config_type(), path, overrides=[f"data.root={root}"])

    def describe() -> object:
        return predictor.GroupQcPredictor(TASK, config, policy).describe()

    before = describe()
    assert describe() == before
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert describe() != before
