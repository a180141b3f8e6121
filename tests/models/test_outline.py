"""Sizes of a base are read from its files, without Transformers."""

import json
import subprocess
import sys

import pytest

from groupwise.models import find_outline, load_policy


@pytest.mark.parametrize("kind", ["text_folder", "vision_folder"])
def test_sizes_are_those_of_the_loaded_model(kind, request):
    folder = request.getfixturevalue(kind)
    found, model = find_outline(folder), load_policy(folder).model
    assert found.num_parameters == sum(p.numel() for p in model.parameters())
    assert found.num_blocks == model.config.get_text_config().num_hidden_layers
    assert not found.has_experts


def test_nothing_is_known_of_what_is_not_here(tmp_path):
    for base in (tmp_path, tmp_path / "gone", "some/model", "no name ?"):
        assert find_outline(str(base)) is None


def test_blocks_are_counted_where_a_family_s_default_is_not_written(vision_folder, tmp_path):
    config = json.loads((vision_folder / "config.json").read_text())
    config["text_config"].pop("num_hidden_layers")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_outline(tmp_path).num_blocks is None
    (tmp_path / "model.safetensors").symlink_to(vision_folder / "model.safetensors")
    assert find_outline(tmp_path).num_blocks == find_outline(vision_folder).num_blocks


def test_reading_one_imports_nothing_heavy(text_folder):
    code = f"""
import sys
from groupwise.models import find_outline
assert find_outline({str(text_folder)!r})
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
