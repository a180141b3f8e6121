"""Rows whose pictures look alike: told, joined or dropped."""

from collections.abc import Callable
from pathlib import Path

import pytest
from asked_rows import ASKED, ask
from scenes import copy_scene, draw_scene

from groupwise.core import DataError, load_config
from groupwise.data import LoadedTable, NearDuplicates, TableSettings, load_table

Load = Callable[..., LoadedTable]
NUM_SCENES = 42
COPIES = ("00.png", "copy.jpg")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes, and a cut copy of the first of them."""
    folder = tmp_path_factory.mktemp("照片")
    for number in range(NUM_SCENES):
        draw_scene(folder / f"{number:02}.png", number)
    copy_scene(folder / "00.png", folder / "copy.jpg")
    return folder


def load(folder: Path, near: NearDuplicates, seed: int, splits: dict[str, str]) -> LoadedTable:
    names = sorted(path.name for path in folder.glob("*.[jp]*g"))
    rows = [ask(n, 图片=name, 部分=splits.get(name, "train")) for n, name in enumerate(names)]
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    columns = {**ASKED, "pictures": "图片", **({"split": "部分"} if splits else {})}
    given = {"files": str(folder / "rows.csv"), "columns": columns}
    settings = load_config(TableSettings, given)
    return load_table(settings, folder / "out", seed=seed, near=near)


def find_splits(loaded: LoadedTable) -> dict[str, str]:
    """Return the split of each picture."""
    return {
        picture.path.name: split
        for split, examples in loaded.splits.items()
        for example in examples
        for picture in example.pictures
    }


def find_dividing_seed(folder: Path) -> int:
    """Return a seed by which the scene and its copy come to stand apart."""
    for seed in range(20):
        found = find_splits(load(folder, "warn", seed, {}))
        if found[COPIES[0]] != found[COPIES[1]]:
            return seed
    raise AssertionError("no seed divides them")


def test_pictures_that_look_alike_are_joined_before_they_are_split(folder: Path) -> None:
    found = find_splits(load(folder, "join", find_dividing_seed(folder), {}))
    assert found[COPIES[0]] == found[COPIES[1]]
    assert len(found) == NUM_SCENES + 1


def test_what_trains_and_looks_like_a_test_picture_is_dropped(folder: Path) -> None:
    splits = {"00.png": "test", "01.png": "test", "02.png": "dev"}
    loaded = load(folder, "drop", 0, splits)
    assert COPIES[1] not in find_splits(loaded)
    assert loaded.drops.counts == {"near duplicate of another split": 1}
    assert "rows.csv:44 (train)" in loaded.drops.rows[0].where
    assert loaded.num_rows == NUM_SCENES + 1
    assert COPIES[1] in find_splits(load(folder, "warn", 0, splits))


def test_where_all_look_alike_nothing_can_be_joined(tmp_path: Path) -> None:
    scene = draw_scene(tmp_path / "00.png", 0)
    for number in range(1, 4):
        copy_scene(scene, tmp_path / f"{number}.jpg").touch()
        draw_scene(tmp_path / f"{number}.png", number)
    with pytest.raises(DataError, match="near duplicates join too much of the data"):
        load(tmp_path, "join", 0, {})
