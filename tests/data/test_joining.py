"""Groups that hold the same file are one set, whatever the files are called."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from groupwise.data import join_by_files

CONTENTS = st.sampled_from([b"a", b"b", b"cc", b"dd", b"ee", b"longer"])
GROUPS = st.lists(st.lists(CONTENTS, max_size=3), max_size=9)


def write_groups(folder: Path, groups: list[list[bytes]]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for number, contents in enumerate(groups):
        files[f"g{number}"] = []
        for place, content in enumerate(contents):
            path = folder / f"{number}-{place}.jpg"
            path.write_bytes(content)
            files[f"g{number}"].append(path)
    return files


@given(groups=GROUPS)
def test_sets_are_the_connected_components(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[bytes]]
) -> None:
    joined = join_by_files(write_groups(tmp_path_factory.mktemp("files"), groups))
    shared = np.array([[bool({*one} & {*two}) for two in groups] for one in groups], ndmin=2)
    parts = connected_components(shared)[1].tolist() if groups else []
    expected = {f"g{n}": f"g{parts.index(part)}" for n, part in enumerate(parts)}
    assert joined == expected


def test_a_chain_is_one_set_named_after_its_first_group(tmp_path: Path) -> None:
    groups = [[b"x"], [b"a"], [b"c", b"b"], [b"a", b"b"], []]
    joined = join_by_files(write_groups(tmp_path, groups))
    assert joined == {"g0": "g0", "g1": "g1", "g2": "g1", "g3": "g1", "g4": "g4"}


def test_a_file_that_is_gone_joins_nothing(tmp_path: Path) -> None:
    files = write_groups(tmp_path, [[b"a"], [b"a"]])
    files["g0"][0].unlink()
    assert join_by_files(files) == {"g0": "g0", "g1": "g1"}
