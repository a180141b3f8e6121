"""The cache of judges, also with real processes, one of which is killed while it writes."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from groupwise.core import JudgeError
from groupwise.judges import ReplyCache

# Eight processes with one import: the first is killed, the others write so many replies each.
WRITERS = """
import os
import sys
import time
from pathlib import Path
from groupwise.judges import ReplyCache

path, logs, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])


def write(name):
    cache = ReplyCache(path)
    with (logs / name).open("w", buffering=1) as log:
        number = 0
        while name == "killed" or number < count:
            own, shared = f"{name}-{number}", f"shared-{number % 50}"
            for key in (own, shared):
                found = cache.get(key)
                assert found is None or found == {"text": key * 20}, found
                cache.put(key, {"text": key * 20})
                assert cache.get(key) == {"text": key * 20}
            log.write(own + chr(10))
            number += 1


children = {}
for name in ("killed", *(f"writer{number}" for number in range(7))):
    child = os.fork()
    if child == 0:
        try:
            write(name)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    children[child] = name
    if name == "killed":
        print(child, flush=True)
for child in children:
    _, status = os.waitpid(child, 0)
    print(children[child], os.waitstatus_to_exitcode(status), flush=True)
"""


def check_file(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        query = "SELECT (SELECT num_bytes FROM total), (SELECT sum(num_bytes) FROM replies)"
        kept, counted = connection.execute(query).fetchone()
        assert kept == counted


def test_what_is_put_is_got(tmp_path):
    cache = ReplyCache(tmp_path / "deep" / "cache.sqlite")
    assert cache.hit_rate is None
    assert cache.get("a") is None
    cache.put("a", {"text": "是", "shares": [0.25, 0.75]})
    cache.put("a", {"text": "other"})
    assert cache.get("a") == {"text": "是", "shares": [0.25, 0.75]}
    assert cache.hit_rate == 0.5
    cache.close()
    assert ReplyCache(cache.path).get("a") is not None


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    now = [0.0]
    cache = ReplyCache(tmp_path / "cache", max_mib=100 * 110 / 2**20, clock=lambda: now[0])
    for number in range(100):
        now[0] += 1000
        cache.put(f"{number:010}", {"text": "x" * 88})
        cache.get("0000000000")
    assert cache.measure()[0] == 100
    cache.put("new", {"text": "x" * 88})
    num_replies, num_bytes = cache.measure()
    assert num_bytes <= 0.9 * 100 * 110
    assert 85 <= num_replies <= 90
    assert cache.get("0000000000") is not None
    assert cache.get("0000000001") is None
    assert cache.get("0000000099") is not None
    check_file(cache.path)


def test_a_file_that_is_no_cache_is_named(tmp_path):
    path = tmp_path / "cache"
    path.write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(JudgeError, match="cache cannot be used"):
        ReplyCache(path)
    with pytest.raises(JudgeError, match="cannot be used"):
        ReplyCache(tmp_path)


def wait_for(path: Path, num_lines: int) -> None:
    for _ in range(6000):
        if path.is_file() and path.read_text().count("\n") >= num_lines:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} has too few lines")


def test_eight_processes_lose_nothing_though_one_is_killed(tmp_path):
    path, logs = tmp_path / "cache", tmp_path / "logs"
    logs.mkdir()
    command = [sys.executable, "-c", WRITERS, str(path), str(logs), "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writers:
        killed = int(writers.stdout.readline())
        wait_for(logs / "killed", 30)
        os.kill(killed, signal.SIGKILL)
        ended = dict(line.split() for line in writers.stdout.read().splitlines())
    expected = {f"writer{number}": "0" for number in range(7)}
    assert ended == {"killed": str(-signal.SIGKILL), **expected}
    written = [key for log in logs.iterdir() for key in log.read_text().split("\n")[:-1]]
    assert len(written) >= 7 * 100 + 30
    cache = ReplyCache(path)
    lost = [key for key in written if cache.get(key) != {"text": key * 20}]
    assert lost == []
    check_file(path)


def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path):
    for number in range(20):
        children: list[int] = []
        begin = time.time() + 0.02
        for _ in range(8):
            child = os.fork()
            if child == 0:
                while time.time() < begin:
                    pass
                try:
                    ReplyCache(tmp_path / str(number)).put("a", {"n": 1})
                except JudgeError:
                    os._exit(1)
                os._exit(0)
            children.append(child)
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert ended == [0] * 8


def test_a_forked_process_has_a_connection_of_its_own(tmp_path):
    cache = ReplyCache(tmp_path / "cache")
    cache.put("a", {"n": 1})
    own = cache._connection
    child = os.fork()
    if child == 0:
        is_good = cache.get("a") == {"n": 1} and not cache.put("b", {"n": 2})
        os._exit(0 if is_good and cache._connection is not own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.get("b") == {"n": 2}
