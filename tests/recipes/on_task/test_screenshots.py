import csv
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from real_data import find_real

from groupwise.core import (
    ConfigError,
    DataError,
    digest_file,
    read_jsonl,
)
from groupwise.data.rows import read_moment
from groupwise_recipes.on_task.screenshots import (
    LoadedScreens,
    Screenshot,
    load_screenshots,
    split_by_fold,
)

Draw = Callable[..., Path]


def write_index(root: Path, *rows: dict[str, Any] | str, name: str = "index.jsonl") -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    (root / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return root


def row(image: str = "a.jpg", **fields: Any) -> dict[str, Any]:
    return {"image": image, "task": "Write a letter", "session": "s1", **fields}


def check_totals(loaded: LoadedScreens) -> None:
    assert loaded.num_rows == len(loaded.screens) + loaded.drops.total
    assert sum(loaded.drops.counts.values()) == loaded.drops.total == len(loaded.drops.rows)


def load_dropped(root: Path) -> dict[str, int]:
    loaded = load_screenshots(root)
    check_totals(loaded)
    return loaded.drops.counts


def test_a_row_is_read_whole(tmp_path: Path, draw_picture: Draw) -> None:
    path = draw_picture(tmp_path / "pictures" / "屏幕 1.jpg")
    given_row = row(
        "pictures/屏幕 1.jpg",
        activity="document",
        label=" Off-Task ",
        fold=2,
        difficulty="hard",
        source="human_feedback",
        language="fr",
        verdicts=[1],
    )
    (screen,) = load_screenshots(write_index(tmp_path, given_row)).screens
    assert screen.picture.path == path
    assert screen.picture.digest == digest_file(path)
    assert (screen.session, screen.task, screen.activity) == ("s1", "Write a letter", "document")
    assert (screen.label, screen.fold, screen.difficulty) == ("off-task", 2, "hard")
    assert (screen.source, screen.language) == ("human_feedback", "fr")
    assert (screen.width, screen.height) == (64, 48)


def test_what_is_not_given_is_none(tmp_path: Path, draw_picture: Draw) -> None:
    draw_picture(tmp_path / "a.jpg")
    (screen,) = load_screenshots(write_index(tmp_path, row(label=None, fold=""))).screens
    optional = (screen.activity, screen.label, screen.fold, screen.difficulty)
    assert optional == (None, None, None, None)
    assert (screen.source, screen.language) == ("captured", "en")


@pytest.mark.parametrize("key", ["task", "task_description", "task_en"])
@pytest.mark.parametrize("picture_key", ["image", "path", "screenshot"])
def test_each_name_of_a_column_is_read(
    tmp_path: Path, draw_picture: Draw, key: str, picture_key: str
) -> None:
    draw_picture(tmp_path / "a.jpg")
    write_index(tmp_path, {picture_key: "a.jpg", key: "写一封信", "session": 7})
    (screen,) = load_screenshots(tmp_path).screens
    assert (screen.task, screen.session, screen.language) == ("写一封信", "7", "zh")


def test_hostile_pictures_are_dropped_and_counted(tmp_path: Path, draw_picture: Draw) -> None:
    whole = draw_picture(tmp_path / "good.jpg").read_bytes()
    draw_picture(tmp_path / "png.png").rename(tmp_path / "png_named.jpg")
    draw_picture(tmp_path / "cmyk.jpg", mode="CMYK")
    draw_picture(tmp_path / "palette.png", mode="P")
    (tmp_path / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "no_end.jpg").write_bytes(whole[:-40])
    png = (tmp_path / "palette.png").read_bytes()
    (tmp_path / "truncated.png").write_bytes(png[: len(png) // 2])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("this is no picture")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    names = [
        *("good.jpg", "png_named.jpg", "cmyk.jpg", "palette.png", "gone.jpg"),
        *("truncated.jpg", "no_end.jpg", "truncated.png", "empty.jpg", "text.jpg"),
        *("folder.jpg", "pipe.jpg", "x" * 300 + ".jpg", "a\0b.jpg"),
    ]
    loaded = load_screenshots(write_index(tmp_path, *map(row, names)))
    check_totals(loaded)
    used = [screen.picture.path.name for screen in loaded.screens]
    assert used == ["good.jpg", "png_named.jpg", "cmyk.jpg", "palette.png"]
    assert loaded.drops.counts == {
        "unreadable picture": 8,
        "missing picture": 1,
        "text is not Unicode": 1,
    }
    places = [drop.where for drop in loaded.drops.rows]
    assert places[0] == "index.jsonl:5 (gone.jpg)"
    assert places[1].startswith("index.jsonl:6 (cannot decode the picture truncated.jpg (")


def test_exif_rotation_counts_in_the_size(tmp_path: Path, draw_picture: Draw) -> None:
    exif = Image.Exif()
    exif[274] = 6
    draw_picture(tmp_path / "a.jpg", exif=exif)
    (screen,) = load_screenshots(write_index(tmp_path, row())).screens
    assert (screen.width, screen.height) == (48, 64)


def test_bad_lines_and_values_are_dropped_and_counted(tmp_path: Path, draw_picture: Draw) -> None:
    draw_picture(tmp_path / "a.jpg")
    write_index(
        tmp_path,
        row(),
        "{not json",
        "[1, 2]",
        "",
        row(label="maybe"),
        row(label=1),
        row(label="不通过"),
        row(task="  "),
        row(session=None),
        row(session=True),
        {"task": "t", "session": "s"},
        row(fold="two"),
        row(fold=1.5),
        row(time="soon"),
        row(time=True),
        row(time="inf"),
        '{"image": "a.jpg", "task": "\\ud800", "session": "s"}',
        "[" * 3000,
    )
    with (tmp_path / "index.jsonl").open("ab") as stream:
        stream.write(b'{"image": "\xff"}\n{"image": "a.jpg", "task": "to')
    loaded = load_screenshots(tmp_path)
    check_totals(loaded)
    assert (loaded.num_rows, len(loaded.screens)) == (19, 1)
    assert loaded.drops.counts == {
        "line cannot be read": 5,
        "label outside the set": 3,
        "fold is not a whole number": 2,
        "time cannot be read": 3,
        "missing session": 2,
        "missing picture name": 1,
        "missing task": 1,
        "text is not Unicode": 1,
    }
    told = [drop.where for drop in loaded.drops.rows]
    assert "index.jsonl:5 (got 'maybe')" in told
    form = "a time is seconds, or a moment such as 2026-01-31T09:30:00Z"
    assert f"index.jsonl:14 ({form}, and not 'soon')" in told


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None),
        (" ", None),
        (7, 7.0),
        ("-1.5", -1.5),
        ("1970-01-01T00:02:00Z", 120.0),
        ("1970-01-01 00:02:00", 120.0),
        ("1970-01-01T01:02:00+01:00", 120.0),
        ("0001-01-01T00:00:00+23:00", -62135679600.0),
    ],
)
def test_a_time_is_seconds_or_a_moment(given: object, seconds: float | None) -> None:
    assert read_moment(given) == seconds


@pytest.mark.parametrize("given", ["1769851800000", 1769851800000, "soon", "nan", True])
def test_what_is_no_time_is_not_guessed(given: object) -> None:
    with pytest.raises(ValueError, match=r"a time is seconds, or a moment"):
        read_moment(given)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, draw_picture: Draw) -> None:
    draw_picture(tmp_path / "a.jpg")
    (tmp_path / "rows.jsonl").write_text(json.dumps(row()) + "\n", encoding="utf-8-sig")
    assert load_dropped(tmp_path) == {}


def write_csv(path: Path, *rows: list[str], encoding: str = "utf-8") -> None:
    with path.open("w", encoding=encoding, newline="") as stream:
        csv.writer(stream).writerows(rows)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_csv_is_read(tmp_path: Path, draw_picture: Draw, encoding: str) -> None:
    draw_picture(tmp_path / "图 1.png")
    write_csv(
        tmp_path / "Labels.CSV",
        ["path", " task_description ", "label", "session"],
        ["图 1.png", 'Write "a",\nletter', "on-task", "007"],
        ["图 1.png", "写信", "", "008"],
        ["gone.png", "写信", "off-task", "008"],
        ["图 1.png", "too", "few"],
        [],
        ["图 1.png", "写信", "on_task", "008"],
        encoding=encoding,
    )
    loaded = load_screenshots(tmp_path)
    check_totals(loaded)
    read = [(s.task, s.label, s.session, s.language) for s in loaded.screens]
    assert read == [
        ('Write "a",\nletter', "on-task", "007", "en"),
        ("写信", None, "008", "zh"),
    ]
    assert loaded.drops.counts == {
        "label outside the set": 1,
        "line cannot be read": 1,
        "missing picture": 1,
    }


def test_a_torn_quote_in_a_csv_is_a_bad_line(tmp_path: Path, draw_picture: Draw) -> None:
    draw_picture(tmp_path / "a.jpg")
    (tmp_path / "a.csv").write_text('image,task,session\na.jpg,t,s\na.jpg,t,"torn')
    assert load_dropped(tmp_path) == {"line cannot be read": 1}


def test_a_row_of_a_good_picture_survives_damage_elsewhere(
    tmp_path: Path, draw_picture: Draw
) -> None:
    content = draw_picture(tmp_path / "good.jpg").read_bytes()
    png = draw_picture(tmp_path / "good.png").read_bytes()
    rng = random.Random(0)
    rows = [row("good.jpg")]
    for number in range(200):
        damaged = bytearray(content if number % 2 else png)
        for _ in range(rng.randint(1, 30)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / f"{number}.bin").write_bytes(damaged)
        rows.append(row(f"{number}.bin"))
    loaded = load_screenshots(write_index(tmp_path, *rows))
    check_totals(loaded)
    assert loaded.num_rows == 201
    assert loaded.screens[0].picture.path.name == "good.jpg"
    assert set(loaded.drops.counts) == {"unreadable picture"}


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["a.jpg", "on-task", "off-task", "s1", "", " ", "/", "..", "."]),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
keys = st.sampled_from(["image", "path", "task", "session", "label", "fold", "activity", "x"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.dictionaries(keys, values, max_size=6), st.text()), max_size=8))
def test_totals_add_up_whatever_the_lines(
    tmp_path: Path, draw_picture: Draw, lines: list[dict[str, Any] | str]
) -> None:
    draw_picture(tmp_path / "a.jpg")
    content = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    text = "\n".join([json.dumps(row()), *content])
    (tmp_path / "index.jsonl").write_bytes(text.encode("utf-8", "surrogatepass"))
    loaded = load_screenshots(tmp_path)
    check_totals(loaded)
    raw = (tmp_path / "index.jsonl").read_bytes().split(b"\n")
    assert loaded.num_rows == sum(bool(line.strip()) for line in raw)
    assert all(screen.label in (None, "on-task", "off-task") for screen in loaded.screens)


def test_a_folder_that_cannot_be_used_is_an_error_that_says_what_to_do(
    tmp_path: Path, draw_picture: Draw
) -> None:
    with pytest.raises(DataError, match=r"is not a data folder; got nothing there; give"):
        load_screenshots(tmp_path / "gone")
    with pytest.raises(DataError, match=r"got no such file; expected index.jsonl, or exactly one"):
        load_screenshots(tmp_path)
    (tmp_path / "index.jsonl").write_text('{"Screen Shot": "a.png", "task": "t"}\n{"user": 1}\n')
    with pytest.raises(DataError) as caught:
        load_screenshots(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/index.jsonl has no column image and no column session; "
        "got the columns Screen Shot, task, user; expected image or path or screenshot, "
        "task or task_description or task_en, session; rename them."
    )
    (tmp_path / "index.jsonl").write_text("\n")
    with pytest.raises(DataError, match="no usable row; got no rows"):
        load_screenshots(tmp_path)
    with pytest.raises(DataError, match="got a file there"):
        load_screenshots(tmp_path / "index.jsonl")
    write_index(tmp_path, row("gone.jpg"), row(label="x"))
    with pytest.raises(DataError, match="1 x label outside the set, 1 x missing picture"):
        load_screenshots(tmp_path)


def test_a_csv_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    write_csv(
        tmp_path / "a.csv",
        ["image", "task", "session"],
        ["a", "écrire à là", "s"],
        encoding="cp1252",
    )
    with pytest.raises(DataError, match="save it as UTF-8"):
        load_screenshots(tmp_path)
    write_csv(tmp_path / "a.csv", ["image", "label", "label"])
    with pytest.raises(DataError, match="two columns of one name; got label"):
        load_screenshots(tmp_path)
    (tmp_path / "b.jsonl").touch()
    with pytest.raises(DataError, match=r"got a\.csv, b\.jsonl"):
        load_screenshots(tmp_path)


def test_the_real_set_is_read(tmp_path: Path) -> None:
    screenagent = find_real("screenagent")
    rows = [found for found in read_jsonl(screenagent / "index.jsonl") if found["fold"] == 0][:12]
    for found in rows:
        found["image"] = str((screenagent / found["image"]).resolve())
    loaded = load_screenshots(write_index(tmp_path, *rows), allow_outside=True)
    check_totals(loaded)
    assert len(loaded.screens) == 12
    for screen, found in zip(loaded.screens, rows, strict=True):
        assert (screen.width, screen.height) == (found["width"], found["height"])
        assert (screen.task, screen.activity) == (found["task_en"], found["activity"])


def test_what_was_made_from_a_row_stays_with_it(tmp_path: Path, draw_picture: Draw) -> None:
    for number, name in enumerate(("a.jpg", "cropped.jpg", "again.jpg", "b.jpg")):
        draw_picture(tmp_path / name, number=number)
    rows = [
        row("again.jpg", session="x", fold=3, origin="cropped.jpg"),
        row("cropped.jpg", session="y", origin="a.jpg"),
        row("a.jpg", session="first", fold=1, origin=""),
        row("b.jpg", session="second", fold=2),
    ]
    loaded = load_screenshots(write_index(tmp_path, *rows))
    check_totals(loaded)
    sides = {one.picture.path.name: (one.session, one.fold) for one in loaded.screens}
    made = dict.fromkeys(("a.jpg", "cropped.jpg", "again.jpg"), ("first", 1))
    assert sides == {**made, "b.jpg": ("second", 2)}


def test_a_row_whose_origin_is_not_there_is_dropped(tmp_path: Path, draw_picture: Draw) -> None:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        draw_picture(tmp_path / name)
    rows = [
        row("a.jpg"),
        row("b.jpg", origin="gone.jpg"),
        row("c.jpg", origin="c.jpg"),
    ]
    assert load_dropped(write_index(tmp_path, *rows)) == {"origin is not there": 2}


@pytest.mark.parametrize("way", ["absolute", "upwards", "link"])
def test_rows_that_leave_the_folder_are_refused_unless_that_is_allowed(
    tmp_path: Path, draw_picture: Draw, way: str
) -> None:
    root, outside = tmp_path / "root", draw_picture(tmp_path / "secret.jpg", number=1)
    draw_picture(root / "a.jpg")
    (root / "link.jpg").symlink_to(outside)
    name = {"absolute": str(outside), "upwards": "../secret.jpg", "link": "link.jpg"}[way]
    write_index(root, row(), row(name))
    with pytest.raises(DataError, match=r"1 pictures that rows name lie outside of"):
        load_screenshots(root)
    loaded = load_screenshots(root, allow_outside=True)
    assert [one.picture.digest for one in loaded.screens][1] == digest_file(outside)


def test_a_folder_behind_a_link_is_no_other(tmp_path: Path, draw_picture: Draw) -> None:
    draw_picture(tmp_path / "there" / "a.jpg")
    write_index(tmp_path / "there", row(), row(str(tmp_path / "here" / "a.jpg")))
    (tmp_path / "here").symlink_to(tmp_path / "there")
    assert len(load_screenshots(tmp_path / "here").screens) == 2


Make = Callable[..., Screenshot]


def test_folds_name_the_sides_and_the_others_are_left_out(make_screen: Make) -> None:
    screens = [make_screen(f"{i}.png", session=f"s{i}", fold=i % 4) for i in range(12)]
    splits = split_by_fold(screens, {"train": [0, 1], "test": (3,)})
    assert {name: {s.fold for s in split} for name, split in splits.items()} == {
        "train": {0, 1},
        "test": {3},
    }
    assert [len(split) for split in splits.values()] == [6, 3]


def test_folds_that_cannot_be_used_are_errors(make_screen: Make) -> None:
    screens = [make_screen(f"{i}.png", session=f"s{i}", fold=i % 2) for i in range(4)]
    with pytest.raises(ConfigError, match="fold 1 is in two splits; got 'train' and 'test'"):
        split_by_fold(screens, {"train": [0, 1], "test": [1]})
    with pytest.raises(ConfigError, match="'test' names no fold"):
        split_by_fold(screens, {"train": [0, 1], "test": []})
    with pytest.raises(DataError, match=r"fold 4 of split 'test' has no screens; got folds \[0, 1"):
        split_by_fold(screens, {"train": [0, 1], "test": [4]})
    with pytest.raises(DataError, match="1 of 5 screens have no fold"):
        split_by_fold([*screens, make_screen("x.png")], {"train": [0], "test": [1]})


def test_a_session_in_two_folds_of_two_splits_is_an_error(make_screen: Make) -> None:
    screens = [make_screen("a.png", fold=0), make_screen("b.png", fold=1)]
    with pytest.raises(DataError, match="session s is in two splits; got 'train' and 'test'"):
        split_by_fold(screens, {"train": [0], "test": [1]})
    assert len(split_by_fold(screens, {"train": [0, 1]})["train"]) == 2


def test_folds_of_the_real_set_share_no_session(make_screen: Make) -> None:
    rows = read_jsonl(find_real("screenagent") / "index.jsonl")
    screens = [make_screen(r["image"], session=r["session"], fold=r["fold"]) for r in rows]
    splits = split_by_fold(screens, {"train": [0, 1, 2], "test": [3]})
    assert [len(split) for split in splits.values()] == [510, 147]
