"""Answers through replicas of a Ray cluster are the offline ones."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx2
import pytest
import uvicorn
from replica_sources import open_small, write_small

from groupwise.core import join_cluster
from groupwise.flow import answer_requests
from groupwise.serving import Request, ServeSettings
from groupwise.serving.app import build_app
from groupwise.serving.server import make_server_config

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

_FIXTURES = Path(__file__).parents[1] / "fixtures"
NUM_ROWS = 24


def ask(client: httpx2.Client, number: int) -> httpx2.Response:
    row = {"question": f"第{number}个螺栓" + "的力矩" * (number % 5)}
    return client.post("/v1/predict", json={"id": str(number), "row": row})


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A server of two replicas, what it opens, and their cluster."""
    from groupwise.serving.replicas import ReplicatedSource

    # Replicas are other processes, which open what the fixtures have, too.
    monkeypatch.setenv("PYTHONPATH", str(_FIXTURES), prepend=os.pathsep)
    write_small(tmp_path / "policy", seed=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    limits = ServeSettings(port=port, max_batch=8, batch_wait_ms=50)
    (tmp_path / "uploads").mkdir()
    with join_cluster("local", min_cpus=2) as ray:
        import ray.serve

        source = ReplicatedSource(ray, partial(open_small, tmp_path / "policy"), 2)
        app = build_app(source, limits, folder=tmp_path / "uploads")
        server = uvicorn.Server(make_server_config(app, limits))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        wait_for(lambda: client.get("/readyz").status_code == 200)
        yield client, tmp_path / "policy"
        server.should_exit = True
        thread.join(60)


def wait_for(is_true) -> None:
    deadline_s = time.monotonic() + 120
    while True:
        try:
            if is_true():
                return
        except httpx2.TransportError:
            pass
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def answer_offline(policy: Path):
    predictor = open_small(policy).open().predictor
    rows = [{"question": f"第{n}个螺栓" + "的力矩" * (n % 5)} for n in range(NUM_ROWS)]
    return [answer_requests(predictor, [Request(str(n), row)])[0] for n, row in enumerate(rows)]


def test_answers_are_the_offline_ones_and_replicas_are_started_again(served) -> None:
    client, policy = served
    offline = answer_offline(policy)
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(partial(ask, client), range(NUM_ROWS)))
    assert {(reply.status_code, reply.text) for reply in replies if reply.is_error} == set()
    found = [reply.json() for reply in replies]
    assert [one["text"] for one in found] == [one.text for one in offline]
    assert [one["answer"] for one in found] == [one.answer for one in offline]
    assert len({one.text for one in offline}) > 10
    pids = {int(p.read_text()) for p in policy.parent.glob("replica-*")} - {os.getpid()}
    assert len(pids) == 2
    refused = client.post("/v1/predict", json={"id": "1", "row": {"other": "x"}})
    assert refused.status_code == 422
    assert "question" in refused.json()["detail"]
    os.kill(min(pids), signal.SIGKILL)
    wait_for(lambda: len(list(policy.parent.glob("replica-*"))) > len(pids) + 1)
    wait_for(lambda: ask(client, 0).status_code == 200)
    with ThreadPoolExecutor(16) as pool:
        again = [r.json() for r in pool.map(partial(ask, client), range(NUM_ROWS))]
    assert [one["text"] for one in again] == [one.text for one in offline]


def test_a_replica_of_another_version_does_not_answer(served) -> None:
    """As where one is started again after another version was named."""
    client, policy = served
    before = {int(path.read_text()) for path in policy.parent.glob("replica-*")}
    write_small(policy, seed=2)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(list(policy.parent.glob("replica-*"))) >= len(before) + 2)
    wait_for(lambda: "answers as" in ask(client, 0).text or ask(client, 0).status_code == 500)
    assert ask(client, 1).status_code == 500
    assert client.post("/v1/reload").json()["is_new"]
    assert ask(client, 1).json()["text"] == answer_offline(policy)[1].text
