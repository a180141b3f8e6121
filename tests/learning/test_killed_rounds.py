"""``groupwise learn`` killed at any moment: no label is lost, and the round ends the same."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
from said_things import KEY, LABELS, TEACHING, TESTING, Talk, find_settings
from waiting import find_free_port, start_server

from groupwise.cli.loop import PERSON_KEY_VARIABLE
from groupwise.core.runs import digest_files
from groupwise.feedback import FeedbackStore, name_person
from groupwise.learning.certificate import read_certificate, verify
from groupwise.learning.loop import Loop, begin_loop
from groupwise.run.predict import find_source, name_version, open_run

FIXTURES = Path(__file__).parents[1] / "fixtures"


def _describe_environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(FIXTURES), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def _start(origin: Path, folder: Path) -> "subprocess.Popen[bytes]":
    command = ["learn", origin, "--out", folder / "loop", "--feedback", folder / "kept", "--now"]
    return subprocess.Popen(
        [sys.executable, "-m", "groupwise.cli", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_describe_environment(),
        start_new_session=True,
    )


def _fill(folder: Path, origin: Path) -> None:
    talk = Talk(folder / "kept")
    talk.fill(TEACHING[:6])
    talk.fill(TESTING[:3], num=2)
    talk.store.close()
    begin_loop(folder / "loop", origin, find_settings())


def _kill_and_go_on(origin: Path, folder: Path, waits: list[float]) -> None:
    """Start the command again after each of its deaths, until it ends; it dies after these."""
    while waits:
        process = _start(origin, folder)
        with suppress(subprocess.TimeoutExpired):
            assert process.wait(timeout=waits[-1]) == 0
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        waits.pop()
    assert _start(origin, folder).wait(timeout=600) == 0


def _check_alike(whole: Loop, killed: Loop) -> None:
    assert [len(loop.rounds) for loop in (whole, killed)] == [1, 1]
    weights = [digest_files(loop.rounds[0] / "grpo" / "policy") for loop in (whole, killed)]
    changed = {name for name in weights[0] if weights[0][name] != weights[1].get(name)}
    assert "adapter_model.safetensors" in weights[0]
    assert changed <= {"adapter_config.json", "README.md"}  # they name the folder of the base
    files = [loop.rounds[0] / "decide" / "certificate.json" for loop in (whole, killed)]
    found = [read_certificate(file) for file in files]
    assert found[0].promotion == found[1].promotion
    assert found[0].labels == found[1].labels
    talk = Talk(killed.folder.parent / "kept")
    assert len(talk.store.list_items()) == 12
    checked = verify(files[1], talk.store)
    assert (checked.problems, checked.num_withdrawn) == ((), 0)
    assert find_source(killed.folder, None).open().version == killed.read_log()[-1].version


@pytest.mark.slow
def test_a_round_killed_at_ten_moments_ends_with_the_same_weights(
    origin: Path, tmp_path: Path
) -> None:
    """Each time the same command goes on; what was not killed is the reference.

    Moments are shares of the time that the reference took. A round that ends before all ten have
    come is compared with it, and the next one is killed at the others.
    """
    _fill(tmp_path / "whole", origin)
    start_s = time.monotonic()
    assert _start(origin, tmp_path / "whole").wait(timeout=600) == 0
    seconds, rng = time.monotonic() - start_s, random.Random(0)
    waits = [seconds * rng.uniform(0.2, 0.9) for _ in range(10)]
    while waits:
        folder = tmp_path / f"killed-{len(waits)}"
        _fill(folder, origin)
        _kill_and_go_on(origin, folder, waits)
        _check_alike(Loop(tmp_path / "whole" / "loop"), Loop(folder / "loop"))


NUM_KILLS, NUM_SPEAKERS = 10, 12


class Killed:
    """A server of a loop that is started, asked and killed."""

    def __init__(self, loop: Loop, kept: Path) -> None:
        self.loop, self._kept = loop, kept
        self.said: dict[str, str] = {}
        """People whose label was acknowledged, and the answer that they spoke of."""
        self.wrong: list[str] = []

    def start(self) -> None:
        port = find_free_port()
        settings = [f"port={port}", f"feedback.folder={self._kept}"]
        given = [part for one in settings for part in ("--set", one)]
        self._process = start_server(
            ["-m", "groupwise.cli", "serve", self.loop.folder, *given],
            port,
            stdout=subprocess.DEVNULL,
            env=_describe_environment(**{PERSON_KEY_VARIABLE: KEY.decode()}),
        )
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def kill(self) -> None:
        """Give it no time to do anything; again changes nothing."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(60) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def swap(self, run: str, policy: str, version: str) -> None:
        """Promote another version, and tell the server, if it is there."""
        self.loop.record("promoted", run, policy, version)
        with suppress(httpx2.TransportError):
            self.client.post("/v1/reload")

    def speak(self, person: str, known: set[str]) -> None:
        """Ask something and correct the answer, or not, if it is killed meanwhile."""
        row = {"question": f"送检螺栓{person}的力矩是7，合格还是不合格？", "session": person}
        with suppress(httpx2.TransportError):
            told = self.client.post("/v1/predict", json={"row": row}).json()
            if told["model"] not in known:
                self.wrong.append(told["model"])
            answer = told["answer_id"]
            body = {"answer_id": answer, "user": person, "label": LABELS[1]}
            if self.client.post("/v1/feedback", json=body).status_code == 200:
                self.said[person] = answer


@pytest.mark.slow
def test_a_server_killed_at_ten_moments_serves_what_was_promoted_and_has_every_label(
    origin: Path, tmp_path: Path
) -> None:
    run = open_run(origin)
    versions = {name: name_version(run.open_predictor(name)) for name in ("sft", "grpo")}
    loop = begin_loop(tmp_path / "loop", origin, find_settings())
    rng = random.Random(0)
    with Killed(loop, tmp_path / "kept") as server:
        for moment in range(NUM_KILLS):
            server.start()
            served = loop.read_log()[-1]
            assert server.client.get("/v1/model").json()["version"] == served.version
            other = "sft" if served.policy == "grpo" else "grpo"
            killer = threading.Timer(rng.uniform(0, 0.5), server.kill)
            killer.start()
            with ThreadPoolExecutor(5) as pool:
                people = [f"{moment}-{number}" for number in range(NUM_SPEAKERS)]
                tasks: list[Any] = [
                    pool.submit(server.speak, one, set(versions.values())) for one in people
                ]
                tasks.insert(1, pool.submit(server.swap, served.run, other, versions[other]))
                for task in tasks:
                    task.result()
            killer.join()
        server.start()
        last = loop.read_log()[-1]
        assert server.client.get("/v1/model").json()["version"] == last.version
        assert len(loop.read_log()) == NUM_KILLS + 1
        for person, answer in server.said.items():
            body = {"answer_id": answer, "user": person, "label": LABELS[1]}
            assert not server.client.post("/v1/feedback", json=body).json()["is_new"]
        server.stop()
    assert server.wrong == []
    store = FeedbackStore(tmp_path / "kept")
    items = {item.shown.id: [given.person for given in item.labels] for item in store.list_items()}
    store.close()
    assert server.said
    assert all(
        items[answer] == [name_person(person, KEY)] for person, answer in server.said.items()
    )
    assert all(len(people) == 1 for people in items.values())
