"""Drawn cabinets: the same seed gives the same bytes, and photos show what is said of them."""

import hashlib
import itertools
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from groupwise.core import DataError
from groupwise_drawn.cabinets import (
    CABINET_MISSIONS,
    IRRELEVANT,
    SeenObject,
    draw_cabinet,
    judge_descriptions,
    read_objects,
    write_cabinets,
    write_objects,
)
from groupwise_drawn.cabinets.planning import PHOTO_COUNTS, GroupPlan, deal_states, plan_group
from groupwise_drawn.cabinets.views import choose_view, describe_view
from groupwise_drawn.cabinets.vocabulary import KEY_THINGS, State

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


def test_an_unknown_state_is_refused():
    with pytest.raises(DataError, match="unknown state"):
        draw_cabinet(CABINET_MISSIONS[0], rng=random.Random(0), state="left")  # type: ignore[arg-type]


UNIT, WIRE, CABLES, DEFLECTOR = CABINET_MISSIONS

WORDS = st.text("机柜线缆A1（）-. ", min_size=1, max_size=6).filter(
    lambda word: word == word.strip()
)
OBJECTS = st.builds(
    SeenObject,
    name=WORDS,
    attributes=st.lists(WORDS, max_size=3).map(tuple),
    count=st.integers(1, 999_999),
)


@given(st.lists(OBJECTS, max_size=5))
def test_lines_are_read_as_they_were_written(objects: list[SeenObject]):
    assert read_objects(write_objects(objects)) == tuple(objects)


def test_the_style_is_that_of_the_contract():
    seen = [SeenObject("BBU设备", ("正装", "安装牢固")), SeenObject("螺丝", ("已拧紧",), 4)]
    assert write_objects(seen) == "BBU设备/正装/安装牢固×1，螺丝/已拧紧×4"
    assert write_objects([]) == IRRELEVANT == "无关图片"
    assert read_objects("机柜×12") == (SeenObject("机柜", (), 12),)


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "机柜",
        "机柜x1",
        "机柜×",
        "机柜×0",
        "机柜×01",
        "机柜×-1",
        "机柜×1.",
        "机柜×１",
        "机柜×1,螺丝×2",
        "机柜×1，",
        "，机柜×1",
        "机柜×1， 螺丝×2",
        "机柜//白色×1",
        "/白色×1",
        "机柜/×1",
        "机柜 ×1",
        "机柜×1×2",
        "机柜×1\n",
        "机柜×1，无关图片",
        "无关图片。",
    ],
)
def test_other_styles_are_refused(line: str):
    with pytest.raises(DataError, match="not in the style"):
        read_objects(line)


@pytest.mark.parametrize(
    "seen", [SeenObject("机/柜"), SeenObject("机×"), SeenObject(""), SeenObject("机柜", (), 0)]
)
def test_objects_that_could_not_be_read_back_are_refused(seen: SeenObject):
    with pytest.raises(DataError):
        write_objects([seen])


@pytest.mark.parametrize(
    ("mission", "lines", "passes"),
    [
        (UNIT, ["BBU设备/正装/安装牢固×1，机柜/白色×1", "无关图片"], True),
        (UNIT, ["BBU设备/正装/安装牢固×1", "BBU设备/未正装/上下倒置×1"], False),
        (UNIT, ["BBU设备/正装/安装牢固×1，BBU设备/未正装/左右歪斜×1"], False),
        (UNIT, ["无关图片", "纸板/遮挡视线×1，机柜/白色×1"], False),
        (UNIT, ["BBU设备/正装×1"], False),
        (UNIT, ["接地线/黄绿色/连接牢固×1"], False),
        (WIRE, ["接地线/黄绿色/连接牢固×1"], True),
        (WIRE, ["接地线/黄绿色/一端未连接×1"], False),
        (WIRE, ["接地线/黄绿色/连接牢固×1", "接地线/红色/颜色不符×1"], False),
        (WIRE, ["接地线/黄绿色/连接牢固×1", "线缆束/未绑扎/散开×1"], True),
        (CABLES, ["线缆束/布放整齐/扎带固定×2，机柜/黑色×1"], True),
        (CABLES, ["线缆束/布放不整齐/交叉缠绕×1"], False),
        (DEFLECTOR, ["挡风板/已安装/位置正确×1", "机柜/白色/柜门关闭×1，门锁×1"], True),
        (DEFLECTOR, ["挡风板/未安装×1"], False),
        (DEFLECTOR, ["挡风板/安装不到位/左右歪斜×1", "挡风板/已安装/位置正确×1"], False),
        (DEFLECTOR, [], False),
    ],
)
def test_the_rule(mission: str, lines: list[str], passes: bool):
    assert judge_descriptions(mission, lines) is passes


def test_wrong_states_are_said_with_a_negation_and_right_ones_never():
    for thing in KEY_THINGS.values():
        assert not any(mark in word for mark in "未不" for word in thing.right)
        for words in thing.wrong.values():
            assert any(mark in word for mark in "未不" for word in words)
    assert len({thing.name for thing in KEY_THINGS.values()}) == len(CABINET_MISSIONS) == 4


def plan_set(num_groups: int, *, seed: int = 1, pass_share: float = 0.5) -> list[GroupPlan]:
    return [
        plan_group(index, seed=seed, missions=CABINET_MISSIONS, pass_share=pass_share)
        for index in range(num_groups)
    ]


def test_missions_counts_and_verdicts_are_balanced():
    plans = plan_set(640)
    cells = Counter((plan.mission, len(plan.states), plan.passes) for plan in plans)
    assert len(cells) == 4 * len(PHOTO_COUNTS) * 2
    assert set(cells.values()) == {20}
    assert len({plan.group_id for plan in plans}) == 640


@pytest.mark.parametrize("pass_share", [0.0, 0.3, 0.55, 0.9, 1.0])
def test_every_number_of_photos_has_its_share_of_passes(pass_share: float):
    found = defaultdict[tuple[str, int], list[bool]](list)
    for plan in plan_set(1600, pass_share=pass_share):
        found[plan.mission, len(plan.states)].append(plan.passes)
    for verdicts in found.values():
        assert len(verdicts) == 100
        assert abs(sum(verdicts) - 100 * pass_share) <= 15


def test_counts_and_missions_do_not_tell_the_verdict():
    plans = plan_set(1000, seed=7)
    labels = np.array([plan.passes for plan in plans])
    features = np.array(
        [
            [plan.mission == name for name in CABINET_MISSIONS]
            + [len(plan.states) == count for count in PHOTO_COUNTS]
            + [len(plan.states) * (plan.mission == name) for name in CABINET_MISSIONS]
            + [index % 2, index / 1000]
            for index, plan in enumerate(plans)
        ],
        dtype=float,
    )
    assert abs(labels.mean() - 0.5) < 0.02
    scores = cross_val_score(LogisticRegression(max_iter=500), features, labels, cv=5)
    assert scores.mean() < 0.54


def test_the_group_before_does_not_tell_the_verdict():
    for mission in CABINET_MISSIONS:
        verdicts = [plan.passes for plan in plan_set(800, seed=4) if plan.mission == mission]
        changes = np.mean([a != b for a, b in itertools.pairwise(verdicts)])
        assert 0.4 < changes < 0.65


def test_neither_a_right_photo_nor_the_lack_of_a_wrong_one_is_enough():
    plans = plan_set(1000, seed=2)
    some_right = np.mean([("right" in plan.states) == plan.passes for plan in plans])
    none_wrong = np.mean([("wrong" not in plan.states) == plan.passes for plan in plans])
    assert 0.6 < some_right < 0.9
    assert 0.6 < none_wrong < 0.9


@given(num_photos=st.integers(1, 9), passes=st.booleans(), seed=st.integers(0, 2**32))
def test_states_give_the_verdict_that_they_were_dealt_for(num_photos: int, passes: bool, seed: int):
    states = deal_states(num_photos, passes, random.Random(seed))
    assert len(states) == num_photos
    assert ("right" in states and "wrong" not in states) == passes


@given(
    mission=st.sampled_from(CABINET_MISSIONS),
    states=st.lists(st.sampled_from(STATES), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
)
def test_the_rule_on_descriptions_agrees_with_the_states(
    mission: str, states: list[State], seed: int
):
    rng = random.Random(seed)
    lines = [describe_view(choose_view(mission, state, rng)) for state in states]
    expected = "right" in states and "wrong" not in states
    assert judge_descriptions(mission, lines) == expected


def test_descriptions_are_short_and_few():
    lines = {
        describe_view(choose_view(mission, state, random.Random(seed)))
        for mission in CABINET_MISSIONS
        for state in STATES
        for seed in range(150)
    }
    assert all(len(line) <= 40 for line in lines)
    assert all(len(line) >= 15 for line in lines - {"无关图片"})
    assert 40 < len(lines) < 70


def test_every_fault_and_every_way_to_see_nothing_occurs():
    rng = random.Random(0)
    for mission, thing in KEY_THINGS.items():
        faults = {choose_view(mission, "wrong", rng).variant for _ in range(60)}
        assert faults == set(thing.wrong)
        unclear = [choose_view(mission, "unclear", rng) for _ in range(80)]
        assert {view.variant for view in unclear if view.covered} == {"right"}
        kinds = {view.kind for view in unclear if not view.covered}
        assert kinds == {"closed"} | {t.kind for n, t in KEY_THINGS.items() if n != mission}
        away = {choose_view(mission, "irrelevant", rng).kind for _ in range(60)}
        assert away == {"floor", "door", "sky"}
