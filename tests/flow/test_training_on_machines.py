"""Two machines train, bit for bit, what two processes of one train; here each is a command."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from together_runs import Run, is_alive, measure_difference, wait_for

from groupwise.core import read_json

pytestmark = pytest.mark.slow

TWO = ("--set", "compute.nodes=2")


@dataclass
class Machines:
    """Two machines: the network that they have, and what stands before a command on each."""

    address: str
    before: Sequence[Sequence[str]]

    def start(
        self, run: Run, *more: str, each: Sequence[Sequence[str]] = ((), ()), **environ: str
    ) -> list[subprocess.Popen[str]]:
        """Start the command on both; ``each`` are further words for one of them."""
        given = {"MASTER_ADDR": self.address, **environ}
        return [
            run.start(2, *TWO, *more, *each[rank], before=before, NODE_RANK=str(rank), **given)
            for rank, before in enumerate(self.before)
        ]

    def finish(self, run: Run, *more: str, **environ: str) -> list[str]:
        """Return what both said of a run that has ended well."""
        started = self.start(run, *more, **environ)
        try:
            said = [one.communicate()[1] for one in started]
        finally:
            end(started)
        assert [one.returncode for one in started] == [0, 0], "\n".join(said)
        return said


def end(started: Sequence[subprocess.Popen[str]]) -> None:
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """Give two network namespaces with a cable between them, or loopback where there are none."""
    names = [f"gw{os.getpid()}{side}" for side in "ab"]
    made = shutil.which("ip") is not None and all(_ip("netns", "add", name) for name in names)
    if not made:
        yield Machines("127.0.0.1", ((), ()))
        return
    try:
        _ip(
            "-n", names[0], "link", "add", "cable", "type", "veth", "peer", "end", "netns", names[1]
        )
        for name, link, place in zip(names, ("cable", "end"), ("1", "2"), strict=True):
            assert _ip("-n", name, "addr", "add", f"10.77.0.{place}/24", "dev", link)
            assert _ip("-n", name, "link", "set", link, "up")
            assert _ip("-n", name, "link", "set", "lo", "up")
        yield Machines("10.77.0.1", [("ip", "netns", "exec", name) for name in names])
    finally:
        for name in names:
            _ip("netns", "del", name)


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("local"))
    run.finish(2)
    return run


def test_two_machines_train_what_two_processes_of_one_train(
    machines: Machines, local: Run, tmp_path: Path
) -> None:
    run = Run(tmp_path / "two")
    first, second = machines.finish(run)
    assert "waits for 1 more of 2 machines" in first
    assert "2 processes on cpu train from the start" in first
    assert "sft: 1 of 2 processes are here" in second
    assert run.list_said() == local.list_said()
    assert run.list_scored() == local.list_scored()
    for step in ("sft", "grpo"):
        assert measure_difference(run, local, step) == 0
        assert run.list_metrics(step) == local.list_metrics(step)
        record = read_json(run.out / step / "processes.json", dict)
        assert (record["nodes"], len(record["hosts"]), record["restarts"]) == (2, 2, [])
        assert "process 1 of 2 on" in (run.out / step / "processes" / "1.log").read_text()
    assert not list(run.out.rglob(".machines.json")) + list(run.out.rglob(".groupwise-*"))


@pytest.mark.parametrize("rank", ["0", "1"])
def test_where_a_worker_of_either_is_killed_all_start_again_and_end_as_if_none_had(
    machines: Machines, local: Run, tmp_path: Path, rank: str
) -> None:
    run = Run(tmp_path / "killed")
    first, _ = machines.finish(run, TOGETHER_DIES="sft:5 grpo:4", TOGETHER_WHO=rank)
    assert f"process {rank} killed by SIGKILL" in first
    assert "2 processes on cpu train from step 4" in first
    assert "2 processes on cpu train from step 3" in first
    for step in ("sft", "grpo"):
        assert len(run.list_restarts(step)) == 1
        assert measure_difference(run, local, step) == 0
        assert run.list_metrics(step) == local.list_metrics(step)


def wait_for_training(run: Run, started: Sequence[subprocess.Popen[str]]) -> list[psutil.Process]:
    """Return the processes that train once they are in the middle of it."""
    wait_for(lambda: (run.out / "grpo" / "checkpoint-3" / "complete").exists())
    found = [
        child
        for one in started
        for child in psutil.Process(one.pid).children(recursive=True)
        if "groupwise.flow.worker" in " ".join(child.cmdline())
    ]
    assert len(found) == 2
    return found


def test_where_the_first_machine_is_killed_the_other_ends_what_it_has_started(
    machines: Machines, local: Run, tmp_path: Path
) -> None:
    run = Run(tmp_path / "orphans")
    started = machines.start(run, TOGETHER_WAITS="grpo:4")
    try:
        workers = wait_for_training(run, started)
        started[0].kill()
        _, said = started[1].communicate(timeout=60)
    finally:
        end(started)
    assert started[1].returncode == 2
    assert "the first machine is gone" in said
    assert "Traceback" not in said
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
    first, _ = machines.finish(run, "--resume")
    assert "grpo resumed" in first
    assert measure_difference(run, local, "grpo") == 0


def test_where_the_other_machine_is_gone_the_run_ends_with_one_sentence(
    machines: Machines, tmp_path: Path
) -> None:
    run = Run(tmp_path / "lost")
    started = machines.start(run, TOGETHER_WAITS="grpo:4")
    try:
        workers = wait_for_training(run, started)
        started[1].send_signal(signal.SIGKILL)
        _, said = started[0].communicate(timeout=60)
    finally:
        end(started)
    assert started[0].returncode == 2
    last = said.splitlines()[-1]
    assert last.startswith("error: machine 1 (")
    assert "is gone" in last
    wait_for(lambda: not any(is_alive(worker) for worker in workers))


def test_machines_with_other_settings_do_not_train_together(
    machines: Machines, tmp_path: Path
) -> None:
    run = Run(tmp_path / "unlike")
    started = machines.start(run, each=((), ("--set", "grpo.learning_rate=0.01")))
    try:
        said = [one.communicate()[1] for one in started]
    finally:
        end(started)
    assert [one.returncode for one in started] == [2, 2]
    sentence = "machine 1 (", "was started with other settings than the first machine"
    assert all(part in one for one in said for part in sentence)
    assert not (run.out / "manifest.json").exists()


def test_torchrun_starts_the_command_on_each(local: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += ["--master-addr=127.0.0.1", f"--master-port={port}", "--no-python"]
    run = Run(tmp_path / "torchrun")
    started = [run.start(2, *TWO, before=[*torchrun, f"--node-rank={rank}"]) for rank in range(2)]
    try:
        said = [one.communicate()[1] for one in started]
    finally:
        end(started)
    assert [one.returncode for one in started] == [0, 0], said
    assert measure_difference(run, local, "grpo") == 0
    record = read_json(run.out / "grpo" / "processes.json", dict)
    assert (record["nodes"], record["restarts"]) == (2, [])


def test_a_hung_process_is_named_and_replaced(local: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "hung")
    said = run.finish(2, "--set", "compute.timeout_s=30", TOGETHER_STOPS="sft:5")
    assert (
        "process 1 made no progress while process 0 waited 30 s for it (compute.timeout_s); "
        "all end and start again" in said
    )
    assert len(run.list_restarts("sft")) == 1
    assert measure_difference(run, local, "sft") == 0
