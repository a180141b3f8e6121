"""Folders of photos as they come: every file is a photo or a counted drop."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import read_tables

from groupwise.core import DataError
from groupwise_drawn.cabinets import write_cabinets
from groupwise_recipes.group_qc.missions import Mission, MissionTable, load_missions
from groupwise_recipes.group_qc.photos import (
    find_group_id,
    load_photo_groups,
    sort_naturally,
)

TABLES = read_tables(__file__)
PASS, FAIL = "审核通过", "审核不通过"
TABLE = MissionTable(
    missions={name: Mission(focus="看", key_points=("看",)) for name in ("接地线检查", "挡风板")}
)
GROUND = "接地线检查"
FOLDERS = {"审核通过": "pass", "审核不通过": "fail"}


def touch(root, *places):
    """Make empty files; a place that ends in a slash is a folder."""
    for place in places:
        path = root / place
        if place.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def load(root, *, for_prediction=False):
    loaded = load_photo_groups(root, TABLE, FOLDERS, for_prediction=for_prediction)
    assert loaded.num_files == loaded.num_photos + loaded.drops.total
    assert len({group.key for group in loaded.groups}) == len(loaded.groups)
    return loaded


def list_drops(loaded):
    return {(drop.reason, drop.where) for drop in loaded.drops.rows}


def list_skipped(loaded):
    return {(drop.reason, drop.where) for drop in loaded.skipped.rows}


def test_the_layout_is_read(tmp_path):
    touch(tmp_path, *TABLES["trees"]["the_layout_is_read"])
    first, second, third = load(tmp_path).groups
    assert (first.mission, first.label, first.group_id) == (
        GROUND,
        "pass",
        "QC-BBU-20250101-0000011",
    )
    assert [path.name[-7:] for path in first.photos] == ["002.PNG", "010.jpg"]
    assert all(path.is_file() for path in first.photos)
    assert (second.label, second.group_id) == ("fail", "QC-BBU-20250101-0000012")
    assert (third.mission, third.group_id) == ("挡风板", "工单 7")
    assert third.key == f"挡风板/{PASS}/工单 7"


@pytest.mark.parametrize("names", TABLES["names_are_sorted_as_people_count"])
def test_names_are_sorted_as_people_count(names):
    for start in range(len(names)):
        assert sort_naturally(names[start:] + names[:start]) == names
    assert sort_naturally(reversed(names)) == names


@given(st.lists(st.integers(0, 10**30), unique=True), st.text("ab-_ 照", max_size=4))
def test_numbers_are_sorted_by_value(numbers, lead):
    names = [f"{lead}{number}.jpg" for number in numbers]
    assert sort_naturally(names) == [f"{lead}{number}.jpg" for number in sorted(numbers)]


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1), unique=True))
def test_any_names_have_one_order(names):
    assert sort_naturally(names) == sort_naturally(reversed(names))
    assert sorted(sort_naturally(names)) == sorted(names)


@pytest.mark.parametrize(("photo", "expected"), TABLES["the_id_stands_at_the_beginning"])
def test_the_id_stands_at_the_beginning_of_the_first_photo(photo, expected):
    assert find_group_id(photo, "folder") == expected


def test_the_first_photo_in_natural_order_gives_the_id(tmp_path):
    touch(tmp_path, *TABLES["trees"]["the_first_photo_in_natural_order_gives_the_id"])
    assert [group.group_id for group in load(tmp_path).groups] == ["g", "QC-BBU-20250101-9"]


def test_an_id_under_both_labels_is_kept_apart_and_reported(tmp_path):
    touch(tmp_path, *TABLES["trees"]["an_id_under_both_labels_is_kept_apart_and_reported"])
    loaded = load(tmp_path)
    assert len(loaded.groups) == 5
    (conflict,) = loaded.conflicts
    groups = f"{GROUND}/{PASS}/a, {GROUND}/{FAIL}/a"
    assert conflict == f"{GROUND}: QC-BBU-20250101-0000001 ({groups})"
    assert loaded.drops.total == loaded.skipped.total == 0


def test_what_is_no_photo_is_counted_by_its_reason(tmp_path):
    group = f"{GROUND}/{PASS}/g"
    touch(tmp_path, *TABLES["trees"]["what_is_no_photo_is_counted_by_its_reason"])
    loaded = load(tmp_path)
    assert loaded.num_photos == 1
    assert list_drops(loaded) == {
        ("hidden", f"{group}/.DS_Store"),
        ("hidden", f"{group}/._1.jpg"),
        ("hidden", f"{group}/.jpg"),
        ("hidden", ".cache/5.jpg"),
        ("not a photo by its extension", f"{group}/note.txt"),
        ("not a photo by its extension", f"{group}/2.gif"),
        ("not a photo by its extension", f"{group}/jpg"),
        ("in a folder inside a group", f"{group}/inner/3.jpg"),
        ("outside a group's folder", f"{GROUND}/{PASS}/loose.jpg"),
        ("outside a group's folder", f"{GROUND}/4.jpg"),
        ("outside a group's folder", "labels.csv"),
    }
    assert list_skipped(loaded) == {
        ("in a folder inside a group", f"{group}/inner"),
        ("hidden", ".cache"),
    }


def test_empty_groups_are_reported(tmp_path):
    touch(tmp_path, *TABLES["trees"]["empty_groups_are_reported"])
    loaded = load(tmp_path)
    assert len(loaded.groups) == 1
    assert list_skipped(loaded) == {
        ("empty group", f"{GROUND}/{PASS}/empty"),
        ("empty group", f"{GROUND}/{FAIL}/text only"),
    }


@pytest.mark.parametrize(("folder", "meant"), TABLES["a_misspelt_label_folder_is_skipped"])
def test_a_misspelt_label_folder_is_skipped_with_the_right_name(tmp_path, folder, meant):
    touch(tmp_path, f"{GROUND}/{PASS}/g/1.jpg", f"{GROUND}/{folder}/h/2.jpg")
    loaded = load(tmp_path)
    assert [group.key for group in loaded.groups] == [f"{GROUND}/{PASS}/g"]
    assert list_drops(loaded) == {("unknown label folder", f"{GROUND}/{folder}/h/2.jpg")}
    where = f"{GROUND}/{folder}: {folder!r} (did you mean {meant!r}?)"
    assert list_skipped(loaded) == {("unknown label folder", where)}


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([f"{GROUND}/审核未通过/h/2.jpg"], f"1 x unknown label folder.*did you mean '{FAIL}'"),
        (
            [f"{GROUND}/{PASS}/g/1.jpg", f"接地检查/{PASS}/g/1.jpg", ".git/x"],
            re.escape("'接地检查' (did you mean '接地线检查'?)"),
        ),
        ([f"{GROUND}/g/1.jpg"], "no photo group"),
        ([], "no files"),
    ],
)
def test_where_no_group_can_be_used_the_right_name_is_told(tmp_path, places, message):
    with pytest.raises(DataError, match=message):
        load(touch(tmp_path, *places))


def test_an_unknown_mission_is_dropped_and_counted_for_predictions(tmp_path):
    touch(tmp_path, f"{GROUND}/{PASS}/g/1.jpg", f"接地检查/{PASS}/g/1.jpg", f"接地检查/{PASS}/g/2")
    loaded = load(tmp_path, for_prediction=True)
    assert [group.label for group in loaded.groups] == ["pass"]
    assert loaded.drops.counts == {"unknown mission": 2}
    where = "接地检查: '接地检查' (did you mean '接地线检查'?)"
    assert list_skipped(loaded) == {("unknown mission", where)}


def test_predictions_need_no_label(tmp_path):
    touch(tmp_path, *TABLES["trees"]["predictions_need_no_label"])
    loaded = load(tmp_path, for_prediction=True)
    assert [(g.group_id, g.label) for g in loaded.groups] == [("h", "fail"), ("g", None)]
    assert {reason for reason, _ in list_skipped(loaded)} == {
        "empty group",
        "unknown label folder",
        "in a folder inside a group",
    }


@pytest.mark.parametrize("content", ["nothing", "a file"])
def test_a_root_that_is_no_folder_is_refused(tmp_path, content):
    if content == "a file":
        (tmp_path / "root").touch()
    with pytest.raises(DataError, match=f"got {content}"):
        load(tmp_path / "root")


def test_a_file_where_a_folder_should_be_is_dropped_and_pipes_are_not_opened(tmp_path):
    touch(tmp_path, f"{GROUND}/{PASS}/g/1.jpg", f"{GROUND}/{FAIL}", "挡风板")
    touch(tmp_path, f"{GROUND}/{PASS}/h/1.jpg/")
    os.mkfifo(tmp_path / GROUND / PASS / "g" / "2.jpg")
    loaded = load(tmp_path)
    assert loaded.drops.counts == {"outside a group's folder": 2, "not a regular file": 1}
    assert ("empty group", f"{GROUND}/{PASS}/h") in list_skipped(loaded)


def test_links_are_followed_but_not_in_circles(tmp_path):
    root = touch(tmp_path / "root", f"{GROUND}/{PASS}/g/1.jpg")
    touch(tmp_path / "elsewhere", "2.jpg")
    here = root / GROUND / PASS
    (here / "linked").symlink_to(tmp_path / "elsewhere")
    (here / "g" / "3.jpg").symlink_to(tmp_path / "elsewhere" / "2.jpg")
    (here / "loop").symlink_to(root)
    (here / "g" / "up").symlink_to(here)
    (here / "g" / "out").symlink_to(tmp_path / "elsewhere")
    (here / "g" / "self.jpg").symlink_to("self.jpg")
    (here / "g" / "gone.jpg").symlink_to("nothing.jpg")
    loaded = load(root)
    assert [(g.group_id, [p.name for p in g.photos]) for g in loaded.groups] == [
        ("g", ["1.jpg", "3.jpg"]),
        ("linked", ["2.jpg"]),
    ]
    assert loaded.drops.counts == {"not a regular file": 2}
    assert list_skipped(loaded) == {
        ("a link back to a folder above it", f"{GROUND}/{PASS}/loop"),
        ("a link back to a folder above it", f"{GROUND}/{PASS}/g/up"),
        ("a link inside a group", f"{GROUND}/{PASS}/g/out"),
    }


def test_names_that_are_not_unicode_are_dropped_and_shown(tmp_path):
    touch(tmp_path, f"{GROUND}/{PASS}/g/1.jpg")
    bad = os.fsencode(tmp_path / GROUND / PASS / "g") + b"/\xff.jpg"
    try:
        os.close(os.open(bad, os.O_CREAT))
    except OSError:
        pytest.skip("this file system wants names in Unicode")
    loaded = load(tmp_path)
    assert list_drops(loaded) == {("name is not Unicode", f"{GROUND}/{PASS}/g/\\udcff.jpg")}


def test_a_group_of_200_photos_is_whole_and_in_order(tmp_path):
    touch(tmp_path, *(f"{GROUND}/{FAIL}/g/IMG_{n}.jpg" for n in range(1, 201)))
    (group,) = load(tmp_path).groups
    assert [path.name for path in group.photos] == [f"IMG_{n}.jpg" for n in range(1, 201)]


def test_a_folder_that_cannot_be_read_is_reported(tmp_path, monkeypatch):
    touch(tmp_path, f"{GROUND}/{PASS}/g/1.jpg", f"{GROUND}/{PASS}/h/1.jpg")
    listdir = os.listdir

    def refuse(path):
        if Path(path).name == "h":
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    where = f"{GROUND}/{PASS}/h"
    assert list_skipped(load(tmp_path)) == {("cannot be read (Permission denied)", where)}


FOLDER_NAMES = st.sampled_from(
    [GROUND, "挡风板", "接地检查", PASS, FAIL, "审核未通过", "g", "QC-A-20250101-1"]
)
FILE_NAMES = st.sampled_from(
    ["1.jpg", "2.PNG", "10.jpeg", "a.gif", ".hidden", "x y.jpg", "QC-A-20250101-1-2.jpg"]
)
NAMES = FOLDER_NAMES | FILE_NAMES


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(NAMES, min_size=1, max_size=5), max_size=25), st.booleans())
def test_totals_add_up_on_any_tree(tmp_path_factory, places, as_folders):
    root = tmp_path_factory.mktemp("tree")
    for number, place in enumerate([[GROUND, PASS, "g", "0.jpg"], *places]):
        path = root.joinpath(*place)
        try:
            if as_folders and number % 5 == 1:
                path.mkdir(parents=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        except (FileExistsError, NotADirectoryError):
            continue
    files = [Path(at) / name for at, _, names in os.walk(root) for name in names]
    loaded = load(root, for_prediction=True)
    photos = Counter(path for group in loaded.groups for path in group.photos)
    dropped = Counter(root / drop.where for drop in loaded.drops.rows)
    assert loaded.num_files == len(files)
    assert photos + dropped == Counter(files)
    labelled = {p for g in loaded.groups if g.label for p in g.photos}
    assert labelled == {path for path in files if is_labelled_photo(path.relative_to(root))}


def is_labelled_photo(path):
    """The contract's layout, said once more."""
    pattern = rf"({GROUND}|挡风板)/({PASS}|{FAIL})/[^./][^/]*/[^./][^/]*\.(jpg|jpeg|png)"
    return bool(re.fullmatch(pattern, path.as_posix(), re.IGNORECASE))


def test_drawn_cabinets_are_loaded_whole(tmp_path):
    index = write_cabinets(tmp_path, num_groups=8, seed=0, size=(112, 84))
    rows = [json.loads(line) for line in index.read_text(encoding="utf-8").splitlines()]
    loaded = load_photo_groups(tmp_path, load_missions(), FOLDERS)
    assert list_drops(loaded) == {("outside a group's folder", "descriptions.jsonl")}
    assert loaded.skipped.total == len(loaded.conflicts) == 0
    found = {
        (path.relative_to(tmp_path).as_posix(), group.mission, group.group_id, group.label)
        for group in loaded.groups
        for path in group.photos
    }
    assert found == {(row["photo"], row["mission"], row["group_id"], row["label"]) for row in rows}
