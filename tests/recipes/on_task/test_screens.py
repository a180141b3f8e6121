"""Splits of on_task: nothing of one side stands on another, and totals add up."""

import json
import os
import shutil
from pathlib import Path

import pytest

from groupwise.core import load_config, read_jsonl, write_jsonl
from groupwise.data import read_examples, write_desktops
from groupwise.pipeline import find_recipe
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.screens import prepare_screens

CONFIGS = find_recipe("on_task").config_folder
REAL = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "screenagent"


def load(root: Path, *overrides: str) -> OnTaskConfig:
    settings = [f"data.root={root}", "data.drawn.num_sessions=0", *overrides]
    return load_config(OnTaskConfig, CONFIGS / "screenagent-tiny.yaml", overrides=settings)


def test_picture_of_two_sessions_stays_on_one_side_and_is_counted(tmp_path: Path) -> None:
    root = tmp_path / "screens"
    index = write_desktops(
        root, num_sessions=30, screens_per_session=1, seed=3, size=(160, 120), languages=("en",)
    )
    rows = [row | {"fold": number % 2} for number, row in enumerate(read_jsonl(index))]
    write_jsonl(index, rows)
    shutil.copy(root / rows[0]["image"], root / rows[1]["image"])  # folds 0 and 1
    config = load(root, "data.train_folds=[0]", "data.test_folds=[1]", "data.validation_share=0.2")
    folder = tmp_path / "prepare"
    prepare_screens(config, folder)
    pictures = {
        name: {p.digest for e in read_examples(folder / f"{name}.jsonl") for p in e.pictures}
        for name in ("train", "validation", "test")
    }
    assert len(set.union(*pictures.values())) == sum(len(p) for p in pictures.values()) == 29
    source = json.loads((folder / "source.json").read_text())
    assert source["drops"]["counts"] == {"picture of another split": 1}
    assert source["num_rows"] == 30


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real screenshots are not at {REAL}")
def test_folds_of_real_screenshots_share_no_session(tmp_path: Path) -> None:
    prepare_screens(load(REAL), tmp_path)
    groups = {
        name: {e.group for e in read_examples(tmp_path / f"{name}.jsonl")}
        for name in ("train", "validation", "test")
    }
    assert not groups["test"] & (groups["train"] | groups["validation"])
    assert not groups["train"] & groups["validation"]
    assert len(groups["test"]) == 37
