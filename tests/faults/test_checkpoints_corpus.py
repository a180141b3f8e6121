"""Model folders that somebody made or damaged: refused in one sentence, whatever a library says."""

import json
import shutil
from pathlib import Path

import pytest
from corpora import each_row

from groupwise.core import ModelError
from groupwise.models.policy import load_policy


@each_row("checkpoints")
def test_a_damaged_model_ends_in_a_sentence(row, text_folder, tmp_path):
    folder = Path(shutil.copytree(text_folder, tmp_path / "model"))
    file = folder / row["file"]
    if "set" in row:
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **row["set"]}))
    else:
        file.write_text(row["bytes"], encoding="utf-8")
    with pytest.raises(ModelError) as refused:
        load_policy(folder)
    assert "cannot load the model" in str(refused.value)
    assert "\n" not in str(refused.value)
