"""A training by several processes: started, followed, ended and started again.

The run's own process trains nothing then. One that dies takes the others with it: they cannot go
on without its part of a step, so all begin again where the last whole checkpoint was written.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from groupwise.core import (
    TrainingError,
    count_devices,
    describe_exit,
    list_gpus,
    read_json,
    write_json,
)
from groupwise.flow.crew import CREW, OtherWorkers, start_others
from groupwise.flow.following import LogFollower
from groupwise.flow.on_ray import look_at_cluster, train_on_ray
from groupwise.flow.settings import ComputeSettings, FlowConfig, find_batch
from groupwise.flow.worker import WAITED, Job
from groupwise.flow.workers import Codes, Layout, Workers
from groupwise.pipeline import StepContext
from groupwise.training import Place, find_last_checkpoint, read_step

RECORD = "processes.json"
LOGS = "processes"
_POLL_S = 0.1
_GRACE_S = 2.0


def find_layout(compute: ComputeSettings) -> Layout:
    """Return how this machine, or the cluster, trains by so many processes.

    Raises:
        TrainingError: if there are fewer GPUs, or too few CPUs on a cluster.
        ConfigError: if a cluster cannot be joined.
    """
    num, engine = compute.processes // compute.nodes, compute.engine
    if engine == "ray":
        kind, num_devices = count_devices(look_at_cluster(compute))
    else:
        num_gpus = len(list_gpus())
        kind, num_devices = ("GPU", num_gpus) if num_gpus else ("CPU", num)
    if num > num_devices:
        raise TrainingError(
            f"compute.processes {compute.processes} need a {kind} each",
            got=f"{num_devices}" if compute.nodes == 1 else f"{num_devices} for {num} of them here",
            fix="lower it, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to train on the CPU"
            if kind == "GPU"
            else "lower it, or join more machines to the cluster",
        )
    device, backend = ("cuda", "nccl") if kind == "GPU" else ("cpu", "gloo")
    return Layout(compute.processes, device, backend, compute.sharding, engine, compute.nodes)


def describe_layout(config: FlowConfig) -> list[tuple[str, str]]:
    """Return what a dry run says of several processes; nothing of one.

    Raises:
        TrainingError: as ``find_layout``.
    """
    if not config.compute.has_workers:
        return []
    layout = find_layout(config.compute)
    shares = []
    for name, training in config.list_trainings().items():
        setting, size = find_batch(training)
        rows = "prompts" if setting == "prompts_per_step" else "rows"
        shares.append(f"{size // layout.processes} of {size} {rows} of {name}")
    place = "" if layout.engine == "local" else " of a Ray cluster"
    if layout.nodes > 1:
        place = f" of {layout.nodes} machines like this one, {layout.per_node} on each"
    told = f"{layout.processes} on {layout.device}{place} ({layout.backend})"
    told += f"; each takes {', '.join(shares)} at a time"
    if layout.sharding == "fsdp":
        told += f", and holds 1/{layout.processes} of the weights (FSDP2)"
    return [("processes", told)]


def find_place(config: FlowConfig) -> Place:
    """Return where memory is estimated for: a GPU where there is one, else the CPU."""
    compute = config.compute
    device = "cuda" if list_gpus() else "cpu"
    return Place(device, compute.processes, is_spread=compute.sharding == "fsdp")


def work_together(context: StepContext, compute: ComputeSettings) -> None:
    """Let processes do a step's work together, and start them again when one has died.

    Their logs are kept in the step's folder, with a record of the layout and of every restart.

    Raises:
        TrainingError: if one refuses to train, in its words; if they die more often than
            ``max_restarts``; if a machine is missing.
    """
    layout, record = find_layout(compute), context.folder / RECORD
    hosts = CREW.get().list_hosts()
    if layout.nodes != len(hosts):
        raise TrainingError(
            f"compute.nodes {layout.nodes} are machines on each of which `groupwise run` starts",
            got=len(hosts),
        )
    restarts: list[dict[str, Any]] = []
    if context.is_resumed and record.is_file():
        restarts = read_json(record, dict)["restarts"]
    num_before = len(restarts)
    while True:
        write_json(record, {**asdict(layout), "hosts": hosts, "restarts": restarts})
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
        TrainingError: if one refuses to train, in its words; if a machine is gone.
    """
    with _make_meeting(context, layout) as meeting:
        job = Job(
            run=str(context.run.resolve()),
            step=context.name,
            is_resumed=context.is_resumed,
            inputs=dict(context.inputs),
            backend=layout.backend,
            meeting=str(Path(meeting).resolve()),
            timeout_s=compute.timeout_s,
        )
        if layout.engine == "ray":
            return train_on_ray(job, compute, layout.processes, context.folder / LOGS)
        return _train_here(job, layout, context.folder / LOGS)


def _make_meeting(context: StepContext, layout: Layout) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that all processes find: those of other machines, in the run folder."""
    is_shared = layout.engine == "ray" or layout.nodes > 1
    return tempfile.TemporaryDirectory(
        prefix=".groupwise-", dir=context.folder if is_shared else None
    )


def _train_here(job: Job, layout: Layout, logs: Path) -> str | None:
    """Do as ``_train_once``, by processes of this machine and of those that help it."""
    own = Workers(job, layout, logs=logs, address=CREW.get().address)
    teams: list[Workers | OtherWorkers] = [own]
    follow = LogFollower(logs / "0.log", own.log_start)
    try:
        teams += start_others(job, layout, logs=logs, cwd=os.getcwd())
        _wait_for_end(teams, follow)
    finally:
        codes = _stop(teams)
        follow()
    if all(code == 0 for code in codes.values()):
        return None
    for team in teams:
        if refused := team.read_refusal():
            raise TrainingError(refused)
    return describe_loss(codes, timeout_s=job.timeout_s)


def _wait_for_end(teams: Sequence[Workers | OtherWorkers], follow: LogFollower) -> None:
    """Return when all have done their work, or one has died.

    Where one waited in vain, those that have not ended a little later are those it waited for.
    """
    ends_s = inf
    while time.monotonic() < ends_s:
        codes = [code for team in teams for code in team.look().values()]
        failed = {code for code in codes if code}
        if failed - {WAITED, 1} or None not in codes:
            return
        if failed:
            ends_s = min(ends_s, time.monotonic() + _GRACE_S)
        follow()
        time.sleep(_POLL_S)


def _stop(teams: Sequence[Workers | OtherWorkers]) -> Codes:
    """End the processes of all machines, also where one is gone; return how each stood before."""
    codes: dict[int, int | None] = {}
    with ExitStack() as stack:
        for team in reversed(teams):
            stack.callback(lambda team=team: codes.update(team.stop()))
    return codes


def describe_loss(codes: Codes, *, timeout_s: float) -> str:
    """Return why all have to start again: who made no progress, or else who died.

    Where one was killed, those that failed have only lost it.
    """
    waited = [rank for rank, code in codes.items() if code == WAITED]
    hung = [rank for rank, code in codes.items() if code is None]
    if waited and hung:
        return (
            f"process {_join(hung)} made no progress while process {_join(waited)} waited "
            f"{timeout_s:g} s for it (compute.timeout_s)"
        )
    dead = {rank: code for rank, code in codes.items() if code}
    if {*dead.values()} - {1, WAITED}:
        dead = {rank: code for rank, code in dead.items() if code not in (1, WAITED)}
    ends = {rank: describe_exit(code) for rank, code in dead.items()}
    in_vain = f"waited {timeout_s:g} s in vain (compute.timeout_s)"
    ends |= {rank: in_vain for rank, code in dead.items() if code == WAITED}
    return ", ".join(f"process {rank} {end}" for rank, end in sorted(ends.items()))


def _join(ranks: Sequence[int]) -> str:
    return " and ".join(map(str, sorted(ranks)))
