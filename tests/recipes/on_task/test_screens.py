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
from plan_keys import list_changed, plan, read_config, read_keys
from recipe_runs import RecipeJob
from scenes import copy_scene, draw_scene
from tables import read_tables

from groupwise.core import (
    ConfigError,
    DataError,
    RunError,
    load_config,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise.data.example_files import read_examples
from groupwise.data.pairs import Pair
from groupwise.data.screenshots import load_screenshots
from groupwise.data.tables.templates import FillError
from groupwise.flow.finished import FinishedRun, open_run
from groupwise.pipeline import StepContext, find_recipe
from groupwise.serving import Request
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.prompt import SCREEN_WORDS, make_pair_example
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.screens import prepare_screens, read_labelled_screens, read_warmup
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
CONFIGS = find_recipe("on_task").config_folder
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


def test_near_duplicates_are_dropped_from_what_trains_and_counted(tmp_path):
    write_scenes(tmp_path / "screens", num_sessions=16, copied=8)
    shares = ("data.test_share=0.4", "data.validation_share=0.1", "data.warmup_share=0.2")
    folds = ("data.train_folds=null", "data.test_folds=null")
    settings = load(tmp_path / "screens", *folds, *shares, "data.near_duplicates=drop")
    prepare_screens(settings, tmp_path / "prepare")
    source = json.loads((tmp_path / "prepare/source.json").read_text())
    num_dropped = source["drops"]["counts"]["near duplicate of another split"]
    sides = list_sides(tmp_path / "prepare")
    assert num_dropped > 0
    assert sum(map(len, sides.values())) + num_dropped == source["num_rows"] == 24
    assert len(sides["test"]) == 10


def test_sessions_that_look_alike_are_joined(tmp_path):
    write_scenes(tmp_path / "screens", num_sessions=38, copied=2)
    folds = ("data.train_folds=null", "data.test_folds=null", "data.warmup_share=0.2")
    settings = load(tmp_path / "screens", *folds, "data.near_duplicates=join")
    prepare_screens(settings, tmp_path / "prepare")
    sides = list_sides(tmp_path / "prepare")
    everywhere = [session for sessions in sides.values() for session in sessions]
    assert len(everywhere) == len(set(everywhere)) == 38


def test_joining_against_fixed_folds_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="join needs a split by shares"):
        load(tmp_path, "data.near_duplicates=join")


@pytest.mark.parametrize("joins", [False, True])
def test_real_screens_are_joined_by_drawn_ones_only_if_asked_for(tmp_path, joins):
    root = tmp_path / "screens"
    size = {"screens_per_session": 1, "size": (160, 120)}
    write_desktops(root, num_sessions=30, seed=3, activities=("coding", "video"), **size)
    words = [
        *("data.train_folds=null", "data.test_folds=null", "data.warmup_share=0.2"),
        "data.drawn.num_sessions=4",
        f"data.drawn.join_real={joins}",
    ]
    prepare_screens(load(root, *words), tmp_path)
    sources = json.loads((tmp_path / "source.json").read_text())["sources"]
    num_drawn = 4 if joins else 0
    assert sources["warmup"] == {"captured": 6} | ({"drawn": 4} if joins else {})
    assert all(set(counts) == {"captured"} for name, counts in sources.items() if name != "warmup")
    rows = read_jsonl(tmp_path / "warmup.jsonl")
    assert sum(row["source"] == "drawn" for row in rows) == num_drawn
    assert (tmp_path / "drawn").is_dir() == joins


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real screenshots are not at {REAL}")
def test_folds_of_real_screenshots_share_no_session(tmp_path):
    prepare_screens(load(REAL), tmp_path)
    groups = {
        name: {e.cluster for e in read_examples(tmp_path / f"{name}.jsonl")}
        for name in ("train", "validation", "test")
    }
    assert not groups["test"] & (groups["train"] | groups["validation"])
    assert not groups["train"] & groups["validation"]
    assert len(groups["test"]) == 37


def test_only_a_label_that_a_person_gave_is_a_persons(tmp_path):
    root = tmp_path / "root"
    write_desktops(root, num_sessions=60, screens_per_session=1, seed=0, size=(224, 168))
    rows = read_jsonl(root / "index.jsonl")
    for number, row in enumerate(rows):
        row["source"] = ("human_feedback", "captured")[number % 2]
        row["label"] = ("on-task", "off-task", None)[number % 3]
    write_jsonl(root / "index.jsonl", rows)
    config = load(root, "data.train_folds=null", "data.test_folds=null", "data.pairs_per_screen=1")
    prepare_screens(config, tmp_path / "prepare")
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
    config, task = load(root), find_recipe("on_task").task()
    context = StepContext(tmp_path, tmp_path, "evaluate", False, ())
    found, drops = task.read_labelled(config, context, root, tmp_path / "data")
    assert sorted(str(one.label) for one in found) == ["off-task"] * 2 + ["on-task"] * 2
    assert drops.counts == {"label outside the set": 1, "no label": 1, "repeats another row": 1}
    asked = task.make_question(
        config,
        Request("1", {"task": rows[1]["task"]}, (root / rows[1]["image"],)),
        tmp_path / "asked",
    )
    prompts = [[(turn.role, turn.text) for turn in one.prompt] for one in found]
    place = prompts.index([(turn.role, turn.text) for turn in asked.prompt])
    digests = {p.digest for one in found for p in one.pictures}
    assert {p.digest for p in asked.pictures} <= digests
    assert found[place].label is not None
    write_jsonl(root / "index.jsonl", rows)
    with pytest.raises(DataError, match="has no labelled screen"):
        task.read_labelled(config, context, root, tmp_path / "data")


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


def test_braces_on_a_screen_are_shown_and_not_filled(root):
    screen = replace(load_screenshots(root).screens[0], words="{{ task }} {% if %}")
    pair = Pair(screen, "write", None, None, screen.session)
    asked = make_pair_example(pair, load_words(root)).prompt[0].text
    assert '"{{ task }} {% if %}"\nTask: write' in asked


def test_words_that_nobody_read_are_not_taken_for_none(root):
    screen = load_screenshots(root).screens[0]
    with pytest.raises(FillError, match="'words' is undefined"):
        make_pair_example(Pair(screen, "write", None, None, screen.session), load_words(root))


@needs_ocr
def test_words_are_read_before_the_picture_is_stored_smaller(root, tmp_path):
    config = load_words(root, "data.stored_pixels=784")
    request = Request("r", {"task": "write"}, (root / "0.png",))
    assert "Budget" in TASK.make_question(config, request, tmp_path).prompt[0].text


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


@needs_ocr
def test_a_folder_without_a_readable_screen_is_refused(root, tmp_path):
    for path in root.glob("*.png"):
        draw(path, "Steam", (160, 120))
    with pytest.raises(DataError, match="no screen has words that can be read"):
        add_words(load_screenshots(root), load_words(root), tmp_path)


@needs_ocr
def test_an_empty_screen_says_so_and_a_cut_one_is_cut(root, tmp_path):
    draw(root / "0.png", "")
    request = Request("r", {"task": "write"}, (root / "0.png",))
    found = TASK.make_question(load_words(root), request, tmp_path)
    assert '"(none)"' in found.prompt[0].text
    assert found.fields[SCREEN_WORDS] == ""
    draw(root / "0.png", "LibreOffice")
    cut = load_words(root, "data.screen_words.num_characters=5")
    assert TASK.make_question(cut, request, tmp_path).fields[SCREEN_WORDS] == "Libre"


@pytest.mark.parametrize(("override", "words"), TABLES["settings_that_show_no_words_are_refused"])
def test_settings_that_show_no_words_are_refused(tmp_path, override, words):
    with pytest.raises(ConfigError) as caught:
        load_words(tmp_path, override)
    assert words in str(caught.value)


def test_without_the_extra_a_run_with_words_does_not_start(root, tmp_path, monkeypatch):
    monkeypatch.setattr("groupwise.data.ocr.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[ocr\]'"):
        find_recipe("on_task").plan(load_words(root), tmp_path)


def test_another_engine_reads_again(root, tmp_path, monkeypatch):
    monkeypatch.setattr("groupwise_recipes.on_task.task.check_ocr", lambda: None)

    def read():
        folds = ("data.train_folds=[0]", "data.test_folds=[1]")
        steps = plan("on_task", tmp_path, "screenagent-words", f"data.root={root}", *folds)
        return read_keys(steps)

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
    tiny = CONFIGS / "screenagent-tiny.yaml"
    plain = load_config(OnTaskConfig, tiny, overrides=[f"data.root={root}"])
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


def test_weak_terms_count_where_no_others_do():
    finder = make_finder("GIMP", weak=("Firefox", "Chrome"))
    both = finder.weigh("Firefox, GIMP, Chrome, GIMP")
    alone = finder.weigh("Firefox and Chrome")
    assert (both.numbers, both.are_weak) == ({"work": 1}, False)
    assert (alone.numbers, alone.are_weak) == ({"web": 2}, True)


def test_neutral_terms_tell_nothing_and_hide_what_is_in_them():
    assert make_finder("表格", neutral=("列表格式",)).weigh("列表格式").numbers == {}


@pytest.mark.parametrize("term", ["", " ", "表", "+"])
def test_terms_that_would_be_found_everywhere_are_refused(term):
    with pytest.raises(DataError, match="too short"):
        make_finder(term)


def test_a_term_that_tells_two_things_is_refused():
    with pytest.raises(DataError, match="'vscode'"):
        make_finder("VS Code", weak=("vscode",))


@pytest.mark.parametrize("place", ["tasks", "screens"])
def test_the_vocabularies_of_the_package_can_be_used(place):
    finder = TermFinder(load_vocabularies(), place)
    assert finder.weigh("GIMP 表格.ods").numbers.keys() >= {"image_editing"}


def test_both_languages_name_the_same_kinds_of_work_and_distractions():
    english, chinese = load_vocabularies()
    assert english.work.keys() == chinese.work.keys()
    assert english.distraction.keys() == chinese.distraction.keys()
    assert not list_distractions((english, chinese)) & english.work.keys()
