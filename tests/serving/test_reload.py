"""Another version takes the place of the served one, and no question notices."""

import gc
import io
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from PIL import Image
from waiting import find_free_port, is_ready, start_server, wait_until

from groupwise.core import DataError, RunError
from groupwise.serving import Answer
from groupwise.serving.feedback import Desk


class Named:
    """Answers with its own name, to the questions that it made itself."""

    labels = ("通过", "不通过")

    def __init__(self, name, delay_s=0.0):
        self.name, self.delay_s = name, delay_s
        self.is_busy = threading.Event()

    def describe(self):
        return {"name": self.name}

    def make_question(self, request, folder):
        return self.name

    def answer(self, questions):
        self.is_busy.set()
        time.sleep(self.delay_s)
        return [Answer(f"{self.name} asked {one}", "通过", confidence=0.9) for one in questions]


@pytest.fixture
def named(shelf):
    shelf.predictors = {name: Named(name) for name in ("v1", "v2", "v3")}
    return shelf


def ask(client):
    return client.post("/v1/predict", json={"row": {"task": "doors"}}).json()


def test_a_reload_serves_what_is_named_then_and_opens_nothing_twice(start, named):
    client = start()
    assert ask(client)["model"] == "v1"
    named.version = "v2"
    assert ask(client)["model"] == "v1"
    assert client.post("/v1/reload").json() == {"version": "v2", "is_new": True}
    found = ask(client)
    assert (found["model"], found["text"]) == ("v2", "v2 asked v2")
    assert client.get("/v1/model").json()["name"] == "v2"
    metrics = client.get("/metrics").text
    assert 'groupwise_served_version{version="v2"} 1.0' in metrics
    assert 'version="v1"' not in metrics
    assert 'groupwise_reloads_total{outcome="new"} 1.0' in metrics
    named.problem = AssertionError("opened")
    assert client.post("/v1/reload").json() == {"version": "v2", "is_new": False}


@pytest.mark.parametrize(
    ("problem", "status", "words"),
    [
        (RunError("the run is not the one that is named"), 409, "is not the one that is named"),
        (DataError("served.json is damaged"), 409, "served.json is damaged"),
        (ZeroDivisionError("secret of the server"), 500, "broke when it was opened (ZeroDivision"),
    ],
)
def test_a_version_that_cannot_be_opened_leaves_the_old_one(start, named, problem, status, words):
    client = start()
    named.version, named.problem = "v2", problem
    refused = client.post("/v1/reload")
    assert refused.status_code == status
    assert words in refused.json()["detail"]
    assert "secret" not in refused.text
    assert ask(client)["model"] == "v1"
    assert client.get("/readyz").status_code == 200
    assert 'groupwise_reloads_total{outcome="refused"} 1.0' in client.get("/metrics").text
    named.problem = None
    assert client.post("/v1/reload").json()["is_new"]


def test_a_version_with_other_labels_is_refused(start, named):
    client = start()
    named.version = "v2"
    named.predictors["v2"].labels = ("yes", "no")
    refused = client.post("/v1/reload")
    assert (refused.status_code, "other labels" in refused.json()["detail"]) == (409, True)
    assert ask(client)["model"] == "v1"


def test_the_old_version_answers_while_the_new_one_is_opened(start, named):
    client = start()
    named.version, named.delay_s = "v2", 1.0
    with ThreadPoolExecutor(1) as pool:
        reload = pool.submit(client.post, "/v1/reload")
        seen = []
        while not reload.done():
            seen.append(ask(client)["model"])
        assert reload.result().json()["is_new"]
    assert len(seen) > 3
    assert seen[0] == "v1"
    assert seen == sorted(seen)
    assert ask(client)["model"] == "v2"


def test_a_question_is_answered_by_the_version_that_made_it_and_then_it_is_let_go(start, named):
    old = named.predictors["v1"]
    old.delay_s = 1.0
    client = start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, client)
        assert old.is_busy.wait(20)
        named.version = "v2"
        assert client.post("/v1/reload").json()["is_new"]
        assert ask(client)["model"] == "v2"
        assert not waiting.done()
        found = waiting.result()
    assert (found["model"], found["text"]) == ("v1", "v1 asked v1")
    is_gone = weakref.ref(old)
    del old, named.predictors["v1"]

    def has_gone():
        gc.collect()
        return is_gone() is None

    wait_until(has_gone)
    assert sum(one.name.startswith("predictor") for one in threading.enumerate()) == 1


def test_many_swaps_under_load_drop_and_mix_nothing(start, named):
    client = start(max_batch=4, max_waiting=1000)
    for one in named.predictors.values():
        one.delay_s = 0.02
    with ThreadPoolExecutor(17) as pool:
        asked = [pool.submit(ask, client) for _ in range(300)]
        for name in ("v2", "v3", "v1", "v2"):
            time.sleep(0.1)
            named.version = name
            assert client.post("/v1/reload").json() == {"version": name, "is_new": True}
        found = [one.result() for one in asked]
    assert all(one["text"] == f"{one['model']} asked {one['model']}" for one in found)
    assert {one["model"] for one in found} >= {"v1", "v2"}


def test_two_reloads_at_once_swap_once(start, named):
    client = start()
    named.version, named.delay_s = "v2", 0.3
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: client.post("/v1/reload").json(), range(2)))
    assert sorted(one["is_new"] for one in found) == [False, True]


def test_feedback_on_an_answer_of_the_version_before_keeps_that_version(start, named, store):
    client = start(desk=Desk(store, key=b"a secret of the tests"))
    old = ask(client)["answer_id"]
    named.version = "v2"
    client.post("/v1/reload")
    new = ask(client)["answer_id"]
    for name in (old, new):
        body = {"answer_id": name, "user": "ann", "label": "不通过"}
        told = client.post("/v1/feedback", json=body).json()
        assert (told["is_new"], told["is_correction"]) == (True, True)
    items = {item.shown.id: item for item in store.list_items()}
    assert {name: items[name].shown.version for name in items} == {old: "v1", new: "v2"}
    assert [items[name].shown.decided_by for name in (old, new)] == ["policy", "policy"]
    assert "groupwise_corrections_total 2.0" in client.get("/metrics").text


JOB = Path(__file__).parents[1] / "fixtures" / "serving_job.py"


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen, int]]]:
    """Start a server in a process of its own and return it with its port when it is ready."""
    with ExitStack() as stack:

        def start_one(*settings: str) -> tuple[subprocess.Popen, int]:
            port = find_free_port()
            (tmp_path / "manifest.json").write_text("{}")
            process = start_server(
                [JOB, tmp_path, port, *settings],
                port,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
            stack.callback(process.kill)
            return process, port

        yield start_one


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_what_is_being_answered_is_answered_first(
    number: signal.Signals, tmp_path: Path, draw: Callable[..., bytes], start_job
) -> None:
    process, port = start_job()
    url = f"http://127.0.0.1:{port}"
    with ThreadPoolExecutor(1) as pool:
        files = [("pictures", ("a.jpg", draw()))]
        asked = pool.submit(
            httpx2.post, f"{url}/v1/predict", files=files, data={"row": "{}"}, timeout=60
        )
        wait_until((tmp_path / "answering").exists)
        process.send_signal(number)
        answer = asked.result()
    assert (answer.status_code, answer.json()["answer"]) == (200, "通过")
    said, complaints = process.communicate(timeout=60)
    assert process.returncode == 0, complaints
    assert said.endswith("\nstopped\n")
    assert complaints == ""
    assert list((tmp_path / "serving").iterdir()) == []
    assert not is_ready(url)


@pytest.mark.slow
def test_large_pictures_do_not_fill_the_log(start_job) -> None:
    process, port = start_job()
    stream = io.BytesIO()
    Image.new("1", (9900, 9900)).save(stream, "PNG")
    files = [("pictures", ("a.png", stream.getvalue()))]
    url = f"http://127.0.0.1:{port}/v1/predict"
    assert httpx2.post(url, files=files, data={"row": "{}"}, timeout=60).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[1] == ""


@pytest.mark.slow
def test_slow_askers_do_not_keep_a_server_from_stopping(tmp_path: Path, start_job) -> None:
    process, port = start_job("stop_timeout_s=1", "read_timeout_s=600", "head_timeout_s=600")
    upload = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    upload += b"Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for _ in range(3)
        ]
        for one, sent in zip(slow, (b"", b"GET /healthz HTTP/1.1\r\n", upload), strict=True):
            one.sendall(sent)
        assert slow[-1].recv(1000).startswith(b"HTTP/1.1 100 ")
        process.send_signal(signal.SIGTERM)
        assert [one.recv(1000)[:13] for one in slow] == [b"", b"", b"HTTP/1.1 503 "]
    said, complaints = process.communicate(timeout=60)
    assert (process.returncode, said.endswith("\nstopped\n")) == (0, True)
    assert "Traceback" not in complaints
    assert list((tmp_path / "serving").iterdir()) == []
