"""A run by several processes that ``torchrun`` or ``accelerate launch`` started with one command.

The first process does the run. The others say nothing and wait, without any time limit, until the
first one comes to a stage that trains; that they all do together. The launcher ends all where one
fails, and starts all again if it is told to (``--max-restarts``): a run goes on from its last
whole checkpoint anyway.
"""

import io
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from groupwise import core
from groupwise.core import Config, ConfigError, GroupwiseError, RunError
from groupwise.run.settings import ComputeSettings, FlowConfig
from groupwise.run.steps import StepContext
from groupwise.training.processes import SHARDING

START = "torchrun --nproc-per-node N -m groupwise run …"
_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_OF_LAUNCHERS = re.compile(
    f"({'|'.join(_NAMES)}|(GROUP|ROLE)_(RANK|NAME|WORLD_SIZE)|(TORCHELASTIC|ACCELERATE|FSDP)_.*)$"
)
_LOST = re.compile("timed out|timeout|connection|broken pipe|socket|gloo|nccl", re.IGNORECASE)
"""What collectives say that lost another process; torch has no kind of error for all of them."""
_POLL_S = 0.1
_GRACE_S = 5.0
"""For the launcher to end this process behind the one that failed first, and that says why."""


class Team:
    """The processes of a run, which found each other by the store of their launcher.

    ``environ`` is what the launcher says of this one; a ConfigError if none has started it. Rank 0
    is the first of ``size``, of which ``local_size`` are on this machine; ``device`` is ``cpu``,
    or ``cuda`` with one GPU for each.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        missing = [name for name in (*_NAMES, _RESTARTS) if not environ.get(name)]
        if missing:
            raise ConfigError(
                f"WORLD_SIZE {environ['WORLD_SIZE']} is set, but torchrun has not started this",
                got=f"no {', '.join(missing)}",
                fix=f"start it by a launcher ({START}), or unset WORLD_SIZE",
            )
        self._own = {name: environ[name] for name in _NAMES}
        self.rank, self.size = int(self._own["RANK"]), int(self._own["WORLD_SIZE"])
        self.local_size = int(self._own["LOCAL_WORLD_SIZE"])
        self.device = "cuda" if core.list_gpus() else "cpu"
        core.make_dependent(os.getppid())()
        attempt = ""
        if self.local_size == self.size:
            # On one machine a store may outlive a restart; for several each has a new one.
            attempt = environ[_RESTARTS]
            # Or gloo would listen where other machines can reach it.
            loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, loopback)
        # Or DDP warns, in every training, that it looked for weights without a gradient.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        from torch.distributed import PrefixStore  # pyright: ignore[reportPrivateImportUsage]
        from torch.distributed.rendezvous import rendezvous

        root: Any = next(iter(rendezvous("env://")))[0]
        self._store: Any = PrefixStore(f"groupwise-{attempt}", root)
        self._num_told = 0

    def tell(self, **message: Any) -> None:
        """Let the others train; a message without a step says that the run has ended."""
        self._num_told += 1
        self._store.set(f"told-{self._num_told}", json.dumps(message))

    def hear(self) -> dict[str, Any]:
        """Wait until the first process trains or has ended, and return what it says."""
        self._num_told += 1
        key = f"told-{self._num_told}"
        try:
            while not self._store.check([key]):
                time.sleep(_POLL_S)
            return json.loads(self._store.get(key))
        except RuntimeError as error:
            raise RunError("the first process is gone, and this one ends with it") from error

    def train(self, work: Callable[[], None], compute: ComputeSettings) -> None:
        """Do this process's part of a training, in a process group."""
        import torch
        from accelerate.state import AcceleratorState

        before = dict(os.environ)
        use_cpu = {"ACCELERATE_USE_CPU": str(self.device == "cpu").lower()}
        os.environ.update({**self._own, **use_cpu, SHARDING: compute.sharding})
        try:
            if not torch.distributed.is_initialized():
                if self.device == "cuda":
                    torch.cuda.set_device(int(self._own["LOCAL_RANK"]))
                torch.distributed.init_process_group(
                    "nccl" if self.device == "cuda" else "gloo",
                    store=self._store,
                    rank=self.rank,
                    world_size=self.size,
                    timeout=timedelta(seconds=compute.timeout_s),
                )
            work()
        except RuntimeError as error:
            if isinstance(error, GroupwiseError) or not _LOST.search(str(error)):
                raise
            time.sleep(_GRACE_S)
            raise core.TrainingError(
                f"another process has ended, or made no progress in {compute.timeout_s:g} s "
                "(compute.timeout_s)",
                got=str(error).partition("\n")[0][:200],
                fix="start the same command again: it goes on from the last checkpoint, as "
                "--max-restarts of torchrun does by itself",
            ) from error
        finally:
            # Other stages must find neither the others nor what Transformers sets for a training.
            os.environ.clear()
            os.environ.update(before)
            AcceleratorState._reset_state(reset_partial_state=True)


_team: Team | None = None


def find_team() -> Team | None:
    """Return the processes that do this run; None: this one is alone."""
    return _team


@contextmanager
def join_launched(*, trains: bool = True) -> Generator[None]:
    """Take part, within this context, in what a launcher has started, as its variables say.

    They are taken away, so that neither libraries nor child processes act on them. The others than
    the first process are silent, unless one of them fails alone. A ConfigError if no launcher has
    set the variables, or if several processes cannot do this (``trains``) together.
    """
    global _team
    found = {name: value for name, value in os.environ.items() if _OF_LAUNCHERS.match(name)}
    if _team is None and (found.get("WORLD_SIZE") or "1") != "1":
        _team = Team(found)
    for name in found:
        del os.environ[name]
    if _team is None:
        yield
        return
    stdout, stderr, held = sys.stdout, sys.stderr, io.StringIO()
    if _team.rank:
        # Nothing has to be kept in order here: only the first process writes.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout, sys.stderr = io.StringIO(), held
    has_failed = True
    try:
        if not trains:
            raise ConfigError(
                f"a launcher has started this command {_team.size} times",
                expected=f"`groupwise run` alone ({START})",
            )
        if any(found.get(f"ACCELERATE_USE_{kind}") == "true" for kind in ("FSDP", "DEEPSPEED")):
            raise ConfigError(
                "accelerate's own configuration spreads the weights",
                fix="leave that out, and set compute.sharding=fsdp",
            )
        num_gpus = len(core.list_gpus())
        if num_gpus and _team.local_size > num_gpus:
            raise ConfigError(
                f"{_team.local_size} processes of this machine need a GPU each",
                got=num_gpus,
                fix="start fewer, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to train on the CPU",
            )
        yield
        has_failed = False
    except SystemExit as leaving:
        has_failed = bool(leaving.code)
        raise
    finally:
        if _team.rank:
            if has_failed:
                time.sleep(_GRACE_S)
                stderr.write(held.getvalue())
            sys.stdout, sys.stderr = stdout, stderr
        elif not has_failed:
            _team.tell()


def train_together(work: Callable[[], None], context: StepContext, config: Config) -> None:
    """Do a stage's work in this process, together with the others if there are any."""
    if _team is None:
        work()
        return
    if _team.rank == 0:
        context.say(f"{_team.size} processes train on {_team.device}")
        own = introduce(config, context.inputs)
        _team.tell(step=context.name, is_resumed=context.is_resumed, **own)
    _team.train(work, config.compute if isinstance(config, FlowConfig) else ComputeSettings())


def introduce(config: Config, inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return what all processes must have alike."""
    return {
        "settings": core.digest_json(core.dump_config(config)),
        "packages": dict(core.list_packages()),
        "inputs": dict(inputs),
    }
