"""Drawn cabinets: the same seed gives the same bytes, and photos show what is said of them."""

import hashlib
import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.linear_model import LogisticRegression

from groupwise.core import DataError
from groupwise_drawn.cabinets import (
    CABINET_MISSIONS,
    draw_cabinet,
    judge_descriptions,
    write_cabinets,
)
from groupwise_drawn.cabinets.vocabulary import State

STATES: tuple[State, ...] = ("right", "wrong", "unclear", "irrelevant")
SMALL = (112, 84)
ROW_KEYS = {
    *("photo", "mission", "group_id", "label"),
    *("description", "state", "shows", "variant"),
}


def write_small(folder: Path, *, num_groups: int = 6, seed: int = 5) -> Path:
    return write_cabinets(folder, num_groups=num_groups, seed=seed, size=SMALL)


def read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def digest_photos(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.jpg"))
    }


@pytest.fixture(scope="module")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cabinets")
    write_small(folder, num_groups=64)
    return folder


def test_the_descriptions_list_every_photo_in_the_layout(small_set: Path):
    rows = read_rows(small_set / "descriptions.jsonl")
    assert sorted(row["photo"] for row in rows) == list(digest_photos(small_set))
    for row in rows:
        assert set(row) == ROW_KEYS
        mission, label, group, name = row["photo"].split("/")
        assert mission == row["mission"] in CABINET_MISSIONS
        assert {"审核通过": "pass", "审核不通过": "fail"}[label] == row["label"]
        assert group == row["group_id"] == name.rpartition("-")[0]
    with Image.open(small_set / rows[0]["photo"]) as photo:
        assert (photo.format, photo.mode, photo.size) == ("JPEG", "RGB", SMALL)


def test_the_rule_on_the_descriptions_gives_every_label(small_set: Path):
    groups = defaultdict[tuple[str, str, str], list[str]](list)
    for row in read_rows(small_set / "descriptions.jsonl"):
        groups[row["group_id"], row["mission"], row["label"]].append(row["description"])
    assert len(groups) == 64
    assert all(2 <= len(lines) <= 5 for lines in groups.values())
    for (_, mission, label), lines in groups.items():
        assert judge_descriptions(mission, lines) == (label == "pass")


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path):
    first = write_small(tmp_path / "a")
    second = write_small(tmp_path / "b")
    write_small(tmp_path / "c", seed=6)
    assert first.read_bytes() == second.read_bytes()
    photos = digest_photos(tmp_path / "a")
    assert photos == digest_photos(tmp_path / "b")
    assert not set(photos.values()) & set(digest_photos(tmp_path / "c").values())
    write_small(tmp_path / "a")
    assert photos == digest_photos(tmp_path / "a")


def test_a_small_set_is_the_beginning_of_a_larger_one(tmp_path: Path):
    small = write_small(tmp_path / "small", num_groups=3)
    large = write_small(tmp_path / "large", num_groups=8)
    assert large.read_bytes().startswith(small.read_bytes())
    assert digest_photos(tmp_path / "small").items() <= digest_photos(tmp_path / "large").items()


def test_one_mission_alone_can_be_drawn(tmp_path: Path):
    index = write_cabinets(
        tmp_path, num_groups=4, seed=0, missions=CABINET_MISSIONS[1:2], pass_share=1, size=SMALL
    )
    assert {(row["mission"], row["label"]) for row in read_rows(index)} == {
        (CABINET_MISSIONS[1], "pass")
    }


def test_a_folder_with_other_files_is_refused(tmp_path: Path):
    write_small(tmp_path, num_groups=8)
    before = digest_photos(tmp_path)
    with pytest.raises(DataError, match="not of this set"):
        write_small(tmp_path, num_groups=3)
    with pytest.raises(DataError, match="not of this set"):
        write_small(tmp_path, num_groups=8, seed=6)
    assert digest_photos(tmp_path) == before
    assert (tmp_path / "descriptions.jsonl").is_file()


def test_an_interrupted_set_has_no_descriptions_and_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    expected = write_small(tmp_path / "whole").read_bytes()
    write_small(tmp_path / "part")
    save, calls = Image.Image.save, iter(range(100))

    def save_some(image: Image.Image, *args: object, **options: object) -> None:
        if next(calls) == 5:
            raise OSError("disk full")
        save(image, *args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", save_some)
        with pytest.raises(OSError, match="disk full"):
            write_small(tmp_path / "part")
    assert not (tmp_path / "part" / "descriptions.jsonl").exists()
    assert write_small(tmp_path / "part").read_bytes() == expected
    assert digest_photos(tmp_path / "part") == digest_photos(tmp_path / "whole")


@settings(max_examples=60, deadline=None)
@given(
    mission=st.sampled_from(CABINET_MISSIONS),
    state=st.sampled_from(STATES),
    seed=st.integers(0, 2**32),
    width=st.integers(112, 400),
    height=st.integers(84, 400),
    variety=st.floats(0, 1),
)
def test_any_seed_and_size_draws(
    mission: str, state: State, seed: int, width: int, height: int, variety: float
):
    image, truth = draw_cabinet(
        mission, rng=random.Random(seed), state=state, size=(width, height), variety=variety
    )
    assert (image.size, image.mode) == ((width, height), "RGB")
    assert (truth.mission, truth.state) == (mission, state)
    assert (truth.description == "无关图片") == (state == "irrelevant")


def test_large_photos_are_drawn():
    image, _ = draw_cabinet(CABINET_MISSIONS[0], rng=random.Random(0), size=(1600, 1200))
    assert image.size == (1600, 1200)


def test_a_photo_depends_on_its_generator_alone():
    for mission in CABINET_MISSIONS:
        random.seed(1)
        first, truth = draw_cabinet(mission, rng=random.Random(8))
        random.seed(2)
        state = random.getstate()
        again, same = draw_cabinet(mission, rng=random.Random(8))
        other, _ = draw_cabinet(mission, rng=random.Random(9))
        assert first.tobytes() == again.tobytes() != other.tobytes()
        assert truth == same
        assert random.getstate() == state


def draw_pixels(mission: str, state: State, seed: int) -> np.ndarray:
    image, _ = draw_cabinet(mission, rng=random.Random(seed), state=state, size=(128, 96))
    return np.asarray(image.reduce(4), dtype=float).ravel() / 255


@pytest.mark.parametrize("mission", CABINET_MISSIONS)
def test_right_and_wrong_photos_can_be_told_apart(mission: str):
    num = 150
    photos = [draw_pixels(mission, ("right", "wrong")[k % 2], k) for k in range(2 * num)]
    answers = np.arange(2 * num) % 2
    model = LogisticRegression(C=0.1, max_iter=300).fit(photos[:num], answers[:num])
    assert model.score(photos[num:], answers[num:]) > 0.85


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_groups": 0}, "num_groups"),
        ({"missions": ()}, "missions"),
        ({"missions": (CABINET_MISSIONS[0],) * 2}, "missions"),
        ({"missions": ("磁瓦表面检查",)}, "磁瓦表面检查"),
        ({"pass_share": -0.1}, "pass_share"),
        ({"pass_share": 1.01}, "pass_share"),
        ({"pass_share": float("nan")}, "pass_share"),
        ({"size": (111, 84)}, "size"),
        ({"size": (112, 83)}, "size"),
        ({"variety": 1.01}, "variety"),
        ({"variety": float("nan")}, "variety"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, object], named: str
):
    arguments: dict[str, object] = {"num_groups": 1, "seed": 0}
    with pytest.raises(DataError, match=named):
        write_cabinets(tmp_path / "set", **{**arguments, **change})  # type: ignore[arg-type]
    assert not (tmp_path / "set").exists()


def test_an_unknown_state_is_refused():
    with pytest.raises(DataError, match="unknown state"):
        draw_cabinet(CABINET_MISSIONS[0], rng=random.Random(0), state="left")  # type: ignore[arg-type]
