"""A run by several processes that ``torchrun`` or ``accelerate launch`` started with one command.

The first process does the run. The others say nothing and wait, without any time limit, until the
first one comes to a stage that trains; that they all do together. They end as the first one ends.
Starting again where one has died is the launcher's (``--max-restarts``): a run goes on from its
last whole checkpoint anyway.
"""

import io
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from groupwise.core import (
    Config,
    ConfigError,
    GroupwiseError,
    RunError,
    TrainingError,
    digest_json,
    dump_config,
    list_gpus,
    list_packages,
    make_dependent,
)
from groupwise.flow.settings import ComputeSettings, FlowConfig
from groupwise.flow.stages import make_step
from groupwise.pipeline import Planner, Recipe, StepContext
from groupwise.training.processes import SHARDING

START = "torchrun --nproc-per-node N -m groupwise run …"
_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_LAUNCHERS = re.compile(
    f"({'|'.join(_NAMES)}|(GROUP|ROLE)_(RANK|NAME|WORLD_SIZE)|(TORCHELASTIC|ACCELERATE|FSDP)_.*)$"
)
_LOST = re.compile("timed out|timeout|connection|broken pipe|socket|gloo|nccl", re.IGNORECASE)
"""What collectives say that lost another process; torch has no kind of error for all of them."""
_POLL_S = 0.1
_JOIN_S = 600.0
_GRACE_S = 5.0
"""For the others to see how the first one ends, and the other way round."""


class Team:
    """The processes of a run. Messages go through the store by which they found each other.

    Args:
        environ: what the launcher says of this one, by the names that all launchers use.

    Raises:
        ConfigError: if it does not say where the processes meet.

    Attributes:
        rank: of this process; the first is 0.
        size: how many there are.
        local_size: how many are on this machine, as far as the launcher says.
        device: ``cpu``, or ``cuda`` with one GPU for each.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._own = {name: environ[name] for name in _NAMES if environ.get(name)}
        numbers = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")
        missing = [name for name in numbers if not self._own.get(name, "").isdecimal()]
        if missing := [*missing, *({"MASTER_ADDR"} - {*self._own})]:
            raise ConfigError(
                f"WORLD_SIZE {environ['WORLD_SIZE']} is set, but not where the processes meet",
                got=f"no usable {', '.join(missing)}",
                fix=f"start it by a launcher ({START}), or unset WORLD_SIZE",
            )
        self.rank, self.size = int(self._own["RANK"]), int(self._own["WORLD_SIZE"])
        local_size = self._own.get("LOCAL_WORLD_SIZE")
        self.local_size = int(local_size or self._own["LOCAL_RANK"]) + (local_size is None)
        self.device = "cuda" if list_gpus() else "cpu"
        if "TORCHELASTIC_RUN_ID" in environ:  # torchrun's agent has started this process itself
            make_dependent(os.getppid())()
        own_names = ("localhost", "127.0.0.1")
        if local_size == environ["WORLD_SIZE"] or environ["MASTER_ADDR"] in own_names:
            # Or gloo would listen where other machines can reach it.
            loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, loopback)
        # Or DDP warns, in every training, that it looked for weights without a gradient.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        from torch.distributed.rendezvous import rendezvous

        self._root: Any = next(iter(rendezvous("env://")))[0]
        self._name, self._num_runs = self._agree(), 0

    def _agree(self) -> str:
        """Return a name that all have agreed on: the store still has what an earlier try said."""
        own, ends_s = secrets.token_hex(8), time.monotonic() + _JOIN_S
        if self.rank == 0:
            self._root.set("first", own)
        waiting = {*range(1, self.size)} if self.rank == 0 else {self.rank}
        while waiting and time.monotonic() < ends_s:
            for rank in [*waiting]:
                if self.rank == 0:
                    found = self._read(f"hello-{rank}")
                    is_there = found.endswith(own)
                    if is_there:
                        self._root.set(f"welcome-{found}", "")
                else:
                    found = f"{own}-{self._read('first')}"
                    self._root.set(f"hello-{rank}", found)
                    is_there = self._root.check([f"welcome-{found}"])
                waiting -= {rank} if is_there else set()
            time.sleep(_POLL_S)
        if waiting:
            raise RunError(f"not all of {self.size} processes came within {_JOIN_S:g} s")
        return self._read("first")

    def _read(self, key: str) -> str:
        return self._root.get(key).decode() if self._root.check([key]) else ""

    def begin(self) -> None:
        """Begin a run; a program may do several, one after the other."""
        self._num_runs, self._num_told = self._num_runs + 1, 0
        self._store = self._open_store(f"run-{self._num_runs}")

    def _open_store(self, purpose: str) -> Any:
        from torch.distributed import PrefixStore  # pyright: ignore[reportPrivateImportUsage]

        return PrefixStore(f"{self._name}-{purpose}", self._root)

    def tell(self, **message: Any) -> None:
        """Let the others train."""
        self._num_told += 1
        self._store.set(f"told-{self._num_told}", json.dumps(message))

    def hear(self) -> dict[str, Any] | None:
        """Wait until the first process trains, and return what it says; None: it has ended."""
        self._num_told += 1
        key = f"told-{self._num_told}"
        try:
            while not self._store.check([key]):
                if self._store.check(["end"]):
                    return None
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
            self._meet(compute.timeout_s)
            if not torch.distributed.is_initialized():
                if self.device == "cuda":
                    torch.cuda.set_device(int(self._own["LOCAL_RANK"]))
                torch.distributed.init_process_group(
                    "nccl" if self.device == "cuda" else "gloo",
                    store=self._open_store("group"),
                    rank=self.rank,
                    world_size=self.size,
                    timeout=timedelta(seconds=compute.timeout_s),
                )
            work()
        except RuntimeError as error:
            if isinstance(error, GroupwiseError) or not _LOST.search(str(error)):
                raise
            if self._has_failed():
                raise SystemExit(2) from error
            raise TrainingError(
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

    def _meet(self, timeout_s: float) -> None:
        """Let the first process wait for the others, as long as none has failed."""
        count, ends_s = f"come-{self._num_told}", time.monotonic() + timeout_s
        self._store.add(count, 1)
        while self.rank == 0 and self._store.add(count, 0) < self.size:
            if self._has_failed():
                raise SystemExit(2)
            if time.monotonic() > ends_s:
                raise TrainingError(f"not all of {self.size} processes came in {timeout_s:g} s")
            time.sleep(_POLL_S)

    def _has_failed(self) -> bool:
        try:
            return self._store.check(["failed"])
        except RuntimeError:  # the store went with its launcher
            return False

    def end(self, code: int) -> None:
        """Tell the others how this first process ends, and wait a little for them to see it."""
        import torch

        ends_s = time.monotonic() + (0 if code == 130 else _GRACE_S)
        with suppress(RuntimeError):
            self._store.set("end", str(code))
            if code and self.device == "cpu" and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()  # lets go of those who wait in it
            while self._store.add("ended", 0) < self.size - 1 and time.monotonic() < ends_s:
                time.sleep(_POLL_S)

    def find_end(self, wait_s: float) -> int | None:
        """Return the exit code of the first process; None: it does not end within this time."""
        ends_s = time.monotonic() + wait_s
        with suppress(RuntimeError):
            while not self._store.check(["end"]):
                if time.monotonic() > ends_s:
                    self._store.set("failed", "")
                    return None
                time.sleep(_POLL_S)
            self._store.add("ended", 1)
            return int(self._store.get("end"))
        return None

    def leave(self, code: int) -> NoReturn:
        """End this other process behind the first one, which tells how: a launcher kills all."""
        ends_s = time.monotonic() + 2 * _GRACE_S
        with suppress(RuntimeError):
            while time.monotonic() < ends_s:
                self._store.check(["end"])
                time.sleep(_POLL_S)
        os._exit(code)


_team: Team | None = None


def find_team() -> Team | None:
    """Return the processes that do this run; None: this one is alone."""
    return _team


@contextmanager
def join_launched(*, trains: bool = True) -> Generator[None]:
    """Take part, within this context, in what a launcher has started, as its variables say.

    They are taken away, so that neither libraries nor child processes act on them. The others than
    the first process are silent and end as it does, unless one of them fails alone.

    Args:
        trains: whether the command is one that several processes can do.

    Raises:
        ConfigError: if the variables do not say where the processes meet, or they cannot do this
            together.
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
    _team.begin()
    code, stdout, stderr, held = 0, sys.stdout, sys.stderr, io.StringIO()
    if _team.rank:
        # Nothing has to be kept in order here: only the first process writes.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout, sys.stderr = io.StringIO(), held
    try:
        _check(_team, found, trains=trains)
        yield
    except BaseException as error:
        code = 2 if isinstance(error, (GroupwiseError, OSError)) else 1
        if isinstance(error, KeyboardInterrupt):
            code = 130
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            code = error.code
        raise
    finally:
        if _team.rank == 0:
            _team.end(code)
        else:
            first = _team.find_end(_GRACE_S if code else inf)
            if first:
                _team.leave(first)
            sys.stdout, sys.stderr = stdout, stderr
            stderr.write(held.getvalue() if code else "")


def _check(team: Team, found: Mapping[str, str], *, trains: bool) -> None:
    """Refuse, in all processes alike, what they cannot do together."""
    if not trains:
        raise ConfigError(
            f"a launcher has started this command {team.size} times",
            expected=f"`groupwise run` alone ({START})",
        )
    if any(found.get(f"ACCELERATE_USE_{kind}") == "true" for kind in ("FSDP", "DEEPSPEED")):
        raise ConfigError(
            "accelerate's own configuration spreads the weights",
            fix="leave that out, and set compute.sharding=fsdp",
        )
    num_gpus = len(list_gpus())
    if num_gpus and team.local_size > num_gpus:
        raise ConfigError(
            f"{team.local_size} processes of this machine need a GPU each",
            got=num_gpus,
            fix="start fewer, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to train on the CPU",
        )


def help_first(recipe: Recipe[Any], config: Config, *, out: Path) -> bool:
    """Train with the first process whenever it does, until it has ended; False: this is the first.

    Args:
        recipe: what the run is of, as in the first process.
        config: of the run.
        out: its folder, which all processes find.

    Raises:
        RunError: if this process was started with other settings or packages than the first one,
            or that is gone.
    """
    if _team is None or _team.rank == 0:
        return False
    while told := _team.hear():
        assert recipe.task is not None
        task = recipe.task()
        planner = Planner(config, facts=task.facts(config, out), inputs=told["inputs"])
        stage = next((one for one in task.stages(config) if one.name == told["step"]), None)
        step = None if stage is None else make_step(stage, task, planner)
        own = {} if step is None else _introduce(config, step.inputs)
        if step is None or (others := [name for name in own if own[name] != told[name]]):
            raise RunError(
                f"process {_team.rank} on {socket.gethostname()} was started with other "
                f"{' and '.join(others) if step else 'settings'} than the first one",
                fix="start the same command everywhere, from the same installation",
            )
        step.run(
            StepContext(
                run=out,
                folder=out / step.name,
                name=step.name,
                is_resumed=told["is_resumed"],
                uses=step.uses,
                config=step.config,
                inputs=step.inputs,
            )
        )
    return True


def train_together(work: Callable[[], None], context: StepContext, config: Config) -> None:
    """Do a stage's work in this process, together with the others if there are any."""
    if _team is None:
        work()
        return
    if _team.rank == 0:
        context.say(f"{_team.size} processes train on {_team.device}")
        own = _introduce(config, context.inputs)
        _team.tell(step=context.name, is_resumed=context.is_resumed, **own)
    _team.train(work, config.compute if isinstance(config, FlowConfig) else ComputeSettings())


def _introduce(config: Config, inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return what all processes must have alike."""
    return {
        "settings": digest_json(dump_config(config)),
        "packages": dict(list_packages()),
        "inputs": dict(inputs),
    }
