"""A job that is killed or interrupted goes on where it was; its file is that of a whole run."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest
import stream_job
from streams import draw

from groupwise.core import ResultFile, read_jsonl


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number in range(9):
        draw(folder / f"照片 {number}.png", (60 + 31 * number, 200 - 17 * number), number)
    content = draw(folder / "whole.jpg", (300, 200)).read_bytes()
    (folder / "torn.jpg").write_bytes(content[:1500])
    return folder


@pytest.fixture(scope="module")
def whole(taught_folder, photos, tmp_path_factory):
    """The file of a job that nobody stopped."""
    out = tmp_path_factory.mktemp("whole") / "whole.jsonl"
    stream_job.answer(taught_folder, photos, out)
    return out


def start(policy, photos, out):
    command = [sys.executable, stream_job.__file__, str(policy), str(photos), str(out)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_rows(out, count):
    while not out.is_file() or out.read_bytes().count(b"\n") < count:
        time.sleep(0.005)


def test_a_whole_run_has_every_group_once(whole):
    rows = read_jsonl(whole)
    assert [row["group_id"] for row in rows] == [f"QC-{n:03d}" for n in range(40)]
    failed = [row["group_id"] for row in rows if "failed" in row]
    assert failed == [f"QC-{n:03d}" for n in range(3, 40, 7)]
    assert [len(row["texts"]) for row in rows if "texts" in row][:5] == [0, 1, 2, 4, 0]
    assert len({text for row in rows for text in row.get("texts", [])}) > 1


@pytest.mark.parametrize("num_kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_again_and_again_the_file_is_that_of_a_whole_run(
    taught_folder, photos, whole, tmp_path, num_kills
):
    out, chance, num_killed = tmp_path / "out.jsonl", random.Random(6), 0
    for part in range(num_kills):
        with start(taught_folder, photos, out) as job:
            job.stdout.readline()
            wait_for_rows(out, 30 * part // num_kills + chance.randrange(1, 4))
            job.kill()
            num_killed += job.wait(60) == -signal.SIGKILL
        for row in read_jsonl(out):
            assert row in read_jsonl(whole)
    assert num_killed == num_kills
    stream_job.answer(taught_folder, photos, out)
    assert read_rows(out) == read_rows(whole)
    assert len(read_jsonl(out)) == 40


def test_ctrl_c_ends_the_job_at_once_and_loses_nothing(taught_folder, photos, whole, tmp_path):
    out = tmp_path / "out.jsonl"
    with start(taught_folder, photos, out) as job:
        job.stdout.readline()
        wait_for_rows(out, 5)
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "KeyboardInterrupt" in errors
    with ResultFile(out) as results:
        assert 5 <= len(results.finished | results.failed) < 40
    assert read_rows(out).items() <= read_rows(whole).items()


def read_rows(path):
    return {row["group_id"]: json.dumps(row, sort_keys=True) for row in read_jsonl(path)}
