"""A server that is told to stop answers what it has taken, and leaves nothing behind."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_being_answered_is_answered_first(
    number: signal.Signals, tmp_path: Path, draw: Callable[..., bytes]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "manifest.json").write_text("{}")
    process = subprocess.Popen(
        [sys.executable, JOB, tmp_path, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: is_ready(url), process)
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
