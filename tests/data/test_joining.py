"""Clusters that hold the same file are one set, whatever the files are called."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import copy_scene, draw_scene
from scipy.sparse.csgraph import connected_components

from groupwise.core import DataError
from groupwise.data import (
    Sight,
    drop_near,
    join_by_files,
    join_near_duplicates,
    joining,
)

CONTENTS = st.sampled_from([b"a", b"b", b"cc", b"dd", b"ee", b"longer"])
CLUSTERS = st.lists(st.lists(CONTENTS, max_size=3), max_size=9)


def write_clusters(folder: Path, clusters: list[list[bytes]]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for number, contents in enumerate(clusters):
        files[f"g{number}"] = []
        for place, content in enumerate(contents):
            path = folder / f"{number}-{place}.jpg"
            path.write_bytes(content)
            files[f"g{number}"].append(path)
    return files


@given(clusters=CLUSTERS)
def test_sets_are_the_connected_components(
    tmp_path_factory: pytest.TempPathFactory, clusters: list[list[bytes]]
) -> None:
    joined = join_by_files(write_clusters(tmp_path_factory.mktemp("files"), clusters))
    shared = np.array([[bool({*one} & {*two}) for two in clusters] for one in clusters], ndmin=2)
    parts = connected_components(shared)[1].tolist() if clusters else []
    expected = {f"g{n}": f"g{parts.index(part)}" for n, part in enumerate(parts)}
    assert joined == expected


def test_a_chain_is_one_set_named_after_its_first_cluster(tmp_path: Path) -> None:
    clusters = [[b"x"], [b"a"], [b"c", b"b"], [b"a", b"b"], []]
    joined = join_by_files(write_clusters(tmp_path, clusters))
    assert joined == {"g0": "g0", "g1": "g1", "g2": "g1", "g3": "g1", "g4": "g4"}


def test_a_file_that_is_gone_joins_nothing(tmp_path: Path) -> None:
    files = write_clusters(tmp_path, [[b"a"], [b"a"]])
    files["g0"][0].unlink()
    assert join_by_files(files) == {"g0": "g0", "g1": "g1"}


def draw_sessions(folder: Path, num_sessions: int) -> list[Sight]:
    """Return two screens of each session, all different."""
    return [
        Sight(draw_scene(folder / f"{n}-{k}.png", 2 * n + k), f"s{n}")
        for n in range(num_sessions)
        for k in range(2)
    ]


def test_sessions_with_near_duplicates_are_joined_also_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MAX_JOINED_SHARE", 0.5)
    sights = draw_sessions(tmp_path, 10)
    chain = [
        Sight(copy_scene(sights[2].path, tmp_path / "a.jpg"), "s7"),
        Sight(copy_scene(sights[15].path, tmp_path / "b.jpg"), "s9"),
    ]
    joined = join_near_duplicates([*sights, *chain])
    assert {name for name, head in joined.items() if head == "s1"} == {"s1", "s7", "s9"}
    others = {name: head for name, head in joined.items() if head != "s1"}
    assert all(name == head for name, head in others.items())


def test_joining_that_runs_through_the_data_is_refused(tmp_path: Path) -> None:
    sights = draw_sessions(tmp_path, 10)
    copy = Sight(copy_scene(sights[0].path, tmp_path / "copy.jpg"), "s5")
    with pytest.raises(DataError, match=r"5 of 21 pictures in one cluster.*drop or warn"):
        join_near_duplicates([*sights, copy])


def test_copies_are_dropped_from_what_is_kept_less(tmp_path: Path) -> None:
    train, test = draw_sessions(tmp_path, 4)[:4], draw_sessions(tmp_path, 4)[4:]
    copy = Sight(copy_scene(test[1].path, tmp_path / "copy.jpg"), "s0")
    splits = {"train": [*train, copy], "test": test}
    dropped: list[tuple[Sight, str]] = []
    kept = drop_near(
        splits, list_paths=lambda sight: [sight.path], report=lambda *one: dropped.append(one)
    )
    assert kept == {"train": train, "test": test}
    assert dropped == [(copy, "train")]
