import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from asked_rows import ASKED, ask
from PIL import Image

from groupwise.core import DataError, digest_bytes, digest_file, load_config
from groupwise.data import LoadedTable, TableSettings, digest_table

Load = Callable[..., LoadedTable]
Draw = Callable[..., str]
Publish = Callable[..., Path]
SHOWN = {**ASKED, "pictures": "图片"}


def list_examples(loaded: LoadedTable):
    return [example for examples in loaded.splits.values() for example in examples]


@pytest.fixture
def draw(tmp_path: Path, draw_picture: Callable[..., Path]) -> Callable[..., str]:
    """Return a drawer of numbered pictures beside the rows, which tells their names."""

    def draw(number: int, name: str = "图{}.png") -> str:
        path = draw_picture(tmp_path / "照片" / name.format(number), number=number)
        return path.relative_to(tmp_path).as_posix()

    return draw


def test_pictures_are_found_beside_the_rows_and_are_no_field(
    load: Load, draw: Draw, tmp_path: Path
):
    rows = [ask(n, 图片=draw(n)) for n in range(8)]
    loaded = load(rows, columns=SHOWN)
    example = next(e for e in list_examples(loaded) if e.prompt[0].text == rows[3]["问题"])
    [picture] = example.pictures
    assert picture.path == tmp_path / rows[3]["图片"]
    assert example.cluster == picture.digest == digest_file(picture.path)
    assert example.fields == {
        **{key: rows[3][key] for key in ASKED.values()},
        "_row": "rows.jsonl:4",
    }


def test_a_row_may_have_several_pictures(load: Load, draw: Draw):
    names = [draw(n) for n in range(12)]
    rows = [
        ask(
            n, 图片=names[n : n + 2] if n % 2 else json.dumps(names[n : n + 2]), front=names[11 - n]
        )
        for n in range(4)
    ]
    for number, row in enumerate(rows):
        row["图片"] = names[2 * number : 2 * number + 2]
    rows[0]["图片"] = json.dumps(rows[0]["图片"], ensure_ascii=False)
    loaded = load(rows, columns={**ASKED, "pictures": ["图片", "front"]})
    found = {e.prompt[0].text: [p.path.name for p in e.pictures] for e in list_examples(loaded)}
    assert found[rows[0]["问题"]] == ["图0.png", "图1.png", "图11.png"]
    assert found[rows[1]["问题"]] == ["图2.png", "图3.png", "图10.png"]


def test_a_chat_says_where_its_pictures_stand(load: Load, draw: Draw):
    def chat(*parts: str) -> list[dict[str, Any]]:
        content = [{"type": "image"} if p == "图" else {"type": "text", "text": p} for p in parts]
        return [{"role": "user", "content": content}]

    rows = [
        {"问题": chat("先", "图", "后", "图"), "答案": "好", "图片": [draw(2 * n), draw(2 * n + 1)]}
        for n in range(4)
    ]
    odd = [{**rows[0], "问题": chat(*parts)} for parts in (("先", "图"), ("先", "图", "图", "图"))]
    loaded = load([*rows, *odd], columns=SHOWN)
    parts = list_examples(loaded)[0].prompt[0].parts
    assert [part if isinstance(part, str) else "图" for part in parts] == ["先", "图", "后", "图"]
    assert parts[1] != parts[3]
    assert loaded.drops.counts == {"pictures and their places differ in number": 2}


def test_questions_about_one_picture_stay_together(load: Load, draw: Draw):
    rows = [ask(n, 图片=draw(n // 3)) for n in range(36)]
    loaded = load(rows, columns=SHOWN)
    shown = [{e.pictures[0].digest for e in examples} for examples in loaded.splits.values()]
    assert [len(found) for found in shown] == [6, 3, 3]
    assert loaded.drops.total == 0


def test_a_picture_of_two_splits_stays_in_one(load: Load, draw: Draw):
    parts = ["train", "train", "dev", "test", "train", "dev"]
    rows = [ask(n, part=part, 图片=draw(n)) for n, part in enumerate(parts)]
    rows[4]["图片"] = draw(3, "复制{}.png")
    rows[5]["图片"] = rows[0]["图片"]
    loaded = load(rows, columns={**SHOWN, "split": "part"})
    assert loaded.drops.counts == {"picture of another split": 2}
    assert {split: len(examples) for split, examples in loaded.splits.items()} == {
        "train": 1,
        "validation": 2,
        "test": 1,
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("none.png", "missing picture"),
        ("照片", "unreadable picture"),
        ("torn.png", "unreadable picture"),
        ("rows.jsonl", "unreadable picture"),
        ("", "missing picture name"),
        (None, "missing picture name"),
        (3, "missing picture name"),
        ("[not a list", "list cannot be read"),
    ],
)
def test_a_row_without_its_picture_is_counted(
    load: Load, draw: Draw, tmp_path: Path, value: Any, reason: str
):
    rows = [ask(n, 图片=draw(n)) for n in range(6)]
    whole = (tmp_path / rows[5]["图片"]).read_bytes()
    (tmp_path / "torn.png").write_bytes(whole[: len(whole) // 2])
    loaded = load([*rows, ask(6, 图片=value)], columns=SHOWN)
    assert loaded.drops.counts == {reason: 1}


def test_the_digest_follows_the_pictures(draw: Draw, tmp_path: Path, write_table: Any):
    path = write_table(tmp_path / "rows.csv", [ask(n, 图片=draw(n)) for n in range(3)])
    table = load_config(TableSettings, {"files": str(path), "columns": SHOWN})
    first = digest_table(table)
    draw(9)
    assert digest_table(table) == first
    Image.new("RGB", (8, 8)).save(tmp_path / "照片" / "图2.png")
    second = digest_table(table)
    assert second != first
    (tmp_path / "照片" / "图2.png").unlink()
    assert digest_table(table) not in (first, second)


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., Path]:
    """Return a writer of data sets as the hub has them, in a folder."""

    def publish(is_saved: bool, **parts: range) -> Path:
        made = datasets.DatasetDict(
            {
                name: datasets.Dataset.from_list([make(n) for n in part])
                for name, part in parts.items()
            }
        ).cast_column("图片", datasets.Image())
        folder = tmp_path / "published"
        if is_saved:
            made.save_to_disk(folder)
            return folder
        for name, part in made.items():
            (folder / "data").mkdir(parents=True, exist_ok=True)
            part.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")
        return folder

    def make(number: int) -> dict[str, Any]:
        return ask(number, 图片={"bytes": paint(number), "path": "图.png"})

    return publish


def paint(number: int) -> bytes:
    packed = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 0, 0)).save(packed, "BMP")
    return packed.getvalue()


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_data_set_of_the_hub_is_read_from_its_folder(
    load: Load, publish: Publish, tmp_path: Path, is_saved: bool
):
    folder = publish(
        is_saved, train=range(6), validation=range(6, 8), test=range(8, 10), extra=range(1)
    )
    loaded = load(hub=str(folder), columns=SHOWN)
    assert {split: len(examples) for split, examples in loaded.splits.items()} == {
        "train": 6,
        "validation": 2,
        "test": 2,
    }
    assert loaded.sources["test"] == {f"{folder} test": 2}
    picture = loaded.splits["test"][0].pictures[0]
    assert picture.digest == digest_bytes(paint(8)) == digest_file(picture.path)
    assert (picture.path.parent, picture.path.suffix) == (tmp_path / "out", ".bmp")
    table = load_config(TableSettings, {"hub": str(folder), "columns": SHOWN})
    assert digest_table(table) == digest_table(table)


def test_a_hub_without_the_named_splits_is_told(load: Load, publish: Publish):
    folder = publish(True, 题库=range(4))
    with pytest.raises(DataError, match="has no split that is used; got 题库"):
        load(hub=str(folder), columns=SHOWN)
    loaded = load(hub=str(folder), columns=SHOWN, splits={"train": "题库"})
    assert loaded.num_rows == 4


def test_a_test_split_of_the_hub_that_is_trained_on_is_told(load: Load, publish: Publish):
    folder = publish(True, test=range(20))
    [finding] = load(hub=str(folder), columns=SHOWN, splits={"train": ["test"]}).findings
    assert finding.where == (f"{folder} test (10 rows)",)


def test_a_hub_that_cannot_be_reached_is_told(load: Load, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"cannot read the data set nobody/nothing.*hf download"):
        load(hub="nobody/nothing", columns=SHOWN)


def test_pictures_outside_the_folder_of_the_rows_are_refused_unless_that_is_allowed(
    load: Load, draw: Draw, tmp_path: Path, draw_picture: Callable[..., Path]
):
    outside = draw_picture(tmp_path.parent / f"{tmp_path.name}-secret.png", number=9)
    rows = [*(ask(n, 图片=draw(n)) for n in range(7)), ask(7, 图片=[f"../{outside.name}"])]
    with pytest.raises(DataError, match=r"1 pictures that rows name lie outside of"):
        load(rows, columns=SHOWN)
    assert len(list_examples(load(rows, columns=SHOWN, allow_outside=True))) == 8
