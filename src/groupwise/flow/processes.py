"""A training by several processes: started, followed, ended and started again.

The run's own process trains nothing then. One that dies takes the others with it: they cannot go
on without its part of a step, so all begin again where the last whole checkpoint was written.
"""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import (
    ChildProcess,
    TrainingError,
    count_devices,
    list_gpus,
    read_json,
    start_child,
    stop_children,
    write_json,
)
from groupwise.flow.following import LogFollower
from groupwise.flow.on_ray import look_at_cluster, train_on_ray
from groupwise.flow.settings import ComputeSettings, FlowConfig
from groupwise.flow.worker import Job
from groupwise.pipeline import StepContext
from groupwise.training import SHARDING, Place, find_last_checkpoint, read_step

RECORD = "processes.json"
LOGS = "processes"
WORKER = "groupwise.flow.worker"
_POLL_S = 0.1
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Which processes train together.

    Attributes:
        processes: how many.
        device: ``cpu``, or ``cuda`` with one GPU each.
        backend: how they exchange gradients.
        sharding: what each holds, as ``ComputeSettings`` has it.
        engine: what starts them, ``local`` or ``ray``.
    """

    processes: int
    device: str
    backend: str
    sharding: str = "none"
    engine: str = "local"


def find_layout(compute: ComputeSettings) -> Layout:
    """Return how this machine, or the cluster, trains by so many processes.

    Raises:
        TrainingError: if there are fewer GPUs, or too few CPUs on a cluster.
        ConfigError: if a cluster cannot be joined.
    """
    num, engine = compute.processes, compute.engine
    if engine == "ray":
        kind, num_devices = count_devices(look_at_cluster(compute))
    else:
        num_gpus = len(list_gpus())
        kind, num_devices = ("GPU", num_gpus) if num_gpus else ("CPU", num)
    if num > num_devices:
        raise TrainingError(
            f"compute.processes {num} need a {kind} each",
            got=f"{num_devices}",
            fix="lower it, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to train on the CPU"
            if kind == "GPU"
            else "lower it, or join more machines to the cluster",
        )
    device, backend = ("cuda", "nccl") if kind == "GPU" else ("cpu", "gloo")
    return Layout(num, device, backend, compute.sharding, engine)


def describe_layout(config: FlowConfig) -> list[tuple[str, str]]:
    """Return what a dry run says of several processes; nothing of one.

    Raises:
        TrainingError: as ``find_layout``.
    """
    if not config.compute.has_workers:
        return []
    layout = find_layout(config.compute)
    shares = {"prompts of grpo": config.grpo.prompts_per_step}
    if config.sft is not None:
        shares = {"rows of sft": config.sft.batch_size, **shares}
    each = ", ".join(f"{size // layout.processes} of {size} {n}" for n, size in shares.items())
    place = "" if layout.engine == "local" else " of a Ray cluster"
    told = f"{layout.processes} on {layout.device}{place} ({layout.backend})"
    told += f"; each takes {each} at a time"
    if layout.sharding == "fsdp":
        told += f", and holds 1/{layout.processes} of the weights (FSDP2)"
    return [("processes", told)]


def find_place(config: FlowConfig) -> Place:
    """Return where memory is estimated for: a GPU, unless a CPU is all that is asked for."""
    compute = config.compute
    is_cpu = config.model.is_tiny or (config.model.dtype == "float32" and not list_gpus())
    device = "cpu" if is_cpu else "cuda"
    return Place(device, compute.processes, is_spread=compute.sharding == "fsdp")


def work_together(context: StepContext, compute: ComputeSettings) -> None:
    """Let processes do a step's work together, and start them again when one has died.

    Their logs are kept in the step's folder, with a record of the layout and of every restart.

    Raises:
        TrainingError: if one refuses to train, in its words; if they die more often than
            ``max_restarts``.
    """
    layout, record = find_layout(compute), context.folder / RECORD
    restarts: list[dict[str, Any]] = []
    if context.is_resumed and record.is_file():
        restarts = read_json(record, dict)["restarts"]
    num_before = len(restarts)
    while True:
        write_json(record, {**asdict(layout), "restarts": restarts})
        # Here and now: it removes torn checkpoints, which must not happen in all of them at once.
        start = find_last_checkpoint(context.folder)
        at = "the start" if start is None else f"step {read_step(start)}"
        context.say(f"{layout.processes} processes on {layout.device} train from {at}")
        failure = _train_once(context, layout, compute)
        if failure is None:
            return
        if len(restarts) - num_before == compute.max_restarts:
            raise TrainingError(
                f"training stopped after {compute.max_restarts} restarts: {failure}",
                fix=f"see {context.folder / LOGS}; --resume goes on from the last checkpoint",
            )
        restarts.append({"at": datetime.now(UTC).isoformat(timespec="seconds"), "why": failure})
        context.say(f"{failure}; all end and start again")


def _train_once(context: StepContext, layout: Layout, compute: ComputeSettings) -> str | None:
    """Return how a process died; None: all have done their work.

    Raises:
        TrainingError: if one refuses to train, in its words.
    """
    with _make_meeting(context, layout) as meeting:
        job = Job(
            run=str(context.run.resolve()),
            step=context.name,
            is_resumed=context.is_resumed,
            inputs=dict(context.inputs),
            backend=layout.backend,
            meeting=str(Path(meeting).resolve()),
        )
        if layout.engine == "ray":
            return train_on_ray(job, compute, layout.processes, context.folder / LOGS)
        return _train_here(job, layout, context.folder / LOGS)


def _make_meeting(context: StepContext, layout: Layout) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that all processes find: those of other machines, in the run folder."""
    shared = context.folder if layout.engine == "ray" else None
    return tempfile.TemporaryDirectory(prefix=".groupwise-", dir=shared)


def _train_here(job: Job, layout: Layout, logs: Path) -> str | None:
    """Do as ``_train_once``, by processes of this machine."""
    children = _start(job, layout, logs)
    follow = LogFollower(children[0].log, children[0].log_start)
    try:
        while all(child.process.poll() in (None, 0) for child in children):
            follow()
            if all(child.process.poll() == 0 for child in children):
                return None
            time.sleep(_POLL_S)
        dead = [
            f"process {rank} {child.describe_end()}"
            for rank, child in enumerate(children)
            if child.process.poll() not in (None, 0)
        ]
    finally:
        stop_children(children, patience_s=_PATIENCE_S)
        follow()
    refused = job.read_refusal()
    if refused is not None:
        raise TrainingError(refused)
    return ", ".join(dead)


def _start(job: Job, layout: Layout, logs: Path) -> list[ChildProcess]:
    # -P: the working folder is no place to import from, as with the installed command.
    command = [sys.executable, "-P", "-m", WORKER, job.to_json()]
    children: list[ChildProcess] = []
    try:
        for rank in range(layout.processes):
            title = f"process {rank} of {layout.processes}, {datetime.now(UTC).isoformat()}"
            env = {**os.environ, **_describe_place(rank, layout)}
            log = logs / f"{rank}.log"
            children.append(start_child(command, log=log, title=title, env=env))
    except BaseException:
        stop_children(children, patience_s=_PATIENCE_S)
        raise
    return children


def _describe_place(rank: int, layout: Layout) -> Mapping[str, str]:
    """Return what a process is told by its environment, under the names that all launchers use."""
    num_cpus = len(os.sched_getaffinity(0))
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(layout.processes),
        "LOCAL_WORLD_SIZE": str(layout.processes),
        "ACCELERATE_USE_CPU": "true" if layout.device == "cpu" else "false",
        SHARDING: layout.sharding,
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        # Or DDP warns, in every training, that it looked for weights without a gradient.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "OMP_NUM_THREADS": os.environ.get(
            "OMP_NUM_THREADS", str(max(1, num_cpus // layout.processes))
        ),
    }
