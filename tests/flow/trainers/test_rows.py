"""Rows for verl and ms-swift: what stands in them, what is left out, and the pictures beside."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import CommandLine
from handed_over import read_asked
from PIL import Image
from run_folders import restate

from groupwise.core import Example, Message, Picture, make_example, open_picture, read_picture
from groupwise.data import read_examples, write_examples
from groupwise.flow import export_for_trainer, open_run
from groupwise.flow.trainers import copy_pictures, show_picture, write_turns


def read_rows(path: Path) -> list[dict]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


def test_verl_gets_a_row_for_each_example(judged_run: Path, tmp_path: Path) -> None:
    export_for_trainer(open_run(judged_run), tmp_path / "out", "verl")
    rows = read_rows(tmp_path / "out" / "train.parquet")
    asked = read_asked(judged_run)
    assert len(rows) == len(asked)
    for number, (row, example) in enumerate(zip(rows, asked, strict=True)):
        assert row["data_source"] == "groupwise/on_task"
        assert row["ability"] == "on_task"
        [turn] = row["prompt"]
        assert turn == {"role": "user", "content": "<image>" + example.prompt[0].text}
        [picture] = row["images"]
        assert picture["max_pixels"] == 3136
        assert (tmp_path / "out" / picture["image"]).read_bytes() == (
            example.pictures[0].path.read_bytes()
        )
        assert row["reward_model"] == {"style": "rule", "ground_truth": example.label}
        wanted = {"split": "train", "index": number, "example_id": example.id}
        assert row["extra_info"] == wanted
    later = read_rows(tmp_path / "out" / "validation.parquet")
    validation = read_examples(judged_run / "prepare" / "validation.jsonl")
    assert [row["extra_info"]["example_id"] for row in later] == [one.id for one in validation]


def test_swift_gets_a_row_for_each_example(judged_run: Path, tmp_path: Path) -> None:
    export_for_trainer(open_run(judged_run), tmp_path / "out", "swift")
    rows = read_rows(tmp_path / "out" / "train.jsonl")
    for row, example in zip(rows, read_asked(judged_run), strict=True):
        assert row["messages"] == [{"role": "user", "content": "<image>" + example.prompt[0].text}]
        assert [(tmp_path / "out" / one).is_file() for one in row["images"]] == [True]
        assert (row["solution"], row["example_id"]) == (example.label, example.id)


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_no_path_leads_out_of_the_folder(judged_run: Path, tmp_path: Path, trainer) -> None:
    out = tmp_path / "out"
    export_for_trainer(open_run(judged_run), out, trainer)
    for path in out.rglob("*"):
        assert not path.is_symlink()
        if path.suffix in (".jsonl", ".py", ".sh", ".parquet"):
            assert str(tmp_path).encode() not in path.read_bytes()
            assert str(judged_run.parent).encode() not in path.read_bytes()
    for example in read_examples(out / "examples.jsonl"):
        assert all(picture.path.is_relative_to(out) for picture in example.pictures)


def test_pictures_that_others_would_read_otherwise_become_pngs(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (8, 4), "red").save(tmp_path / "turned.jpg", exif=turned)
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("RGB", (4, 4), "blue").save(tmp_path / "plain.jpg")
    given = [read_picture(tmp_path / name) for name in ("turned.jpg", "clear.png", "plain.jpg")]
    asked = make_example([Message("user", "?")], cluster="c", pictures=given)
    copied = copy_pictures(asked, tmp_path / "out")
    assert (copied, copied.id) == (asked, asked.id)
    names = [show_picture(one, tmp_path / "out") for one in copied.pictures]
    assert [Path(name).suffixes[-2:] for name in names] == [[".upright", ".png"]] * 2 + [[".jpg"]]
    for name, picture in zip(names, given, strict=True):
        with Image.open(tmp_path / "out" / name) as shown:
            assert shown.mode == "RGB"
            assert shown.tobytes() == open_picture(picture).tobytes()


def test_pictures_stand_where_they_were_among_the_words(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    turns = [
        Message("system", "Look."),
        Message("user", ["first ", picture, " then ", picture, "\nWhich?"]),
    ]
    assert write_turns(make_example(turns, cluster="c")) == [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": "first <image> then <image>\nWhich?"},
    ]


def put_into(run: Path, examples: Sequence[Example]) -> None:
    write_examples(run / "prepare" / "train.jsonl", examples)
    restate(run / "prepare")


@pytest.fixture
def changed(judged_run: Path, tmp_path: Path) -> Path:
    """A copy of the run, with one prompt that has tags in its words and one without a label."""
    run = tmp_path / "run"
    shutil.copytree(judged_run, run)
    first, second, *rest = read_asked(run)
    words = first.prompt[0].text.replace("Task:", "Task: <video> in HTML,")
    tagged = make_example(
        [Message("user", words)], cluster="c", pictures=first.pictures, label="on-task"
    )
    unlabelled = make_example(
        second.prompt, cluster="c", label=None, fields={"task": "nobody knows"}
    )
    put_into(run, [tagged, unlabelled, *rest])
    return run


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_what_cannot_be_a_row_is_left_out_and_counted(
    changed: Path, tmp_path: Path, trainer, command_line: CommandLine
) -> None:
    num_asked = len(read_asked(changed))
    done = command_line("export", changed, "--format", trainer, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    ending = {"verl": "parquet", "swift": "jsonl"}[trainer]
    num_rows = len(read_rows(tmp_path / "out" / f"train.{ending}"))
    left_out = [line for line in done.stdout.splitlines() if line.startswith("left out: ")]
    assert any("<video> in the words" in line for line in left_out)
    assert num_rows + sum(int(line.split()[2]) for line in left_out) == num_asked
    assert f"{num_rows} rows of train" in done.stdout


def test_words_of_prompts_without_pictures_may_have_tags_for_verl(
    finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    asked = read_asked(run)
    tagged = make_example([Message("user", "<image> is a tag")], cluster="c", label=asked[0].label)
    put_into(run, [*asked, tagged])
    verl = export_for_trainer(open_run(run), tmp_path / "verl", "verl")
    swift = export_for_trainer(open_run(run), tmp_path / "swift", "swift")
    assert (verl.drops.total, swift.drops.total) == (0, 1)
    assert "images" not in read_rows(tmp_path / "verl" / "train.parquet")[0]


def test_a_picture_that_has_changed_is_refused(judged_run: Path, tmp_path: Path, command_line):
    run = tmp_path / "run"
    shutil.copytree(judged_run, run)
    picture: Picture = read_asked(run)[0].pictures[0]
    Image.new("RGB", (4, 4)).save(picture.path)
    done = command_line("export", run, "--format", "verl", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "has changed since it was read" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_pictures_of_some_rows_are_not_lost_behind_a_first_row_without(
    judged_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(judged_run, run)
    asked = read_asked(run)
    bare = make_example(
        [Message("user", "?")], cluster="c", label="on-task", fields={"task": "none"}
    )
    put_into(run, [bare, *asked])
    export_for_trainer(open_run(run), tmp_path / "out", "verl")
    rows = read_rows(tmp_path / "out" / "train.parquet")
    assert [len(row["images"]) for row in rows] == [0, *(1 for _ in asked)]


def test_no_rows_at_all_is_one_sentence(judged_run: Path, tmp_path: Path, command_line) -> None:
    run = tmp_path / "run"
    shutil.copytree(judged_run, run)
    tagged = make_example([Message("user", "<bbox>")], cluster="c", label="on-task")
    put_into(run, [tagged])
    done = command_line("export", run, "--format", "swift", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "got 1 x <bbox> in the words of a prompt" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_mistakes_are_one_sentence(
    judged_run: Path, tmp_path: Path, trainer, command_line: CommandLine
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    empty = tmp_path / "empty"
    shutil.copytree(judged_run, empty)
    shutil.rmtree(empty / "prepare")
    for words, said in (
        ((judged_run, "--out", tmp_path / "full"), "expected a new or empty folder"),
        ((f"{judged_run}:sft", "--out", tmp_path / "out"), "takes a run; got its policy sft"),
        ((empty, "--out", tmp_path / "out"), "has no data yet; got no prepare"),
        ((tmp_path / "none", "--out", tmp_path / "out"), "holds no run"),
    ):
        done = command_line("export", *words, "--format", trainer)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "full" / "mine.txt").read_text() == "kept"
    assert not (tmp_path / "out").exists()
