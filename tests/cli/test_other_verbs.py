"""All verbs but ``run``, ``sweep``, ``compare`` and ``watch``, ``--version`` and ``--help``."""

import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys

import pytest
from PIL import Image

from groupwise import __version__
from groupwise.cli.loop import PERSON_KEY_VARIABLE
from groupwise.cli.main import COMMANDS, app
from groupwise.core import read_jsonl, write_jsonl
from groupwise.feedback import FeedbackStore, Shown, name_person


def test_recipes_are_listed_with_their_configs_and_there_is_a_version(tiny):
    done = tiny.call.succeed("run", "--list")
    assert "tiny: writes rows\n  configs: demo\n" in done.stdout
    assert "on_task: " in done.stdout
    assert tiny.call("--version").stdout == f"groupwise {__version__}\n"


@pytest.mark.parametrize(
    ("verb", "defaults"),
    [
        (["run"], ["demo, or the recipe's only one", "runs/<recipe>-<config name>"]),
        (["sweep"], ["runs/<recipe>-<config name>-sweep", "1"]),
        (["watch"], ["5.0", "en"]),
        (["judge"], ["runs/judge-<config or file name>"]),
        (["compare"], ["runs/compare-<run>-<run>, or the sweep's folder", "what heads the report"]),
    ],
)
def test_help_shows_what_is_taken_where_nothing_is_given(command_line, verb, defaults):
    shown = " ".join(command_line(*verb, "--help").stdout.split())
    missing = [
        text for text in defaults if not re.search(rf"\[default: \(?{re.escape(text)}", shown)
    ]
    assert missing == []


def test_the_list_of_verbs_fits_a_screen_and_begins_with_a_newcomers(command_line):
    lines = command_line("--help").stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:5]] == ["new", "run", "predict"]
    assert command_line().stdout.splitlines() == lines
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    assert listed == set(COMMANDS) == set(app.list_commands(None))
    assert (len(listed - {"models"}), app.get_command(None, "nonsense")) == (14, None)


def test_the_list_of_verbs_imports_none_of_them():
    program = (
        "import sys\n"
        "from groupwise.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('groupwise.')), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "export" in done.stdout
    assert done.stderr.strip().splitlines()[-1] == "['groupwise.cli', 'groupwise.cli.main']"


@pytest.mark.parametrize("words", [["--help"], ["run", "--list"], ["models"]])
def test_output_that_nobody_reads_any_more_is_no_bug(words):
    command = [sys.executable, "-m", "groupwise.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 1)
    process.stderr.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("report runs/a", "groupwise compare RUN"),
        ("recipes", "groupwise run --list"),
        ("export-model runs/a --out x", "groupwise export RUN --out DIR"),
        ("push runs/a me/it", "groupwise export RUN --push OWNER/NAME"),
        ("verify certificate.json", "groupwise learn --verify CERTIFICATE"),
        ("roll-back loop", "groupwise learn --roll-back LOOP"),
        ("audit data on_task", "groupwise audit RECIPE --only data"),
        ("audit rewards on_task", "groupwise audit RECIPE --only rewards"),
        ("judge calibrate --judge x", "groupwise judge --judge CONFIG --data FILE"),
        ("feedback show kept", "groupwise feedback DIR"),
        ("feedback export kept --out x", "groupwise feedback DIR --export FILE"),
        ("feedback import kept x", "groupwise feedback DIR --import FILE"),
        ("feedback delete-person kept ann", "groupwise feedback DIR --delete-person USER"),
        ("feedback delete-pictures kept", "groupwise feedback DIR --delete-pictures DAYS"),
        ("data mix --config x", "python -m groupwise_recipes.workflows.problem_mixes"),
        ("biased-variants", "python -m groupwise_recipes.visual_reasoning.biased_variants"),
        ("judge-reasoning", "python -m groupwise_recipes.visual_reasoning.human_labels"),
        ("executor-stub", "python -m groupwise_recipes.workflows.executor_stub"),
        ("workflow-traces", "python -m groupwise_recipes.workflows.traces"),
    ],
)
def test_an_old_spelling_is_answered_with_the_new_one(command_line, old, new):
    assert f"is written `{new}" in command_line.refuse_in_a_line(*old.split())
    if new.startswith("python"):
        assert importlib.util.find_spec(new.split()[-1]) is not None
    else:  # which exists with these options
        _, verb, *words = new.split()
        names = {name for param in app.get_command(None, verb).params for name in param.opts}
        assert {word for word in words if word.startswith("--")} <= names


def test_a_folder_may_be_called_as_an_old_verb(command_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FeedbackStore(tmp_path / "show").close()
    assert "version" in command_line.succeed("feedback", "show").stdout


def test_doctor_says_what_is_found(tiny):
    tiny.use_real_torch()
    done = tiny.run("doctor")
    assert done.returncode == 0
    levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert levels["torch"] == levels["groupwise"] == "fine"
    assert {"devices", "torchvision", "disk", "memory"} <= levels.keys()


def test_doctor_fails_when_something_is_broken(tiny):
    info = tiny.site / "torchvision-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.1\n")
    (tiny.site / "torchvision.py").write_text("raise RuntimeError('operator is missing')\n")
    tiny.use_real_torch()
    done = tiny.run("doctor")
    assert done.returncode == 1
    assert "0.1 cannot be imported (operator is missing) → pip uninstall torchvision" in done.stdout


class TestAuditData:
    def test_it_runs_up_to_the_audit_and_prints_it_also_of_a_config_file(self, tiny):
        done = tiny.call("audit", "--only", "data", "tiny")
        assert (done.returncode, done.stdout) == (0, "# Audit\n\n0 errors\n\n")
        assert tiny.list_done() == ["prepare", "audit"]
        assert tiny.call("run", "tiny").returncode == 0
        assert tiny.list_done() == ["write", "evaluate", "report"]
        shutil.copy(tiny.site / "configs" / "demo.yaml", tiny.work / "mine.yaml")
        tiny.call.succeed("audit", "--only", "data", "mine.yaml")
        assert (tiny.work / "runs/tiny-mine/audit/audit.json").is_file()

    @pytest.mark.parametrize("more", [[], ["--set", "audit_stops=true"]])
    def test_errors_of_the_audit_exit_1(self, tiny, more):
        """Also where they stop the run."""
        done = tiny.call("audit", "--only", "data", "tiny", "--set", "audit_errors=2", *more)
        assert (done.returncode, "2 errors" in done.stdout) == (1, True)
        assert "Traceback" not in done.stderr

    def test_an_error_before_the_audit_is_not_hidden_by_an_old_audit(self, tiny):
        tiny.call("audit", "--only", "data", "tiny", "--set", "audit_errors=2")
        tiny.source.write_text("")
        done = tiny.call("audit", "--only", "data", "tiny", "--set", "audit_errors=2")
        assert (done.returncode, done.stdout) == (2, "")
        assert "the source is empty" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs/none", "--format", "verl"), "runs/none holds no run"),
        (("runs/tiny-demo", "--format", "chat"), "chat and --rows go together"),
        (("runs/tiny-demo:sft", "--format", "swift"), "got its policy sft"),
    ],
)
def test_mistakes_are_one_sentence(command_line, arguments: tuple[str, ...], said: str):
    assert said in command_line.refuse_in_a_line("export", *arguments, "--out", "x")


PAIR = {"question": "Name a colour.", "answer_a": "Red.", "answer_b": "Seven.", "preferred": "a"}


@pytest.fixture
def work_judge(tiny):
    (tiny.work / "first.yaml").write_text("kind: rule\nrule: always_first\n")
    write_jsonl(tiny.work / "pairs.jsonl", [PAIR, PAIR | {"question": "Another?"}])
    return tiny


CALIBRATE = ("judge", "--judge", "first.yaml", "--data", "pairs.jsonl")


def test_a_dry_run_asks_and_writes_nothing(work_judge):
    done = work_judge.call(*CALIBRATE, "--dry-run", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "items      2 (unnamed 2)\nverdicts   4\ncalls      at most 0" in done.stdout
    assert not (work_judge.work / "out").exists()


def test_a_real_process_prints_what_it_writes(work_judge):
    work_judge.use_real_torch()
    done = work_judge.run(*CALIBRATE)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 verdicts\n" in done.stderr
    written = json.loads((work_judge.work / "runs/judge-first/calibration.json").read_text())
    values = {metric["name"]: metric["value"] for metric in written["metrics"]}
    assert values["always_first/flip_rate"] == 1
    [line] = [line for line in done.stdout.splitlines() if line.split()[:1] == ["flip_rate"]]
    assert line.split()[1:3] == ["100.0", "%"]
    assert "report: runs/judge-first/report.html" in done.stdout


def test_recorded_verdicts_are_measured_without_a_judge(work_judge):
    rows = [
        {"id": str(n), "label": "a", "verdicts": {"ab": "a", "ba": "b" if n else "a"}}
        for n in range(4)
    ]
    write_jsonl(work_judge.work / "said.jsonl", rows)
    done = work_judge.call("judge", "--verdicts", "said.jsonl", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    shown = {line[0]: line[1] for line in lines if len(line) > 2}
    assert (shown["right_in_both_orders"], shown["agreement"]) == ("25.0", "62.5")
    assert "another verdict, or none, in the other order: 3 pairs" in done.stdout
    assert (work_judge.work / "out/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "rule=coin"], "rule: Input should be 'always_first' or 'longer'"),
        (["--data", "none.jsonl"], "cannot read none.jsonl"),
        (["--judge", "none.yaml"], "cannot read the configuration none.yaml"),
        (["--verdicts", "said.jsonl"], "nobody is asked"),
    ],
)
def test_what_cannot_be_calibrated_is_told(work_judge, arguments, words):
    assert words in work_judge.call.refuse(*CALIBRATE, *arguments)


def test_verdicts_or_a_judge_with_data(command_line):
    assert "not both given" in command_line.refuse("judge", "--judge", "first.yaml")
    said = command_line.refuse("judge", "--verdicts", "none.jsonl")
    assert "there is no none.jsonl" in said


KEY = "a secret of the tests"


def draw_picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Four answers of two versions: confirmed, corrected, disagreed on, and silent."""
    monkeypatch.setenv(PERSON_KEY_VARIABLE, KEY)
    store = FeedbackStore(tmp_path / "kept")
    for number, version in enumerate(("v1", "v1", "v2", "v2")):
        shown = Shown(f"a{number}", number, {"task": "写"}, "s", (), "on-task", 0.9, version)
        store.remember(shown, [draw_picture()])
    ann, bob = (name_person(user, KEY.encode()) for user in ("ann", "bob"))
    store.say("a0", ann, "on-task")
    store.say("a1", ann, "off-task")
    store.say("a2", ann, "off-task")
    store.say("a2", bob, "on-task")
    store.note_use([store.read("a1")], "v3")
    store.close()
    return tmp_path / "kept"


def test_it_counts_by_version(command_line, kept):
    lines = [line.split() for line in command_line("feedback", kept).stdout.splitlines()]
    assert lines[1:] == [["v1", "2", "1", "1", "0"], ["v2", "2", "0", "0", "1"]]


def test_what_teaches_most_comes_first(command_line, kept, tmp_path):
    done = command_line("feedback", kept, "--export", tmp_path / "items.jsonl")
    assert "3 items, 1 of them disagreed on" in done.stdout
    rows = read_jsonl(tmp_path / "items.jsonl")
    assert [(row["shown"]["id"], row["label"]) for row in rows] == [
        ("a1", "off-task"),
        ("a0", "on-task"),
        ("a2", None),
    ]
    assert "ann" not in (tmp_path / "items.jsonl").read_text()


def test_labels_come_back_from_label_studio(command_line, kept, tmp_path):
    path = tmp_path / "tasks.json"
    done = command_line("feedback", kept, "--format", "label-studio", "--export", path)
    assert "4 tasks" in done.stdout
    [silent] = [t for t in json.loads(path.read_text()) if t["data"]["groupwise_id"] == "a3"]
    choice = {**silent["predictions"][0]["result"][0], "value": {"choices": ["off-task"]}}
    silent["annotations"] = [{"completed_by": {"email": "eve"}, "result": [choice]}]
    unknown = {"data": {"groupwise_id": "zz"}, "annotations": silent["annotations"]}
    path.write_text(json.dumps([silent]))
    for told in ("1 new labels", "0 new labels"):
        assert told in command_line("feedback", kept, "--import", path).stdout
    path.write_text(json.dumps([unknown, silent]))
    said = command_line.refuse("feedback", kept, "--import", path)
    assert "1 labels are of answers that are not kept (any more), such as 'zz'" in said


def test_a_person_is_deleted_and_the_versions_are_told(command_line, kept):
    done = command_line("feedback", kept, "--delete-person", "ann")
    assert done.stdout.splitlines() == ["3 labels deleted", "trained on some of them: v3"]
    store = FeedbackStore(kept)
    assert [item.shown.id for item in store.list_items()] == ["a2"]
    store.close()


def test_pictures_of_old_answers_are_deleted(command_line, kept):
    done = command_line("feedback", kept, "--delete-pictures", "1")
    assert done.stdout == "1 pictures deleted\n"
    assert list((kept / "pictures").iterdir()) == []


def test_without_a_key_no_person_is_named(command_line, kept, monkeypatch):
    monkeypatch.setenv(PERSON_KEY_VARIABLE, "short")
    said = command_line.refuse("feedback", kept, "--delete-person", "ann")
    assert f"{PERSON_KEY_VARIABLE} is not set to a secret of 16 characters" in said


def test_a_folder_that_is_not_there_is_told(command_line, tmp_path):
    assert "there is no folder" in command_line.refuse("feedback", tmp_path / "none")
    assert not (tmp_path / "none").exists()
