"""Screens of on_task: how they are read and divided, their words, and vocabularies."""

import importlib.util
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont
from plan_keys import list_changed, read_config, read_keys
from recipe_runs import RecipeJob
from scenes import copy_scene, draw_scene
from tables import read_tables

from groupwise.core import (
    ConfigError,
    DataError,
    RunError,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise.data.columns import FillError
from groupwise.data.examples import read_examples
from groupwise.run.predict import FinishedRun, open_run
from groupwise.run.running import plan_steps
from groupwise.run.steps import StepContext
from groupwise.serving import Request
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_recipes.on_task.pairs import Pair
from groupwise_recipes.on_task.prompt import SCREEN_WORDS, make_pair_example
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.screens import prepare_screens, read_labelled_screens, read_warmup
from groupwise_recipes.on_task.screenshots import load_screenshots
from groupwise_recipes.on_task.task import TASK
from groupwise_recipes.on_task.vocabulary import (
    TermFinder,
    Terms,
    Vocabulary,
    fold,
    list_distractions,
    load_vocabularies,
)
from groupwise_recipes.on_task.words import FILE, add_words, shorten, write_reader

TABLES = read_tables(__file__)
REAL = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "screenagent"


def load(root, *overrides):
    settings = [f"data.root={root}", "data.drawn.num_sessions=0", *overrides]
    return read_config("on_task", "screenagent-tiny", *settings)


def test_picture_of_two_sessions_stays_on_one_side_and_is_counted(tmp_path):
    root = tmp_path / "screens"
    index = write_desktops(
        root, num_sessions=30, screens_per_session=1, seed=3, size=(160, 120), languages=("en",)
    )
    rows = [row | {"fold": number % 2} for number, row in enumerate(read_jsonl(index))]
    write_jsonl(index, rows)
    shutil.copy(root / rows[0]["image"], root / rows[1]["image"])  # folds 0 and 1
    config = load(root, "data.train_folds=[0]", "data.test_folds=[1]", "data.validation_share=0.2")
    folder = tmp_path / "prepare"
    prepare_screens(config, folder)
    pictures = {
        name: {p.digest for e in read_examples(folder / f"{name}.jsonl") for p in e.pictures}
        for name in ("train", "validation", "test")
    }
    assert len(set.union(*pictures.values())) == sum(len(p) for p in pictures.values()) == 29
    source = json.loads((folder / "source.json").read_text())
    assert source["drops"]["counts"] == {"picture of another split": 1}
    assert source["num_rows"] == 30


def write_scenes(root, *, num_sessions, copied):
    """Write a screen a session, and for the first ones a copy in a session of its own."""
    paths = [draw_scene(root / f"{n}.png", n) for n in range(num_sessions)]
    copies = [copy_scene(path, root / f"copy-{path.stem}.jpg") for path in paths[:copied]]
    rows = [
        {
            "image": path.name,
            "task": f"task {number % 3}",
            "activity": f"activity {number % 3}",
            "session": f"s{number}",
        }
        for number, path in enumerate([*paths, *copies])
    ]
    write_jsonl(root / "index.jsonl", rows)
    return [path.stem for path in paths[:copied]]


def list_sides(folder):
    """Return the sessions of each split."""
    splits = {
        name: {example.cluster for example in read_examples(folder / f"{name}.jsonl")}
        for name in ("train", "validation", "test")
    }
    return {**splits, "warmup": {screen.session for screen in read_warmup(folder)}}


NO_FOLDS = ("data.train_folds=null", "data.test_folds=null")


def test_near_duplicates_are_dropped_from_what_trains_or_joined(tmp_path):
    write_scenes(tmp_path / "16", num_sessions=16, copied=8)
    shares = ("data.test_share=0.4", "data.validation_share=0.1", "data.warmup_share=0.2")
    prepare_screens(
        load(tmp_path / "16", *NO_FOLDS, *shares, "data.near_duplicates=drop"), tmp_path / "drop"
    )
    source = read_json(tmp_path / "drop/source.json", dict)
    num_dropped = source["drops"]["counts"]["near duplicate of another split"]
    sides = list_sides(tmp_path / "drop")
    assert num_dropped > 0
    assert sum(map(len, sides.values())) + num_dropped == source["num_rows"] == 24
    assert len(sides["test"]) == 10

    write_scenes(tmp_path / "38", num_sessions=38, copied=2)
    joined = ("data.warmup_share=0.2", "data.near_duplicates=join")
    prepare_screens(load(tmp_path / "38", *NO_FOLDS, *joined), tmp_path / "join")
    sides = list_sides(tmp_path / "join")
    everywhere = [session for sessions in sides.values() for session in sessions]
    assert len(everywhere) == len(set(everywhere)) == 38
    with pytest.raises(ConfigError, match="join needs a split by shares"):
        load(tmp_path, "data.near_duplicates=join")


@pytest.mark.parametrize("joins", [False, True])
def test_real_screens_are_joined_by_drawn_ones_only_if_asked_for(tmp_path, joins):
    root = tmp_path / "screens"
    size = {"screens_per_session": 1, "size": (160, 120)}
    write_desktops(root, num_sessions=30, seed=3, activities=("coding", "video"), **size)
    drawn = ("data.drawn.num_sessions=4", f"data.drawn.join_real={joins}")
    prepare_screens(load(root, *NO_FOLDS, "data.warmup_share=0.2", *drawn), tmp_path)
    sources = read_json(tmp_path / "source.json", dict)["sources"]
    assert sources["warmup"] == {"captured": 6} | ({"drawn": 4} if joins else {})
    assert all(set(counts) == {"captured"} for name, counts in sources.items() if name != "warmup")
    rows = read_jsonl(tmp_path / "warmup.jsonl")
    assert sum(row["source"] == "drawn" for row in rows) == (4 if joins else 0)
    assert (tmp_path / "drawn").is_dir() == joins


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real screenshots are not at {REAL}")
def test_folds_of_real_screenshots_share_no_session(tmp_path):
    prepare_screens(load(REAL), tmp_path)
    sides = list_sides(tmp_path)
    assert not sides["test"] & (sides["train"] | sides["validation"])
    assert not sides["train"] & sides["validation"]
    assert len(sides["test"]) == 37


def test_only_a_label_that_a_person_gave_is_a_persons(tmp_path):
    root = tmp_path / "root"
    write_desktops(root, num_sessions=60, screens_per_session=1, seed=0, size=(224, 168))
    rows = read_jsonl(root / "index.jsonl")
    for number, row in enumerate(rows):
        row["source"] = ("human_feedback", "captured")[number % 2]
        row["label"] = ("on-task", "off-task", None)[number % 3]
    write_jsonl(root / "index.jsonl", rows)
    prepare_screens(load(root, *NO_FOLDS, "data.pairs_per_screen=1"), tmp_path / "prepare")
    found = read_examples(tmp_path / "prepare" / "train.jsonl")
    given = {row["task"]: row["label"] for row in rows if row["source"] == "human_feedback"}
    corrected = [one for one in found if "human_label" in one.fields]
    assert corrected
    for example in corrected:
        assert given[example.fields["task"]] == example.label == example.fields["human_label"]


def test_labelled_screens_of_another_folder_are_asked_as_those_of_the_run(tmp_path):
    root = tmp_path / "screens"
    write_scenes(root, num_sessions=6, copied=0)
    rows = read_jsonl(root / "index.jsonl")
    labels = ["on-task", "off-task", "on-task", None, "maybe", "off-task"]
    labelled = [row | {"label": label} for row, label in zip(rows, labels, strict=True)]
    write_jsonl(root / "index.jsonl", [*labelled, labelled[0]])
    config = load(root)
    context = StepContext(tmp_path, tmp_path, "evaluate", False, ())
    found, drops = TASK.read_labelled(config, context, root, tmp_path / "data")
    assert sorted(str(one.label) for one in found) == ["off-task"] * 2 + ["on-task"] * 2
    assert drops.counts == {"label outside the set": 1, "no label": 1, "repeats another row": 1}
    request = Request("1", {"task": rows[1]["task"]}, (root / rows[1]["image"],))
    asked = TASK.make_question(config, request, tmp_path / "asked")
    prompts = [[(turn.role, turn.text) for turn in one.prompt] for one in found]
    place = prompts.index([(turn.role, turn.text) for turn in asked.prompt])
    digests = {p.digest for one in found for p in one.pictures}
    assert {p.digest for p in asked.pictures} <= digests
    assert found[place].label is not None
    write_jsonl(root / "index.jsonl", rows)
    with pytest.raises(DataError, match="has no labelled screen"):
        TASK.read_labelled(config, context, root, tmp_path / "data")


TITLES = ("Budget - Calc", "Steam", "Firefox", 'say "yes"')

needs_ocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None,
    reason="needs RapidOCR: pip install 'groupwise[ocr]'",
)


def load_words(root, *overrides):
    settings = [f"data.root={root}", "data.drawn.num_sessions=0", "data.test_folds=[1]"]
    settings += ["data.train_folds=[0]", "data.validation_share=0.3", *overrides]
    return read_config("on_task", "screenagent-words", *settings)


def draw(path, title, size=(640, 480)):
    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).text((20, 16), title, "black", ImageFont.load_default(24))
    picture.save(path)


@pytest.fixture
def root(tmp_path):
    """Eight labelled screens in sessions of their own and two folds, one of them too small."""
    folder = tmp_path / "screens"
    folder.mkdir()
    rows = []
    for number in range(8):
        size = (160, 120) if number == 7 else (640, 480)
        draw(folder / f"{number}.png", f"{TITLES[number % 4]} {number}", size)
        label = "on-task" if number % 2 else "off-task"
        row = {"image": f"{number}.png", "task": f"write {number}", "session": f"s{number}"}
        rows.append(row | {"label": label, "fold": number // 2 % 2})
    (folder / "index.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@given(st.text(max_size=200), st.integers(1, 60))
def test_words_cannot_end_the_quotation_that_they_stand_in(text, num_characters):
    found = shorten(text, num_characters)
    assert len(found) <= num_characters
    assert '"' not in found
    assert found.splitlines() in ([], [found])
    assert shorten(found, num_characters) == found


@needs_ocr
def test_a_server_asks_what_training_asked(root, tmp_path):
    config = load_words(root)
    prepare_screens(config, tmp_path / "prepare")
    rows = [
        example
        for split in ("train", "validation", "test")
        for example in read_examples(tmp_path / "prepare" / f"{split}.jsonl")
    ]
    assert len(rows) == 7
    for number, example in enumerate(sorted(rows, key=lambda one: int(one.cluster[1:]))):
        path, task = root / f"{number}.png", f"write {number}"
        served = TASK.make_question(config, Request("r", {"task": task}, (path,)), tmp_path)
        assert served.prompt == example.prompt
        assert TITLES[number % 4][:3] in example.prompt[0].text


def test_braces_on_a_screen_are_shown_and_words_that_nobody_read_are_not_taken_for_none(root):
    unread = load_screenshots(root).screens[0]
    screen = replace(unread, words="{{ task }} {% if %}")
    read, unasked = (Pair(one, "write", None, None, screen.session) for one in (screen, unread))
    asked = make_pair_example(read, load_words(root)).prompt[0].text
    assert '"{{ task }} {% if %}"\nTask: write' in asked
    with pytest.raises(FillError, match="'words' is undefined"):
        make_pair_example(unasked, load_words(root))


@needs_ocr
def test_words_are_read_before_the_picture_is_stored_smaller_and_empty_or_cut_ones_say_so(
    root, tmp_path
):
    request = Request("r", {"task": "write"}, (root / "0.png",))

    def ask(*overrides):
        return TASK.make_question(load_words(root, *overrides), request, tmp_path)

    assert "Budget" in ask("data.stored_pixels=784").prompt[0].text
    draw(root / "0.png", "")
    found = ask()
    assert '"(none)"' in found.prompt[0].text
    assert found.fields[SCREEN_WORDS] == ""
    draw(root / "0.png", "LibreOffice")
    assert ask("data.screen_words.num_characters=5").fields[SCREEN_WORDS] == "Libre"


@needs_ocr
def test_a_screen_too_small_for_words_is_dropped_and_counted_and_not_served(root, tmp_path):
    config = load_words(root)
    prepare_screens(config, tmp_path)
    source = read_json(tmp_path / "source.json", dict)
    assert source["drops"]["counts"] == {"its words cannot be read": 1}
    assert source["num_rows"] == 8
    request = Request("r", {"task": "write"}, (root / "7.png",))
    with pytest.raises(DataError, match=r"too small for its words to be read.*160 x 120"):
        TASK.make_question(config, request, tmp_path)
    found, drops = read_labelled_screens(config, root, tmp_path / "other")
    assert (len(found), drops.total) == (7, 1)
    for path in root.glob("*.png"):
        draw(path, "Steam", (160, 120))
    with pytest.raises(DataError, match="no screen has words that can be read"):
        add_words(load_screenshots(root), config, tmp_path)


@pytest.mark.parametrize(("override", "words"), TABLES["settings_that_show_no_words_are_refused"])
def test_settings_that_show_no_words_are_refused(tmp_path, override, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_words(tmp_path, override)


def test_another_engine_reads_again_and_without_one_a_run_does_not_start(
    root, tmp_path, monkeypatch
):
    def read():
        return read_keys(plan_steps(recipe, load_words(root), tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr("groupwise_recipes.on_task.ocr.find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=r"pip install 'groupwise\[ocr\]'"):
            read()
    monkeypatch.setattr("groupwise_recipes.on_task.task.check_ocr", lambda: None)
    before = read()
    monkeypatch.setattr("groupwise_recipes.on_task.task.describe_ocr", lambda: {"rapidocr": "9"})
    assert list_changed(before, read()) == {"prepare"}


def test_a_run_is_not_asked_where_another_engine_reads(root, tmp_path, monkeypatch):
    config = load_words(root)
    run = FinishedRun(tmp_path, recipe, TASK, config)
    with pytest.raises(DataError, match=FILE):
        run.open_predictor("grpo")
    (tmp_path / "prepare").mkdir()
    write_reader(config, tmp_path / "prepare")
    TASK.check_tools(config, tmp_path)
    path = tmp_path / "prepare" / FILE
    write_json(path, {**read_json(path, dict), "rapidocr": "0.1"})
    with pytest.raises(RunError, match=r"otherwise than in training.*expected rapidocr 0\.1"):
        run.open_predictor("grpo")


def test_what_reads_words_is_a_part_of_the_version_only_where_words_are_shown(root):
    plain = read_config("on_task", "screenagent-tiny", f"data.root={root}")
    assert TASK.describe_tools(plain) == {}
    TASK.check_tools(plain, root)
    assert len(TASK.describe_prompt(plain)) == 1
    assert TASK.describe_prompt(load_words(root)) == []
    assert TASK.describe_tools(load_words(root))["words"].keys() >= {"rapidocr", "settings", "top"}


@needs_ocr
@pytest.mark.slow
def test_a_run_with_words_trains_and_answers(job, tmp_path, command_line):
    shown = TABLES["a_run_with_words_trains_and_answers"]
    run = tmp_path / "run"
    command_line.succeed(*RecipeJob("on_task", {**job.settings, **shown}).list_arguments(run))
    test = read_examples(run / "prepare" / "test.jsonl")
    assert any(example.fields[SCREEN_WORDS] for example in test)
    predictor = open_run(run).open_predictor("grpo")
    assert predictor.describe()["tools"]["words"] == read_json(run / "prepare" / FILE, dict)
    assert len(predictor.answer(test[:2])) == 2


LETTERS = st.text("abcxyzé019_", min_size=1, max_size=8)
CHINESE = st.text("视频", min_size=2, max_size=5)


def make_finder(*terms, weak=(), neutral=()):
    vocabulary = Vocabulary(
        work={"work": Terms(names=terms)},
        distraction={},
        weak={"web": Terms(names=weak)},
        neutral=neutral,
    )
    return TermFinder((vocabulary,), "screens")


@pytest.mark.parametrize(("term", "text"), TABLES["a_part_of_a_word_is_not_found"])
def test_a_part_of_a_word_is_not_found(term, text):
    assert make_finder(term).find(text) == []


@pytest.mark.parametrize(("term", "text"), TABLES["a_whole_word_is_found_however_it_is_written"])
def test_a_whole_word_is_found_however_it_is_written(term, text):
    assert make_finder(term).find(text) == ["".join(fold(term).split())]


@given(before=LETTERS, term=LETTERS, behind=LETTERS)
def test_no_term_is_found_inside_a_longer_word(before, term, behind):
    finder = make_finder(term)
    assert finder.find(f"{before}{term}") == []
    assert finder.find(f"{term}{behind}") == []
    assert finder.find(f"{before}{term}{behind}") == []
    text = f"{before}x {term} x{behind}"  # what stands beside the term may be the term again
    assert finder.find(text) == [fold(term)] * fold(text).split().count(fold(term))


@given(terms=st.lists(CHINESE, min_size=1, max_size=6, unique=True), text=CHINESE)
def test_of_terms_that_begin_at_one_place_the_longest_counts(terms, text):
    place, expected = 0, []
    while place < len(text):
        here = [term for term in terms if text.startswith(term, place)]
        expected += [max(here, key=len)] if here else []
        place += len(expected[-1]) if here else 1
    assert make_finder(*terms).find(text) == expected


@given(st.text(max_size=60))
def test_any_text_can_be_searched(text):
    finder = TermFinder(load_vocabularies(), "screens")
    squeezed = re.sub(r"\s+", "", fold(text))
    assert all(term in squeezed for term in finder.find(text))


def test_weak_terms_count_where_no_others_do_and_neutral_ones_hide_what_is_in_them():
    finder = make_finder("GIMP", weak=("Firefox", "Chrome"))
    both = finder.weigh("Firefox, GIMP, Chrome, GIMP")
    alone = finder.weigh("Firefox and Chrome")
    assert (both.numbers, both.are_weak) == ({"work": 1}, False)
    assert (alone.numbers, alone.are_weak) == ({"web": 2}, True)
    assert make_finder("表格", neutral=("列表格式",)).weigh("列表格式").numbers == {}


@pytest.mark.parametrize(
    ("term", "weak", "message"),
    [
        *((term, (), "too short") for term in ("", " ", "表", "+")),
        ("VS Code", ["vscode"], "'vscode'"),
    ],
)
def test_terms_that_would_be_found_everywhere_or_tell_two_things_are_refused(term, weak, message):
    with pytest.raises(DataError, match=message):
        make_finder(term, weak=weak)


def test_the_vocabularies_of_the_package_name_the_same_kinds_of_work_and_distractions():
    for place in ("tasks", "screens"):
        finder = TermFinder(load_vocabularies(), place)
        assert finder.weigh("GIMP 表格.ods").numbers.keys() >= {"image_editing"}
    english, chinese = load_vocabularies()
    assert english.work.keys() == chinese.work.keys()
    assert english.distraction.keys() == chinese.distraction.keys()
    assert not list_distractions((english, chinese)) & english.work.keys()
