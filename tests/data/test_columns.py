import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from asked_rows import ASKED, ask, count, list_examples
from PIL import Image
from scenes import copy_scene, draw_scene

from groupwise.core import (
    ConfigError,
    DataError,
    digest_bytes,
    digest_file,
    dump_config,
    load_config,
)
from groupwise.data.columns import (
    FillError,
    TableSettings,
    check_template,
    fill_template,
    list_columns,
)
from groupwise.data.rows import ask_about_row, read_asked_rows
from groupwise.data.splits import NearDuplicates
from groupwise.data.tables import LoadedTable, digest_table, load_table


def test_columns_of_any_name_fill_a_template():
    values = {"问题": "好吗？", "the answer": 3, "list": ["a", "b"]}
    text = '{{ 问题 }} {{ row["the answer"] }} {{ list[1] }} {{ _file }}'
    assert fill_template(text, values, file="评论") == "好吗？ 3 b 评论"


@pytest.mark.parametrize("missing", [None, "", "  "])
def test_a_missing_value_is_never_shown_as_nothing_or_none(missing: str | None):
    values = {"question": "why?", "hint": missing}
    with pytest.raises(FillError, match="missing"):
        fill_template("{{ question }} {{ hint }}", values, file="")
    assert (
        fill_template("{{ question }}{% if hint %} {{ hint }}{% endif %}", values, file="")
        == "why?"
    )
    assert fill_template("{{ question }} {{ hint or 'none' }}", values, file="") == "why? none"


@pytest.mark.parametrize(
    "text",
    [
        "{{ other }}",
        '{{ row["other"] }}',
        "{{ a.b }}",
        "{{ a | int(default=none) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ a + 1 }}",
        "{{ 'AB'[9] }}",
    ],
)
def test_what_cannot_be_filled_says_so(text: str):
    with pytest.raises(FillError):
        fill_template(text, {"a": "x"}, file="")


def test_the_columns_that_a_template_needs_are_known_before_it_is_filled():
    text = "{% for x in 选项 %}{{ loop.index }}{{ x }}{% endfor %}{{ range(a)|list }}{{ _file }}"
    assert list_columns(text) == {"选项", "a"}
    assert list_columns("问题") == {"问题"}


def test_a_broken_template_is_described():
    assert (
        check_template("{{ a")
        == "line 1: unexpected end of template, expected 'end of print statement'."
    )
    assert check_template("{{ a }}{{b}}") == check_template("}}") == check_template("a {") == ""
    assert check_template("{{{ a }}}") == "line 1: expected token ':', got '}'"


Load = Callable[..., LoadedTable]
SHOWN = {**ASKED, "pictures": "图片"}
Draw = Callable[..., str]


@pytest.fixture
def draw(tmp_path: Path, draw_picture: Callable[..., Path]) -> Draw:
    """Return a drawer of numbered pictures beside the rows, which tells their names."""

    def draw(number: int, name: str = "图{}.png") -> str:
        path = draw_picture(tmp_path / "照片" / name.format(number), number=number)
        return path.relative_to(tmp_path).as_posix()

    return draw


def make_settings(columns: dict[str, Any], **settings: Any) -> TableSettings:
    return load_config(TableSettings, {"files": "rows.jsonl", "columns": columns, **settings})


@pytest.mark.parametrize("name", ["asked.jsonl", "asked.csv"])
def test_a_row_asks_what_it_asked_in_training(
    load: Load, write_table: Callable[..., Path], tmp_path: Path, draw: Draw, name: str
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


def test_the_files_of_pictures_are_never_taken_from_a_row(tmp_path: Path, draw: Draw):
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


COLUMNS = {"prompt": "question", "answer": "label"}


def load_table_settings(**values: Any) -> TableSettings:
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
    settings = load_table_settings(
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
        ({"files": "a.csv", "shares": {"train": 1.0}}, "data.shares needs train, validation, test"),
        ({"files": "a.csv", "max_rows": {"test": 0}}, "greater than or equal to 1|at least 1"),
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
        load_table_settings(**values)


Publish = Callable[..., Path]


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
    rows = [ask(n, 图片=names[2 * n : 2 * n + 2], front=names[11 - n]) for n in range(4)]
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
    assert count(loaded) == (1, 2, 1)


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
    assert count(loaded) == (6, 2, 2)
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
