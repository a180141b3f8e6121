"""Stage A of group_qc: lines about photos, from a model, a server or a file."""

import json
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from group_words import QUESTIONS, WORDS
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from plan_keys import read_config
from tables import read_tables
from tile_photos import MISSION, NUM_GROUPS, TEXTS, name_defect

from groupwise.core import (
    Completion,
    ConfigError,
    DataError,
    ResultFile,
    RunError,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise.evaluation.predictions import Prediction
from groupwise.inference.settings import StreamSettings
from groupwise.inference.stream import Failure
from groupwise.run.steps import StepContext
from groupwise_recipes.group_qc.config import SummarySettings
from groupwise_recipes.group_qc.groups import prepare_groups, read_groups
from groupwise_recipes.group_qc.photo_lines import ALL, OTHERS, make_line_sections, measure_lines
from groupwise_recipes.group_qc.photos import PhotoGroup, load_photo_groups
from groupwise_recipes.group_qc.records import (
    RECORD_KEYS,
    check_record,
    get_record_key,
    make_record,
    name_results,
)
from groupwise_recipes.group_qc.stage_a import (
    StageAJob,
    count_failures,
    name_failures,
    read_summaries,
    run_stage_a,
    write_results,
)
from groupwise_recipes.group_qc.summaries import Problem, clean_summary
from groupwise_recipes.group_qc.task import TASK

TABLES = read_tables(__file__)
MISSIONS, FOLDERS = QUESTIONS.missions, {"审核通过": "pass", "审核不通过": "fail"}
ELEVEN = [f"b-{number}.jpg" for number in range(1, 12)]
EARTH, DEFLECTOR = "BBU接地线检查", "挡风板安装检查"
RECORD = {"group_id", "mission", "label", "images", "per_image", "timestamp"}


class Describer:
    """A backend that says what ``reply`` returns for a photo's path, and notes what it is asked."""

    def __init__(self, reply=None):
        self.reply = reply or (lambda path: f'{{"图片_1": "接地线/{path.stem}×1"}}')
        self.asked = []

    def stream(self, examples, *, sampling, settings):
        for number, example in enumerate(examples):
            [picture] = example.pictures
            self.asked.append(picture.path.name)
            said = self.reply(picture.path)
            yield number, Completion(said) if isinstance(said, str) else said


@pytest.fixture
def job(tmp_path):
    """Two missions; one id stands under pass and under fail."""
    root = tmp_path / "photos"
    for place, num_photos in {
        f"{EARTH}/审核通过/a": 2,
        f"{EARTH}/审核通过/b": 11,
        f"{EARTH}/审核不通过/a": 1,
        f"{DEFLECTOR}/审核不通过/c": 1,
    }.items():
        (root / place).mkdir(parents=True)
        for number in range(1, num_photos + 1):
            Image.new("RGB", (8, 8)).save(root / place / f"{place[-1]}-{number}.jpg")
    found = load_photo_groups(root, MISSIONS, FOLDERS).groups
    groups = [group.read_digests() for group in found]
    settings = SummarySettings(stream=StreamSettings(batch_size=2))
    return StageAJob(groups, root, tmp_path / "out", QUESTIONS, settings)


def test_one_line_per_group_with_its_photos_in_order(job):
    assert run_stage_a(job, Describer()) == 0
    rows = read_jsonl(name_results(job.out, EARTH))
    assert [set(row) for row in rows] == [RECORD | {"digests"}] * 3
    ids = [(row["group_id"], row["label"], len(row["images"])) for row in rows]
    assert ids == [("a", "pass", 2), ("b", "pass", 11), ("a", "fail", 1)]
    eleven = rows[1]["per_image"]
    assert list(eleven) == [f"图片_{n}" for n in range(1, 12)]
    assert eleven["图片_10"] == "接地线/b-10×1"
    assert set(read_summaries(job.out, QUESTIONS)) == {group.key for group in job.groups}
    assert count_failures(job.out, MISSIONS) == {}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('{"图片_1": ""}', "empty summary"),
        ("", "empty summary"),
        ('{"图片_2": "接地线×1"}', "wrong key"),
        ('{"图片_1": "接地线', "broken JSON"),
        (Completion("接地线×1", finish_reason="length"), "cut off"),
        (Failure("picture", "truncated"), "picture: truncated"),
    ],
)
def test_a_failed_group_has_a_reason_and_the_others_go_on(job, said, reason):
    broken = Describer(lambda path: said if path.name == "b-3.jpg" else "接地线×1")
    told = []
    assert run_stage_a(job, broken, say=told.append) == 1
    assert told[0].startswith(f"{EARTH}: 14 of 14 items, 3 groups, ")
    assert told[1] == f"{EARTH}: 2 photo groups finished (0 of them before), 1 failed"
    assert [line.split(":")[0] for line in told] == [EARTH, EARTH, DEFLECTOR, DEFLECTOR]
    [failed] = read_jsonl(name_failures(job.out, EARTH))
    assert failed["group_id"] == "b"
    assert failed["failed"].startswith("图片_3: ")
    assert reason in failed["failed"]
    assert count_failures(job.out, MISSIONS) == {EARTH: 1}


def test_what_failed_or_is_half_written_is_asked_about_again_and_nothing_else(job):
    run_stage_a(job, Describer(lambda path: "" if path.name == "b-3.jpg" else "接地线×1"))
    path = name_results(job.out, EARTH)
    before = path.read_bytes()
    again, told = Describer(), list[str]()
    run_stage_a(job, again, say=told.append)
    whole = path.read_bytes()
    assert again.asked == ELEVEN
    assert told[1] == f"{EARTH}: 3 photo groups finished (2 of them before), 0 failed"
    assert whole.startswith(before)
    assert count_failures(job.out, MISSIONS) == {}
    path.write_bytes(whole[:-20])
    torn = Describer()
    run_stage_a(job, torn)
    assert torn.asked == ELEVEN
    first, second = (
        [{**json.loads(line), "timestamp": ""} for line in data.splitlines()]
        for data in (whole, path.read_bytes())
    )
    assert first == second


def test_two_processes_cannot_write_one_output(job):
    with ResultFile(name_results(job.out, EARTH)), pytest.raises(RunError, match="another process"):
        run_stage_a(job, Describer())


def know_content(job):
    """Return the job as a run gives it: with the digests of the photos as they are now."""
    return replace(job, groups=[group.read_digests() for group in job.groups])


def test_a_photo_changed_in_place_is_described_anew_and_the_others_are_not(job):
    run_stage_a(know_content(job), Describer())
    changed = job.groups[1].photos[2]
    old = changed.read_bytes()
    Image.new("RGB", (8, 8), "red").save(changed)
    again = Describer(lambda path: "接地线/红×1")
    run_stage_a(know_content(job), again)
    assert again.asked == ELEVEN
    found = find_summaries(know_content(job))
    assert set(found[job.groups[1].key].values()) == {"接地线/红×1"}
    changed.write_bytes(old)
    back = Describer()
    run_stage_a(know_content(job), back)
    assert back.asked == []
    assert "接地线/b-3×1" in find_summaries(know_content(job))[job.groups[1].key].values()


def find_summaries(job):
    """Return the summaries that a step gets of all that are kept."""
    out = job.out.with_name("step")
    out.mkdir(exist_ok=True)
    write_results(job, out)
    rows = [row for mission in (EARTH, DEFLECTOR) for row in read_jsonl(name_results(out, mission))]
    assert all(set(row) == RECORD for row in rows)
    return read_summaries(out, QUESTIONS)


def test_a_photo_that_changes_stops_a_run_and_one_that_is_gone_is_left_to_the_backend(job):
    known, photo = know_content(job), job.groups[0].photos[0]
    Image.new("RGB", (8, 8), "red").save(photo)
    with pytest.raises(DataError, match=r"a-1\.jpg has changed since"):
        run_stage_a(known, Describer())
    photo.unlink()

    def fail(path):
        return "接地线×1" if path.exists() else Failure("picture", "gone")

    assert run_stage_a(know_content(job), Describer(fail)) == 1
    assert len(read_jsonl(name_results(job.out, EARTH))) == 2


def predict(key, lines):
    """Answer a group whose photos have these lines, by place."""
    summaries = {f"图片_{n}": line for n, line in enumerate(lines.values(), 1)}
    fields = {"task_type": MISSION, "images": list(lines), "stage_a_summaries": summaries}
    given = {"split": "test", "policy": "grpo", "label": "通过"}
    return Prediction(example_id=key, cluster=key, predicted="通过", fields=fields, **given)


LABELS = {
    "a/0.jpg": "螺丝/未拧紧×1，线缆/整齐×2",
    "a/1.jpg": "螺丝/拧紧×1",
    "b/0.jpg": "螺丝/未拧紧×1",
    "b/1.jpg": "螺丝/拧紧×1",
}
LINES = [
    predict("a", {"a/0.jpg": "线缆/整齐×2，螺丝/未拧紧×1", "a/1.jpg": "螺丝/未拧紧×1"}),
    predict("b", {"b/0.jpg": "螺丝/拧紧×1", "b/1.jpg": "螺丝/拧紧×1", "b/2.jpg": "无关图片"}),
]
"""One defect is read, in another order; one is missed; one is seen where none is."""


def test_lines_agree_where_they_name_what_the_label_names_and_defects_are_told_apart():
    # Further policies on the same groups are no further photos.
    both = [*LINES, *(replace(one, policy="sft") for one in LINES)]
    found = measure_lines(both, LABELS, WORDS, seed=0)
    assert list(found) == [ALL, "螺丝/拧紧×1", LABELS["a/0.jpg"], LABELS["b/0.jpg"]]
    shown = {name: {m.measure: (m.value, m.n) for m in own} for name, own in found.items()}
    assert (shown[ALL]["accuracy"], shown[ALL]["missed_defects"]) == ((0.5, 4), (0.5, 2))
    assert shown["螺丝/拧紧×1"]["accuracy"] == (0.5, 2)
    assert "missed_defects" not in shown["螺丝/拧紧×1"]
    assert shown["螺丝/未拧紧×1"]["missed_defects"] == (1.0, 1)
    (whole,) = [one for one in found[ALL] if one.measure == "accuracy"]
    assert whole.low < 0.5 < whole.high


def test_both_languages_say_it_and_nothing_is_said_without_labels():
    english, chinese = make_line_sections(measure_lines(LINES, LABELS, WORDS, seed=0))
    text = english.text.replace("\u00a0", " ")
    assert re.search(r"Of 4 photos of the photo groups of test .* 50\.0 % \(.*\) have a line", text)
    assert re.search(r"Of 2 photos whose label has a negative remark, 50\.0 % \(", text)
    assert english.tables[0].rows[0][0] == "all photos"
    assert "4 张照片" in chinese.text.replace("\u00a0", " ")
    assert not re.search("[a-z]{3}", chinese.text.replace("test", "").replace("id", ""))
    good = {key: "螺丝/拧紧×1" for key in ("a/1.jpg", "b/1.jpg")}
    english, _ = make_line_sections(measure_lines(LINES, good, WORDS, seed=0))
    assert "nothing is known about the defects" in english.text
    assert len(english.tables[0].rows) == 1
    assert make_line_sections(measure_lines(LINES, {}, WORDS, seed=0)) == []


def test_rare_labels_share_a_row():
    labels = {f"{n}/0.jpg": f"螺丝/松动{n}×1" for n in range(20)}
    rows = [predict(str(n), {place: label}) for n, (place, label) in enumerate(labels.items())]
    found = measure_lines(rows, labels, WORDS, seed=0)
    assert len(found) == 14
    assert {one.n for one in found[OTHERS]} == {8}


def load(root, *overrides):
    return read_config("group_qc", "tile-tiny", f"data.root={root}", *overrides)


def test_a_run_measures_the_photos_of_its_test_groups(root, tmp_path):
    config, run = load(root), tmp_path / "run"
    prepare_groups(config, run / "prepare")
    write_json(run / "grpo" / "trainable.json", [])
    write_json(run / "stage_b_data" / "failed.json", {})
    groups = read_groups(config, run / "prepare")["test"]
    rows = [predict(one.key, dict.fromkeys(one.list_images(root), TEXTS["free"])) for one in groups]
    uses = ("prepare", "stage_b_data", "grpo")
    place = {"is_resumed": False, "uses": uses, "config": config}
    context = StepContext(run, run / "evaluate", "evaluate", **place)
    titles = [one.title for one in TASK.describe(config, context, rows, (), ())]
    assert {"Stage A's lines", "阶段 A 的描述"} <= set(titles)
    kept = read_json(run / "evaluate" / "stage_a.json", dict)
    places = [place for one in groups for place in one.list_images(root)]
    cracks = [place for place in places if name_defect(place) == "crack"]
    shown = {one["name"]: (one["value"], one["n"]) for one in kept[ALL]}
    assert shown["stage_a/accuracy"] == (1 - len(cracks) / len(places), len(places))
    assert shown["stage_a/missed_defects"] == (1.0, len(cracks))
    elsewhere = StepContext(run, run / "evaluated" / "july", "july", **place)
    titles = [one.title for one in TASK.describe(config, elsewhere, rows, (), ())]
    assert "Stage A's lines" not in titles
    unlabelled = load(root, "data.photo_labels=null", "teach=null", "model.base=some/model")
    place["config"] = unlabelled
    bare = StepContext(run, run / "evaluate", "evaluate", **place)
    titles = [one.title for one in TASK.describe(unlabelled, bare, rows, (), ())]
    assert "Stage A's lines" not in titles


def test_given_lines_are_measured_too_where_their_photos_are(root, tmp_path):
    lines = tmp_path / "lines.jsonl"
    write_jsonl(lines, [])
    given = (f"data.summaries=[{lines}]", "teach=null", "model.base=some/model")
    assert load(root, *given).data.photo_labels is not None
    with pytest.raises(ConfigError, match=r"data\.photo_labels needs the photos"):
        load(root, *given, "data.root=null")


LINE = "BBU设备/正装/安装牢固×1，机柜/白色×1"


IRRELEVANT = ["无关图片", " 无关图片。", '{"图片_1": "无关图片"}', "```\n无关图片！\n```"]


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        *((reply, LINE) for reply in TABLES["one_summary_in_many_forms"]),
        *((reply, "无关图片") for reply in IRRELEVANT),
        ("机柜/白色×1，\n\n  线缆束×2", "机柜/白色×1， 线缆束×2"),
    ],
)
def test_one_summary_in_many_forms(reply, line):
    assert clean_summary(reply, WORDS) == line


NESTED = [["{" * 100_000, "broken JSON"], ['{"图片_1":' * 5_000, "broken JSON"]]


@pytest.mark.parametrize(("reply", "cause"), [*TABLES["what_is_no_summary_says_why"], *NESTED])
def test_what_is_no_summary_says_why(reply, cause):
    problem = clean_summary(reply, WORDS)
    assert isinstance(problem, Problem)
    assert problem.cause == cause


TEXT = st.text("机柜线缆白色未正装×/，、（）A1 ", min_size=1, max_size=30).map(str.strip)
SPACE = st.text(" \n\t\u3000\r", max_size=3)


@given(words=TEXT, data=st.data())
def test_every_wrapping_gives_the_words_back(words, data):
    def space():
        return data.draw(SPACE)

    def wrap_json(text):
        key = data.draw(st.sampled_from(["图片_1", "图片1", "图片＿1"]))
        ascii_only = data.draw(st.booleans())
        inside = json.dumps({key: space() + text + space()}, ensure_ascii=ascii_only)
        return inside.replace("{", "{" + space()).replace("}", space() + "}")

    def wrap_loose(text):
        left, right = data.draw(st.sampled_from(["“”", "‘’", "＂＂", "「」"]))
        colon = data.draw(st.sampled_from("：:"))
        return f"｛{left}图片_1{right}{colon}{space()}{left}{text}{right}｝"

    def wrap_lead(text):
        return f"图片_1{data.draw(st.sampled_from('：:'))}{space()}{text}"

    forms = [str, wrap_json, wrap_loose, wrap_lead]
    text = space() + data.draw(st.sampled_from(forms))(words) + space()
    if data.draw(st.booleans()):
        text = f"```json\n{text}\n```"
    has_words = any(character.isalnum() for character in words)
    found = clean_summary(text, WORDS)
    if has_words:
        assert found == " ".join(words.split())
    else:
        assert isinstance(found, Problem)
        assert found.cause == "empty summary"


@given(st.text() | st.text('{}"图片_12：:,，“”`\\n 机柜×', max_size=40))
def test_any_reply_is_a_clean_line_or_a_problem(reply):
    found = clean_summary(reply, WORDS)
    if isinstance(found, Problem):
        assert found.cause
        return
    line = found
    assert line.split("\n") == [line] == line.splitlines()
    assert line == " ".join(line.split())
    assert any(character.isalnum() or unicodedata.numeric(character, 0) for character in line)
    assert json.loads(json.dumps(line).encode()) == line
    line.encode()
    assert clean_summary(line, WORDS) == found


@given(
    numbers=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    line=st.sampled_from(["机柜×1", "无关图片"]),
)
def test_only_the_number_one_alone_is_taken(numbers, line):
    body = ", ".join(f'"图片_{number}": "{line}"' for number in numbers)
    found = clean_summary(f"{{{body}}}", WORDS)
    assert isinstance(found, str) == (numbers == [1])


def make_group(root, num_photos, *, label="fail"):
    key = f"{EARTH}/审核不通过/QC-A-20250101-1"
    photos = tuple(root / key / f"p{n}.jpg" for n in range(1, num_photos + 1))
    return PhotoGroup(key, "QC-A-20250101-1", EARTH, label, photos)  # type: ignore[arg-type]


def test_a_record_has_the_fields_of_the_contract(tmp_path):
    group = make_group(tmp_path, 2)
    record = make_record(group, [LINE, "无关图片"], WORDS, root=tmp_path)
    assert list(record) == ["group_id", "mission", "label", "images", "per_image", "timestamp"]
    assert record["label"] == "fail"
    assert record["images"] == [f"{group.key}/p1.jpg", f"{group.key}/p2.jpg"]
    assert record["per_image"] == {"图片_1": LINE, "图片_2": "无关图片"}
    assert get_record_key(record) == group.key
    check_record(json.loads(json.dumps(record)), WORDS)
    for key in RECORD_KEYS:
        with pytest.raises(DataError, match=f"missing fields; got {key}"):
            check_record({name: value for name, value in record.items() if name != key}, WORDS)
    unlabelled = make_record(make_group(tmp_path, 1, label=None), [LINE], WORDS, root=tmp_path)
    assert unlabelled["label"] is None
    assert datetime.fromisoformat(unlabelled["timestamp"]).tzinfo is not None


@pytest.mark.parametrize("texts", [[LINE], [LINE] * 3, [], [LINE, ""], [LINE, "。"]])
def test_a_record_needs_words_for_each_photo(tmp_path, texts):
    with pytest.raises(DataError, match="QC-A-20250101-1"):
        make_record(make_group(tmp_path, 2), texts, WORDS, root=tmp_path)


@pytest.mark.parametrize(("change", "message"), TABLES["a_record_that_breaks_the_contract"])
def test_a_record_that_breaks_the_contract_is_refused(tmp_path, change, message):
    record = make_record(make_group(tmp_path, 2), ["a", "b"], WORDS, root=tmp_path)
    check_record(record, WORDS)
    with pytest.raises(DataError, match=message):
        check_record({**record, **change}, WORDS)


def test_ten_photos_are_in_numeric_order(tmp_path):
    record = make_record(make_group(tmp_path, 12), ["a"] * 12, WORDS, root=tmp_path)
    by_text = dict(sorted(record["per_image"].items()))
    assert list(by_text) != list(record["per_image"])
    with pytest.raises(DataError, match="wrong keys"):
        check_record({**record, "per_image": by_text}, WORDS)


THIS_COMMAND = f"exec {shlex.quote(sys.executable)} -m groupwise.cli"
SCRIPT = Path(__file__).parents[3] / "examples" / "group_qc" / "summarize.sh"
TINY = ("teach.epochs=4", "teach.reading_per_epoch=8", "data.teach_share=0.1")


def launch(folder, *words, called=THIS_COMMAND):
    """Run it as users do, with this Python's command on the path, or another."""
    command = folder / "bin" / "groupwise"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\n{called} "$@"\n')
    command.chmod(0o755)
    return subprocess.run(
        ["bash", SCRIPT, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"},
    )


def list_words(folder, *words):
    """Return the words that it gives to the command."""
    return launch(folder, *words, called="printf '%s\\n'").stdout.splitlines()


@pytest.mark.parametrize("words", [(), ("photos",)])
def test_without_photos_and_a_run_it_tells_how_it_is_called(tmp_path, words):
    done = launch(tmp_path, *words)
    assert done.returncode == 2
    assert "summarize.sh PHOTOS RUN [CONFIG]" in done.stderr


@pytest.mark.slow
def test_it_would_end_after_stage_a(root, tmp_path):
    done = launch(tmp_path, root, tmp_path / "run", "tile-tiny", "--dry-run")
    assert done.returncode == 0, done.stderr
    stages = [line.split()[1] for line in done.stdout.splitlines() if line.endswith("run     │")]
    assert stages == ["prepare", "audit", "teach_stage_a", "summarize"]
    assert not (tmp_path / "run").exists()


def test_settings_of_stage_b_do_not_stop_stage_a_and_a_folder_that_is_not_there_is_told(
    root, tmp_path, command_line
):
    def call(photos, *more):
        return command_line(*list_words(tmp_path, photos, tmp_path / "run", "--dry-run"), *more)

    late = call(root, "--set", "grpo.warmup_share=0", "--set", "grpo.warmup_steps=100")
    assert late.returncode == 0, late.stderr
    assert "grpo.warmup_steps: 100 of about" in late.stdout
    gone = call(tmp_path / "gone")
    assert gone.returncode == 2
    assert "gone" in gone.stderr


@pytest.mark.slow
def test_it_describes_every_group_and_asks_nothing_twice(root, tmp_path):
    run = tmp_path / "run"
    settings = [word for one in TINY for word in ("--set", one)]
    done = launch(tmp_path, root, run, "tile-tiny", *settings)
    assert done.returncode == 0, done.stderr
    names = ("磁瓦表面检查_stage_a.jsonl", "磁瓦表面检查_stage_a_failed.jsonl")
    rows = [row for name in names for row in read_jsonl(run / "summarize" / name)]
    groups = read_jsonl(run / "prepare" / "groups.jsonl")
    assert len(groups) == 2 * NUM_GROUPS
    expected = [group["group_id"] for group in groups if group["split"] != "teach"]
    assert sorted(row["group_id"] for row in rows) == sorted(expected)
    assert not (run / "stage_b_data").exists()
    before = [(run / "summarize" / name).read_bytes() for name in names]
    assert launch(tmp_path, root, run, "tile-tiny", *settings).returncode == 0
    assert (run / "summarize" / names[0]).read_bytes().startswith(before[0])
