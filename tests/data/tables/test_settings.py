from pathlib import Path
from typing import Any

import pytest

from groupwise.core import ConfigError, dump_config, load_config
from groupwise.data import TableSettings

COLUMNS = {"prompt": "question", "answer": "label"}


def load(**values: Any) -> TableSettings:
    return load_config(TableSettings, {"columns": COLUMNS, **values})


def test_paths_are_relative_to_the_configuration_and_stay_where_they_are(tmp_path: Path):
    path = tmp_path / "task.yaml"
    path.write_text(
        "files: {train: [a.csv, /data/b.csv], test: 测试.jsonl}\ncolumns: {prompt: q}\n",
        encoding="utf-8",
    )
    settings = load_config(TableSettings, path)
    assert settings.files == {
        "train": (str(tmp_path / "a.csv"), "/data/b.csv"),
        "test": (str(tmp_path / "测试.jsonl"),),
    }
    assert load_config(TableSettings, dump_config(settings)) == settings


def test_a_folder_with_a_data_set_is_relative_too_and_an_id_is_not(tmp_path: Path):
    path = tmp_path / "task.yaml"
    for hub, place in (("./saved", str(tmp_path / "saved")), ("openai/gsm8k", "openai/gsm8k")):
        path.write_text(f"hub: {hub}\ncolumns: {{prompt: q}}\n", encoding="utf-8")
        assert load_config(TableSettings, path).hub == place


def test_one_value_is_as_good_as_a_list_of_one():
    settings = load(
        files="a.csv",
        columns={"prompt": "q", "pictures": "image", "options": "choices"},
        splits={"train": "训练", "test": ["测试", "留出"]},
    )
    assert settings.files == {"train": ("a.csv",)}
    assert (settings.columns.pictures, settings.columns.options) == (("image",), ("choices",))
    assert settings.splits == {"train": ("训练",), "test": ("测试", "留出")}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "either data.files or data.hub"),
        ({"files": "a.csv", "hub": "a/b"}, "either data.files or data.hub"),
        ({"files": {"tain": "a.csv"}}, "there is no split 'tain' .there are: train, validation"),
        ({"files": 3}, "files"),
        ({"files": "a.csv", "revision": "main"}, "need data.hub"),
        ({"files": "a.csv", "encoding": "gb1803"}, "unknown encoding: gb1803"),
        ({"files": "a.csv", "shares": {"train": 1.0}}, "data.shares needs train, validation, test"),
        ({"files": "a.csv", "max_rows": {"test": 0}}, "at least 1 row"),
        ({"files": "a.csv", "columns": {"promt": "q"}}, "did you mean 'prompt'"),
        ({"files": "a.csv", "columns": {"prompt": "{{ q"}}, "prompt is not a template .line 1"),
        ({"files": "a.csv", "system": "{% if %}"}, "system is not a template"),
        (
            {"files": {"train": "a", "test": "b"}, "columns": {**COLUMNS, "split": "part"}},
            "given twice: by data.columns.split and by data.files",
        ),
        ({"hub": "a/b", "columns": {**COLUMNS, "split": "part"}}, "and by data.hub"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        load(**values)
