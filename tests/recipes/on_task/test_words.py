"""Words of screens in the prompt: read once the same way, and never silently missing."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont
from plan_keys import list_changed, plan, read_keys
from recipe_runs import RecipeJob

from groupwise.core import ConfigError, DataError, RunError, load_config, read_json, write_json
from groupwise.data import Pair, load_screenshots, read_examples
from groupwise.data.tables.templates import FillError
from groupwise.flow import FinishedRun, open_run
from groupwise.pipeline import find_recipe
from groupwise.serving import Request
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.prompt import SCREEN_WORDS, make_pair_example
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.screens import prepare_screens, read_labelled_screens
from groupwise_recipes.on_task.task import TASK
from groupwise_recipes.on_task.words import FILE, add_words, shorten, write_reader

CONFIGS = find_recipe("on_task").config_folder
TITLES = ("Budget - Calc", "Steam", "Firefox", 'say "yes"')

needs_ocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None,
    reason="needs RapidOCR: pip install 'groupwise[ocr]'",
)


def load(root: Path, *overrides: str) -> OnTaskConfig:
    settings = [f"data.root={root}", "data.drawn.num_sessions=0", "data.test_folds=[1]"]
    settings += ["data.train_folds=[0]", "data.validation_share=0.3", *overrides]
    return load_config(OnTaskConfig, CONFIGS / "screenagent-words.yaml", overrides=settings)


def draw(path: Path, title: str, size: tuple[int, int] = (640, 480)) -> None:
    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).text((20, 16), title, "black", ImageFont.load_default(24))
    picture.save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight labelled screens in sessions of their own and two folds, one of them too small."""
    folder = tmp_path / "screens"
    folder.mkdir()
    rows: list[dict[str, object]] = []
    for number in range(8):
        size = (160, 120) if number == 7 else (640, 480)
        draw(folder / f"{number}.png", f"{TITLES[number % 4]} {number}", size)
        label = "on-task" if number % 2 else "off-task"
        row = {"image": f"{number}.png", "task": f"write {number}", "session": f"s{number}"}
        rows.append(row | {"label": label, "fold": number // 2 % 2})
    (folder / "index.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@given(st.text(max_size=200), st.integers(1, 60))
def test_words_cannot_end_the_quotation_that_they_stand_in(text: str, num_characters: int) -> None:
    found = shorten(text, num_characters)
    assert len(found) <= num_characters
    assert '"' not in found
    assert found.splitlines() in ([], [found])
    assert shorten(found, num_characters) == found


@needs_ocr
def test_a_server_asks_what_training_asked(root: Path, tmp_path: Path) -> None:
    config = load(root)
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


def test_braces_on_a_screen_are_shown_and_not_filled(root: Path) -> None:
    screen = replace(load_screenshots(root).screens[0], words="{{ task }} {% if %}")
    pair = Pair(screen, "write", None, None, screen.session)
    assert (
        '"{{ task }} {% if %}"\nTask: write' in make_pair_example(pair, load(root)).prompt[0].text
    )


def test_words_that_nobody_read_are_not_taken_for_none(root: Path) -> None:
    screen = load_screenshots(root).screens[0]
    with pytest.raises(FillError, match="'words' is undefined"):
        make_pair_example(Pair(screen, "write", None, None, screen.session), load(root))


@needs_ocr
def test_words_are_read_before_the_picture_is_stored_smaller(root: Path, tmp_path: Path) -> None:
    config = load(root, "data.stored_pixels=784")
    request = Request("r", {"task": "write"}, (root / "0.png",))
    assert "Budget" in TASK.make_question(config, request, tmp_path).prompt[0].text


@needs_ocr
def test_a_screen_too_small_for_words_is_dropped_and_counted_and_not_served(
    root: Path, tmp_path: Path
) -> None:
    config = load(root)
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
def test_a_folder_without_a_readable_screen_is_refused(root: Path, tmp_path: Path) -> None:
    for path in root.glob("*.png"):
        draw(path, "Steam", (160, 120))
    with pytest.raises(DataError, match="no screen has words that can be read"):
        add_words(load_screenshots(root), load(root), tmp_path)


@needs_ocr
def test_an_empty_screen_says_so_and_a_cut_one_is_cut(root: Path, tmp_path: Path) -> None:
    draw(root / "0.png", "")
    request = Request("r", {"task": "write"}, (root / "0.png",))
    found = TASK.make_question(load(root), request, tmp_path)
    assert '"(none)"' in found.prompt[0].text
    assert found.fields[SCREEN_WORDS] == ""
    draw(root / "0.png", "LibreOffice")
    cut = load(root, "data.screen_words.num_characters=5")
    assert TASK.make_question(cut, request, tmp_path).fields[SCREEN_WORDS] == "Libre"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("prompt='{{ task }}: on-task or off-task?'", "the template lacks {{ words }}"),
        ("data.screen_words=null", "nothing fills {{ words }}"),
        ("data.screen_words.num_characters=0", "data.screen_words.num_characters"),
        ("data.drawn={num_sessions: 9, join_real: true, width: 400}", "got 400 x 480"),
    ],
)
def test_settings_that_show_no_words_are_refused(tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, override)
    assert words in str(caught.value)


def test_without_the_extra_a_run_with_words_does_not_start(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.data.ocr.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[ocr\]'"):
        find_recipe("on_task").plan(load(root), tmp_path)


def test_another_engine_reads_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise_recipes.on_task.task.check_ocr", lambda: None)

    def read() -> dict[str, str]:
        folds = ("data.train_folds=[0]", "data.test_folds=[1]")
        return read_keys(
            plan("on_task", tmp_path, "screenagent-words", f"data.root={root}", *folds)
        )

    before = read()
    monkeypatch.setattr("groupwise_recipes.on_task.task.describe_ocr", lambda: {"rapidocr": "9"})
    assert list_changed(before, read()) == {"prepare"}


def test_a_run_is_not_asked_where_another_engine_reads(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(root)
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


def test_what_reads_words_is_a_part_of_the_version_only_where_words_are_shown(root: Path) -> None:
    tiny = CONFIGS / "screenagent-tiny.yaml"
    plain = load_config(OnTaskConfig, tiny, overrides=[f"data.root={root}"])
    assert TASK.describe_tools(plain) == {}
    TASK.check_tools(plain, root)
    assert len(TASK.describe_prompt(plain)) == 1
    assert TASK.describe_prompt(load(root)) == []
    assert TASK.describe_tools(load(root))["words"].keys() >= {"rapidocr", "settings", "top"}


@needs_ocr
@pytest.mark.slow
def test_a_run_with_words_trains_and_answers(
    job: RecipeJob, tmp_path: Path, command_line: CommandLine
) -> None:
    shown = {
        "data.drawn.width": 640,
        "data.drawn.height": 480,
        "data.screen_words": "{num_characters: 40}",
        "prompt": """'Words "{{ words }}". Task {{ task }}. Is it on-task or off-task?'""",
    }
    run = tmp_path / "run"
    done = command_line(*RecipeJob("on_task", {**job.settings, **shown}).list_arguments(run))
    assert done.returncode == 0, done.stderr
    test = read_examples(run / "prepare" / "test.jsonl")
    assert any(example.fields[SCREEN_WORDS] for example in test)
    predictor = open_run(run).open_predictor("grpo")
    assert predictor.describe()["tools"]["words"] == read_json(run / "prepare" / FILE, dict)
    assert len(predictor.answer(test[:2])) == 2
