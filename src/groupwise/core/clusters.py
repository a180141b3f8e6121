"""A Ray cluster: one that is there, or one of this machine that ends with its use."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.core.runs import list_gpus

_VARIABLE = "RAY_ADDRESS"
_OWN = "local"
_PATIENCE_S = 5.0
_STORE_BYTES = 256 * 2**20

Node = Mapping[str, float]
"""What a machine of a cluster has, by Ray's names: ``CPU``, ``GPU``."""


def import_ray(*parts: str) -> Any:
    """Return the module ``ray``, with parts of it such as ``data``; it reports nothing home.

    Raises:
        ConfigError: if it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = import_module("ray")
        for part in parts:
            import_module(f"ray.{part}")
    except ImportError as error:
        raise ConfigError(
            f"this needs Ray ({error})", fix="pip install 'groupwise[ray]'"
        ) from error
    return ray


def names_cluster(address: str | None) -> bool:
    """Return whether there is a cluster to be joined, and not one of this machine to be made."""
    return address != _OWN and (address is not None or _VARIABLE in os.environ)


@contextmanager
def join_cluster(address: str | None, *, min_cpus: int = 1) -> Generator[Any]:
    """Give the module ``ray``, joined to a cluster; a program that has joined one stays in it.

    Args:
        address: of the cluster; None: what RAY_ADDRESS names, or else, as for ``local``, one of
            this machine that ends with the block.
        min_cpus: that a cluster of this machine says it has, however few there are.

    Raises:
        ConfigError: if Ray is not installed, or nobody answers at the address.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    own: dict[str, Any] = {}
    named = names_cluster(address)
    if named:
        _check_address(address or os.environ[_VARIABLE])
    else:
        os.environ.setdefault("RAY_worker_niceness", "0")  # as the work would have without Ray
        own = {
            "num_cpus": max(min_cpus, len(os.sched_getaffinity(0))),
            "num_gpus": len(list_gpus()),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # Without an address Ray would take whichever cluster was last started on this machine.
        where = address if named else _OWN
        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, **own)
        _take_back(handlers)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"no Ray cluster can be joined: {reason}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _take_back(handlers: Mapping[signal.Signals, Any]) -> None:
    """Take signals as before: Ray's own handler of SIGTERM aborts the process."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check_address(address: str) -> None:
    """Refuse one where nobody answers: Ray would ask for minutes."""
    host, colon, port = address.rpartition("//")[2].partition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _PATIENCE_S).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers at {address} ({error})", fix="ray status --address shows one"
        ) from error


def list_nodes(ray: Any) -> list[Node]:
    """Return what each living machine of the cluster has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def describe_this_machine() -> Node:
    """Return what a cluster of this machine alone has."""
    return {"CPU": len(os.sched_getaffinity(0)), "GPU": len(list_gpus())}


def count_devices(nodes: Sequence[Node]) -> tuple[str, int]:
    """Return what work is placed on, and how many there are: GPUs, or CPUs where there are none."""
    counts = {kind: int(sum(node.get(kind, 0) for node in nodes)) for kind in ("GPU", "CPU")}
    return ("GPU", counts["GPU"]) if counts["GPU"] else ("CPU", counts["CPU"])


def share_cpus(nodes: Sequence[Node], num_processes: int) -> int:
    """Return the most CPUs that so many processes can have each; at least 1.

    A process is on one machine.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    sizes = range(max(cpus, default=1), 1, -1)
    return next((n for n in sizes if sum(c // n for c in cpus) >= num_processes), 1)
