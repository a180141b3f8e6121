"""How often Stage A's lines agree with the labels of photos, on lines that are made up."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from group_words import WORDS
from tile_photos import MISSION, TEXTS, name_defect

from groupwise.core import ConfigError, load_config, read_json, write_json, write_jsonl
from groupwise.evaluation.predictions import Prediction
from groupwise.pipeline import StepContext, find_config, find_recipe
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import prepare_groups, read_groups
from groupwise_recipes.group_qc.photo_lines import ALL, OTHERS, make_line_sections, measure_lines
from groupwise_recipes.group_qc.task import TASK


def predict(key: str, lines: Mapping[str, str | None]) -> Prediction:
    """Answer a group whose photos have these lines, by place."""
    summaries = {f"图片_{n}": line for n, line in enumerate(lines.values(), 1)}
    fields = {"task_type": MISSION, "images": list(lines), "stage_a_summaries": summaries}
    given: dict[str, Any] = {"split": "test", "policy": "grpo", "label": "通过"}
    return Prediction(example_id=key, cluster=key, predicted="通过", fields=fields, **given)


LABELS = {
    "a/0.jpg": "螺丝/未拧紧×1，线缆/整齐×2",
    "a/1.jpg": "螺丝/拧紧×1",
    "b/0.jpg": "螺丝/未拧紧×1",
    "b/1.jpg": "螺丝/拧紧×1",
}
LINES = [
    predict("a", {"a/0.jpg": "线缆/整齐×2，螺丝/未拧紧×1", "a/1.jpg": "螺丝/未拧紧×1"}),
    predict("b", {"b/0.jpg": "螺丝/拧紧×1", "b/1.jpg": "螺丝/拧紧×1", "b/2.jpg": "无关图片"}),
]
"""One defect is read, in another order; one is missed; one is seen where none is."""


def test_lines_agree_where_they_name_what_the_label_names_and_defects_are_told_apart() -> None:
    # Further policies on the same groups are no further photos.
    both = [*LINES, *(replace(one, policy="sft") for one in LINES)]
    found = measure_lines(both, LABELS, WORDS, seed=0)
    assert list(found) == [ALL, "螺丝/拧紧×1", LABELS["a/0.jpg"], LABELS["b/0.jpg"]]
    shown = {name: {m.measure: (m.value, m.n) for m in own} for name, own in found.items()}
    assert shown[ALL]["accuracy"] == (0.5, 4)
    assert shown[ALL]["missed_defects"] == (0.5, 2)
    assert shown["螺丝/拧紧×1"]["accuracy"] == (0.5, 2)
    assert "missed_defects" not in shown["螺丝/拧紧×1"]
    assert shown["螺丝/未拧紧×1"]["missed_defects"] == (1.0, 1)
    (whole,) = [one for one in found[ALL] if one.measure == "accuracy"]
    assert whole.low < 0.5 < whole.high


def test_both_languages_say_it_and_nothing_is_said_without_labels() -> None:
    english, chinese = make_line_sections(measure_lines(LINES, LABELS, WORDS, seed=0))
    text = english.text.replace("\u00a0", " ")
    assert re.search(r"Of 4 photos of the photo groups of test .* 50\.0 % \(.*\) have a line", text)
    assert re.search(r"Of 2 photos whose label has a negative remark, 50\.0 % \(", text)
    assert english.tables[0].rows[0][0] == "all photos"
    assert "4 张照片" in chinese.text.replace("\u00a0", " ")
    assert not re.search("[a-z]{3}", chinese.text.replace("test", "").replace("id", ""))
    good = {key: "螺丝/拧紧×1" for key in ("a/1.jpg", "b/1.jpg")}
    english, _ = make_line_sections(measure_lines(LINES, good, WORDS, seed=0))
    assert "nothing is known about the defects" in english.text
    assert len(english.tables[0].rows) == 1
    assert make_line_sections(measure_lines(LINES, {}, WORDS, seed=0)) == []


def test_rare_labels_share_a_row() -> None:
    labels = {f"{n}/0.jpg": f"螺丝/松动{n}×1" for n in range(20)}
    rows = [predict(str(n), {place: label}) for n, (place, label) in enumerate(labels.items())]
    found = measure_lines(rows, labels, WORDS, seed=0)
    assert len(found) == 14
    assert {one.n for one in found[OTHERS]} == {8}


def load(root: Path, *overrides: str) -> GroupQcConfig:
    path = find_config(find_recipe("group_qc"), "tile-tiny")
    return load_config(GroupQcConfig, path, overrides=(f"data.root={root}", *overrides))


def test_a_run_measures_the_photos_of_its_test_groups(root: Path, tmp_path: Path) -> None:
    config, run = load(root), tmp_path / "run"
    prepare_groups(config, run / "prepare")
    write_json(run / "grpo" / "trainable.json", [])
    write_json(run / "stage_b_data" / "failed.json", {})
    groups = read_groups(config, run / "prepare")["test"]
    rows = [predict(one.key, dict.fromkeys(one.list_images(root), TEXTS["free"])) for one in groups]
    uses = ("prepare", "stage_b_data", "grpo")
    place: dict[str, Any] = {"is_resumed": False, "uses": uses, "config": config}
    context = StepContext(run, run / "evaluate", "evaluate", **place)
    titles = [one.title for one in TASK.describe(config, context, rows, (), ())]
    assert {"Stage A's lines", "阶段 A 的描述"} <= set(titles)
    kept = read_json(run / "evaluate" / "stage_a.json", dict)
    places = [place for one in groups for place in one.list_images(root)]
    cracks = [place for place in places if name_defect(place) == "crack"]
    shown = {one["name"]: (one["value"], one["n"]) for one in kept[ALL]}
    assert shown["stage_a/accuracy"] == (1 - len(cracks) / len(places), len(places))
    assert shown["stage_a/missed_defects"] == (1.0, len(cracks))
    elsewhere = StepContext(run, run / "evaluated" / "july", "july", **place)
    titles = [one.title for one in TASK.describe(config, elsewhere, rows, (), ())]
    assert "Stage A's lines" not in titles
    unlabelled = load(root, "data.photo_labels=null", "teach=null", "model.base=some/model")
    place["config"] = unlabelled
    bare = StepContext(run, run / "evaluate", "evaluate", **place)
    titles = [one.title for one in TASK.describe(unlabelled, bare, rows, (), ())]
    assert "Stage A's lines" not in titles


def test_given_lines_are_measured_too_where_their_photos_are(root: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    write_jsonl(lines, [])
    given = (f"data.summaries=[{lines}]", "teach=null", "model.base=some/model")
    assert load(root, *given).data.photo_labels is not None
    with pytest.raises(ConfigError, match=r"data\.photo_labels needs the photos"):
        load(root, *given, "data.root=null")
