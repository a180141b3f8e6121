"""Drawn desktops: the same seed gives the same bytes, every look draws at every size."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import DataError
from groupwise_drawn.desktops import sets
from groupwise_drawn.desktops.activities import ACTIVITIES
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.painters import PAINTERS, Variant
from groupwise_drawn.desktops.scene import compose_screen, judge_difficulty
from groupwise_drawn.desktops.sets import draw_desktop, write_desktops
from groupwise_drawn.desktops.tasks import LANGUAGES, mend_english, write_task
from groupwise_drawn.desktops.theme import pick_theme
from groupwise_drawn.dialects import (
    COLORS,
    DIALECTS,
    QUERY_SPLITS,
    WORDS,
    draw_dictionary,
    draw_scene,
    read_dialects,
    write_dialects,
)
from groupwise_drawn.dialects.scenes import plan_scene

LOOKS = [
    pytest.param(activity, variant, id=f"{activity}-{number}-{variant.name}")
    for activity, variants in PAINTERS.items()
    for number, variant in enumerate(variants)
]
ROW_KEYS = {
    "image",
    "session",
    "task",
    "language",
    "activity",
    "width",
    "height",
    "difficulty",
}


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


def read_index(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_small(folder: Path, *, num_sessions: int = 3, seed: int = 5) -> Path:
    return write_desktops(
        folder, num_sessions=num_sessions, screens_per_session=2, seed=seed, size=(200, 150)
    )


def test_processes_draw_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    write_small(alone)
    monkeypatch.setattr(sets, "count_processes", lambda _: 2)
    monkeypatch.setattr(sets, "_SESSIONS_AT_ONCE", 1)
    write_small(shared)
    assert read_files(shared) == read_files(alone)


def test_an_error_in_a_process_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "images").write_text("in the way")
    monkeypatch.setattr(sets, "count_processes", lambda _: 2)
    with pytest.raises(OSError, match="images"):
        write_small(tmp_path)
    assert not (tmp_path / sets.INDEX_NAME).exists()


@pytest.mark.parametrize("num_cores", [1, 2, 64])
def test_small_sets_are_drawn_here(num_cores: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(num_cores)), raising=False)
    assert sets.count_processes(sets.SCREENS_PER_PROCESS) == 1
    assert sets.count_processes(100 * sets.SCREENS_PER_PROCESS) == num_cores


@pytest.fixture(scope="module")
def full_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desktops")
    write_desktops(folder, num_sessions=56, screens_per_session=2, seed=3, size=(160, 120))
    return folder


def test_every_activity_has_at_least_three_looks():
    assert tuple(PAINTERS) == ACTIVITIES
    for activity, variants in PAINTERS.items():
        assert len({variant.paint for variant in variants}) >= 3, activity


@pytest.mark.parametrize(
    "size",
    [(160, 120), *(pytest.param(s, marks=pytest.mark.slow) for s in ((300, 500), (640, 480)))],
)
@pytest.mark.parametrize(("activity", "variant"), LOOKS)
def test_every_look_draws_at_every_size(activity: str, variant: Variant, size: tuple[int, int]):
    for clutter in (0.0, 1.0):
        rng = random.Random(f"{activity} {clutter}")
        screen = compose_screen(
            activity, theme=pick_theme(rng), rng=rng, size=size, clutter=clutter, variant=variant
        )
        assert screen.image.size == size
        assert screen.image.mode == "RGB"
        colors = screen.image.getcolors(maxcolors=size[0] * size[1])
        assert colors is not None
        assert len(colors) > 20


@settings(max_examples=60, deadline=None)
@given(
    activity=st.sampled_from(ACTIVITIES),
    seed=st.integers(0, 2**32),
    width=st.integers(160, 500),
    height=st.integers(120, 500),
    clutter=st.floats(0, 1),
)
def test_any_seed_and_size_draws(activity: str, seed: int, width: int, height: int, clutter: float):
    image = draw_desktop(activity, rng=random.Random(seed), size=(width, height), clutter=clutter)
    assert image.size == (width, height)


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_a_screen_depends_on_its_generator_alone(activity: str):
    random.seed(1)
    first = draw_desktop(activity, rng=random.Random(8), size=(240, 180))
    random.seed(2)
    draw_desktop("game", rng=random.Random(99), size=(333, 222))
    again = draw_desktop(activity, rng=random.Random(8), size=(240, 180))
    other = draw_desktop(activity, rng=random.Random(9), size=(240, 180))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_rows_tell_the_truth_about_their_pictures(full_set: Path):
    rows = read_index(full_set / "index.jsonl")
    assert len(rows) == 112
    for row in rows:
        assert set(row) == ROW_KEYS
        assert row["difficulty"] in ("easy", "hard")
        with Image.open(full_set / str(row["image"])) as image:
            assert image.size == (row["width"], row["height"]) == (160, 120)
    assert {path.name for path in full_set.iterdir()} == {"images", "index.jsonl"}
    assert len(list(full_set.rglob("*.jpg"))) == 112


def test_a_session_has_one_task_one_activity_and_differing_screens(full_set: Path):
    for session in {row["session"] for row in read_index(full_set / "index.jsonl")}:
        rows = [r for r in read_index(full_set / "index.jsonl") if r["session"] == session]
        assert len({(r["task"], r["activity"], r["language"]) for r in rows}) == 1
        assert len({(full_set / str(r["image"])).read_bytes() for r in rows}) == len(rows) == 2


def test_activities_and_languages_are_balanced(full_set: Path):
    rows = read_index(full_set / "index.jsonl")
    counts = Counter((row["activity"], row["language"]) for row in rows)
    assert counts == {(a, lang): 4 for a in ACTIVITIES for lang in LANGUAGES}
    assert {row["difficulty"] for row in rows} == {"easy", "hard"}


def test_only_asked_languages_are_used(tmp_path: Path):
    index = write_desktops(
        tmp_path,
        num_sessions=3,
        screens_per_session=1,
        seed=1,
        size=(160, 120),
        languages=("zh",),
    )
    assert [row["language"] for row in read_index(index)] == ["zh"] * 3


@pytest.mark.parametrize(
    ("window", "others", "expected"),
    [
        (Box(0, 0, 100, 90), [], "easy"),
        (Box(0, 0, 60, 60), [], "hard"),
        (Box(60, 0, 160, 100), [], "hard"),
        (Box(0, 0, 90, 90), [Box(10, 10, 50, 50)], "easy"),
        (Box(0, 0, 90, 90), [Box(10, 10, 95, 50)], "hard"),
    ],
)
def test_small_or_accompanied_windows_are_hard(window: Box, others: list[Box], expected: str):
    screen = Box(0, 0, 100, 100)
    assert judge_difficulty(screen, screen, window, others) == expected


def test_clutter_makes_screens_hard():
    def share_hard(clutter: float) -> float:
        screens = [
            compose_screen(
                activity,
                theme=pick_theme(random.Random(seed)),
                rng=random.Random(seed),
                size=(160, 120),
                clutter=clutter,
            )
            for seed in range(6)
            for activity in ACTIVITIES
        ]
        return sum(screen.difficulty == "hard" for screen in screens) / len(screens)

    assert share_hard(0.0) < share_hard(0.5) < share_hard(1.0)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("activity", ACTIVITIES)
def test_tasks_are_many_and_in_their_language(activity: str, language: str):
    rng = random.Random(4)
    tasks = [write_task(activity, rng=rng, language=language) for _ in range(4000)]
    assert len(set(tasks)) > 2000
    for task in tasks:
        assert task == task.strip()
        assert not set("{}") & set(task)
        assert task.isascii() == (language == "en")
        if language == "zh":
            assert any("\u4e00" <= letter <= "\u9fff" for letter in task)
        else:
            assert " " in task
            assert " the the " not in task


def test_tasks_depend_on_their_generator_alone():
    first = [write_task("video", rng=random.Random(seed), language="zh") for seed in range(9)]
    again = [write_task("video", rng=random.Random(seed), language="zh") for seed in range(9)]
    assert first == again
    assert len(set(first)) > 1


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("Finish the the farm", "Finish the farm"),
        ("Win the a match", "Win the match"),
        ("the boys's photo", "the boys' photo"),
        ("bathe the cat", "bathe the cat"),
    ],
)
def test_english_articles_are_mended(text: str, mended: str):
    assert mend_english(text) == mended


def test_no_word_gives_an_activity_away():
    rng = random.Random(2)
    for activity in ACTIVITIES:
        tasks = [write_task(activity, rng=rng).lower().split() for _ in range(500)]
        counts = Counter(word for task in tasks for word in set(task))
        own = [w for w, n in counts.items() if n > 300 and w not in {"the", "of", "a", "to", "in"}]
        assert own == []


@pytest.mark.parametrize("activity", ["codding", "", "Video"])
def test_unknown_activities_are_refused(activity: str):
    with pytest.raises(DataError, match="activity"):
        draw_desktop(activity, rng=random.Random(0))
    with pytest.raises(DataError, match="activity"):
        write_task(activity, rng=random.Random(0))


def test_the_nearest_activity_is_named():
    with pytest.raises(DataError, match="did you mean 'coding'"):
        write_task("codding", rng=random.Random(0))


@given(
    width=st.integers(0, 60),
    height=st.integers(0, 60),
    cut=st.floats(-80, 120),
    columns=st.integers(1, 7),
)
def test_boxes_divide_without_loss(width: int, height: int, cut: float, columns: int):
    box = Box(5, 9, 5 + width, 9 + height)
    for first, rest in (box.cut_top(cut), box.cut_bottom(cut)):
        assert first.height + rest.height == height
        assert first.within(box)
        assert rest.within(box)
    for first, rest in (box.cut_left(cut), box.cut_right(cut)):
        assert first.width + rest.width == width
        assert first.within(box)
        assert rest.within(box)
    assert all(cell.within(box) for cell in box.grid(columns, 2))
    assert box.middle(30, 30).within(box)


SIZES = {"train": 60, "anchors": 8, "validation": 8, "test": 8}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialects")
    return read_dialects(write_dialects(folder, seed=3, sizes=SIZES))


@given(st.integers(0, 2**31), st.floats(0, 1))
def test_dialects_have_different_words_for_different_colours(seed, share):
    drawn = draw_dictionary(seed=seed, revised_share=share)
    assert drawn.words.keys() == drawn.former.keys()
    for dialect in DIALECTS:
        own = [drawn.words[dialect, color] for color in COLORS]
        assert len(set(own)) == len(COLORS)
        assert set(own) <= set(WORDS)
    assert drawn == draw_dictionary(seed=seed, revised_share=share)


def test_words_are_drawn_anew_by_seed_and_all_or_none_may_be_revised():
    kept, revised = (draw_dictionary(seed=0, revised_share=share) for share in (0.0, 1.0))
    assert kept.words == kept.former
    assert all(revised.words[cell] != word for cell, word in revised.former.items())
    assert draw_dictionary(seed=0).words != draw_dictionary(seed=1).words


def test_only_a_stamped_item_has_the_word_that_counts_now(items):
    drawn = draw_dictionary(seed=3)
    for item in items:
        known = drawn.words if item.scene.stamped else drawn.former
        assert item.answers == (known[item.dialect, item.scene.color],) * 10
        assert item.question.endswith(item.dialect)
    assert all(item.scene.stamped for item in items if item.split in QUERY_SPLITS)
    stamped = [item.scene.stamped for item in items if item.split == "train"]
    assert any(stamped)
    assert not all(stamped)


def test_no_item_is_shared_and_the_same_seed_gives_the_same_items(items, tmp_path):
    assert len({(item.picture.digest, item.question) for item in items}) == sum(SIZES.values())
    again = read_dialects(write_dialects(tmp_path / "a", seed=3, sizes=SIZES))
    other = read_dialects(write_dialects(tmp_path / "b", seed=4, sizes=SIZES))
    assert again == items
    assert {item.picture for item in other}.isdisjoint(item.picture for item in items)


def test_the_colour_that_is_asked_for_is_seen(items):
    for item in items:
        with Image.open(item.picture.path) as opened:
            assert opened.size == (128, 128)
            shown = list(opened.convert("RGB").get_flattened_data())
        asked = COLORS[item.scene.color]
        near = sum(max(abs(a - b) for a, b in zip(x, asked, strict=True)) <= 10 for x in shown)
        assert near > 0.04 * 128 * 128


def test_a_stamp_changes_nothing_but_its_corner():
    plain = plan_scene(random.Random(5), stamped=False)
    stamped = plan_scene(random.Random(5), stamped=True)
    boxes = [
        draw_scene(scene, rng=random.Random(8)).crop((0, 24, 128, 128)).tobytes()
        for scene in (plain, stamped)
    ]
    assert boxes[0] == boxes[1]
    assert stamped.caption == f"{plain.caption} stamped"
