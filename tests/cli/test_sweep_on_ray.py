"""A sweep whose cells run on a Ray cluster, and loses a worker."""

import json
import os
import signal
import time

import psutil
import pytest

from groupwise.core import read_jsonl

pytest.importorskip("ray", reason="pip install 'groupwise[ray]'")
pytestmark = pytest.mark.slow

EIGHT = ("sweep", "tiny", "--grid", "factor=1,2", "--seeds", "4", "--out", "grid")
SLOW = ("--set", "writer.rows=4", "--set", "writer.wait_s=0.5")
RAY = ("--ray", "local", "--jobs", "2")
_TIMEOUT_S = 300


def find_worker(driver: int) -> psutil.Process | None:
    """Return a worker of the cluster that runs a cell."""
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if "groupwise.cli run" in " ".join(process.cmdline()):
                return process.parent()
        except psutil.NoSuchProcess:
            continue
    return None


def test_all_cells_finish_though_a_worker_is_killed(tiny) -> None:
    driver = tiny.start(*EIGHT, *SLOW, *RAY)
    cells = tiny.work / "grid" / "cells"
    deadline_s = time.monotonic() + _TIMEOUT_S
    while (
        not any((cell / "audit/step.json").is_file() for cell in cells.glob("*"))
        or (worker := find_worker(driver.pid)) is None
    ):
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    os.kill(worker.pid, signal.SIGKILL)
    stdout, stderr = driver.communicate(timeout=_TIMEOUT_S)
    assert driver.returncode == 0, stderr
    assert stderr.count("its worker was lost (WorkerCrashedError): it is run again") == 1
    assert "grid: 8 cells: 8 done" in stdout
    for cell in cells.iterdir():
        if not cell.name.startswith("."):
            config = json.loads((cell / "manifest.json").read_text())["config"]
            rows = (cell / "write" / "rows.txt").read_text().split()
            assert rows == [str(row * config["factor"]) for row in range(4)]
    # What was done before the worker was killed is not done again.
    steps = [row["step"] for row in read_jsonl(tiny.work / "log.jsonl") if row["state"] == "run"]
    assert steps.count("prepare") == steps.count("audit") == 1


def test_stopping_ends_all_cells(tiny) -> None:
    driver = tiny.start(*EIGHT, "--set", "writer.wait_s=60", *RAY)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not list((tiny.work / "grid" / "cells").glob("*/write/rows.txt")):
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    started = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(signal.SIGTERM)
    _, stderr = driver.communicate(timeout=_TIMEOUT_S)
    assert driver.returncode == 130, stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
    assert tiny.call("sweep", "tiny", "--out", "grid", "--dry-run").stdout.count("8 waiting") == 1


def test_where_nobody_answers_is_one_sentence(tiny) -> None:
    done = tiny.call(*EIGHT, "--ray", "127.0.0.1:9")
    assert done.returncode == 2
    assert "no Ray cluster answers at 127.0.0.1:9" in done.stderr
