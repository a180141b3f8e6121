"""Near texts: everything that is near is found, whatever runs find the candidates."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from real_data import find_real
from scenes import draw_scene

from groupwise.core import ConfigError, DataError, read_jsonl
from groupwise.data.near import Gallery, Sight, choose_nearest, find_near_duplicates
from groupwise.data.splits import find_near_texts
from groupwise_recipes.on_task.pairs import Pair, make_pairs
from groupwise_recipes.on_task.screenshots import Screenshot

words = st.lists(st.sampled_from(["a", "b", "c", "三", "四", "1"]), min_size=1, max_size=12).map(
    " ".join
)
texts = st.lists(words, min_size=1, max_size=6)


def cut(text: str) -> set[tuple[str, ...]]:
    parts = text.split()
    return {tuple(parts[n : n + 3]) for n in range(max(1, len(parts) - 2))}


def share(one: str, other: str) -> float:
    return len(cut(one) & cut(other)) / len(cut(one) | cut(other))


@given(texts, texts, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_index_finds_what_comparing_all_with_all_finds(
    asked: list[str], others: list[str], least: float
):
    wanted = [
        (index, next(n for n, other in enumerate(others) if share(text, other) >= least))
        for index, text in enumerate(asked)
        if any(share(text, other) >= least for other in others)
    ]
    assert [(i, j) for i, j, _ in find_near_texts(asked, others, least=least)] == wanted


def test_case_width_and_white_space_do_not_count():
    assert find_near_texts(["Ｗhat  IS it?\n"], ["what is it?"]) == [(0, 0, 1.0)]


def test_one_other_number_in_a_long_text_is_near_and_another_text_is_not():
    text = "A man has 12 apples and gives half of them to his two sisters, who share them."
    story = f"{text} Then he buys a bag with as many apples as he had in the morning before."
    others = [story.replace("12", "16"), "小明有三个苹果，又买了四个，一共有几个？"]
    assert [(i, j) for i, j, _ in find_near_texts([story], others)] == [(0, 0)]
    assert find_near_texts([story], others[1:]) == []


Draw = Callable[..., Path]


def recolour(picture: Image.Image) -> Image.Image:
    for enhancer, factor in (
        (ImageEnhance.Brightness, 0.8),
        (ImageEnhance.Contrast, 1.2),
        (ImageEnhance.Color, 0.5),
    ):
        picture = enhancer(picture).enhance(factor)
    return picture


def crop(picture: Image.Image) -> Image.Image:
    """Take 5 % of the width from the left and of the height from the bottom."""
    width, height = picture.size
    return picture.crop((width // 20, 0, width, height - height // 20))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "smaller": lambda picture: picture.resize((160, 120)),
    "recoloured": recolour,
    "cropped": crop,
    "cropped and recoloured": lambda picture: recolour(crop(picture)),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Sight]:
    folder = tmp_path_factory.mktemp("scenes")
    return [
        Sight(draw_scene(folder / f"{number}.png", number), f"c{number}") for number in range(6)
    ]


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_found_and_nothing_else(tmp_path: Path, scenes: list[Sight], kind: str) -> None:
    with Image.open(scenes[4].path) as picture:
        COPIES[kind](picture).save(tmp_path / "copy.jpg", quality=80)
    found = find_near_duplicates([Sight(tmp_path / "copy.jpg", "copy")], scenes)
    assert [(one.index, one.other, one.is_mirrored) for one in found] == [(0, 4, False)]
    assert find_near_duplicates(scenes, scenes) == []


def test_mirror_images_count_only_where_they_are_asked_for(
    tmp_path: Path, scenes: list[Sight]
) -> None:
    with Image.open(scenes[2].path) as picture:
        ImageOps.mirror(crop(picture)).save(tmp_path / "copy.png")
    copy = [Sight(tmp_path / "copy.png", "copy")]
    assert find_near_duplicates(copy, scenes) == []
    [found] = find_near_duplicates(copy, scenes, mirrored=True)
    assert (found.other, found.is_mirrored) == (2, True)


def test_pictures_of_one_cluster_may_look_alike(tmp_path: Path, scenes: list[Sight]) -> None:
    with Image.open(scenes[0].path) as picture:
        picture.save(tmp_path / "next.jpg")
    frames = [scenes[0], Sight(tmp_path / "next.jpg", scenes[0].cluster)]
    assert find_near_duplicates(frames, frames) == []
    apart = [scenes[0], Sight(tmp_path / "next.jpg", "another")]
    assert [one.other for one in find_near_duplicates(apart, apart)] == [1, 0]


def test_plain_pictures_are_copies_only_where_all_of_them_is_alike(tmp_path: Path) -> None:
    ramp = Image.linear_gradient("L").resize((320, 240))
    ramp.save(tmp_path / "ramp.png")
    ramp.resize((200, 150)).save(tmp_path / "small.jpg")
    ramp.rotate(90).resize((320, 240)).save(tmp_path / "across.png")
    names = ("ramp.png", "small.jpg", "across.png")
    sights = [Sight(tmp_path / name, name) for name in names]
    found = find_near_duplicates(sights, sights)
    assert [(one.index, one.other) for one in found] == [(0, 1), (1, 0)]


def test_exif_rotation_is_applied(tmp_path: Path, scenes: list[Sight]) -> None:
    exif = Image.Exif()
    exif[274] = 3
    with Image.open(scenes[1].path) as picture:
        picture.rotate(180).save(tmp_path / "turned.png", exif=exif)
    [found] = find_near_duplicates([Sight(tmp_path / "turned.png", "copy")], scenes)
    assert found.other == 1
    assert found.agreement > 0.99


def test_a_gallery_that_grows_finds_what_one_made_at_once_does(
    tmp_path: Path, scenes: list[Sight]
) -> None:
    copies = [Sight(tmp_path / f"{place}.jpg", f"copy {place}") for place in (4, 0)]
    for sight, place in zip(copies, (4, 0), strict=True):
        with Image.open(scenes[place].path) as picture:
            recolour(crop(picture)).save(sight.path)
    gallery = Gallery()
    assert gallery.find(copies) == []
    gallery.add(scenes[:3])
    gallery.add([])
    assert [(one.index, one.other) for one in gallery.find(copies)] == [(1, 0)]
    gallery.add(scenes[3:])
    assert gallery.find(copies) == find_near_duplicates(copies, scenes)


@given(st.lists(st.sampled_from([-1.0, 0.69, 0.7, 0.8, 0.9, 1.0]), max_size=12))
def test_candidates_are_the_first_of_all_places_by_likeness(likeness: list[float]) -> None:
    values = np.array(likeness, np.float32)
    ranked = sorted(range(len(values)), key=lambda place: -values[place])
    expected = [place for place in ranked[:4] if values[place] >= np.float32(0.7)]
    assert choose_nearest(values) == expected


def test_an_unreadable_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no")
    with pytest.raises(DataError, match="cannot decode the picture"):
        find_near_duplicates([Sight(tmp_path / "a.png", "a")], [Sight(tmp_path / "a.png", "b")])


Make = Callable[..., Screenshot]
ACTIVITIES = ["document", "video", "game", "shop", "travel"]

sets_of_sessions = st.lists(
    st.tuples(st.sampled_from(ACTIVITIES), st.integers(1, 5)), min_size=5, max_size=25
).filter(
    lambda sessions: max(Counter(activity for activity, _ in sessions).values()) < len(sessions) - 2
)
modes = st.sampled_from(["own", "activity"])


def list_screens(make: Make, sessions: list[tuple[str, int]]) -> list[Screenshot]:
    return [
        make(f"{n}-{i}.png", session=f"s{n}", task=f"{activity} task {n}", activity=activity)
        for n, (activity, num_frames) in enumerate(sessions)
        for i in range(num_frames)
    ]


def count_labels(pairs: list[Pair]) -> tuple[int, int]:
    counts = Counter(pair.label for pair in pairs)
    return counts["on-task"], counts["off-task"]


@given(sets_of_sessions, st.integers(0, 99), st.integers(1, 4), modes)
def test_pairs_are_balanced_and_off_tasks_come_from_other_activities(
    make_screen: Make,
    sessions: list[tuple[str, int]],
    seed: int,
    num: int,
    mode: Literal["own", "activity"],
) -> None:
    screens = list_screens(make_screen, sessions)
    pairs = make_pairs(screens, seed=seed, pairs_per_screen=num, on_tasks=mode)
    on, off = count_labels(pairs)
    assert len(pairs) == on + off == len(screens) * num
    assert 0 <= on - off <= (1 if num % 2 else 0)
    own = {screen.session: screen for screen in screens}
    for pair in pairs:
        donor = own[pair.task_session]
        assert (pair.task, pair.task_activity) == (donor.task, donor.activity)
        assert (pair.label == "on-task") == (pair.screen.activity == donor.activity)
        if mode == "own" and pair.label == "on-task":
            assert pair.task_session == pair.screen.session
    met = Counter((pair.screen, pair.task) for pair in pairs if pair.label == "off-task")
    assert set(met.values()) <= {1}


@given(sets_of_sessions, st.integers(0, 99), modes, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(
    make_screen: Make,
    sessions: list[tuple[str, int]],
    seed: int,
    mode: Literal["own", "activity"],
    rng: random.Random,
) -> None:
    screens = list_screens(make_screen, sessions)
    pairs = make_pairs(screens, seed=seed, pairs_per_screen=3, on_tasks=mode)
    rng.shuffle(screens)
    assert make_pairs(screens, seed=seed, pairs_per_screen=3, on_tasks=mode) == pairs


@given(sets_of_sessions, st.integers(0, 99), modes)
def test_a_text_alone_says_nothing_where_no_activity_has_the_majority(
    make_screen: Make,
    sessions: list[tuple[str, int]],
    seed: int,
    mode: Literal["own", "activity"],
) -> None:
    screens = list_screens(make_screen, sessions)
    sizes = Counter(screen.activity for screen in screens)
    pairs = make_pairs(screens, seed=seed, on_tasks=mode)
    on = Counter(pair.task for pair in pairs if pair.label == "on-task")
    off = Counter(pair.task for pair in pairs if pair.label == "off-task")
    if max(sizes.values()) * 2 <= len(screens):
        assert on == off
    else:
        largest = max(sizes, key=lambda activity: sizes[activity])
        missing = {task for task in on if off[task] < on[task]}
        assert all(task.startswith(f"{largest} ") for task in missing)


def test_another_seed_gives_other_partners_and_another_order(make_screen: Make) -> None:
    screens = list_screens(make_screen, [(activity, 4) for activity in ACTIVITIES * 2])
    made = [make_pairs(screens, seed=seed) for seed in range(3)]
    partners = [{(p.screen, p.task) for p in pairs} for pairs in made]
    assert partners[0] != partners[1] != partners[2] != partners[0]
    orders = [[pair.screen for pair in pairs] for pairs in made]
    assert orders[0] != orders[1]


def test_pairs_of_a_screen_stand_together(make_screen: Make) -> None:
    screens = list_screens(make_screen, [(activity, 4) for activity in ACTIVITIES])
    pairs = make_pairs(screens, seed=0, pairs_per_screen=4)
    runs = [screen for screen, _ in groupby(pairs, key=lambda pair: pair.screen)]
    assert len(runs) == len(set(runs)) == len(screens)


def test_on_tasks_of_the_activity_are_every_second_ones(make_screen: Make) -> None:
    screens = list_screens(make_screen, [(activity, 2) for activity in ACTIVITIES * 6])
    pairs = make_pairs(screens, seed=0, on_tasks="activity", pairs_per_screen=4)
    on = [pair for pair in pairs if pair.label == "on-task"]
    own = sum(pair.task_session == pair.screen.session for pair in on)
    assert len(on) == 120
    assert 60 <= own <= 75


def test_screens_with_a_label_are_used_as_they_are(make_screen: Make) -> None:
    judged = [
        make_screen("j0.png", session="j0", label="on-task"),
        make_screen("j1.png", session="j1", label="off-task", activity="judged", task="judged"),
    ]
    screens = list_screens(make_screen, [("document", 1), ("video", 1)])
    pairs = make_pairs([*judged, *screens], seed=0, pairs_per_screen=2)
    kept = {p.screen.session: p.label for p in pairs if p.screen.label is not None}
    assert kept == {"j0": "on-task", "j1": "off-task"}
    assert len(pairs) == 2 + 4
    assert [p.screen.session for p in pairs if p.task == "judged"] == ["j1"]


def test_an_equal_text_of_another_activity_is_no_off_task(make_screen: Make) -> None:
    screens = [
        make_screen("a.png", session="a", task="Read the news", activity="news"),
        make_screen("b.png", session="b", task="read  THE news", activity="document"),
        make_screen("c.png", session="c", task="Play chess", activity="game"),
    ]
    for seed in range(10):
        for pair in make_pairs(screens, seed=seed):
            if pair.label == "off-task" and pair.screen.session in "ab":
                assert pair.task == "Play chess"


def check_own_tasks(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert (pair.label == "on-task") == (pair.task_session == pair.screen.session)


def test_a_session_is_no_partner_of_itself(make_screen: Make) -> None:
    screens = [
        make_screen("a.png", session="a", task="Play chess", activity="game"),
        make_screen("b.png", session="a", task="Write a letter", activity="document"),
        make_screen("c.png", session="c", task="Watch a film", activity="video"),
    ]
    for seed in range(10):
        check_own_tasks(make_pairs(screens, seed=seed))


def test_without_activities_the_partner_is_another_session(make_screen: Make) -> None:
    screens = [
        make_screen(f"{i}.png", session=f"s{i // 2}", task=f"task {i // 2}", activity=None)
        for i in range(20)
    ]
    check_own_tasks(make_pairs(screens, seed=0, on_tasks="activity"))


def test_too_few_other_tasks_are_an_error_that_says_what_to_do(make_screen: Make) -> None:
    alone = list_screens(make_screen, [("document", 3), ("document", 2)])
    with pytest.raises(
        DataError, match=r"activity document\); give sessions with other activities"
    ):
        make_pairs(alone, seed=0)
    two = list_screens(make_screen, [("document", 3), ("video", 2)])
    assert len(make_pairs(two, seed=0)) == 10
    with pytest.raises(DataError, match="lower pairs_per_screen"):
        make_pairs(two, seed=0, pairs_per_screen=4)


def test_settings_that_are_none_are_refused(make_screen: Make) -> None:
    with pytest.raises(ConfigError, match="expected >= 1"):
        make_pairs([make_screen()], seed=0, pairs_per_screen=0)
    with pytest.raises(ConfigError, match="own or activity"):
        make_pairs([make_screen()], seed=0, on_tasks="other")  # pyright: ignore
    with pytest.raises(DataError, match="outside the set; got yes"):
        make_pairs([make_screen(label="yes")], seed=0)


def test_no_screens_give_no_pairs() -> None:
    assert make_pairs([], seed=0, pairs_per_screen=3) == []


def test_the_real_set_is_balanced_in_every_fold(make_screen: Make) -> None:
    rows = read_jsonl(find_real("screenagent") / "index.jsonl")
    for fold in sorted({found["fold"] for found in rows}):
        screens = [
            make_screen(r["image"], session=r["session"], task=r["task_en"], activity=r["activity"])
            for r in rows
            if r["fold"] == fold
        ]
        pairs = make_pairs(screens, seed=0)
        assert count_labels(pairs) == (len(screens), len(screens))
        on = Counter(pair.task for pair in pairs if pair.label == "on-task")
        off = Counter(pair.task for pair in pairs if pair.label == "off-task")
        assert on == off
