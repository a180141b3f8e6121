"""Rows to be answered ask what rows to be learned from asked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked_rows import ASKED, ask

from groupwise.core import DataError, load_config
from groupwise.data import LoadedTable, TableSettings, ask_about_row, read_asked_rows

Load = Callable[..., LoadedTable]
SHOWN = {**ASKED, "pictures": "图片"}


@pytest.fixture
def draw(tmp_path: Path, draw_picture: Callable[..., Path]) -> Callable[[int], str]:
    """Return a drawer of pictures beside the rows, which tells their names."""

    def draw(number: int) -> str:
        path = draw_picture(tmp_path / "照片" / f"{number}.png", number=number)
        return path.relative_to(tmp_path).as_posix()

    return draw


def make_settings(columns: dict[str, Any], **settings: Any) -> TableSettings:
    return load_config(TableSettings, {"files": "rows.jsonl", "columns": columns, **settings})


@pytest.mark.parametrize("name", ["asked.jsonl", "asked.csv"])
def test_a_row_asks_what_it_asked_in_training(
    load: Load, write_table: Callable[..., Path], tmp_path: Path, draw: Any, name: str
):
    columns = {**SHOWN, "prompt": "{{ _file }}: {{ " + ASKED["prompt"] + " }}"}
    rows = [ask(number, 图片=draw(number)) for number in range(8)]
    loaded = load(rows, columns=columns, system="看图。")
    trained = [example for found in loaded.splits.values() for example in found]
    unlabelled = [{k: v for k, v in row.items() if k != ASKED["answer"]} for row in rows]
    table = write_table(tmp_path / name, unlabelled)
    table = table.rename(tmp_path / f"rows{table.suffix}")
    asked, drops = read_asked_rows(table, pictures=("图片",))
    assert (len(asked), drops.total) == (8, 0)
    settings = make_settings(columns, system="看图。")
    questions = [ask_about_row(settings, row.values, row.pictures, tmp_path) for row in asked]
    assert {one.prompt for one in questions} == {one.prompt for one in trained}
    assert all(question.label is None for question in questions)
    assert asked[0].where.startswith("rows.")


def test_the_files_of_pictures_are_never_taken_from_a_row(tmp_path: Path, draw: Any):
    settings, path = make_settings(SHOWN), tmp_path / draw(1)
    row = {key: value for key, value in ask(1).items() if key != "图片"}
    assert ask_about_row(settings, row, [path], tmp_path).pictures[0].path == path
    cases = [
        ({**row, "图片": str(path)}, [path], "the row names the picture 图片"),
        (row, [], "a row has other pictures"),
        ({}, [path], "empty prompt"),
        (row, [tmp_path / "none.png"], "missing picture"),
    ]
    for values, pictures, message in cases:
        with pytest.raises(DataError, match=message):
            ask_about_row(settings, values, pictures, tmp_path)
    with pytest.raises(DataError, match=r"other pictures; got 1; expected none"):
        ask_about_row(make_settings(ASKED), row, [path], tmp_path)


def test_what_cannot_be_asked_is_counted(tmp_path: Path):
    lines = ['{"frage": "a", "bild": ["1.png", "2.png"]}', "no", r'{"frage": "\ud800"}']
    (tmp_path / "index.jsonl").write_text("\n".join(lines))
    [row], drops = read_asked_rows(tmp_path, pictures=("bild", "photo"))
    assert row.pictures == (tmp_path / "1.png", tmp_path / "2.png")
    assert json.loads(json.dumps(row.values)) == {"frage": "a", "_file": "index"}
    assert drops.counts == {"line cannot be read": 1, "text is not Unicode": 1}
