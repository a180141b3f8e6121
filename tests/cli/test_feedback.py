"""``groupwise feedback``: what was said is shown, handed on, taken back and deleted."""

import io
import json

import pytest
from PIL import Image

from groupwise.cli.feedback import PERSON_KEY_VARIABLE
from groupwise.core import read_jsonl
from groupwise.feedback import FeedbackStore, Shown, name_person

KEY = "a secret of the tests"


@pytest.fixture(autouse=True)
def set_key(monkeypatch):
    monkeypatch.setenv(PERSON_KEY_VARIABLE, KEY)


def draw_picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def kept(tmp_path):
    """Four answers of two versions: confirmed, corrected, disagreed on, and silent."""
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
    lines = [line.split() for line in command_line("feedback", "show", kept).stdout.splitlines()]
    assert lines[1:] == [["v1", "2", "1", "1", "0"], ["v2", "2", "0", "0", "1"]]


def test_what_teaches_most_comes_first(command_line, kept, tmp_path):
    done = command_line("feedback", "export", kept, "--out", tmp_path / "items.jsonl")
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
    done = command_line("feedback", "export", kept, "--format", "label-studio", "--out", path)
    assert "4 tasks" in done.stdout
    [silent] = [t for t in json.loads(path.read_text()) if t["data"]["groupwise_id"] == "a3"]
    choice = {**silent["predictions"][0]["result"][0], "value": {"choices": ["off-task"]}}
    silent["annotations"] = [{"completed_by": {"email": "eve"}, "result": [choice]}]
    unknown = {"data": {"groupwise_id": "zz"}, "annotations": silent["annotations"]}
    path.write_text(json.dumps([silent]))
    for told in ("1 new labels", "0 new labels"):
        assert told in command_line("feedback", "import", kept, path).stdout
    path.write_text(json.dumps([unknown, silent]))
    done = command_line("feedback", "import", kept, path)
    assert done.returncode == 2
    assert "1 labels are of answers that are not kept (any more), such as 'zz'" in done.stderr


def test_a_person_is_deleted_and_the_versions_are_told(command_line, kept):
    done = command_line("feedback", "delete-person", kept, "ann")
    assert done.stdout.splitlines() == ["3 labels deleted", "trained on some of them: v3"]
    store = FeedbackStore(kept)
    assert [item.shown.id for item in store.list_items()] == ["a2"]
    store.close()


def test_pictures_of_old_answers_are_deleted(command_line, kept):
    done = command_line("feedback", "delete-pictures", kept, "--older-than-days", "1")
    assert done.stdout == "1 pictures deleted\n"
    assert list((kept / "pictures").iterdir()) == []


def test_without_a_key_no_person_is_named(command_line, kept, monkeypatch):
    monkeypatch.setenv(PERSON_KEY_VARIABLE, "short")
    done = command_line("feedback", "delete-person", kept, "ann")
    assert done.returncode == 2
    assert f"{PERSON_KEY_VARIABLE} is not set to a secret of 16 characters" in done.stderr


def test_a_folder_that_is_not_there_is_told(command_line, tmp_path):
    done = command_line("feedback", "show", tmp_path / "none")
    assert (done.returncode, "there is no folder" in done.stderr) == (2, True)
    assert not (tmp_path / "none").exists()
