"""A server that is told to stop answers what it has taken, and leaves nothing behind."""

import io
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
from PIL import Image

JOB = Path(__file__).parents[1] / "fixtures" / "serving_job.py"


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen) -> None:
    for _ in range(6000):
        if is_so():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("it never came")


def is_ready(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/readyz").status_code == 200
    return False


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen, int]]]:
    """Start a server in a process of its own and return it with its port when it is ready."""
    with ExitStack() as stack:

        def start_one(*settings: str) -> tuple[subprocess.Popen, int]:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            (tmp_path / "manifest.json").write_text("{}")
            process = subprocess.Popen(
                [sys.executable, JOB, tmp_path, str(port), *settings],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
            stack.callback(process.kill)
            wait_for(lambda: is_ready(f"http://127.0.0.1:{port}"), process)
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
        wait_for((tmp_path / "answering").exists, process)
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
