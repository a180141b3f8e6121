"""``groupwise learn`` killed at any moment: no label is lost, and the round ends the same."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from said_things import TEACHING, TESTING, Talk, find_settings

from groupwise.core.outputs import digest_files
from groupwise.flow.served import open_served
from groupwise.learning import Loop, begin_loop, read_certificate, verify

FIXTURES = Path(__file__).parents[1] / "fixtures"


def _start(origin: Path, folder: Path) -> "subprocess.Popen[bytes]":
    command = ["learn", origin, "--out", folder / "loop", "--feedback", folder / "kept", "--now"]
    path = os.pathsep.join(filter(None, (str(FIXTURES), os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(
        [sys.executable, "-m", "groupwise.cli", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
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
    assert open_served(killed.folder)[0].version == killed.read_log()[-1].version


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
