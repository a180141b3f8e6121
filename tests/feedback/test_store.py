"""The store: nothing is lost, doubled or overwritten, whoever writes and whatever ends it."""

import io
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from PIL import Image
from real_postgres import find_postgres, run_postgres
from sqlalchemy import create_engine, func, inspect, select, text

from groupwise.core import DataError, digest_bytes
from groupwise.feedback import FeedbackStore, Shown
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
    for work in (
        lambda: store.say("b", "p", "on-task"),
        lambda: store.read("b"),
    ):
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
    ("url", "words"),
    [
        ("nonsense", "cannot be opened"),
        ("nosuch://host/name", "cannot be opened"),
        ("sqlite:////no/such/folder/items.db", "cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_opened_is_told(tmp_path, url, words):
    with pytest.raises(DataError, match=words):
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
