"""What is sent slowly, broken off, in heaps or onto a full disk takes nothing from others."""

import contextlib
import errno
import json
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
FORM = {"Content-Type": "multipart/form-data; boundary=x"}


def ask(client: Any, picture: bytes) -> Any:
    files = [("pictures", ("a.jpg", picture))]
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
    disk = tmp_path / "uploads"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    is_root = os.geteuid() == 0 and shutil.which("mount")
    if not is_root or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not allow mounting")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))  # as serve() does
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_uploads_on_a_full_disk_are_refused_and_leave_nothing(
    start, small_disk: Path, draw: Callable[..., bytes]
) -> None:
    client = start()
    spooled = ask(client, draw() + bytes(3 * 2**20))
    stored = client.post(
        "/v1/predict",
        files=[("pictures", (f"{i}.jpg", draw() + bytes(900_000))) for i in range(4)],
        data={"row": json.dumps({"task": "doors"})},
    )
    assert [spooled.status_code, stored.status_code] == [507, 507]
    assert list(small_disk.iterdir()) == []
    assert shutil.disk_usage(small_disk).used == 0
    assert ask(client, draw()).status_code == 200
