"""Whole tiny runs of group_qc: what they leave, how they resume, and where they ask."""

import json
import os
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from faulty_server import MODEL, Fault
from group_words import FAIL, PARSER, QUESTIONS
from plan_keys import list_done, read_config
from recipe_plans import list_all_steps
from recipe_runs import POLICIES, RecipeJob, read_numbers
from safetensors.torch import load_file

from groupwise.core import (
    Completion,
    digest_file,
    read_json,
    read_jsonl,
    write_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_predictions
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.stream import Failure
from groupwise.run.asking import open_policy
from groupwise_drawn.cabinets import write_cabinets
from groupwise_recipes.group_qc import stage_a
from groupwise_recipes.group_qc.groups import find_root, read_groups
from groupwise_recipes.group_qc.stage_a import StageAJob, read_summaries, run_stage_a
from groupwise_recipes.group_qc.verdicts import OBEYED


@pytest.mark.slow
def test_every_stage_works_and_every_policy_is_measured_on_the_same_groups(tiny_run, tmp_path):
    assert list_done(tiny_run) == list_all_steps("group_qc", tmp_path)
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    test = read_examples(tiny_run / "stage_b_data" / "test.jsonl")
    accuracies = {m.policy: m.n for m in metrics if m.measure == "accuracy"}
    assert accuracies == dict.fromkeys(POLICIES, len(test))
    missed = {m.policy: m.n for m in metrics if m.measure == "missed_defects"}
    assert missed == dict.fromkeys(POLICIES, sum(e.label == FAIL for e in test))
    measured = {m.policy for m in metrics if m.measure == "two_lines"}
    assert measured == {"prompt", "sft", "sft_control", "grpo"}
    kept = json.loads((tiny_run / "evaluate" / "stage_a.json").read_text())
    (right,) = [one for one in kept[""] if one["name"] == "stage_a/accuracy"]
    assert right["n"] == sum(len(one.fields["images"]) for one in test)
    assert "## Stage A's lines" in (tiny_run / "report.md").read_text()


@pytest.mark.slow
def test_groups_add_up_and_no_id_is_on_two_sides(tiny_run):
    rows = read_jsonl(tiny_run / "prepare" / "groups.jsonl")
    source = json.loads((tiny_run / "prepare" / "source.json").read_text())
    failed = json.loads((tiny_run / "stage_b_data" / "failed.json").read_text())
    assert len(rows) == source["num_groups"] == 64
    sides = {(row["group_id"], row["split"]) for row in rows}
    assert len(sides) == len({row["group_id"] for row in rows})
    names = ("warmup", "train", "validation", "test")
    data = [read_examples(tiny_run / "stage_b_data" / f"{name}.jsonl") for name in names]
    num_taught = sum(row["split"] == "teach" for row in rows)
    assert sum(map(len, data)) + sum(failed.values()) == 64 - num_taught


@pytest.mark.slow
def test_only_the_adapter_trains_in_stage_b(tiny_run):
    for step in ("sft", "grpo"):
        rows = json.loads((tiny_run / step / "trainable.json").read_text())
        by_part = {row["part"]: row["num_trainable"] for row in rows}
        assert by_part["vision"] == by_part["aligner"] == by_part["embeddings and head"] == 0
        assert sum(by_part.values()) > 0
        assert (tiny_run / step / "policy" / "adapter_config.json").is_file()
    gate = json.loads((tiny_run / "grpo" / "on_policy.json").read_text())
    assert gate["max_log_ratio"] < 1e-4


@pytest.mark.slow
def test_predictions_are_read_by_the_contract_and_tell_who_obeys(tiny_run):
    for one in read_predictions(tiny_run / "evaluate" / "predictions.jsonl"):
        if one.policy in ("sft", "grpo"):
            reply = PARSER.judge(one.text)
            assert one.predicted == reply.verdict
            assert one.scores["two_lines"] == float(reply.is_well_formed)
        is_asked = one.policy in ("prompt", "sft", "grpo", "sft_control")
        is_turned = is_asked and one.label == one.predicted == FAIL
        assert (OBEYED in one.scores) == is_turned
    assert "Obeys orders" in (tiny_run / "report.md").read_text()


@pytest.mark.slow
def test_both_reports_say_missed_defects_before_accuracy(tiny_run):
    for name, mark in (("report.md", "## {}\n"), ("report.html", "<h2>{}</h2>")):
        text = (tiny_run / name).read_text()
        titles = ("Missed defects", "Accuracy", "By mission")
        places = [text.index(mark.format(title)) for title in titles]
        assert places == sorted(places)
        for part in ("BBU接地线检查", "language block 2", "Recall 不通过"):
            assert part in text[places[2] :]
    assert (tiny_run / "evaluate" / "conditions.json").is_file()


@pytest.mark.slow
def test_stage_a_with_the_adapter_off_says_what_the_base_said(tiny_run, tmp_path):
    values = json.loads((tiny_run / "manifest.json").read_text())["config"]
    config = read_config("group_qc", "demo").model_validate(values)
    prepared = tiny_run / "prepare"
    groups = read_groups(config, prepared)["test"][:4]
    root = find_root(config.data, prepared)
    job = StageAJob(groups, root, tmp_path, QUESTIONS, config.summaries)
    policy = open_policy(config, tiny_run / "grpo" / "policy")
    with policy.adapter_off():
        run_stage_a(job, LocalStream(LocalModel(policy)))
    before = read_summaries(tiny_run / "summarize", QUESTIONS)
    again = read_summaries(tmp_path, QUESTIONS)
    assert again
    assert again == {key: before[key] for key in again}


@pytest.mark.slow
def test_new_groups_are_judged_as_the_test_split_was(tiny_run, tmp_path, command_line):
    out = tmp_path / "answers.jsonl"
    root = tiny_run / "prepare" / "drawn"
    done = command_line("predict", tiny_run, root, "--out", out)
    answers = {row["id"]: row for row in read_jsonl(out)}
    assert len(answers) == 64, done.stderr
    test = read_examples(tiny_run / "stage_b_data" / "test.jsonl")
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    known = {one.example_id: one for one in predictions if one.policy == "grpo"}
    assert test
    for example in test:
        answer = answers[str(example.fields["images"][0]).rpartition("/")[0]]
        one = known[example.id]
        assert answer["details"]["summaries"] == example.fields["stage_a_summaries"]
        assert (answer["text"], answer["answer"]) == (one.text, one.predicted)


@pytest.mark.slow
def test_other_labelled_photos_and_their_lines_are_measured_alike(tiny_run, tmp_path, command_line):
    photos = tmp_path / "photos"
    write_cabinets(photos, num_groups=8, seed=7, size=(112, 84), folders=("审核通过", "审核不通过"))
    command_line.succeed("evaluate", tiny_run, photos, "--out", tmp_path / "photos-out")
    [lines] = list((tmp_path / "photos-out" / "data").glob("described/BBU接地线*_stage_a.jsonl"))
    command_line.succeed("evaluate", tiny_run, lines, "--out", tmp_path / "lines-out")
    mission = read_jsonl(lines)[0]["mission"]
    found = {
        name: {
            (one.cluster, one.policy): (one.text, one.label)
            for one in read_predictions(tmp_path / name / "evaluate" / "predictions.jsonl")
            if one.fields["task_type"] == mission and one.policy != "picture_only"
        }
        for name in ("photos-out", "lines-out")
    }
    assert found["photos-out"] == found["lines-out"]
    shown = read_predictions(tmp_path / "photos-out" / "evaluate" / "predictions.jsonl")
    assert all(Path(path).is_relative_to(photos) for one in shown for path in one.pictures)
    assert any(one.policy == "picture_only" and one.pictures for one in shown)


def change(job, **settings):
    """Return the job with changed settings; ``__`` in a name stands for a dot."""
    given = {name.replace("__", "."): value for name, value in settings.items()}
    left = {k: v for k, v in job.settings.items() if k.partition(".")[0] != "teach"}
    return replace(job, settings={**left, **given})


def write_lines(folder):
    """Draw photo groups in English; return the lines that Stage A would give of them."""
    index = write_cabinets(
        folder, num_groups=64, seed=0, size=(112, 84), language="en", folders=("passed", "failed")
    )
    found = {}
    for row in read_jsonl(index):
        known = {key: row[key] for key in ("group_id", "mission", "label")}
        one = found.setdefault(row["group_id"], {**known, "images": [], "per_image": {}})
        one["images"].append(row["photo"])
        one["per_image"][f"image_{len(one['images'])}"] = row["description"]
    return list(found.values())


@pytest.mark.slow
def test_lines_of_stage_a_are_enough_and_words_may_be_english(job, tmp_path, command_line):
    rows = write_lines(tmp_path / "drawn")
    broken = {**rows[0], "group_id": "b", "per_image": {}}
    write_jsonl(tmp_path / "lines.jsonl", [*rows, broken])
    names = json.dumps([str(tmp_path / "lines.jsonl")])
    given = change(job, teach="null", data__teach_share=0, data__summaries=names)
    run = tmp_path / "run"
    command_line.succeed(*replace(given, config="english").list_arguments(run))
    parts = ("warmup", "train", "validation", "test")
    data = {name: read_examples(run / "stage_b_data" / f"{name}.jsonl") for name in parts}
    asked = [example for own in data.values() for example in own]
    assert {example.label for example in data["test"]} == {"pass", "fail"}
    lines = {json.dumps(row["per_image"]) for row in rows}
    assert len(asked) == len(rows)
    assert {json.dumps(example.fields["stage_a_summaries"]) for example in asked} == lines
    assert not (run / "summarize").exists()
    metrics = read_metrics(run / "evaluate" / "metrics.json")
    assert {one.policy for one in metrics} == POLICIES - {"picture_only"}
    text = (run / "report.md").read_text()
    assert "Stage A was not run here" in text
    assert "64 of 65 lines are used; 1 were dropped (1 x wrong keys)" in text
    assert "Recall fail" in text
    assert "通过" not in text
    out = tmp_path / "answers.jsonl"
    command_line("predict", run, tmp_path / "drawn", "--out", out)
    answers = read_jsonl(out)
    assert len(answers) == 64
    assert all("cannot describe photos" in row["reason"] for row in answers)


@pytest.mark.slow
def test_a_published_base_is_taught_from_what_is_written_about_photos(
    job, tiny_run, tmp_path, command_line
):
    base, drawn = tiny_run / "teach_stage_a" / "untaught", tiny_run / "prepare" / "drawn"
    before = digest_file(base)
    taught = change(
        job,
        model__base=base,
        data__root=drawn,
        data__photo_labels="{file: descriptions.jsonl, column: description}",
        teach="{epochs: 1, batch_size: 8, learning_rate: 1e-3, photos_per_epoch: 16, "
        "save_every_steps: 2, trainable: {method: lora, lora: {rank: 4, alpha: 8}}}",
    )
    run = tmp_path / "run"
    command_line.succeed(*taught.list_arguments(run, "--until", "summarize"))
    policy = run / "teach_stage_a" / "policy"
    assert not (policy / "adapter_config.json").exists()
    weights = "model.safetensors"
    assert (policy / weights).read_bytes() != (base / weights).read_bytes()
    assert digest_file(base) == before
    trained = {row["part"]: row for row in read_json(policy.parent / "trainable.json", list)}
    assert trained["vision"]["num_trainable"] == 0
    assert sum(row["num_trainable"] for row in trained.values()) > 0
    texts = {row["photo"]: row["description"] for row in read_jsonl(drawn / "descriptions.jsonl")}
    rows = read_jsonl(run / "prepare" / "descriptions.jsonl")
    assert rows
    assert all(texts[row["photo"]] == row["description"] for row in rows)
    assert list((run / "summarize").glob("*.jsonl"))


DESCRIBED, NOT_DESCRIBED = "summarize/*_stage_a.jsonl", "summarize/*_stage_a_failed.jsonl"
FAILED = 7
"""The place of the group that fails, among those that Stage A is asked about."""


class Watched(LocalStream):
    """Answers with the names of the folders that it is asked about, and can fail for one."""

    asked: list[str]
    broken: str | None

    def stream(self, examples, **_):
        """Answer at once: what a tiny model says is not sure to do."""
        for number, example in enumerate(examples):
            [picture] = example.pictures
            folder = picture.path.parent.name
            self.asked.append(folder)
            said = Failure("memory", "no reply") if folder == self.broken else None
            yield number, said or Completion(f"机柜/{folder}×1")


def read_rows(run, pattern):
    return [row for path in sorted(run.glob(pattern)) for row in read_jsonl(path)]


def read_ids(run, pattern):
    return [row["group_id"] for row in read_rows(run, pattern)]


@pytest.mark.slow
def test_only_what_failed_is_asked_again(command_line, job, tmp_path, monkeypatch):
    run = tmp_path / "run"
    command_line.succeed(*job.list_arguments(run, "--until", "prepare"))
    rows = [row for row in read_jsonl(run / "prepare" / "groups.jsonl") if row["split"] != "teach"]
    failing = rows[FAILED]["group_id"]
    folder = Path(rows[FAILED]["photos"][0]).parent.name
    monkeypatch.setattr(stage_a, "LocalStream", Watched)
    Watched.asked, Watched.broken = [], folder
    words = job.list_arguments(run, "--until", "stage_b_data")

    command_line.succeed(*words)
    assert read_ids(run, NOT_DESCRIBED) == [failing]
    finished = {path.name: path.read_bytes() for path in run.glob(DESCRIBED)}
    described = read_ids(run, DESCRIBED)
    assert sorted([*described, failing]) == sorted(row["group_id"] for row in rows)

    Watched.asked, Watched.broken = [], None
    said = command_line.succeed(*words).stderr
    assert set(Watched.asked) == {folder}
    assert "teach_stage_a reused" in said
    assert "summarize run" in said
    assert read_ids(run, NOT_DESCRIBED) == []
    for name, before in finished.items():
        assert (run / "summarize" / name).read_bytes().startswith(before)
    assert sorted(read_ids(run, DESCRIBED)) == sorted([*described, failing])


NUM_GROUPS = 200


def read_stage_a(run):
    return [{**row, "timestamp": ""} for row in read_rows(run, DESCRIBED)]


@pytest.mark.slow
def test_killed_at_ten_random_moments_no_group_is_lost_or_there_twice(tmp_path, job):
    larger = RecipeJob(job.recipe, {**job.settings, "data.drawn.num_groups": NUM_GROUPS})
    whole = larger.finish(tmp_path / "whole")
    run = tmp_path / "run"
    rng = random.Random(0)
    numbers = sorted(rng.choices(range(1, 12), k=10))  # of all steps but the report
    killed = [larger.kill_in(run, number, rng.uniform(0.0, 4.0)) for number in numbers]
    assert {"teach_stage_a", "summarize", "grpo"} <= set(killed), killed
    larger.finish(run)
    assert read_stage_a(run) == read_stage_a(whole)
    splits = {g["group_id"]: g["split"] for g in read_jsonl(run / "prepare" / "groups.jsonl")}
    assert len(splits) == NUM_GROUPS
    taught = sorted(name for name, of in splits.items() if of != "teach")
    assert sorted(read_ids(run, DESCRIBED)) == taught
    assert read_answers(run) == read_answers(whole)
    assert read_numbers(run) == read_numbers(whole)
    weights = Path("grpo", "policy", "adapter_model.safetensors")
    assert (run / weights).read_bytes() == (whole / weights).read_bytes()


def read_answers(run):
    """Return all predictions but for what depends on the clock and the folder."""
    rows = read_jsonl(run / "evaluate" / "predictions.jsonl")
    return [{**row, "latency_s": None, "pictures": []} for row in rows]


@pytest.mark.slow
def test_two_processes_teach_what_one_teaches(tiny_run, job, tmp_path):
    run, two = tmp_path / "run", RecipeJob(job.recipe, {**job.settings, "grpo.entropy_bonus": 0})
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *torchrun, "-m", "groupwise", *two.list_arguments(run)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert len(read_json(run / "teach_stage_a/memory.json", dict)["processes"]) == 2
    weights = Path("teach_stage_a", "policy", "model.safetensors")
    taught, alone = load_file(run / weights), load_file(tiny_run / weights)
    assert taught.keys() == alone.keys()
    for name, weight in taught.items():
        assert (weight - alone[name]).abs().max() < 1e-5, name
    assert read_stage_a(run) == read_stage_a(tiny_run)


NUM_SERVED = 40
SAID = "机柜/正装×1"


@pytest.fixture
def server(serve):
    return serve(lambda _: Fault(content=f'{{"图片_1": "{SAID}"}}'))


def load(*overrides):
    return read_config("group_qc", "demo", *overrides)


def describe(call, base, server):
    """Run Stage A alone over drawn groups, with a published model that is served."""
    quick = {"retry": {"max_attempts": 2, "base_delay_s": 0.001}, "limits": {"max_concurrency": 4}}
    settings = {
        "model.base": base,
        "teach": "null",
        "data.drawn": json.dumps({"num_groups": NUM_SERVED, "width": 112, "height": 84}),
        "data.teach_share": 0,
        "summaries.stream": json.dumps({"batch_size": 4}),
        "summaries.server": json.dumps({**quick, **server}),
    }
    job = RecipeJob("group_qc", settings)
    return call(*job.list_arguments("run", "--until", "summarize"))


def count_photos(rows):
    return sum(len(row["images"]) for row in rows)


@pytest.mark.slow
def test_every_photo_is_described_once_also_where_a_setting_is_changed_and_changed_back(
    command_line, vision_folder, server
):
    served = {"url": server.url, "model": MODEL}
    done = describe(command_line, vision_folder, served)
    assert done.returncode == 0, done.stderr
    assert "photo groups finished (0 of them before), 0 failed" in done.stderr
    rows = read_rows(Path("run"), DESCRIBED)
    assert len(rows) == NUM_SERVED
    assert {text for row in rows for text in row["per_image"].values()} == {SAID}
    num_photos = count_photos(rows)
    assert len(server.asked) == num_photos
    assert describe(command_line, vision_folder, {**served, "revision": "2"}).returncode == 0
    assert len(server.asked) == 2 * num_photos
    done = describe(command_line, vision_folder, served)
    assert "summarize run" in done.stderr
    assert len(server.asked) == 2 * num_photos
    assert len(read_rows(Path("run"), DESCRIBED)) == NUM_SERVED


@pytest.mark.slow
def test_a_server_that_goes_stops_the_run_and_another_one_goes_on(
    command_line, vision_folder, serve
):
    lock = threading.Lock()
    left = iter(range(60))

    def answer(_):
        with lock:
            return Fault(content=SAID) if next(left, None) is not None else Fault(cut=True)

    served = {"url": serve(answer).url, "model": MODEL}
    stopped = describe(command_line, vision_folder, served)
    assert stopped.returncode == 2
    assert "the server answers nothing: 16 items in a row failed" in stopped.stderr
    kept = read_rows(Path("run"), "stage_a/*/*_stage_a.jsonl")
    assert 0 < len(kept) < NUM_SERVED
    another = serve(lambda _: Fault(content=SAID))
    done = describe(command_line, vision_folder, {**served, "url": another.url})
    assert done.returncode == 0, done.stderr
    rows = read_rows(Path("run"), DESCRIBED)
    assert len(rows) == NUM_SERVED
    assert all({key: row[key] for key in rows[0]} in rows for row in kept)
    assert len(another.asked) == count_photos(rows) - count_photos(kept)


@pytest.mark.slow
def test_a_wrong_name_of_the_model_stops_the_run_at_once(command_line, vision_folder, server):
    done = describe(command_line, vision_folder, {"url": server.url, "model": "other"})
    assert done.returncode == 2
    assert "`other` does not exist" in done.stderr
    assert len(server.asked) < 40


def test_where_it_runs_does_not_change_what_summaries_depend_on():
    base = ("model.base=a/b", "teach=null")
    here, workers = load(*base), load(*base, "summaries.ray={num_workers: 3}")
    assert workers.summaries.describe() == here.summaries.describe()
    assert set(here.summaries.describe()) == {"sampling", "stream"}
    server = "summaries.server={url: http://%s/v1, model: %s}"
    one, moved, other = (
        load(*base, server % place).summaries.describe()
        for place in (("a", "m"), ("b", "m"), ("a", "n"))
    )
    assert one == moved != here.summaries.describe()
    assert other != one
