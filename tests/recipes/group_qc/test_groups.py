"""Groups of a folder into splits, and what a tiny model is taught from a table of photo labels."""

from pathlib import Path

import pytest
from scenes import copy_scene, draw_scene
from tile_photos import NUM_GROUPS, TEXTS, list_photos, name_defect, write_table

from groupwise.core import DataError, load_config, read_json, read_jsonl
from groupwise.data import joining
from groupwise.pipeline import find_config, find_recipe
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.data_stages import audit_photos
from groupwise_recipes.group_qc.groups import (
    SPLITS,
    TEACH,
    prepare_groups,
    read_groups,
)
from groupwise_recipes.group_qc.recipe import recipe


def load(root: Path, *overrides: str) -> GroupQcConfig:
    path = find_config(find_recipe("group_qc"), "tile-tiny")
    return load_config(GroupQcConfig, path, overrides=(f"data.root={root}", *overrides))


def test_every_group_is_in_one_split(root: Path, tmp_path: Path) -> None:
    config = load(root)
    prepare_groups(config, tmp_path / "prepare")
    splits = read_groups(config, tmp_path / "prepare")
    sizes = {name: len(groups) for name, groups in splits.items()}
    assert sizes == {"warmup": 0, "train": 10, "validation": 2, "test": 8, TEACH: 0}
    ids = [group.group_id for name in SPLITS for group in splits[name]]
    assert len(ids) == len(set(ids)) == 2 * NUM_GROUPS
    for groups in (splits["train"], splits["validation"], splits["test"]):
        assert {group.label for group in groups} == {"pass", "fail"}


def test_only_photos_of_training_groups_teach_and_each_with_its_own_text(
    root: Path, tmp_path: Path
) -> None:
    config = load(root)
    prepare_groups(config, tmp_path / "prepare")
    trained = read_groups(config, tmp_path / "prepare")["train"]
    rows = read_jsonl(tmp_path / "prepare" / "descriptions.jsonl")
    expected = [path.relative_to(root).as_posix() for group in trained for path in group.photos]
    assert [row["photo"] for row in rows] == expected
    assert {row["description"] for row in rows} == set(TEXTS.values())
    assert all(row["description"] == TEXTS[name_defect(row["photo"])] for row in rows)


def test_groups_that_only_teach_are_used_for_nothing_else(root: Path, tmp_path: Path) -> None:
    config = load(root, "data.teach_share=0.2")
    prepare_groups(config, tmp_path / "prepare")
    splits = read_groups(config, tmp_path / "prepare")
    rows = read_jsonl(tmp_path / "prepare" / "descriptions.jsonl")
    assert {row["group_id"] for row in rows} == {group.group_id for group in splits[TEACH]}
    assert len(splits[TEACH]) == 4


def test_a_photo_changed_in_place_changes_the_rows_of_its_group(root: Path, tmp_path: Path) -> None:
    prepare_groups(load(root), tmp_path / "before")
    group = read_groups(load(root), tmp_path / "before")["test"][0]
    group.photos[0].write_bytes(group.photos[-1].read_bytes() + b"\0")
    prepare_groups(load(root), tmp_path / "after")
    splits = [read_groups(load(root), tmp_path / name) for name in ("before", "after")]
    before, after = ([g for name in SPLITS for g in found[name]] for found in splits)
    assert [a.key for a, b in zip(before, after, strict=True) if a != b] == [group.key]
    assert [len(g.digests) for g in after] == [len(g.photos) for g in after]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["photo,defect"], "no rows"),
        (
            ["photo,kind", "a.jpg,free"],
            "has no column defect; got the columns photo, kind; expected photo and defect",
        ),
        (
            ["picture,defect", "a.jpg,free"],
            "has no column photo; got the columns picture, defect; expected photo and defect",
        ),
        (["photo,defect", "a.jpg,rust"], "does not describe; got rust; expected free, "),
        (["photo,defect", "a.jpg,free"], "no photo that is to teach Stage A has a description"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(
    root: Path, tmp_path: Path, lines: list[str], message: str
) -> None:
    write_table(root, lines)
    with pytest.raises(DataError, match=message) as caught:
        prepare_groups(load(root), tmp_path / "prepare")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "光照,太暗\n亮,中".encode("gbk")])
def test_a_table_that_cannot_be_read_is_named(
    root: Path, tmp_path: Path, content: bytes | None
) -> None:
    path = root / "photo_labels.csv"
    path.unlink()
    if content:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read|no column photo"):
        prepare_groups(load(root), tmp_path / "prepare")


def test_groups_that_share_a_photo_are_on_one_side_and_are_told(root: Path, tmp_path: Path) -> None:
    photos = list_photos()
    for number in range(0, len(photos) - 4, 4):
        (root / photos[number + 2]).write_bytes((root / photos[number]).read_bytes())
    config = load(root)
    prepare_groups(config, tmp_path / "prepare")
    side = {row["group_id"]: row["split"] for row in read_jsonl(tmp_path / "prepare/groups.jsonl")}
    names = [Path(photo).parent.name for photo in photos]
    pairs = [(names[n + 2], names[n]) for n in range(0, len(photos) - 4, 4)]
    assert len(side) == 2 * NUM_GROUPS
    assert all(side[a] == side[b] for a, b in pairs)
    audit = audit_photos(config, tmp_path / "prepare")
    assert not [one for one in audit.findings if one.level == "error"]
    [told] = [one for one in audit.findings if one.name == "joined_groups"]
    assert told.message.startswith(f"{len(pairs)} group ids share photos")


@pytest.mark.parametrize("action", ["drop", "join"])
def test_groups_with_photos_that_look_alike_are_apart_from_the_test(
    root: Path, tmp_path: Path, action: str
) -> None:
    photos = [root / photo for photo in list_photos()]
    for number, photo in enumerate(photos):
        draw_scene(photo, number)
    copy_scene(photos[0], photos[-1])
    photos[5].write_bytes(photos[5].read_bytes()[:200])
    # So few groups could not be joined at all.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "MAX_JOINED_SHARE", 0.2)
        prepare_groups(load(root, f"data.near_duplicates={action}"), tmp_path / "prepare")
    side = {row["group_id"]: row["split"] for row in read_jsonl(tmp_path / "prepare/groups.jsonl")}
    first, last = photos[0].parent.name, photos[-1].parent.name
    if action == "join":
        assert len(side) == 2 * NUM_GROUPS
        assert side[first] == side[last]
    else:
        source = read_json(tmp_path / "prepare" / "source.json", dict)
        counts = source["drops"]["counts"]
        assert len(side) + sum(counts.values()) // 2 == 2 * NUM_GROUPS
        assert side.get(first) == side.get(last) or len({first, last} & set(side)) == 1


def test_a_dry_run_counts_what_is_used_and_what_is_not(root: Path) -> None:
    (root / "notes.txt").write_text("photos of January")
    preview = recipe.preview(load(root))
    facts = dict(preview.facts)
    assert preview.tables[0].rows == [("all", str(root), "20", "100.0%")]
    assert facts["files"] == "40 of 42 used; 2 x outside a group's folder"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.validation_share=0.01", "the split 'validation' would be empty"),
        ("data.photo_labels.texts={free: a}", "words that data.photo_labels.texts does not"),
        ("data.photo_labels.file=gone.csv", "cannot read"),
        ("{root: null, drawn: {num_groups: 3}}", "would be empty"),
    ],
)
def test_what_stops_the_loading_is_a_problem_of_the_dry_run(
    root: Path, override: str, words: str
) -> None:
    override = override if override.startswith("data.") else f"data={override}"
    problems = recipe.preview(load(root, override)).problems
    assert len(problems) == 1
    assert words in problems[0]
