"""Rows for verl and ms-swift: what stands in them, what is left out, and the pictures beside."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Any

import pytest
from command_line import CommandLine
from faulty_server import FaultyServer
from handed_over import open_own_rewards, read_asked
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from run_folders import restate
from small_task import PARSER, SmallTask

from groupwise.core import (
    Completion,
    ConfigError,
    Example,
    Message,
    Picture,
    RewardError,
    make_example,
    open_picture,
    read_picture,
)
from groupwise.data.examples import read_examples, write_examples
from groupwise.rewards import RewardSet
from groupwise.run.export import (
    copy_pictures,
    export_for_trainer,
    open_rewards,
    show_picture,
    write_turns,
)
from groupwise.run.predict import open_run


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
def changed(own_run: Path) -> Path:
    """The run with one prompt that has tags in its words and one without a label."""
    first, second, *rest = read_asked(own_run)
    words = first.prompt[0].text.replace("Task:", "Task: <video> in HTML,")
    tagged = make_example(
        [Message("user", words)], cluster="c", pictures=first.pictures, label="on-task"
    )
    unlabelled = make_example(
        second.prompt, cluster="c", label=None, fields={"task": "nobody knows"}
    )
    put_into(own_run, [tagged, unlabelled, *rest])
    return own_run


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_what_cannot_be_a_row_is_left_out_and_counted(
    changed: Path, tmp_path: Path, trainer, command_line: CommandLine
) -> None:
    num_asked = len(read_asked(changed))
    done = command_line.succeed("export", changed, "--format", trainer, "--out", tmp_path / "out")
    ending = {"verl": "parquet", "swift": "jsonl"}[trainer]
    num_rows = len(read_rows(tmp_path / "out" / f"train.{ending}"))
    left_out = [line for line in done.stdout.splitlines() if line.startswith("left out: ")]
    assert any("<video> in the words" in line for line in left_out)
    assert num_rows + sum(int(line.split()[2]) for line in left_out) == num_asked
    assert f"{num_rows} rows of train" in done.stdout


def test_words_of_prompts_without_pictures_may_have_tags_for_verl(
    copied: Path, tmp_path: Path
) -> None:
    asked = read_asked(copied)
    tagged = make_example([Message("user", "<image> is a tag")], cluster="c", label=asked[0].label)
    put_into(copied, [*asked, tagged])
    verl = export_for_trainer(open_run(copied), tmp_path / "verl", "verl")
    swift = export_for_trainer(open_run(copied), tmp_path / "swift", "swift")
    assert (verl.drops.total, swift.drops.total) == (0, 1)
    assert "images" not in read_rows(tmp_path / "verl" / "train.parquet")[0]


def test_a_picture_that_has_changed_is_refused(own_run: Path, tmp_path: Path, command_line):
    picture: Picture = read_asked(own_run)[0].pictures[0]
    Image.new("RGB", (4, 4)).save(picture.path)
    words = ("export", own_run, "--format", "verl", "--out", tmp_path / "out")
    assert "has changed since it was read" in command_line.refuse_in_a_line(*words)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_pictures_of_some_rows_are_not_lost_behind_a_first_row_without(
    own_run: Path, tmp_path: Path
) -> None:
    asked, fields = read_asked(own_run), {"task": "none"}
    bare = make_example([Message("user", "?")], cluster="c", label="on-task", fields=fields)
    put_into(own_run, [bare, *asked])
    export_for_trainer(open_run(own_run), tmp_path / "out", "verl")
    rows = read_rows(tmp_path / "out" / "train.parquet")
    assert [len(row["images"]) for row in rows] == [0, *(1 for _ in asked)]


def test_no_rows_at_all_is_one_sentence(own_run: Path, tmp_path: Path, command_line) -> None:
    put_into(own_run, [make_example([Message("user", "<bbox>")], cluster="c", label="on-task")])
    words = ("export", own_run, "--format", "swift", "--out", tmp_path / "out")
    assert "got 1 x <bbox> in the words of a prompt" in command_line.refuse_in_a_line(*words)
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
        assert said in command_line.refuse_in_a_line("export", *words, "--format", trainer)
    assert (tmp_path / "full" / "mine.txt").read_text() == "kept"
    assert not (tmp_path / "out").exists()


ANSWERS = st.one_of(
    st.sampled_from(["on-task", "off-task", "not on-task", "on-task off-task", ""]),
    st.builds("{}{}".format, st.text(max_size=12), st.sampled_from(["on-task", " off-task"])),
    st.builds("Screen: {}. Task: {}. on-task".format, st.text(max_size=9), st.text(max_size=9)),
    st.text(max_size=30),
)


class Handed:
    """The folders of both trainers, and the rewards that the run itself would have."""

    def __init__(self, run: Path, folder: Path) -> None:
        for name in ("verl", "swift"):
            export_for_trainer(open_run(run), folder / name, name)
        self.folder = folder
        self.own: RewardSet = open_own_rewards(run, folder / "own")
        self.asked: list[Example] = read_asked(run)
        self.compute: Callable[..., Any] = run_path(str(folder / "verl" / "plugin.py"))[
            "compute_score"
        ]
        self.orm: Any = load_orm(folder / "swift" / "plugin.py")

    def ask_verl(self, example: Example, text: str) -> dict[str, float]:
        extra = {"split": "train", "index": 0, "example_id": example.id}
        return self.compute("groupwise/on_task", text, example.label, extra_info=extra)


def load_orm(plugin: Path) -> Any:
    """Return swift's reward from a plug-in file, with no more of swift than its registry."""
    package, registry = ModuleType("swift"), ModuleType("swift.rewards")
    registry.orms = {}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "swift", package)
        patch.setitem(sys.modules, "swift.rewards", registry)
        run_path(str(plugin))
    return registry.orms["groupwise"](args=object())


@pytest.fixture(scope="session")
def handed(judged_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Handed:
    return Handed(judged_run, tmp_path_factory.mktemp("handed"))


@given(data=st.data(), text=ANSWERS)
def test_both_plugins_pay_what_the_run_pays(handed: Handed, data: st.DataObject, text: str) -> None:
    example = data.draw(st.sampled_from(handed.asked))
    wanted = handed.own.score(example, Completion(text))
    got = handed.ask_verl(example, text)
    assert (got["score"], got["invalid"]) == (wanted.value, float(wanted.invalid))
    parts = {name: got[f"reward/{name}"] for name in wanted.breakdown}
    assert {n: None if v != v else v for n, v in parts.items()} == dict(wanted.breakdown)
    columns = {"solution": [example.label], "example_id": [example.id]}
    assert handed.orm([text], **columns) == [wanted.value]


def test_the_judge_is_asked_in_both_orders_and_once(
    handed: Handed, judge_server: FaultyServer
) -> None:
    example = handed.asked[0]
    handed.ask_verl(example, "on-task")
    before = len(judge_server.asked)
    for text in ("on-task", "off-task", "Screen: a. Task: b. on-task"):
        handed.ask_verl(example, text)
    assert len(judge_server.asked) == before
    assert (handed.folder / "verl" / "judge" / "judge.sqlite").is_file()
    task = str(example.fields["task"])
    asked = [json.dumps(one, ensure_ascii=False) for one in judge_server.asked]
    orders = {"A: the screen is on-task" in one for one in asked if task in one}
    assert orders == {True, False}


def test_a_persons_label_overrides_the_judge(handed: Handed) -> None:
    corrected = [one for one in handed.asked if "human_label" in one.fields]
    others = [one for one in handed.asked if "human_label" not in one.fields]
    assert corrected
    assert others
    for example in corrected:
        wrong = next(w for w in ("on-task", "off-task") if w != example.label)
        got = handed.ask_verl(example, str(example.label))
        assert got["score"] == 1.0
        assert got["reward/judge"] != got["reward/judge"]  # dropped, whatever it said
        assert handed.ask_verl(example, wrong)["reward/human"] == 0.0


def test_a_row_that_is_no_example_of_the_run_is_refused(handed: Handed) -> None:
    example = handed.asked[0]
    with pytest.raises(RewardError, match="no example_id"):
        handed.compute("groupwise/on_task", "on-task", "on-task", extra_info={"index": 0})
    with pytest.raises(RewardError, match="no example_id"):
        handed.orm(["on-task"], solution=["on-task"])
    other = "off-task" if example.label == "on-task" else "on-task"
    with pytest.raises(RewardError, match="another reference answer"):
        handed.compute("x", "on-task", other, extra_info={"example_id": example.id})


def test_the_folder_may_be_moved(judged_run: Path, handed: Handed, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(handed.folder / "verl", moved)
    rewards, examples = open_rewards(moved)
    example = handed.asked[0]
    assert all(picture.path.is_file() for picture in examples[example.id].pictures)
    wanted = handed.own.score(example, Completion("on-task"))
    assert rewards.score(examples[example.id], Completion("on-task")) == wanted


def test_settings_with_relative_paths_are_read_from_where_it_was_exported(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    export_for_trainer(open_run(finished), tmp_path / "out" / "verl", "verl")
    monkeypatch.chdir(tmp_path)
    whole = SmallTask.rewards

    def look(self: SmallTask, config: Any, judge: Any = None) -> RewardSet:
        seen.append(Path.cwd())
        return whole(self, config, judge)

    monkeypatch.setattr(SmallTask, "rewards", look)
    open_rewards(tmp_path / "out" / "verl")
    assert seen == [work]
    assert Path.cwd() == tmp_path
    work.rmdir()
    open_rewards(tmp_path / "out" / "verl")
    assert seen[1:] == [tmp_path]


def test_texts_alone_are_scored_as_well(finished: Path, tmp_path: Path) -> None:
    export_for_trainer(open_run(finished), tmp_path / "out", "verl")
    compute = run_path(str(tmp_path / "out" / "plugin.py"))["compute_score"]
    for example in read_asked(finished):
        for text in (*PARSER.labels, "?"):
            got = compute("x", text, example.label, extra_info={"example_id": example.id})
            assert got["score"] == float(text == example.label)


def test_rewards_that_need_what_is_not_there_are_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(finished)
    monkeypatch.setattr(SmallTask, "explain_bound_rewards", lambda *_: "they know this run")
    with pytest.raises(ConfigError, match="cannot be built again elsewhere: they know this run"):
        export_for_trainer(run, tmp_path / "out", "verl")
    assert not (tmp_path / "out").exists()
