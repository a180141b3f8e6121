"""The processes of a training on a Ray cluster, by Ray Train's TorchTrainer.

Ray Train places them, tells each its rank and joins them; when one is lost it ends the others.
Starting again is ours: who starts removes torn checkpoints first, and notes the reason.
"""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

from groupwise.core import (
    Node,
    TrainingError,
    describe_this_machine,
    import_ray,
    join_cluster,
    list_nodes,
    names_cluster,
    share_cpus,
)
from groupwise.flow.following import LogFollower
from groupwise.flow.settings import ComputeSettings
from groupwise.flow.worker import Job, find_refusal
from groupwise.training import SHARDING

_POLL_S = 0.2
_HERE = "here"


class RefusedError(RuntimeError):
    """What a user has to change, as a worker says it."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """What a worker of a cluster is told.

    Attributes:
        job: what it is to do.
        cwd: working folder of the run's own process, from where paths in its config are read.
        logs: folder of the processes' logs.
        sharding: what each process holds, as ``ComputeSettings`` has it.
    """

    job: str
    cwd: str
    logs: str
    sharding: str


def look_at_cluster(compute: ComputeSettings) -> Sequence[Node]:
    """Return what each machine has that would train.

    Raises:
        ConfigError: if Ray is not installed, or the cluster cannot be joined.
    """
    if not names_cluster(compute.address):
        import_ray("train.torch")
        here = describe_this_machine()
        return [{**here, "CPU": max(here["CPU"], compute.processes)}]
    with join_cluster(compute.address) as ray:
        return list_nodes(ray)


def train_on_ray(job: Job, compute: ComputeSettings, num_processes: int, logs: Path) -> str | None:
    """Return how a process was lost; None: all have done their work.

    Args:
        job: of each; its ``meeting`` is a folder below the run folder.
        compute: where the cluster is.
        num_processes: one GPU each where the backend is NCCL.
        logs: takes what each process says.

    Raises:
        TrainingError: if one refuses to train, in its words.
        ConfigError: if the cluster cannot be joined.
    """
    logs.mkdir(exist_ok=True)
    Path(job.meeting, _HERE).touch()
    own = logs / "0.log"
    follow = LogFollower(own, own.stat().st_size if own.is_file() else 0)
    given = RayJob(job.to_json(), os.getcwd(), str(logs.resolve()), compute.sharding)
    with join_cluster(compute.address, min_cpus=num_processes) as ray:
        import_ray("train.torch", "util.scheduling_strategies")
        # In a worker of this machine: a thread of this process that still waits in Ray when Ctrl-C
        # has Ray leave ends the process at once, and in the main one Ray Train takes Ctrl-C itself.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        fit = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_fit)
        fitting = fit.remote(given, job, num_processes)
        while not ray.wait([fitting], timeout=_POLL_S)[0]:
            follow()
        try:
            refused, lost = ray.get(fitting)
        except ray.exceptions.RayError as error:
            refused, lost = None, f"the cluster could not train: {_read_first_line(error)}"
    follow()
    if refused is not None:
        raise TrainingError(refused)
    return lost


def _fit(given: RayJob, job: Job, num: int) -> tuple[str | None, str | None]:
    """Return what a worker refuses, in its words, and how processes were lost."""
    ray = import_ray("train.torch")
    with suppress(FileNotFoundError):
        os.chdir(given.cwd)
    try:
        _make_trainer(ray, given, job, num).fit()
    except Exception as error:  # noqa: BLE001 (whatever it is, the cluster could not train)
        return find_refused(error), explain_end(error)
    return None, None


def _make_trainer(ray: Any, given: RayJob, job: Job, num: int) -> Any:
    train = ray.train
    is_on_gpu = job.backend == "nccl"
    each = {"CPU": share_cpus(list_nodes(ray), num), **({"GPU": 1} if is_on_gpu else {})}
    told = {
        "ACCELERATE_USE_CPU": "false" if is_on_gpu else "true",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # it prints every line twice
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "600")  # 60 on a busy machine
    return train.torch.TorchTrainer(
        work_on_ray,
        train_loop_config=asdict(given),
        scaling_config=train.ScalingConfig(
            num_workers=num, use_gpu=is_on_gpu, resources_per_worker=each
        ),
        torch_config=train.torch.TorchConfig(backend=job.backend, timeout_s=ceil(job.timeout_s)),
        run_config=train.RunConfig(
            name="ray", storage_path=job.meeting, worker_runtime_env={"env_vars": told}
        ),
    )


def work_on_ray(given: dict[str, str]) -> None:
    """Do one process's part, in a worker of the cluster.

    Raises:
        RefusedError: if a user has to change something.
    """
    job, rank = Job.from_json(given["job"]), os.environ["RANK"]
    if not Path(job.meeting, _HERE).is_file():
        raise RefusedError(
            f"the machine {socket.gethostname()} does not find the run folder {job.run}; "
            "put it on a file system that all machines of the cluster have under one path."
        )
    _write_to(Path(given["logs"], f"{rank}.log"), rank)
    os.environ[SHARDING] = given["sharding"]
    with suppress(FileNotFoundError):  # a config may name no relative path at all
        os.chdir(given["cwd"])
    refused = find_refusal(job)
    if refused is not None:
        raise RefusedError(refused)


def _write_to(log: Path, rank: str) -> None:
    """Let all that this process says go to its log, behind a title."""
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    begun = datetime.now(UTC).isoformat()
    place = f"{socket.gethostname()}, {begun}"
    os.write(2, f"process {rank} of {os.environ['WORLD_SIZE']} on {place}\n".encode())


def find_refused(error: BaseException) -> str | None:
    """Return what one of the processes refuses, in its words; None: none does."""
    failures: dict[int, BaseException] = getattr(error, "worker_failures", {})
    words = (str(failure) for failure in failures.values() if isinstance(failure, RefusedError))
    return next(words, None)


def explain_end(error: BaseException) -> str:
    """Return how processes were lost."""
    failures: dict[int, BaseException] = getattr(error, "worker_failures", {})
    if not failures:
        return f"the cluster could not train: {_read_first_line(error)}"
    return ", ".join(
        f"process {rank} was lost: {_read_reason(failures[rank])}" for rank in sorted(failures)
    )


def _read_reason(error: BaseException) -> str:
    """Return what became of a process, in one line of what Ray says."""
    lines = [line.strip() for line in str(error).splitlines()]
    dead = [line for line in lines if line.startswith("The actor ")]
    return dead[-1].partition(". ")[0] if dead else _read_first_line(error)


def _read_first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
