"""Answers are kept, and what people say of them is on disk before they are told so."""

import base64
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from waiting import find_free_port, start_server

from groupwise.cli.loop import PERSON_KEY_VARIABLE
from groupwise.core import digest_bytes
from groupwise.feedback import FeedbackStore, name_person
from groupwise.serving.feedback import Desk

JOB = Path(__file__).parents[1] / "fixtures" / "serving_job.py"
KEY = b"a secret of the tests"


@pytest.fixture
def client(start, store):
    return start(desk=Desk(store, key=KEY), token="geheimnis")


HEADERS = {"Authorization": "Bearer geheimnis"}


def ask(client, picture, headers=HEADERS):
    pictures = [base64.b64encode(picture).decode()] if picture else []
    body = {"row": {"task": "doors", "session": "s7"}, "pictures": pictures}
    return client.post("/v1/predict", json=body, headers=headers).json()


def say(client, answer, user, label, headers=HEADERS):
    body = {"answer_id": answer, "user": user, "label": label}
    return client.post("/v1/feedback", json=body, headers=headers)


def test_an_answer_is_kept_with_its_picture_and_corrected(client, store, draw):
    before = time.time()
    name = ask(client, draw("red"))["answer_id"]
    [shown] = store.list_unlabelled()
    assert before <= shown.at_s <= time.time()
    assert (shown.id, shown.prediction, shown.confidence) == (name, "不通过", 0.9)
    assert (shown.version, shown.session) == ("v1", "s7")
    assert shown.row == {"task": "doors", "session": "s7"}
    assert shown.pictures == (digest_bytes(draw("red")),)
    assert store.pictures.find(shown.pictures[0]).read_bytes() == draw("red")
    told = [say(client, name, "ann", "通过").json() for _ in range(2)]
    known = {"answer_id": name, "label": "通过", "num_people": 1, "is_correction": True}
    assert told == [{**known, "is_new": True}, {**known, "is_new": False}]
    [item] = store.list_items()
    assert item.is_correction
    assert [given.person for given in item.labels] == [name_person("ann", KEY)]


def test_people_disagree_and_take_it_back(client, draw):
    name = ask(client, draw("red"))["answer_id"]
    say(client, name, "ann", "通过")
    told = say(client, name, "bob", "不通过").json()
    assert (told["label"], told["num_people"]) == (None, 2)
    told = say(client, name, "ann", None).json()
    assert (told["label"], told["num_people"]) == ("不通过", 1)


def test_an_answer_without_a_label_is_kept_too(client, store):
    name = ask(client, None)["answer_id"]
    assert store.list_unlabelled()[0].prediction is None
    assert say(client, name, "ann", "通过").json()["label"] == "通过"


def test_what_is_wrong_is_refused_in_a_sentence(client, store, draw):
    name = ask(client, draw())["answer_id"]
    refused = say(client, name, "ann", "maybe")
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "a label is one of 通过, 不通过",
    )
    refused = say(client, "other", "ann", "通过")
    assert (refused.status_code, refused.json()["detail"]) == (404, "there is no answer 'other'.")
    assert say(client, name, "ann", "通过", {}).status_code == 401
    assert [say(client, name, user, "通过").status_code for user in ("", " \n")] == [422] * 2
    assert store.list_items() == []


def test_a_server_without_a_desk_takes_none(start, draw):
    client = start()
    assert say(client, "a", "ann", "通过", {}).status_code == 404
    assert ask(client, draw(), {})["answer_id"] is None


def test_a_store_that_cannot_be_written_is_told(client, store, draw, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def fail(*given):
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    name = ask(client, draw())["answer_id"]
    monkeypatch.setattr(store, "say", fail)
    refused = say(client, name, "ann", "通过")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")


def test_who_asks_is_answered_though_nothing_can_be_kept(client, store, draw, monkeypatch):
    def fail(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "remember", fail)
    told = ask(client, draw("red"))
    assert (told["answer"], told["answer_id"]) == ("不通过", None)
    lines = client.get("/metrics", headers=HEADERS).text.splitlines()
    assert 'groupwise_answers_kept_total{kept="no"} 1.0' in lines


def start_job(folder: Path) -> tuple[subprocess.Popen, httpx2.Client]:
    port = find_free_port()
    (folder / "manifest.json").write_text("{}")
    command = [JOB, folder, port, f"feedback.folder={folder / 'kept'}"]
    process = start_server(command, port, env=os.environ | {PERSON_KEY_VARIABLE: KEY.decode()})
    return process, httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)


@pytest.mark.parametrize(
    "kill_after", [0, *(pytest.param(after, marks=pytest.mark.slow) for after in (3, 17))]
)
def test_a_server_that_is_killed_has_every_label_that_it_acknowledged_once(
    tmp_path, draw, kill_after: int
):
    """Four speak at once; the server that is started next takes the others."""
    process, client = start_job(tmp_path)
    names = [ask(client, draw(), {})["answer_id"] for _ in range(2)]

    def speak(number: int) -> int | None:
        with suppress(httpx2.TransportError):
            if number == kill_after:
                process.send_signal(signal.SIGKILL)
            said = say(client, names[number % 2], f"user {number}", "不通过", {})
            assert said.json()["is_new"]
            return number
        return None

    with ThreadPoolExecutor(4) as pool:
        acknowledged = {number for number in pool.map(speak, range(40)) if number is not None}
    process.wait(30)
    process, client = start_job(tmp_path)
    for number in range(40):
        told = say(client, names[number % 2], f"user {number}", "不通过", {})
        assert told.status_code == 200
        if number in acknowledged:
            assert not told.json()["is_new"]
    process.terminate()
    assert process.wait(30) == 0
    store = FeedbackStore(tmp_path / "kept")
    people = sorted(given.person for item in store.list_items() for given in item.labels)
    assert people == sorted(name_person(f"user {number}", KEY) for number in range(40))
    assert store.count_answers() == 2
    store.close()
