"""``groupwise learn`` killed at any moment: no label is lost, and the round ends the same."""

import os
import random
import signal
import subprocess
import sys
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


@pytest.mark.slow
def test_a_round_killed_at_ten_moments_ends_with_the_same_weights(
    origin: Path, tmp_path: Path
) -> None:
    """Each time the same command goes on; what was not killed is the reference."""
    for name in ("whole", "killed"):
        _fill(tmp_path / name, origin)
    whole = _start(origin, tmp_path / "whole")
    assert whole.wait(timeout=600) == 0
    rng, num_killed = random.Random(0), 0
    while num_killed < 10:
        process = _start(origin, tmp_path / "killed")
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=rng.uniform(1, 12))
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        num_killed += 1
    assert num_killed >= 3
    process = _start(origin, tmp_path / "killed")
    assert process.wait(timeout=600) == 0
    loops = [Loop(tmp_path / name / "loop") for name in ("whole", "killed")]
    assert [len(loop.rounds) for loop in loops] == [1, 1]
    weights = [digest_files(loop.rounds[0] / "grpo" / "policy") for loop in loops]
    changed = {name for name in weights[0] if weights[0][name] != weights[1].get(name)}
    assert "adapter_model.safetensors" in weights[0]
    assert changed <= {"adapter_config.json", "README.md"}  # they name the folder of the base
    found = [read_certificate(loop.rounds[0] / "decide" / "certificate.json") for loop in loops]
    assert found[0].promotion == found[1].promotion
    assert found[0].labels == found[1].labels
    talk = Talk(tmp_path / "killed" / "kept")
    assert len(talk.store.list_items()) == 12
    checked = verify(loops[1].rounds[0] / "decide" / "certificate.json", talk.store)
    assert (checked.problems, checked.num_withdrawn) == ((), 0)
    assert open_served(loops[1].folder)[0].version == loops[1].read_log()[-1].version
