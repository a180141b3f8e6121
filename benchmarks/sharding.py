"""Training by several processes, each with all weights (DDP) or with a part (FSDP2), against one.

Exactness: five steps of one, two and four processes on the CPU, which sample by the seeds of rows;
losses, gradients and weights against those of one process. Memory: bytes of the live tensors that a
process holds: parameters, gradients, states of the optimizer. Bytes moved: what a process receives
in a step at least, of tensors of S bytes among n processes (n - 1) / n x S in an all-gather or a
reduce-scatter, twice that in an all-reduce. FSDP2's are counted where it calls torch.distributed;
DDP's follow from the shapes of the gradients. Speed: two processes with FSDP2, Groupwise's trainer
and stock TRL's, one after the other in the same processes; medians of steps after the first.

    python benchmarks/sharding.py --json benchmarks/results/sharding.json
"""

import argparse
import copy
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from grpo_models import Shape, Sizes, build_policy, make_rows, score_completions
from grpo_runner import make_arguments
from grpo_step import CPU, SHAPES
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback
from trl import GRPOTrainer

from groupwise.core import describe_machine, write_json
from groupwise.models.policy import project_patches_fast
from groupwise.models.silence import silence_libraries
from groupwise.training.fast.trainer import FastGRPOTrainer
from groupwise.training.settings import SpeedSettings
from groupwise.training.sharding import ShardedTraining

NUM_STEPS = 5
COUNTS = (1, 2, 4)
SMALL = Sizes(num_layers=4, hidden_size=192, vision_layers=3, vision_size=128, side=112)
JOBS = {
    "text, all weights": Shape(group_size=8, num_tokens=8, prompt_tokens=64, beta=0.0),
    "picture, LoRA": Shape(group_size=8, num_tokens=8, beta=0.0),
}
OPTIMIZERS = {"sgd": 0.01, "adamw_torch": 1e-5}


class StockTrainer(ShardedTraining, GRPOTrainer):
    """TRL's trainer, which Accelerate would not spread on a CPU."""


class Meter(TrainerCallback):
    """Keeps what steps cost and, where asked, what they computed."""

    def __init__(self, *, keeps_gradients: bool) -> None:
        self.keeps_gradients = keeps_gradients
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.times: list[tuple[float, float]] = []
        self.held: dict[str, int] = {}
        self.started = (0.0, 0.0)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clocks."""
        self.started = time.perf_counter(), time.process_time()

    def on_pre_optimizer_step(self, *_: Any, **named: Any) -> None:
        """Keep the whole gradient."""
        if self.keeps_gradients:
            trained = named["model"].named_parameters()
            self.gradients.append(
                {n.removeprefix("module."): join(p.grad) for n, p in trained if p.grad is not None}
            )

    def on_optimizer_step(self, *_: Any, **named: Any) -> None:
        """Count what this process holds when it holds all of it."""
        parameters = list(named["model"].parameters())
        states = [v for state in named["optimizer"].state.values() for v in state.values()]
        self.held = {
            "parameters": count_bytes(parameters),
            "gradients": count_bytes([p.grad for p in parameters if p.grad is not None]),
            "states": count_bytes([v for v in states if isinstance(v, torch.Tensor)]),
        }

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop the clocks."""
        wall, own = self.started
        self.times.append((time.perf_counter() - wall, time.process_time() - own))


def join(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor that may be spread, whole."""
    value = value.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value.clone()


def count_bytes(values: list[torch.Tensor]) -> int:
    """Return the bytes that this process holds of them."""
    return sum((v.to_local() if isinstance(v, DTensor) else v.detach()).nbytes for v in values)


def count_moved(name: str, *, whole: int, moved: Counter[str]) -> None:
    """Let ``moved`` have the bytes of whole tensors in a collective of torch.distributed.

    Args:
        name: of the function, which FSDP2 calls.
        whole: place of the whole tensor among its arguments.
        moved: takes them.
    """
    own = getattr(torch.distributed, name)

    def call(*given: Any, **named: Any) -> Any:
        tensors = [*given, *named.values()]
        moved[name] += tensors[whole].nbytes
        return own(*given, **named)

    setattr(torch.distributed, name, call)


@cache
def load(shape: Shape, sizes: Sizes) -> tuple[Any, Any]:
    """Return a policy; it is written on the way, which of several processes only the first does."""
    return build_policy(shape, sizes)


def make_trainer(
    kind: str,
    how: str,
    shape: Shape,
    sizes: Sizes,
    *,
    num_steps: int,
    num_processes: int,
    **more: Any,
) -> Any:
    """Return a trainer of one of several processes.

    Args:
        kind: ``stock`` or ``fast``.
        how: ``ddp`` or ``fsdp``.
        shape: of the job, over all processes.
        sizes: of the model.
        num_steps: of the optimizer.
        num_processes: that train together.
        more: arguments of GRPOConfig; with ``trains_all`` there is no LoRA.
    """
    trains_all = more.pop("trains_all", False)
    model, processor = copy.deepcopy(load(shape, sizes))
    if trains_all:
        model = model.unload()
        model.requires_grad_(requires_grad=True)
    if kind == "fast":
        project_patches_fast(model)
    tokenizer = getattr(processor, "tokenizer", processor)
    rows = make_rows(shape, tokenizer, num_steps=num_steps, picture_size=sizes.picture_size)
    spread = {"fsdp": True, "fsdp_config": {"version": 2}} if how == "fsdp" else {}
    arguments = make_arguments(
        shape,
        model,
        CPU,
        per_device_train_batch_size=shape.num_prompts * shape.group_size // num_processes,
        max_steps=num_steps,
        lr_scheduler_type="constant",
        shuffle_dataset=False,
        ddp_find_unused_parameters=False,
        **spread,
        **more,
    )
    own = {} if kind == "stock" else {"speed": SpeedSettings(shared_prefix="on")}
    return (StockTrainer if kind == "stock" else FastGRPOTrainer)(
        model=model,
        reward_funcs=[score_completions],
        args=arguments,
        train_dataset=rows,
        processing_class=processor,
        **own,
    )


def watch(trainer: Any) -> tuple[list[float], list[Any]]:
    """Return lists that will have this process's losses and completions."""
    own_step, own_sampling = trainer.training_step, trainer._generate_single_turn
    losses: list[float] = []
    said: list[Any] = []

    def step(model: Any, rows: Any, *rest: Any) -> Any:
        first = trainer.accelerator.process_index * len(rows)
        size = trainer.num_generations
        seeded = [{**row, "sampling_seed": (first + n) // size} for n, row in enumerate(rows)]
        losses.append(float(loss := own_step(model, seeded, *rest)))
        return loss

    def sample(*given: Any, **named: Any) -> Any:
        said.append((output := own_sampling(*given, **named))[0])
        return output

    trainer.training_step, trainer._generate_single_turn = step, sample
    return losses, said


def train_exactly(job: str, how: str, optimizer: str, num_processes: int) -> dict[str, Any]:
    """Return losses, gradients, completions, weights and bytes of a training."""
    meter, moved = Meter(keeps_gradients=True), Counter[str]()
    trainer = make_trainer(
        "fast",
        how,
        JOBS[job],
        SMALL,
        num_steps=NUM_STEPS,
        num_processes=num_processes,
        trains_all=job.endswith("all weights"),
        optim=optimizer,
        learning_rate=OPTIMIZERS[optimizer],
        max_grad_norm=0.0,
    )
    losses, said = watch(trainer)
    trainer.add_callback(meter)
    plain = torch.distributed.all_gather_single, torch.distributed.reduce_scatter_single
    if how == "fsdp":
        count_moved("all_gather_single", whole=0, moved=moved)
        count_moved("reduce_scatter_single", whole=1, moved=moved)
    trainer.train()
    torch.distributed.all_gather_single, torch.distributed.reduce_scatter_single = plain
    trained = [(n, p) for n, p in trainer.model.named_parameters() if p.requires_grad]
    share = (num_processes - 1) / num_processes
    if how == "fsdp":
        received = {name: share * size / NUM_STEPS for name, size in moved.items()}
    else:
        received = {"all_reduce": 2 * share * sum(p.nbytes for _, p in trained)}
    return {
        "losses": torch.tensor(gather_object([losses])).mean(0),
        "gradients": meter.gradients,
        "weights": {n.removeprefix("module."): join(p) for n, p in trained},
        "said": [gather_object(rows) for rows in said],
        "held": gather_object([meter.held]),
        "received": received,
        "shares": all(gather_object([trainer._shares])),
    }


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return how far a training is from that of one process."""

    def flatten(values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([values[name].flatten() for name in sorted(values)])

    pairs = [
        (flatten(a), flatten(b)) for a, b in zip(one["gradients"], other["gradients"], strict=True)
    ]
    return {
        "same_completions": one["said"] == other["said"],
        "shares_prompts": other["shares"],
        "loss": [float(gap) for gap in (one["losses"] - other["losses"]).abs()],
        "gradient": [float((a - b).norm() / a.norm()) for a, b in pairs],
        "weights": float((flatten(one["weights"]) - flatten(other["weights"])).abs().max()),
        "held_mib": {
            name: max(held[name] for held in other["held"]) / 2**20 for name in other["held"][0]
        },
        "received_mib": {name: size / 2**20 for name, size in other["received"].items()},
    }


def measure_speed(num_processes: int, num_steps: int) -> dict[str, Any]:
    """Return what a step costs by both trainers, on image-short spread by FSDP2."""
    found: dict[str, Any] = {"shape": "image-short", "processes": num_processes}
    for kind in ("stock", "fast"):
        meter = Meter(keeps_gradients=False)
        trainer = make_trainer(
            kind,
            "fsdp",
            SHAPES["image-short"],
            Sizes(),
            num_steps=num_steps,
            num_processes=num_processes,
        )
        trainer.add_callback(meter)
        trainer.train()
        times = gather_object([meter.times[1:]])
        steps = list(zip(*times, strict=True))
        found[kind] = {
            "wall_s": statistics.median(max(own[0] for own in step) for step in steps),
            "cpu_s": statistics.median(sum(own[1] for own in step) for step in steps),
            "held_mib": {name: size / 2**20 for name, size in meter.held.items()},
        }
        del trainer
    for clock in ("wall_s", "cpu_s"):
        found[f"ratio_{clock}"] = found["stock"][clock] / found["fast"][clock]
    return found


def start(num_processes: int, *given: str) -> None:
    """Run this program as processes that talk over the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(num_processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, __file__, *given],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(num_processes)
    ]
    if any([child.wait() for child in children]):
        raise SystemExit("a process failed")


def work(part: str, out: Path, num_steps: int) -> None:
    """Do the part of one of the processes; the first one writes."""
    torch.set_num_threads(1)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    found: dict[Any, Any] = {}
    with silence_libraries():
        load(SHAPES["image-short"], Sizes())
        for shape in JOBS.values():
            load(shape, SMALL)
        if part == "speed":
            found = measure_speed(num_processes, num_steps)
        else:
            for job in JOBS:
                for optimizer in OPTIMIZERS:
                    for how in ("ddp", "fsdp") if num_processes > 1 else ("ddp",):
                        key = job, optimizer, how
                        found[key] = train_exactly(*_order(key), num_processes)
    if os.environ.get("RANK", "0") == "0":
        torch.save(found, out)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of the process group may abort a process whose work is done


def _order(key: tuple[str, str, str]) -> tuple[str, str, str]:
    job, optimizer, how = key
    return job, how, optimizer


def measure_exactness(folder: Path) -> list[dict[str, Any]]:
    """Return a row for every job, optimizer, number of processes and way to spread."""
    made = {}
    for count in COUNTS:
        start(count, "--part", "exactness", "--out", str(folder / f"{count}.pt"))
        made[count] = torch.load(folder / f"{count}.pt")
    return [
        {
            "job": job,
            "optimizer": optimizer,
            "how": how if count > 1 else "one process",
            "processes": count,
            **compare(made[1][job, optimizer, "ddp"], found),
        }
        for count in COUNTS
        for (job, optimizer, how), found in made[count].items()
    ]


def main() -> None:
    """Measure and write; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", type=int, default=4, help="of each trainer, where time is taken")
    parser.add_argument("--measure", nargs="+", default=("exactness", "speed"))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        work(options.part, options.out, options.steps)
    found: dict[str, Any] = {}
    if options.json and options.json.is_file():
        found = json.loads(options.json.read_text())
    command = "python benchmarks/sharding.py"
    found |= {"machine": describe_machine(), "command": command}
    with tempfile.TemporaryDirectory() as folder:
        if "exactness" in options.measure:
            found["rows"] = measure_exactness(Path(folder))
        if "speed" in options.measure:
            out = Path(folder) / "speed.pt"
            start(2, "--part", "speed", "--out", str(out), "--steps", str(options.steps))
            found["speed"] = torch.load(out)
    if options.json:
        write_json(options.json, found)
    print(json.dumps(found.get("rows", found.get("speed")), indent=1))


if __name__ == "__main__":
    main()
