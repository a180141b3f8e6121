"""The store: nothing is lost, doubled or overwritten, whoever writes and whatever ends it."""

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sqlalchemy import create_engine, func, inspect, select, text

from groupwise.core import DataError, digest_bytes
from groupwise.feedback import (
    FeedbackItem,
    FeedbackStore,
    GivenLabel,
    Shown,
    name_person,
    order_by_priority,
    read_items,
    read_label_studio,
    write_items,
    write_label_studio,
)
from groupwise.feedback.store import _MIGRATIONS
from groupwise.feedback.tables import ANSWERS, METADATA, WORDS


def make_shown(name: str, at_s: float = 0.0, **other: object) -> Shown:
    values = {
        "row": {"task": "编写报告"},
        "session": "s",
        "pictures": (),
        "prediction": "on-task",
        "confidence": 0.9,
        "version": "v1",
    }
    return Shown(id=name, at_s=at_s, **(values | other))


_USER, _NUMBER = "nobody", 65534


def find_postgres() -> Path | None:
    """Return the folder of the newest server's programs, or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parts[-2])
    folders += [Path(found).resolve().parent] if (found := shutil.which("pg_isready")) else []
    return next((each for each in reversed(folders) if (each / "initdb").is_file()), None)


@contextmanager
def run_postgres(programs: Path) -> Iterator[str]:
    # PostgreSQL does not run as root, and the path of a socket is at most 107 bytes long.
    other = {"user": _NUMBER, "group": _NUMBER, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if other:
            os.chown(folder, _NUMBER, _NUMBER)
        make = [programs / "initdb", "-D", folder / "data", "-A", "trust", "-N", "-U", _USER]
        subprocess.run(make, cwd=folder, check=True, capture_output=True, **other)
        serve = [programs / "postgres", "-D", folder / "data", "-k", folder]
        quick = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([*serve, *quick], cwd=folder, stderr=log, **other)
        try:
            _wait(programs, folder)
            yield f"postgresql+psycopg://{_USER}@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)  # SIGTERM would wait for clients
            server.wait(30)


def _wait(programs: Path, folder: Path) -> None:
    for _ in range(600):
        asked = subprocess.run([programs / "pg_isready", "-h", folder], capture_output=True)
        if asked.returncode == 0:
            return
        time.sleep(0.05)
    raise AssertionError((folder / "log").read_text())


@pytest.fixture(scope="module")
def postgres():
    programs = find_postgres()
    if programs is None:
        pytest.skip("there is no PostgreSQL here")
    with run_postgres(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request):
    """None, or the URL of a database without tables."""
    if request.param == "sqlite":
        return None
    url = request.getfixturevalue("postgres")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


@pytest.fixture
def store(tmp_path, url):
    store = FeedbackStore(tmp_path / "kept", url, max_items=100)
    yield store
    store.close()


def test_what_was_kept_is_read(store, tmp_path, url):
    given = make_shown("a", 1.5, prediction=None, confidence=None)
    shown = store.remember(given, [b"x", b"y"])
    assert shown == replace(given, pictures=(digest_bytes(b"x"), digest_bytes(b"y")))
    assert store.read("a") is None
    assert store.list_unlabelled() == [shown]
    assert store.say("a", "p", "off-task")
    again = FeedbackStore(tmp_path / "kept", url)
    [item] = again.list_items()
    assert (item.shown, item.label, item.is_correction) == (shown, "off-task", True)
    assert again.list_unlabelled() == []
    again.close()


def test_saying_it_again_changes_nothing(store):
    store.remember(make_shown("a"))
    assert [store.say("a", "p", "off-task") for _ in range(3)] == [True, False, False]
    assert [store.say("a", "p", None) for _ in range(2)] == [True, False]
    assert store.read("a") is None
    assert [store.say("a", "p", label) for label in ("on-task", "off-task", "on-task")] == [
        True
    ] * 3
    assert store.read("a").label == "on-task"


def test_nobody_is_overwritten_and_disagreement_has_no_label(store):
    store.remember(make_shown("a"))
    for person, label in (("p", "off-task"), ("q", "on-task"), ("r", "off-task")):
        store.say("a", person, label)
    item = store.read("a")
    assert [(given.person, given.label) for given in item.labels] == [
        ("p", "off-task"),
        ("q", "on-task"),
        ("r", "off-task"),
    ]
    assert (item.label, item.is_correction) == (None, False)
    store.say("a", "q", "off-task")
    assert (store.read("a").label, store.read("a").is_correction) == ("off-task", True)


def test_what_is_not_there_is_refused(store):
    store.remember(make_shown("a"))
    for work in (lambda: store.say("b", "p", "on-task"), lambda: store.read("b")):
        with pytest.raises(DataError, match="there is no answer 'b'"):
            work()
    with pytest.raises(DataError, match="there is an answer 'a' already"):
        store.remember(make_shown("a"))


def test_the_oldest_that_nobody_spoke_of_go_first(tmp_path, url):
    store = FeedbackStore(tmp_path, url, max_items=5)
    for number in range(5):
        store.remember(make_shown(f"{number}", number))
    for name in ("0", "3"):
        store.say(name, "p", "off-task")
    for number in range(5, 9):
        store.remember(make_shown(f"{number}", number))
    kept = [item.shown.id for item in store.list_items()] + [s.id for s in store.list_unlabelled()]
    assert kept == ["0", "3", "6", "7", "8"]
    store.close()
    smaller = FeedbackStore(tmp_path, url, max_items=1)
    assert [item.shown.id for item in smaller.list_items()] == ["3"]
    assert smaller.count_answers() == 1
    smaller.close()


def test_deleting_a_person_tells_the_versions_that_learned_from_them(store):
    for name in ("a", "b"):
        store.remember(make_shown(name))
    store.say("a", "p", "off-task")
    store.say("a", "q", "off-task")
    store.say("b", "q", "on-task")
    for _ in range(2):
        store.note_use([store.read("a")], "v2")
    store.note_use([store.read("b")], "v3")
    gone = store.delete_person("p")
    assert (gone.num_labels, gone.versions) == (1, ("v2",))
    assert [given.person for given in store.read("a").labels] == ["q"]
    assert store.delete_person("q").versions == ("v2", "v3")
    assert store.list_items() == []
    assert store.delete_person("p").num_labels == 0


def draw(colour: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (20, 10), colour).save(stream, "PNG")
    return stream.getvalue()


def test_pictures_go_when_their_time_is_over(store):
    old = store.remember(make_shown("old", 10), [draw("red"), draw("blue")])
    store.remember(make_shown("new", 20), [draw("blue")])
    red, blue = old.pictures
    assert store.delete_pictures(before_s=15) == 1
    assert store.pictures.find(red) is None
    assert store.pictures.find(blue).read_bytes() == draw("blue")
    assert store.list_unlabelled()[0].pictures == (red, blue)


def test_pictures_of_answers_that_are_not_kept_any_more_are_gone(tmp_path, url):
    store = FeedbackStore(tmp_path, url, max_items=3)
    colours = ("red", "green", "red", "blue", "black", "white")
    for number, colour in enumerate(colours):
        store.remember(make_shown(f"{number}", number), [draw(colour)])
    left = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert left == {digest_bytes(draw(colour)) for colour in colours[3:]}
    store.close()


def test_a_brief_list_has_all_but_rows_by_whether_somebody_speaks_of_it(store):
    for number in range(4):
        store.remember(make_shown(f"{number}", number))
    for answer, person, label in (
        ("0", "p", "on-task"),
        ("1", "p", "on-task"),
        ("1", "p", None),
        ("2", "p", "on-task"),
        ("2", "q", "off-task"),
        ("2", "p", None),
    ):
        store.say(answer, person, label)
    silent, spoken = store.list_briefly()
    assert silent == [replace(one, row={}) for one in store.list_unlabelled()]
    assert spoken == [replace(item.shown, row={}) for item in store.list_items()]
    assert [one.id for one in (*silent, *spoken)] == ["1", "3", "0", "2"]


def test_an_answer_is_found_with_its_row_and_the_pictures_it_shows(store):
    shown = store.remember(make_shown("a"), [draw("red")])
    assert store.find("a") == shown
    assert store.find("b") is None
    [name] = shown.pictures
    assert store.is_shown(name)
    for other in (name[:-1], "%", "_" * len(name), '", "', "", store.pictures.keep(draw("blue"))):
        assert not store.is_shown(other)


def test_what_was_deleted_is_not_in_the_file_any_more(tmp_path):
    store = FeedbackStore(tmp_path)
    store.remember(make_shown("a"))
    store.say("a", "p", "nobody shall read this")
    store.delete_person("p")
    store.close()
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert all(b"nobody shall" not in path.read_bytes() for path in files)


def test_nothing_of_a_person_stays_in_the_log_of_a_store_that_is_served(tmp_path):
    serving, store = FeedbackStore(tmp_path), FeedbackStore(tmp_path)
    serving.remember(make_shown("a"))
    person = "a7" * 32
    serving.say("a", person, "passed")
    assert store.delete_person(person).num_labels == 1
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert [path.name for path in files if person.encode() in path.read_bytes()] == []
    serving.say("a", "q", "passed")
    store.close()
    serving.close()


def test_a_store_is_its_owners_alone(tmp_path):
    mask = os.umask(0o022)
    try:
        store = FeedbackStore(tmp_path / "kept")
        store.remember(make_shown("a"), [draw("red")])
    finally:
        os.umask(mask)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "kept").rglob("*")}
    store.close()
    assert len(modes) >= 5
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


SPEAKER = """
import sys
from pathlib import Path
from groupwise.feedback import FeedbackStore
store = FeedbackStore(Path(sys.argv[1]), sys.argv[3] or None)
for number in range(40):
    store.say(f"{number % 4}", sys.argv[2], ("on-task", "off-task")[number // 4 % 2])
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path, url):
    store = FeedbackStore(tmp_path, url)
    for number in range(4):
        store.remember(make_shown(f"{number}"))
    speakers = [
        subprocess.Popen([sys.executable, "-c", SPEAKER, str(tmp_path), f"p{number}", url or ""])
        for number in range(3)
    ]
    assert [speaker.wait(60) for speaker in speakers] == [0, 0, 0]
    with store._read() as connection:
        assert connection.execute(select(func.count()).select_from(WORDS)).scalar_one() == 120
    assert {len(item.labels) for item in store.list_items()} == {3}
    store.close()


WRITER = """
import sys
from pathlib import Path
from groupwise.feedback import FeedbackStore
store = FeedbackStore(Path(sys.argv[1]))
number = 0
while True:
    store.say(f"{number % 10}", f"p{number}", "off-task")
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("written", [1, 2, 7, 19, 40, 60, 83, 121, 170, 250])
def test_killed_at_any_moment_what_was_said_is_there_once(tmp_path, written: int):
    store = FeedbackStore(tmp_path)
    for number in range(10):
        store.remember(make_shown(f"{number}"))
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    told = [int(process.stdout.readline()) for _ in range(written)]
    os.kill(process.pid, signal.SIGKILL)
    told += [int(line) for line in process.communicate()[0].splitlines() if line.strip()]
    people = [given.person for item in store.list_items() for given in item.labels]
    assert len(people) == len(set(people))
    assert {f"p{number}" for number in told} <= set(people)
    assert len(people) <= len(told) + 1
    assert not store.say("0", "p0", "off-task")
    store.close()


@pytest.mark.parametrize(
    "url", ["nonsense", "nosuch://host/name", "sqlite:////no/such/folder/items.db"]
)
def test_a_database_that_cannot_be_opened_is_told(tmp_path, url):
    with pytest.raises(DataError, match="cannot be opened"):
        FeedbackStore(tmp_path, url)


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    FeedbackStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "feedback.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DataError, match="cannot be opened"):
        FeedbackStore(tmp_path)


def test_a_store_of_the_first_version_is_read_and_goes_on(tmp_path, url):
    made = url or f"sqlite:///{tmp_path / 'feedback.db'}"
    engine = create_engine(made)
    config = AlembicConfig()
    config.set_main_option("script_location", str(_MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        columns = {column["name"] for column in inspect(connection).get_columns("answers")}
        assert "decided_by" not in columns
        old = {name: value for name, value in asdict(make_shown("old")).items() if name in columns}
        connection.execute(ANSWERS.insert().values(old))
        word = {"answer": "old", "person": "p", "label": "off-task", "at_s": 1.0}
        connection.execute(WORDS.insert().values(word))
    engine.dispose()
    for _ in range(2):
        store = FeedbackStore(tmp_path, url)
        assert store.list_items()[0].shown == make_shown("old")
        store.close()
    store = FeedbackStore(tmp_path, url)
    judged = {"decided_by": "judge", "judge_label": "off-task", "judge_probability": 0.9}
    store.remember(make_shown("new", **judged))
    assert store.list_unlabelled() == [make_shown("new", **judged)]
    store.close()


def test_the_migrations_make_the_tables_that_are_used(store):
    with store._read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


LABELS = st.sampled_from(["on-task", "off-task"])
SHOWN = st.builds(
    Shown,
    id=st.uuids().map(str),
    at_s=st.floats(0, 1e9),
    row=st.just({"task": "编写报告"}),
    session=st.text("ab", max_size=3),
    pictures=st.lists(st.text("0123456789abcdef", min_size=4, max_size=4)).map(tuple),
    prediction=st.none() | LABELS,
    confidence=st.none() | st.floats(0, 1),
    version=st.just("v1"),
)
SAID = st.lists(
    st.builds(GivenLabel, person=st.text("pqr", max_size=2), label=LABELS, at_s=st.floats(0, 1e9)),
    min_size=1,
    max_size=3,
    unique_by=lambda given: given.person,
).map(tuple)
ITEMS = st.lists(
    st.builds(FeedbackItem, shown=SHOWN, labels=SAID), max_size=8, unique_by=lambda i: i.shown.id
)


@given(ITEMS, st.randoms())
def test_the_order_is_that_of_what_teaches_most(items, random):
    ordered = order_by_priority(items)
    agreed = [item for item in items if len({given.label for given in item.labels}) == 1]
    assert {item.shown.id for item in ordered} == {item.shown.id for item in agreed}
    shuffled = items[:]
    random.shuffle(shuffled)
    assert order_by_priority(shuffled) == ordered

    def kind(item):
        return (not item.is_correction) + (
            not item.is_correction or (item.shown.confidence or 0) <= 0.7
        )

    kinds = [kind(item) for item in ordered]
    assert kinds == sorted(kinds)
    for one, other in pairwise(ordered):
        if kind(one) == kind(other) == 0:
            assert one.shown.confidence >= other.shown.confidence
        elif kind(one) == kind(other):
            assert one.at_s >= other.at_s


@given(ITEMS)
def test_what_is_written_is_read(tmp_path_factory, items):
    path = tmp_path_factory.mktemp("items") / "items.jsonl"
    write_items(path, items)
    assert read_items(path) == items


def test_a_line_that_is_no_item_is_named(tmp_path):
    (tmp_path / "items.jsonl").write_text('{"shown": {"id": "a"}, "labels": []}\n')
    with pytest.raises(DataError, match=r"row 1 of .* is no feedback \(shown.at_s\)"):
        read_items(tmp_path / "items.jsonl")


def test_people_are_known_by_a_keyed_digest_alone():
    assert name_person("ann", b"k" * 16) == name_person("ann", b"k" * 16)
    assert len({name_person(u, k) for u in ("ann", "bob") for k in (b"k" * 16, b"l" * 16)}) == 4
    assert "ann" not in name_person("ann", b"k" * 16)


def make_item(name: str, *labels: str) -> FeedbackItem:
    shown = Shown(name, 1.0, {"task": "写"}, "s", ("abcd",), "on-task", 0.75, "v1")
    said = tuple(GivenLabel(f"p{n}", label, 2.0) for n, label in enumerate(labels))
    return FeedbackItem(shown, said)


def test_tasks_have_the_answer_and_annotations_are_read(tmp_path):
    path = tmp_path / "tasks.json"
    write_label_studio(path, [make_item(name, "off-task").shown for name in "ab"], address="x/")
    first, second = json.loads(path.read_text())
    assert first["data"]["picture"] == "x/abcd"
    assert first["data"]["task"] == "写"
    [prediction] = first["predictions"]
    assert (prediction["score"], prediction["model_version"]) == (0.75, "v1")
    [choice] = prediction["result"]
    assert choice["value"] == {"choices": ["on-task"]}
    for task, people in ((first, (3, 4)), (second, ({"email": "eve"},))):
        task["annotations"] = [{"completed_by": one, "result": [choice]} for one in people]
    path.write_text(json.dumps([first, second]))
    assert read_label_studio(path) == [
        ("a", "3", "on-task"),
        ("a", "4", "on-task"),
        ("b", "eve", "on-task"),
    ]


@pytest.mark.parametrize(
    "task",
    [
        {"data": {}, "annotations": []},
        {"data": {"groupwise_id": "a"}},
        {
            "data": {"groupwise_id": "a"},
            "annotations": [{"completed_by": 3, "result": []}],
        },
    ],
)
def test_tasks_that_are_not_ours_are_named(tmp_path, task):
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match="task 1 of"):
        read_label_studio(tmp_path / "tasks.json")


def test_cancelled_annotations_are_left_out(tmp_path):
    said = {"completed_by": 3, "result": [], "was_cancelled": True}
    task = {"data": {"groupwise_id": "a"}, "annotations": [said]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    assert read_label_studio(tmp_path / "tasks.json") == []
