"""Connections that give the server nothing to do never keep others from it."""

import contextlib
import gc
import logging
import resource
import socket
import struct
import time
from http.client import HTTPResponse
from typing import Any

import h11
import pytest
from fastapi import FastAPI

from groupwise.serving import ServeSettings
from groupwise.serving.connections import Connection
from groupwise.serving.server import make_server_config

HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
HEAD_OF_CHUNKS = (
    b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
)


@pytest.fixture
def connect() -> Any:
    with contextlib.ExitStack() as stack:

        def connect_one(client: Any, sent: bytes = b"") -> socket.socket:
            address = (client.base_url.host, client.base_url.port)
            opened = stack.enter_context(socket.create_connection(address, timeout=30))
            opened.sendall(sent)
            return opened

        yield connect_one


def read_to_end(opened: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := opened.recv(65536):
            found += piece
    return found


def test_a_connection_is_kept_for_further_requests(start, connect) -> None:
    kept = connect(start(head_timeout_s=1))
    for _ in range(3):
        time.sleep(0.5)
        kept.sendall(HALF_A_HEAD)
        kept.sendall(b"\r\n")
        answer = HTTPResponse(kept)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')


def test_a_new_connection_takes_the_place_of_the_slowest(start, connect) -> None:
    client = start(head_timeout_s=60, max_connections=8)
    slow = [connect(client, HALF_A_HEAD) for _ in range(20)]
    assert client.get("/healthz", timeout=5).status_code == 200
    assert [read_to_end(one) for one in slow[:13]] == [b""] * 13
    slow[-1].sendall(b"\r\n")
    assert slow[-1].recv(65536).startswith(b"HTTP/1.1 200 ")


def test_uploads_make_room_only_after_heads(start, connect) -> None:
    client = start(head_timeout_s=60, max_connections=4)
    expecting = HEAD_OF_CHUNKS.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    upload = connect(client, expecting)
    assert upload.recv(65536).startswith(b"HTTP/1.1 100 ")
    for _ in range(5):
        connect(client, HALF_A_HEAD)
    form = b'--x\r\nContent-Disposition: form-data; name=row\r\n\r\n{"task": "doors"}\r\n--x--\r\n'
    upload.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(form), form))
    assert upload.recv(65536).startswith(b"HTTP/1.1 200 ")
    for _ in range(9):
        connect(client, HEAD_OF_CHUNKS)
    assert client.get("/healthz", timeout=5).status_code == 200


@pytest.mark.parametrize("place", ["head", "trailer"])
def test_a_head_of_too_many_lines_is_refused_before_it_is_parsed(
    start, connect, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    parsed: list[int] = []
    normalize = h11._headers.normalize_and_validate

    def watch(headers: Any, **given: Any) -> Any:
        lines = list(headers)
        parsed.append(len(lines))
        return normalize(lines, **given)

    monkeypatch.setattr(h11._events, "normalize_and_validate", watch)
    client = start(token="a secret of ours")
    head = HALF_A_HEAD if place == "head" else HEAD_OF_CHUNKS + b"0\r\n"
    crumbs = connect(client)
    with contextlib.suppress(ConnectionError):
        crumbs.sendall(head + b"a:b\r\n" * 5000 + b"\r\n")
        read_to_end(crumbs)
    assert max(parsed) < 100
    assert client.get("/healthz", headers={f"x-{i}": "y" for i in range(80)}).status_code == 200


def test_nothing_is_kept_of_connections_that_were_broken_off(start, connect) -> None:
    client = start(head_timeout_s=60)
    broken = [connect(client, HALF_A_HEAD + b"a" * 30_000) for _ in range(20)]
    time.sleep(0.2)
    for one in broken:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    time.sleep(0.2)
    assert client.get("/healthz").status_code == 200
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Connection)]
    assert len(kept) < 20


def test_a_body_that_is_refused_while_it_is_read_is_answered_once(
    start, connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = start()
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            crumbs = connect(client)
            with contextlib.suppress(ConnectionError):
                crumbs.sendall(HEAD_OF_CHUNKS + b"1\r\nx\r\n" * 2000)
                assert read_to_end(crumbs).count(b"HTTP/1.1 400 ") < 2
        assert client.get("/healthz").status_code == 200
    assert caplog.records == []


def test_a_body_in_some_small_chunks_is_taken(start) -> None:
    form = b'--x\r\nContent-Disposition: form-data; name=row\r\n\r\n{"task": "doors"}\r\n--x--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    letters = (form[i : i + 1] for i in range(len(form)))
    assert start().post("/v1/predict", content=letters, headers=kind).status_code == 200


def test_connections_leave_half_of_the_files_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    config = make_server_config(FastAPI(), ServeSettings(max_connections=1000))
    assert asked == [(200, 200)]
    assert (config.limit_concurrency, config.backlog) == (100, 25)
    assert make_server_config(FastAPI(), ServeSettings(max_connections=50)).limit_concurrency == 50
