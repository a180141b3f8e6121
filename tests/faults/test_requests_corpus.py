"""Requests and attacks on the server: each has its answer, and the server goes on for others.

A row is sent as it is (``raw``, then ``drip`` again and again, or ``then`` once after the answer)
and has a list of statuses, none of them where the connection is only closed; or it is a request
with one status; or a form of the page for people (``page``) by somebody who is logged in.
"""

import base64
import contextlib
import io
import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from corpora import read_corpus
from PIL import Image
from stand_in import Person, Shelf, StandIn, serve_in_thread

from groupwise.feedback import FeedbackStore, Shown
from groupwise.serving.feedback import Desk

Row = dict[str, Any]
ROWS = read_corpus("requests")
Served = tuple[httpx2.Client, Person | None, StandIn]
LIMITS = {
    "max_pictures": 2,
    "max_picture_mib": 0.01,
    "max_megapixels": 0.1,
    "max_body_mib": 0.5,
    "max_text_kib": 8,
    "head_timeout_s": 1,
    "read_timeout_s": 1,
}
TOKEN = {"token": "a secret of ours"}
SERVERS: dict[str, Row] = {
    "open": LIMITS,
    "token": {**LIMITS, **TOKEN},
    "page": LIMITS,
    "page_token": {**LIMITS, **TOKEN},
}


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """One server of each kind, and where it has a page somebody who is logged in."""
    folder = tmp_path_factory.mktemp("served")
    uploads = folder / "uploads"
    uploads.mkdir()
    store = FeedbackStore(folder / "kept")
    row = {"task": "doors"}
    store.remember(Shown("a", 0.0, row, "", (), "通过", 0.5, "v1"), ())
    desk = Desk(store, key=b"a secret of the tests") if "page" in request.param else None
    settings = SERVERS[request.param]
    predictor = StandIn()
    with serve_in_thread(Shelf(predictor), uploads, settings, desk=desk, screens=None) as client:
        person = Person(str(client.base_url), "ann", None) if request.param == "page" else None
        yield client, person, predictor
        assert [item for item in store.list_items() if item.labels] == []
        assert list(uploads.iterdir()) == []


CASES = [pytest.param(row["server"], row, id=row["name"]) for row in ROWS]


@pytest.mark.parametrize(("served", "row"), CASES, indirect=["served"])
def test_a_request_is_answered_as_the_corpus_says(
    served: Served, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    client, person, predictor = served
    num_asked = len(predictor.batches)
    logging.getLogger("uvicorn.error").addHandler(caplog.handler)  # they do not reach the root
    started = time.monotonic()
    found, said = send_raw(client, row) if "raw" in row else send(client, person, row)
    assert time.monotonic() - started < row.get("most_s", 5), row["why"]
    if "unmended" in row and found != row["expected"]:
        pytest.xfail(row["unmended"])
    assert found == row["expected"], (row["why"], said)
    assert "unmended" not in row, "it is mended"
    assert row.get("says", "") in said
    is_answered = found == 200 or (isinstance(found, list) and 200 in found)
    assert is_answered or len(predictor.batches) == num_asked, "the policy was asked"
    assert client.get("/healthz", headers={"Connection": "close"}).status_code == 200
    logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


def send_raw(client: httpx2.Client, row: Row) -> tuple[list[int], str]:
    """Send bytes and return the statuses of all that comes until the connection is closed."""
    found, address = b"", (client.base_url.host, client.base_url.port)
    piece = row.get("drip", "").encode("latin-1")
    with socket.create_connection(address, timeout=0.2 if piece else 30) as opened:
        with contextlib.suppress(ConnectionError):
            opened.sendall(join(row["raw"]).encode("latin-1"))
            if "then" in row:
                found = opened.recv(65536)
                opened.sendall(row["then"].encode("latin-1"))
        with contextlib.suppress(ConnectionError):
            for _ in range(60):
                try:
                    received = opened.recv(65536)
                except TimeoutError:
                    opened.sendall(piece)
                    continue
                found += received
                if not received:
                    break
            else:
                raise AssertionError("the connection is kept")
    statuses = [int(answer[:3]) for answer in found.split(b"HTTP/1.1 ")[1:]]
    return statuses, found.decode("latin-1")


def send(client: httpx2.Client, person: Person | None, row: Row) -> tuple[int, str]:
    """Send a request by a client, which opens a connection of its own."""
    headers = {"Connection": "close", **row.get("headers", {})}
    given: dict[str, Any] = {}
    if "body" in row:
        given["content"] = join(row["body"]).encode(row.get("encoding", "utf-8"))
        headers["Content-Type"] = row.get("type", "application/json")
    elif "json" in row:
        given["json"] = row["json"]
        if row.get("is_drawn"):
            drawn = [base64.b64encode(draw(p)).decode() for p in row["json"]["pictures"]]
            given["json"] = {**row["json"], "pictures": drawn}
    elif "pictures" in row:
        files = [("pictures", (f"{n}.jpg", draw(p))) for n, p in enumerate(row["pictures"])]
        fields = {"row": json.dumps(row.get("row", {"task": "doors"})), **row.get("fields", {})}
        given |= {"files": files, "data": fields}
    if "page" in row and "body" not in row:
        assert person is not None
        reply = person.post(row["page"], row.get("headers"), **row.get("form", {}))
    elif "page" in row:
        assert person is not None
        headers["Origin"] = str(person.client.base_url).rstrip("/")
        reply = person.client.post(f"/review/{row['page']}", headers=headers, **given)
    else:
        reply = client.request(row["method"], row["path"], headers=headers, **given)
    assert row.get("lacks", "none such") not in reply.headers
    return reply.status_code, reply.text


def join(body: Any) -> str:
    """Return a text, or the texts and repeated texts of a list behind each other."""
    pieces = [body] if isinstance(body, str) else body
    return "".join(p if isinstance(p, str) else p[0] * p[1] for p in pieces)


def draw(kind: str) -> bytes:
    """Return a picture's file: green, cut off, padded with noise, too wide, or no picture."""
    if kind in ("text", "empty"):
        return b"not a picture" if kind == "text" else b""
    size = {"wide": (500, 400), "cut": (300, 200)}.get(kind, (32, 24))
    buffer = io.BytesIO()
    Image.new("RGB", size, "green").save(buffer, "JPEG")
    content = buffer.getvalue()
    return {"cut": content[:-300], "padded": content + bytes(range(256)) * 80}.get(kind, content)
