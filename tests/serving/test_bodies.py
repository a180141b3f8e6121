"""What is sent slowly, broken off, in heaps or onto a full disk takes nothing from others."""

import base64
import contextlib
import errno
import gc
import json
import logging
import os
import resource
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import h11
import httpx2
import pytest
from damaged_pictures import damage_picture
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_disk import mount_small_disk

from groupwise.core import open_picture
from groupwise.serving import ServeSettings, uploads
from groupwise.serving.connections import Connection
from groupwise.serving.server import make_server_config

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
FORM = {"Content-Type": "multipart/form-data; boundary=x"}


def ask(client: Any, *pictures: bytes) -> Any:
    files = [("pictures", (f"{place}.jpg", one)) for place, one in enumerate(pictures)]
    return client.post("/v1/predict", files=files, data={"row": '{"task": "doors"}'})


@pytest.fixture
def upload() -> Iterator[Callable[..., socket.socket]]:
    """Begin an upload of a form and send some of it."""
    with contextlib.ExitStack() as stack:

        def upload_some(client: Any, sent: bytes = b"", kind: str = FORM["Content-Type"]) -> Any:
            address = (client.base_url.host, client.base_url.port)
            opened = stack.enter_context(socket.create_connection(address, timeout=30))
            fields = f"Content-Type: {kind}\r\nContent-Length: 1000000\r\n\r\n"
            opened.sendall(HEAD + fields.encode())
            assert opened.recv(1000).startswith(b"HTTP/1.1 100 ")
            opened.sendall(sent)
            return opened

        yield upload_some


def test_uploads_take_no_place_before_they_are_there(start, upload, draw) -> None:
    client = start(max_waiting=1)
    for _ in range(3):
        upload(client, b"--x\r\n")
    assert ask(client, draw()).status_code == 200


@pytest.mark.parametrize("kind", [FORM["Content-Type"], "application/json"])
def test_the_largest_upload_is_given_up_for_others(start, upload, draw, kind: str) -> None:
    client = start(max_held_mib=0.5)
    small = upload(client, b"--x\r\n", kind)
    large = upload(client, bytes(400_000) if kind == "application/json" else b"", kind)
    if kind != "application/json":
        large.sendall(b'--x\r\nContent-Disposition: form-data; name="pictures"; filename=a\r\n\r\n')
        large.sendall(bytes(400_000))
    time.sleep(0.2)
    assert ask(client, draw() + bytes(200_000)).status_code == 200
    assert b" 429 " in large.recv(1000).splitlines()[0]
    small.settimeout(0.2)
    with pytest.raises(TimeoutError):
        small.recv(1000)
    for _ in range(5):  # what was held is given back
        assert ask(client, draw() + bytes(200_000)).status_code == 200


@pytest.mark.parametrize("kind", [FORM["Content-Type"], "application/json"])
def test_an_upload_that_breaks_off_is_no_error(start, upload, draw, caplog, kind: str) -> None:
    client = start(max_waiting=1)
    with caplog.at_level(logging.ERROR):
        upload(client, b"--x\r\n", kind).close()
        time.sleep(0.2)
        assert ask(client, draw()).status_code == 200
    assert caplog.records == []


def test_of_many_wrong_fields_the_first_are_named(start) -> None:
    body = {f"field{number}": 1 for number in range(1000)}
    detail = start().post("/v1/predict", json=body).json()["detail"]
    assert detail.startswith("field0: extra inputs are not permitted; field1: ")
    assert detail.endswith("; and 990 more")


def test_json_is_held_in_memory_and_has_a_limit_of_its_own(start, draw) -> None:
    client = start(max_json_mib=0.01)
    answer = client.post("/v1/predict", json={"row": {"task": "x" * 20_000}})
    assert answer.status_code == 413
    assert "larger than 0.01 MiB" in answer.json()["detail"]
    assert ask(client, draw() + bytes(20_000)).status_code == 200


def test_texts_are_cut_into_tokens_only_up_to_a_length(start, predictor, draw) -> None:
    client = start(max_text_kib=1)
    row = {"task": "doors", "note": "长" * 400}
    answers = [
        client.post("/v1/predict", json={"row": row}),
        client.post("/v1/predict", files={"pictures": draw()}, data={"row": json.dumps(row)}),
    ]
    assert [answer.status_code for answer in answers] == [413] * 2
    assert all("text of the request is larger than 1 KiB" in answer.text for answer in answers)
    assert predictor.batches == []
    assert ask(client, draw() + bytes(2000)).status_code == 200  # pictures do not count


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told(start, predictor, monkeypatch, number: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    client = start()
    body = {"row": {"task": "doors"}}
    with monkeypatch.context() as patch:
        patch.setattr("groupwise.serving.uploads.tempfile.mkdtemp", fail)
        answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 507
    assert "the server's disk is full" in answer.text
    assert client.post("/v1/predict", json=body).status_code == 200


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 2 MiB for uploads."""
    with mount_small_disk(tmp_path / "uploads", size_kib=2048) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))  # as serve() does
        yield disk.folder


def test_uploads_on_a_full_disk_are_refused_and_leave_nothing(
    start, small_disk: Path, draw: Callable[..., bytes]
) -> None:
    client = start()
    spooled = ask(client, draw() + bytes(3 * 2**20))
    stored = ask(client, *[draw() + bytes(900_000)] * 4)
    assert [spooled.status_code, stored.status_code] == [507, 507]
    assert list(small_disk.iterdir()) == []
    assert shutil.disk_usage(small_disk).used == 0
    assert ask(client, draw()).status_code == 200


ROW = b'--x\r\nContent-Disposition: form-data; name=row\r\n\r\n{"task": "doors"}\r\n--x--\r\n'
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
    upload.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(ROW), ROW))
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


def test_a_body_in_some_small_chunks_is_taken(start) -> None:
    letters = (ROW[i : i + 1] for i in range(len(ROW)))
    assert start().post("/v1/predict", content=letters, headers=FORM).status_code == 200


def test_connections_leave_half_of_the_files_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    config = make_server_config(FastAPI(), ServeSettings(max_connections=1000))
    assert asked == [(200, 200)]
    assert (config.limit_concurrency, config.backlog) == (100, 25)
    assert make_server_config(FastAPI(), ServeSettings(max_connections=50)).limit_concurrency == 50


ODD = st.binary(max_size=8) | st.sampled_from(
    [b"\r\n", b"--x", b"--x--\r\n", b"\0", b"\xff", b"%00", b"\xed\xa0\x80", b"]" * 300, b"1e999"]
)
PICTURES = st.integers(0, 2**32).map(damage_picture)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
ROWS = st.fixed_dictionaries({"task": st.just("doors") | JSON}) | JSON
HELD = PICTURES.map(lambda content: base64.b64encode(content).decode()) | st.text(max_size=8)
BODIES = st.fixed_dictionaries(
    {}, optional={"id": st.text() | JSON, "row": ROWS, "pictures": st.lists(HELD) | JSON}
)
KINDS = st.sampled_from(
    [
        "application/json",
        "multipart/form-data; boundary=x",
        "multipart/form-data; boundary=x; charset=utf-7",
        "multipart/form-data",
        'multipart/form-data; boundary="',
        "text/plain",
        "",
    ]
)
KNOWN = {200, 400, 404, 413, 415, 422, 429}


@st.composite
def forms(draw: Any) -> bytes:
    """Draw a form in which much may be wrong."""
    names = st.sampled_from(
        [b"name=row", b"name=id", b'name="pictures"; filename="a"', b"name", b""]
    )
    parts = [
        b"--x\r\nContent-Disposition: form-data; %b%b\r\n\r\n%b\r\n"
        % (draw(names), draw(ODD) * draw(st.booleans()), content)
        for content in draw(st.lists(PICTURES | ODD | ROWS.map(write_json), max_size=4))
    ]
    return b"".join(parts) + b"--x--\r\n"


def write_json(value: object) -> bytes:
    return json.dumps(value).encode()


@st.composite
def bodies(draw: Any) -> tuple[str, bytes]:
    """Draw a content type and a body that nearly fit each other."""
    kind = draw(KINDS)
    body = draw(forms() if "form" in kind else BODIES.map(write_json))
    for odd in draw(st.lists(ODD, max_size=2)):
        place = draw(st.integers(0, len(body)))
        body = body[:place] + odd + body[place + draw(st.integers(0, 4)) :]
    return kind, body


@pytest.fixture
def client(start: Callable[..., httpx2.Client]) -> httpx2.Client:
    return start()


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(sent=bodies())
def test_no_body_breaks_the_server(client, sent: tuple[str, bytes]) -> None:
    kind, body = sent
    answer = client.post("/v1/predict", content=body, headers={"Content-Type": kind})
    assert answer.status_code in KNOWN, answer.text
    assert isinstance(answer.json(), dict)
    assert client.get("/healthz").status_code == 200


@pytest.fixture
def decoding(monkeypatch):
    """Watch what is decoded on arrival; large pictures wait for an event."""
    monkeypatch.setattr(uploads, "LARGE_PIXELS", 10_000)
    seen, may_go_on, is_waiting = [], threading.Event(), threading.Semaphore(0)

    def watch(path):
        picture = open_picture(path)
        seen.append(picture.size)
        if picture.width * picture.height > 10_000:
            is_waiting.release()
            assert may_go_on.wait(timeout=30)
        return picture

    monkeypatch.setattr(uploads, "open_picture", watch)
    yield seen, may_go_on, is_waiting
    may_go_on.set()


def test_too_many_pixels_together_are_refused_before_any_is_decoded(start, draw, decoding):
    client = start(max_request_megapixels=0.03)
    answer = ask(client, *[draw(size=(100, 99))] * 4)
    assert answer.status_code == 413
    assert (
        answer.json()["detail"] == "the pictures have 0 megapixels together; at most 0.03 are taken"
    )
    assert decoding[0] == []
    assert ask(client, *[draw(size=(100, 99))] * 3).status_code == 200


def test_pixels_of_all_requests_together_are_limited(start, draw, decoding, tmp_path):
    _, may_go_on, is_waiting = decoding
    client = start(max_held_megapixels=0.03)
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(ask, client, draw(size=(200, 140)))
        assert is_waiting.acquire(timeout=30)
        refused = ask(client, draw(size=(100, 99)))
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert ask(client, draw()).status_code == 200  # small enough
        may_go_on.set()
        assert large.result().status_code == 200
    assert ask(client, draw(size=(200, 160))).status_code == 200  # alone: within its own limit
    assert list((tmp_path / "uploads").iterdir()) == []


def test_small_pictures_do_not_wait_for_large_ones(start, draw, decoding):
    _, may_go_on, is_waiting = decoding
    client = start()
    with ThreadPoolExecutor(4) as pool:
        large = [pool.submit(ask, client, *[draw(size=(200, 140))] * 2) for _ in range(4)]
        assert is_waiting.acquire(timeout=30)
        assert ask(client, draw()).json()["answer"] == "通过"
        assert not any(one.done() for one in large)
        may_go_on.set()
        assert {one.result().status_code for one in large} == {200}
