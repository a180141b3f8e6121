"""Which machine this is, as launchers say it; and what a launcher must not have done."""

import os
import socket
from typing import Any

import pytest
from small_task import LORA, SmallConfig

from groupwise.core import ConfigError
from groupwise.flow.machines import Machine, find_machine, forget_launcher

HOME = {"MASTER_ADDR": "127.0.0.1"}
TORCHRUN = {
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
}
SLURM = {
    "SLURM_NODEID": "1",
    "SLURM_NNODES": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
}


@pytest.mark.parametrize(
    ("environ", "machine"),
    [
        ({"NODE_RANK": "0", **HOME}, Machine(0, 2, "127.0.0.1")),
        ({"NODE_RANK": "0", "MASTER_ADDR": "localhost"}, Machine(0, 2, "127.0.0.1")),
        ({"NODE_RANK": "1"}, Machine(1, 2)),
        (TORCHRUN, Machine(1, 2)),
        (SLURM, Machine(1, 2)),
        # torchrun in a job of Slurm: what is nearer to the command says it.
        ({**SLURM, **TORCHRUN, "SLURM_NODEID": "0"}, Machine(1, 2)),
        ({"NODE_RANK": "1", "NNODES": "2", "SLURM_NNODES": "4"}, Machine(1, 2)),
    ],
)
def test_a_machine_is_what_its_launcher_says(environ: dict[str, str], machine: Machine) -> None:
    assert find_machine(2, environ) == machine
    assert find_machine(1, {**environ, "WORLD_SIZE": "1"}) == Machine()


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({}, r"compute\.nodes 2: which of the machines this is is not known; expected NODE_RANK"),
        ({"NODE_RANK": "2"}, r"NODE_RANK 2 is none of compute\.nodes 2; expected 0 to 1"),
        ({"NODE_RANK": "-1"}, r"NODE_RANK -1 is none of"),
        ({"NODE_RANK": "one"}, r"NODE_RANK is no number; got one"),
        ({"NODE_RANK": "0"}, r"MASTER_ADDR is not set, where the other machines find this first"),
        ({"NODE_RANK": "0", "MASTER_ADDR": "no.such.invalid"}, r"MASTER_ADDR no\.such\.invalid"),
        ({"NODE_RANK": "1", "NNODES": "3"}, r"compute\.nodes 2 are not those of NNODES; got 3"),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "4"}, r"not those of SLURM_STEP_NUM_NODES; got 4"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "4"}, r"started this command 4 times, by SLURM_STEP"),
        ({**TORCHRUN, "WORLD_SIZE": "4"}, r"started this command 4 times, by WORLD_SIZE"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "2"}, r"expected once on each of compute\.nodes 2"),
    ],
)
def test_another_environment_is_one_sentence(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_machine(2, environ)


def test_a_name_that_stands_for_this_machine_alone_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    with pytest.raises(ConfigError, match=r"MASTER_ADDR gpu1 stands on this machine for 127\.0\.1"):
        find_machine(2, {"NODE_RANK": "0", "MASTER_ADDR": "gpu1"})


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("gpu[003-005,8],cpu1", "gpu003"),
        ("cpu1,gpu[1-2]", "cpu1"),
        ("rack[1-2]n[04,7]", "rack1n04"),
        ("a-b.c", "a-b.c"),
    ],
)
def test_the_first_of_slurms_nodes_is_the_first_machine(
    nodelist: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def find(name: str, *_: Any) -> Any:
        asked.append(name)
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    machine = find_machine(2, {**SLURM, "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": nodelist})
    assert (machine, asked) == (Machine(0, 2, "10.0.0.1"), [host])


def test_a_run_that_a_launcher_would_do_twice_is_one_sentence_and_exit_code_2(
    command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    ended = command_line("run", "on_task", "--config", "demo", "--out", "run")
    assert ended.returncode == 2
    assert "a launcher has started this command 2 times, by WORLD_SIZE" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_a_launcher_counts_is_no_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    forget_launcher()
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"} & set(os.environ)
    assert os.environ["GROUP_RANK"] == "1"


@pytest.mark.parametrize(
    ("compute", "sentence"),
    [
        ({"processes": 3, "nodes": 2}, r"compute\.processes 3 cannot be shared equally by compute"),
        ({"processes": 1, "nodes": 2}, r"compute\.processes 1 cannot be shared equally by compute"),
        ({"processes": 2, "nodes": 2, "engine": "ray"}, r"nodes 2: a Ray cluster knows its machi"),
    ],
)
def test_machines_that_cannot_share_the_processes_are_refused(
    compute: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        SmallConfig(**LORA, compute=compute)
