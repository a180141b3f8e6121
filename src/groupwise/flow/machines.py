"""Which of the machines of a training this one is, by the variables of the usual launchers."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from groupwise.core import ConfigError

_RANKS = ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID")
_COUNTS = ("NNODES", "GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
"""By hand, of torchrun, of Slurm: the nearer to the command comes first."""
_OF_A_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine among those that train together.

    Attributes:
        rank: its number, from 0 on; the first does all that is no training.
        num: how many there are.
        address: where the first one listens; "" for the others, whom it tells.
    """

    rank: int = 0
    num: int = 1
    address: str = ""


def find_machine(nodes: int, environ: Mapping[str, str]) -> Machine:
    """Return which of ``nodes`` machines this is.

    Raises:
        ConfigError: if the environment does not say so, or speaks of other machines; if a launcher
            has started this command more often than once on each.
    """
    _check_starts(nodes, environ)
    if nodes == 1:
        return Machine()
    name, rank = _read_number(environ, _RANKS)
    if rank is None:
        raise ConfigError(
            f"compute.nodes {nodes}: which of the machines this is is not known",
            expected="NODE_RANK from 0 on, or what torchrun or srun say of it",
            fix="start the command by one of them, or set NODE_RANK on each machine",
        )
    counted, num = _read_number(environ, _COUNTS)
    if num not in (None, nodes):
        raise ConfigError(f"compute.nodes {nodes} are not those of {counted}", got=num)
    if not 0 <= rank < nodes:
        raise ConfigError(
            f"{name} {rank} is none of compute.nodes {nodes}", expected=f"0 to {nodes - 1}"
        )
    return Machine(rank, nodes, _find_address(environ) if rank == 0 else "")


def forget_launcher() -> None:
    """Take a launcher's numbers away: it has started machines, not the processes that train."""
    for name in _OF_A_LAUNCHER:
        os.environ.pop(name, None)


def _check_starts(nodes: int, environ: Mapping[str, str]) -> None:
    """Refuse a command that would run as often as processes are to train."""
    if "RANK" in environ:
        name, num = _read_number(environ, ("WORLD_SIZE",))
    elif nodes > 1:
        name, num = _read_number(environ, ("SLURM_STEP_NUM_TASKS",))
    else:
        return
    _, num_here = _read_number(environ, ("LOCAL_WORLD_SIZE",))
    if num in (None, nodes) and num_here in (None, 1):
        return
    raise ConfigError(
        f"a launcher has started this command {num} times, by {name}",
        expected=f"once on each of compute.nodes {nodes}",
        fix="the command starts compute.processes itself: leave the launcher out, or start one "
        "on each machine (torchrun --nproc-per-node 1, srun --ntasks-per-node=1)",
    )


def _read_number(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the first of some variables that is set, and its number."""
    for name in names:
        if text := environ.get(name, "").strip():
            if not re.fullmatch(r"-?\d+", text):
                raise ConfigError(f"{name} is no number", got=text)
            return name, int(text)
    return names[0], None


def _find_address(environ: Mapping[str, str]) -> str:
    """Return the address in the network (IPv4) that the others are told."""
    name = environ.get("MASTER_ADDR") or _read_first_host(environ.get("SLURM_JOB_NODELIST", ""))
    if not name:
        raise ConfigError(
            "MASTER_ADDR is not set, where the other machines find this first one",
            fix="set it to an address or a name of this machine in their network",
        )
    try:
        address = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise ConfigError(f"MASTER_ADDR {name} has no address ({error})") from error
    if ip_address(address).is_loopback and name not in ("localhost", address):
        raise ConfigError(
            f"MASTER_ADDR {name} stands on this machine for {address}, where no other finds it",
            fix="set it to this machine's address in the network",
        )
    return str(address)


def _read_first_host(nodelist: str) -> str:
    """Return the first name of a list of Slurm, such as ``gpu[003-005,8],cpu1``."""
    found = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodelist)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", found[0]) if found else ""
