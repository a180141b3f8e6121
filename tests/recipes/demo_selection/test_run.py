"""Whole runs of demo_selection, and their plans."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from demonstrations import RepeatLast
from faulty_server import MODEL, Fault
from made_once import make_once
from plan_keys import list_changed, list_done, plan, read_config, read_keys, write_base
from recipe_plans import list_all_steps
from recorded_lists import make_entry, make_pointer
from run_folders import restate
from tables import read_tables
from vqa_files import write_questions

from groupwise.core import (
    ConfigError,
    read_json,
    read_jsonl,
    read_picture,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.run.running import run as run_task
from groupwise_recipes.demo_selection import list_stages
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.cell import measure_cell
from groupwise_recipes.demo_selection.cells import Cell, list_cells, read_cell, read_facts
from groupwise_recipes.demo_selection.evaluate_stage import list_run_cells
from groupwise_recipes.demo_selection.list_stages import TRAINED_ON
from groupwise_recipes.demo_selection.preview import preview_run
from groupwise_recipes.demo_selection.published_files import write_published
from groupwise_recipes.demo_selection.task import DemoSelection
from groupwise_recipes.demo_selection.tiny_clip import write_tiny_clip

TABLES = read_tables(__file__)
SMALL = TABLES["small"]
TINY = TABLES["tiny"]
BASELINES = {"none", "random", "nearest_text", "nearest_picture", "nearest_both", "mmices"}
RIVALS = {"knn_few_shot", "pointwise", "pointwise_reversed", "oracle"}
SYSTEMS = {*BASELINES, *RIVALS, "rce", "grpo", "grpo_reversed"}


def list_settings(settings):
    return [f"{name}={value}" for name, value in settings.items()]


def list_words(settings):
    return [word for one in list_settings(settings) for word in ("--set", one)]


def run_with_a_stand_in(folder):
    """Run the demo, tiny, with an answerer that repeats the last answer it is shown."""
    config = read_config("demo_selection", "demo", *list_settings(TINY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_stages, "LocalStream", lambda engine, **_: RepeatLast())
        run_task(DemoSelection, config, out=folder / "run", say=lambda _: None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_once("demo_selection", tmp_path_factory, run_with_a_stand_in) / "run"


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(list_stages, "LocalStream", lambda engine, **_: RepeatLast())


@pytest.fixture
def row(run, command_line):
    """A question about a picture of the test, that stands in rows.jsonl."""
    picture = next((run / "prepare" / "world" / "test").glob("*.png"))
    row = {"question": "Reply in Kelo", "image": str(picture)}
    write_jsonl(Path("rows.jsonl"), [row])
    return row


def test_every_stage_works_and_all_ways_of_choosing_are_measured_on_the_same_items(run, tmp_path):
    assert list_done(run) == list_all_steps("demo_selection", tmp_path)
    metrics = read_metrics(run / "evaluate" / "metrics.json")
    test = read_examples(run / "prepare" / "test.jsonl")
    found = {m.policy: m.n for m in metrics if m.measure == "vqa_2"}
    assert found == dict.fromkeys(SYSTEMS, len(test))
    assert {m.policy for m in metrics if m.measure == "vqa_mean"} == SYSTEMS - {"oracle"}


def test_the_report_says_what_grpo_changed_and_queries_are_audited_against_all_that_is_shown(run):
    audit = read_json(run / "audit" / "audit.json", dict)
    sizes = {name: split["num_examples"] for name, split in audit["splits"].items()}
    assert sizes == {"train": 64 + 6 + 3, "test": 6}
    assert {near["like_split"] for near in audit["near_pictures"]} <= {"train"}
    text = (run / "report.md").read_text().replace("\u00a0", " ")
    assert "audit/audit.json" not in text
    trained, before = (read_cell(run / "evaluate", Cell(name, 2, 2)) for name in ("grpo", "rce"))
    num_changed = sum(a.demos != b.demos for a, b in zip(trained, before, strict=True))
    told = text.partition("What GRPO changed")[2]
    assert f"| 2 shots | {100 * num_changed / 6:.1f} % |" in told
    assert "| contradicting, 2 shots |" in text.partition("How the answerer uses")[2]
    assert "| 1 shot |" in text
    assert "1 shots" not in text


def test_the_cells_of_every_epoch_are_there(run):
    found = set(list_cells(run / "evaluate"))
    assert {Cell("rce", 1, 1), Cell("rce", 2, 2), Cell("grpo", 1, 2), Cell("none", 0)} <= found
    ids = [one.id for one in read_examples(run / "prepare" / "test.jsonl")]
    for cell in found:
        rows = read_cell(run / "evaluate", cell)
        assert [row.id for row in rows] == ids
        assert all(len(row.demos) == cell.shots for row in rows)
    facts = read_facts(run / "evaluate")
    assert facts.base is not None
    assert (facts.base.name, facts.planned_epochs) == ("RCE epoch 2", {"rce": 2, "grpo": 2})


def test_grpo_starts_where_nothing_has_changed_and_adds_up(run):
    first = read_json(run / "grpo" / "on_policy.json", dict)
    assert first["max_log_ratio"] <= 1e-6
    assert abs(first["max_kl"]) <= 1e-6
    for row in read_jsonl(run / "grpo" / "metrics.jsonl"):
        assert row["loss"] == pytest.approx(row["ppo_loss"] + row["beta"] * row["kl"], abs=1e-5)


@pytest.mark.usefixtures("stand_in")
def test_it_answers_new_questions_with_the_demonstrations_it_chose_from_the_same_pool(
    run, row, tmp_path, command_line
):
    shutil.copyfile(row["image"], tmp_path / "a.png")
    write_jsonl(Path("rows.jsonl"), [{**row, "image": "a.png"}, {"image": "a.png"}])
    command_line.succeed("predict", run, "rows.jsonl", "--out", "answers.jsonl")
    good, bad = read_jsonl(Path("answers.jsonl"))
    shown = good["details"]["demonstrations"]
    train = {one.id: one.label for one in read_examples(run / "prepare" / "train.jsonl")}
    assert len(shown) == 2
    assert good["answer"] == shown[-1]["answer"]
    assert all(train[one["id"]] == one["answer"] for one in shown)
    assert shown[0]["score"] >= shown[1]["score"]
    assert "a row needs a question" in bad["failed"]
    changed = tmp_path / "changed"
    shutil.copytree(run, changed)
    lines = (changed / "prepare" / "train.jsonl").read_text().splitlines(keepends=True)
    (changed / "prepare" / "train.jsonl").write_text("".join(lines[1:]))
    restate(changed / "prepare")
    done = command_line("predict", changed, "rows.jsonl", "--out", "others.jsonl")
    assert done.returncode == 2
    assert "trained under other conditions" in done.stderr


@pytest.mark.slow
def test_a_served_answerer_needs_nothing_of_its_model_here(tmp_path, command_line, serve):
    server = {"url": serve(repeat_last).url, "model": MODEL}
    few = {"record_again": "false", "evaluation.shots": "[2]", "evaluation.every_epoch": "false"}
    given = list_settings({**TINY, **few, "server": json.dumps(server), "model": "{}"})
    folder = tmp_path / "run"
    config = read_config("demo_selection", "demo", *given)
    run_task(DemoSelection, config, out=folder, say=lambda _: None)
    assert not (folder / "answerer").exists()
    assert all(row.answer for row in read_cell(folder / "evaluate", Cell("grpo", 2, 2)))
    picture = next((folder / "prepare" / "world" / "test").glob("*.png"))
    write_jsonl(Path("rows.jsonl"), [{"question": "Reply in Kelo", "image": str(picture)}])
    command_line.succeed("predict", folder, "rows.jsonl", "--out", "answers.jsonl")
    [answer] = read_jsonl(Path("answers.jsonl"))
    assert answer["answer"] == answer["details"]["demonstrations"][-1]["answer"]


def repeat_last(request):
    """Answer as the last demonstration does, or ``nothing``."""
    parts = request["messages"][-1]["content"]
    text = "".join(part.get("text", "") for part in parts if part["type"] == "text")
    shown = re.findall(r"Short answer:(\w+)", text)
    return Fault(content=shown[-1] if shown else "nothing")


@pytest.mark.usefixtures("stand_in")
def test_one_cell_is_asked_again_as_the_run_asked_it(run):
    before = len(read_jsonl(run / "looks.jsonl"))
    cell = Cell("grpo", 2, 1)
    rows = measure_cell(run, cell, num_samples=3)
    known = {row.id: row for row in read_cell(run / "evaluate", cell)}
    assert len(rows) == 3
    assert all(known[row.id] == row for row in rows)
    assert len(read_jsonl(run / "looks.jsonl")) == before + 1


@pytest.mark.usefixtures("row")
def test_prompts_are_written_for_any_chat_api(run, command_line):
    asked = ("export", run, "--format", "chat", "--out", "prompts.jsonl")
    assert command_line(*asked).returncode == 2
    command_line.succeed(*asked, "--rows", "rows.jsonl")
    [prompt] = read_jsonl(Path("prompts.jsonl"))
    [turn] = prompt["messages"]
    parts = [part["type"] for part in turn["content"]]
    assert parts == ["image_url", "text", "image_url", "text", "image_url", "text"]
    urls = [part["image_url"]["url"] for part in turn["content"] if part["type"] == "image_url"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    assert turn["content"][-1]["text"].endswith("Question:Reply in Kelo Short answer:")


@pytest.mark.usefixtures("stand_in")
def test_a_selector_is_measured_on_labelled_questions_of_somebody_else(run, tmp_path, command_line):
    pictures = sorted((run / "prepare" / "world" / "test").glob("*.png"))[:3]
    for picture in pictures:
        shutil.copyfile(picture, tmp_path / picture.name)
    answers = {"answers": ["red", "red", "blue"]}
    rows = [
        {"question": f"Which one is it, {n}?", "image": path.name, **answers}
        for n, path in enumerate(pictures)
    ]
    shown = read_examples(run / "prepare" / "train.jsonl")[0]
    asked = {"question": shown.fields["question"], "image": str(shown.pictures[0].path)}
    rows += [{**asked, **answers}, {"question": "Which?", "image": pictures[0].name}, rows[0]]
    write_jsonl(Path("rows.jsonl"), rows)
    done = command_line.succeed("evaluate", run, "rows.jsonl", "--out", "out")
    assert "6 rows, 3 asked" in done.stdout
    assert "not used: 1 a demonstration or trained on" in done.stderr
    assert "not used: 1 no column answers with two or more people's" in done.stderr
    metrics = read_metrics(Path("out/evaluate/metrics.json"))
    assert {m.policy: m.n for m in metrics if m.measure == "vqa_2"} == dict.fromkeys(SYSTEMS, 3)
    page = Path("out/report.md").read_text(encoding="utf-8")
    assert "What GRPO changed" in page
    assert str(run) in page
    command_line.succeed("evaluate", f"{run}:rce", "rows.jsonl", "--out", "rce")
    asked_too = {m.policy for m in read_metrics(Path("rce/evaluate/metrics.json"))}
    assert asked_too == SYSTEMS - {"grpo", "grpo_reversed"}
    done = command_line("evaluate", f"{run}:answerer", "rows.jsonl", "--out", "answerer")
    assert done.returncode == 2
    assert "measures a selector" in done.stderr
    assert "got answerer; expected rce or grpo" in done.stderr


@pytest.mark.slow
def test_the_config_of_a_real_model_runs_on_a_model_folder_and_published_files(
    vision_folder, tmp_path, command_line
):
    train = write_questions(tmp_path / "train", "train2014", 70)
    test = write_questions(tmp_path / "test", "val2014", 8, first=1000)
    examples = sorted((tmp_path / "train" / "coco" / "train2014").glob("*.jpg"))
    clip = write_tiny_clip(
        tmp_path / "clip", [(read_picture(path), path.stem) for path in examples], num_steps=1
    )
    settings = {
        **SMALL,
        **{f"data.vqa.train.{name}": path for name, path in train.items()},
        **{f"data.vqa.test.{name}": path for name, path in test.items()},
        "data.vqa.num_anchors": 6,
        "data.vqa.num_validation": 3,
        "data.vqa.num_test": 6,
        "features.base": clip,
        "model.base": vision_folder,
        "model.dtype": "float32",
        "model.max_pixels": 784,
        "asking.max_new_tokens": 2,
    }
    asked = ("run", "demo_selection", "--config", "qwen2.5-vl-3b", *list_words(settings))
    done = command_line.succeed(*asked, "--dry-run")
    assert "ready: nothing was written" in done.stdout
    command_line.succeed(*asked, "--out", "first", "--until", "candidates")
    # What a model with random weights says is never right, unless people said the same.
    annotate_as_said(train["annotations"], Path("first/candidates"))
    command_line.succeed(*asked, "--out", "run")
    rows = read_cell(Path("run/evaluate"), Cell("grpo", 2, 2))
    assert len(rows) == 6
    assert all(row.answer is not None for row in rows)
    write_jsonl(Path("rows.jsonl"), [{"question": "What is it?", "image": str(examples[0])}])
    command_line("predict", "run", "rows.jsonl", "--out", "answers.jsonl")
    [answer] = read_jsonl(Path("answers.jsonl"))
    assert len(answer["details"]["demonstrations"]) == 2
    audit = read_json(Path("run/audit/audit.json"), dict)
    sizes = {name: split["num_examples"] for name, split in audit["splits"].items()}
    assert sizes == {"train": 70, "test": 6}
    assert audit["num_rows"] == 70 + 8


def annotate_as_said(annotations, recorded):
    """Change the answers of queries to what was said behind the first list that was tried."""
    queries = [
        query
        for split in ("anchors", "validation")
        for query in read_candidates(recorded / f"{split}.jsonl").queries
    ]
    said = {query.question_id: query.candidates[0].answer for query in queries}
    told = json.loads(annotations.read_text())
    for one in told["annotations"]:
        for answer in one["answers"]:
            answer["answer"] = said.get(one["question_id"]) or "net"
    annotations.write_text(json.dumps(told))


@pytest.mark.slow
def test_a_study_of_beta_on_lists_and_weights_of_another_run(
    run, tmp_path, command_line, monkeypatch
):
    sides = [read_candidates(run / "candidates" / f"{name}.jsonl") for name in TRAINED_ON]
    queries = tuple(query for side in sides for query in side.queries)
    write_published(Recording(queries, sides[0].conditions), tmp_path / "lists.json")
    weights = run / "rce" / "epoch-2.safetensors"
    settings = {
        **TINY,
        "record_again": "false",
        "data.recorded": "lists.json",
        "rce.weights": weights,
    }
    grid = ("--grid", "grpo.beta=0.12,0.15,0.18", "--language", "zh")
    program = [sys.executable, "-m", "groupwise.cli", "sweep", "demo_selection"]
    command = [*program, *list_words(settings), *grid]
    done = subprocess.run(
        [*command, "--out", "study"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "study" / "study.html").read_text()
    assert 'lang="zh' in page
    for name in ("β = 0.12", "β = 0.15", "β = 0.18", "epoch-2.safetensors"):
        assert name in page
    starts = {path.read_bytes() for path in tmp_path.glob("study/**/start.safetensors")}
    assert starts == {weights.read_bytes()}


@pytest.fixture
def settings(tmp_path):
    """Of a run on files of the published form, whose answerer is served."""
    train = write_questions(tmp_path / "train", "train2014", 12)
    test = write_questions(tmp_path / "test", "val2014", 8, first=1000)
    return (
        *(f"data.vqa.train.{name}={path}" for name, path in train.items()),
        *(f"data.vqa.test.{name}={path}" for name, path in test.items()),
        "data.vqa.num_anchors=6",
        "data.vqa.num_validation=3",
        "data.vqa.num_test=5",
        "evaluation.sizes=[2, 5]",
        "server={url: 'http://127.0.0.1:9/v1', model: m}",
        "pools.size=8",
        f"features.base={write_base(tmp_path / 'clip')}",
    )


def load(settings, config="qwen2.5-vl-3b"):
    return read_config("demo_selection", config, *settings)


def read(folder, settings):
    return read_keys(plan("demo_selection", folder / "run", "qwen2.5-vl-3b", *settings))


def test_a_changed_picture_changes_what_is_made_of_it(settings, tmp_path):
    before = read(tmp_path, settings)
    picture = next((tmp_path / "test").rglob("*.jpg"))
    picture.write_bytes(picture.read_bytes() + b" ")
    assert list_changed(before, read(tmp_path, settings)) == {"prepare"}


def test_items_are_counted_without_reading_a_picture(settings, tmp_path):
    for picture in tmp_path.rglob("*.jpg"):
        picture.write_bytes(b"no picture")
    [items] = preview_run(load(settings)).tables
    assert items.rows == [("train", "12"), ("anchors", "6"), ("validation", "3"), ("test", "5")]


@pytest.mark.parametrize("every_epoch", [False, True])
@pytest.mark.parametrize("shots", ["[1, 2]", "[1]"])
def test_the_cells_that_are_announced_are_those_of_the_run(every_epoch, shots):
    config = load((f"evaluation.every_epoch={every_epoch}", f"evaluation.shots={shots}"), "demo")
    found = dict(preview_run(config).facts)["prompts to evaluate"]
    num_cells = len(list_run_cells(config))
    assert found == f"at most {num_cells * 400:,} in {num_cells} cells"


def test_an_answerer_that_nobody_names_is_refused():
    with pytest.raises(ConfigError, match=r"give model\.base, or the server of an answerer"):
        load(("model={}",), "demo")


def write_recorded(path, *, answer):
    pool = list(range(8))
    pointers = [make_pointer([0, 1], answer), make_pointer([1, 0], "blue")]
    write_json(path, {str(n): make_entry(n, pointers, pool) for n in range(20, 24)})


def test_a_dry_run_reads_the_lists_that_were_recorded(settings, tmp_path):
    path = tmp_path / "lists.json"
    write_recorded(path, answer="net")
    given = (*settings, f"data.recorded={path}", "record_again=false")
    preview = preview_run(load(given))
    assert preview.problems == []
    assert dict(preview.facts)["recorded lists"] == "8 of 4 queries in lists.json"
    assert "prompts to record" not in dict(preview.facts)
    write_recorded(path, answer="blue")
    [problem] = preview_run(load(given)).problems
    assert "lists.json: only 0/4 (0.0%) queries have a positive list" in problem
    with pytest.raises(ConfigError, match=r"record_again: data\.recorded is what"):
        load(given[:-1])


def test_given_weights_and_lists_change_what_is_made_of_them(settings, tmp_path):
    path, weights = tmp_path / "lists.json", tmp_path / "selector.safetensors"
    write_recorded(path, answer="net")
    weights.write_bytes(b"one")
    given = (*settings, f"data.recorded={path}", "record_again=false", f"rce.weights={weights}")
    before = read(tmp_path, given)
    weights.write_bytes(b"two")
    after = read(tmp_path, given)
    assert list_changed(before, after) == {"rce", "evaluate"}
    write_recorded(path, answer="a")
    assert {"prepare", "candidates"} <= list_changed(after, read(tmp_path, given))
