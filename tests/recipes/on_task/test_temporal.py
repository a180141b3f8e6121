"""Flips of a made stream: a session of drawn screens with times, and verdicts that are made up."""

from dataclasses import replace

import pytest
from made_predictions import predict
from plan_keys import read_config

from groupwise.core import DataError, read_jsonl, write_jsonl
from groupwise.data.example_files import read_examples
from groupwise.evaluation.report.page import render_markdown
from groupwise.evaluation.report.phrases import format_share
from groupwise.evaluation.report.run import Report, lay_out
from groupwise.flow.finished import open_run
from groupwise.flow.other_data import evaluate_on
from groupwise.pipeline import StepContext
from groupwise.serving import Request
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_recipes.on_task.prompt import TIME
from groupwise_recipes.on_task.screens import (
    ask_about_screen,
    prepare_screens,
    read_labelled_screens,
)
from groupwise_recipes.on_task.task import TASK

ON, OFF = "on-task", "off-task"
REPORT = "Write the report about the wells of the northern field for the meeting on Monday"
HEADINGS = {"en": "## Flips within sessions", "zh": "## 会话内的翻转"}


def make_stream(policy, verdicts, labels, *, session="made", step_s=10):
    """Return predictions on a made stream; ``1`` is on-task, ``0`` off-task, ``.`` no answer."""
    said = {"1": ON, "0": OFF, ".": None}
    return [
        predict(
            f"{session}-{number:02}",
            policy,
            said[truth],
            said[one],
            cluster=session,
            reason="" if said[one] else "no label",
            fields={"task": REPORT + "." * (number % 2), TIME: step_s * number},
        )
        for number, (one, truth) in enumerate(zip(verdicts, labels, strict=True))
    ]


def describe(stream, folder):
    """Return what on_task adds to the report."""
    config = read_config("on_task", "demo")
    context = StepContext(folder, folder, "evaluate", False, ("sft", "grpo"), config=config)
    return list(TASK.describe(config, context, stream, [], ()))


def test_flips_of_a_made_stream_stand_in_the_report_and_in_a_file(tmp_path):
    stream = [
        *make_stream("sft", "1101100", "1111100"),
        *make_stream("grpo", "110.1100", "11101100"),
        *make_stream("grpo", "101", "101", session="slow", step_s=61),
    ]
    english, chinese = describe(stream, tmp_path)
    assert (english.language, chinese.language) == ("en", "zh")
    assert english.tables[0].rows == (
        ("The labels themselves", "11", "1", "–", "–"),
        ("SFT warm-up", "7", "1", format_share(1), format_share(0)),
        ("GRPO", "11", "1", format_share(1), format_share(0)),
    )
    assert [row[1:] for row in chinese.tables[0].rows] == [r[1:] for r in english.tables[0].rows]
    assert read_jsonl(tmp_path / "flips.jsonl") == [
        {
            "policy": name,
            "example_id": "made-02",
            "session": "made",
            "task": REPORT,
            TIME: 20.0,
            "verdict": OFF,
            "label": ON,
        }
        for name in ("sft", "grpo")
    ]


def test_other_tasks_of_a_session_are_other_streams(tmp_path):
    stream = make_stream("sft", "101", "111")
    stream[1] = replace(stream[1], fields={"task": "Watch the news", TIME: 10.0})
    describe(stream, tmp_path)
    assert read_jsonl(tmp_path / "flips.jsonl") == []


def test_without_times_nothing_is_said_and_nothing_written(tmp_path):
    stream = [replace(one, fields={"task": REPORT}) for one in make_stream("sft", "101", "111")]
    assert describe(stream, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_report_of_a_made_stream_speaks_of_flips_and_that_of_a_run_without_times_does_not(
    tiny_run, tmp_path
):
    index = write_desktops(
        tmp_path / "screens", num_sessions=2, screens_per_session=3, seed=3, size=(224, 168)
    )
    rows = [
        {**row, "label": (ON, OFF)[place % 2], "time": 10 * place}
        for place, row in enumerate(read_jsonl(index))
    ]
    write_jsonl(index, rows)
    evaluate_on(open_run(tiny_run), index.parent, out=tmp_path / "out")
    assert (tmp_path / "out" / "evaluate" / "flips.jsonl").is_file()
    for language, heading in HEADINGS.items():
        with_times, without = (
            render_markdown(lay_out(Report(run), language), folder="report")
            for run in (tmp_path / "out", tiny_run)
        )
        assert heading in with_times
        assert heading not in without
    assert not (tiny_run / "evaluate" / "flips.jsonl").exists()


@pytest.fixture
def index(tmp_path):
    return write_desktops(
        tmp_path / "screens", num_sessions=24, screens_per_session=2, seed=3, size=(160, 120)
    )


def prepare(index, folder):
    settings = [f"data.root={index.parent}", "data.drawn.num_sessions=0"]
    settings += ["data.warmup_share=0.2", "data.train_folds=null", "data.test_folds=null"]
    config = read_config("on_task", "screenagent-tiny", *settings)
    prepare_screens(config, folder)
    return config


def test_times_come_along_and_are_no_part_of_what_an_item_is(index, tmp_path):
    prepare(index, tmp_path / "without")
    rows = read_jsonl(index)
    timed = [{**row, "label": ON, "time": 10 * place} for place, row in enumerate(rows)]
    write_jsonl(index, [{**row, "time": 10 * place} for place, row in enumerate(rows)])
    config = prepare(index, tmp_path / "with")
    for name in ("train", "validation", "test"):
        without = read_examples(tmp_path / "without" / f"{name}.jsonl")
        found = read_examples(tmp_path / "with" / f"{name}.jsonl")
        assert [one.id for one in found] == [one.id for one in without]
        assert all(isinstance(one.fields[TIME], float) for one in found)
        assert not any(TIME in one.fields for one in without)
    warmup = [(tmp_path / name / "warmup.jsonl").read_bytes() for name in ("without", "with")]
    assert warmup[0] == warmup[1]
    write_jsonl(index, timed)
    labelled, _ = read_labelled_screens(config, index.parent, tmp_path / "labelled")
    assert {one.fields[TIME] for one in labelled} == {10.0 * place for place in range(len(rows))}
    shown = (index.parent / rows[0]["image"],)
    asked = [
        ask_about_screen(config, Request("1", {"task": "write", **more}, shown), tmp_path)
        for more in ({}, {"time": 7})
    ]
    assert asked[0] == asked[1]
    with pytest.raises(DataError, match=r"^time cannot be read \(a time is seconds, or a moment"):
        ask_about_screen(config, Request("1", {"task": "write", "time": "soon"}, shown), tmp_path)
