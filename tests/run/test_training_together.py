"""Several processes train what one trains, and a run whose processes die ends as if none had."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from together_task import SETTINGS
from waiting import wait_until

from groupwise.core import read_json, read_jsonl, write_json

pytestmark = pytest.mark.slow


_FIXTURES = Path(__file__).parents[1] / "fixtures"
_TIMEOUT_S = 1800
_CLOCKS = ("tokens_per_s", "step_s")


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "run"

    def start(
        self, processes: int, *more: str, restarts: int = 0, **environ: str
    ) -> subprocess.Popen[str]:
        """Start the command, by torchrun unless it is for one process."""
        self.folder.mkdir(exist_ok=True)
        write_json(self.folder / "config.json", SETTINGS)
        ways = [str(_FIXTURES), os.environ.get("PYTHONPATH", "")]
        own = {"TOGETHER_FOLDER": str(self.folder), "PYTHONPATH": os.pathsep.join(ways)}
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        launcher += [str(processes), "--max-restarts", str(restarts)]
        command = ["-m", "groupwise", "run", "together_task:TogetherTask"]
        command += ["--config", str(self.folder / "config.json"), "--out", str(self.out)]
        return subprocess.Popen(
            [sys.executable, *(launcher if processes > 1 else ()), *command, *more],
            env={**os.environ, "OMP_NUM_THREADS": "1", **own, **environ},
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, processes: int, *more: str, restarts: int = 0, **environ: str) -> str:
        started = self.start(processes, *more, restarts=restarts, **environ)
        try:
            _, said = started.communicate(timeout=_TIMEOUT_S)
        finally:
            started.kill()
        assert started.returncode == 0, said
        return said

    def list_said(self) -> list[str]:
        """Return the completions, of each round in an order of its own."""
        rows = [json.dumps(row) for row in read_jsonl(self.folder / "said.jsonl")]
        per_round = len(rows) // 3
        return [row for n in range(3) for row in sorted(rows[n * per_round : (n + 1) * per_round])]

    def list_scored(self):
        rows = [row for path in self.folder.glob("scored-*.jsonl") for row in read_jsonl(path)]
        return sorted(rows, key=lambda row: (row["step"], row["ids"]))

    def list_metrics(self, step: str):
        return [
            {name: value for name, value in row.items() if name not in _CLOCKS}
            for row in read_jsonl(self.out / step / "metrics.jsonl")
        ]

    def load_weights(self, step: str) -> dict[str, torch.Tensor]:
        [path] = (self.out / step / "policy").glob("*.safetensors")
        return load_file(path)


def measure_difference(first: Run, second: Run, step: str) -> float:
    weights, others = first.load_weights(step), second.load_weights(step)
    assert weights.keys() == others.keys()
    return max(float((weights[name] - others[name]).abs().max()) for name in weights)


def is_alive(worker: psutil.Process) -> bool:
    """Return whether a process works; one that nobody has waited for does not."""
    return worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("one"))
    run.finish(1)
    return run


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("two"))
    run.finish(2)
    return run


def check_alike(rows, others, **within: float) -> None:
    for row, other in zip(rows, others, strict=True):
        facts, same = row.pop("facts", None), other.pop("facts", None)
        assert facts == same
        assert row == pytest.approx(other, **within)


def check_scored_alike(one: Run, two: Run) -> None:
    for row, other in zip(one.list_scored(), two.list_scored(), strict=True):
        assert (row["step"], row["ids"]) == (other["step"], other["ids"])
        assert row["log_probs"] == pytest.approx(other["log_probs"], abs=1e-5)


def test_two_processes_sample_what_one_samples(one: Run, two: Run) -> None:
    said = one.list_said()
    assert said == two.list_said()
    assert len(set(said)) > len(said) / 2
    assert (one.out / "grpo/judge.json").read_bytes() == (two.out / "grpo/judge.json").read_bytes()


def test_they_compute_its_log_probabilities_in_every_update(one: Run, two: Run) -> None:
    assert {row["step"] for row in one.list_scored()} == set(range(6))
    check_scored_alike(one, two)


@pytest.mark.parametrize("step", ["sft", "grpo"])
def test_they_end_with_its_weights_metrics_and_budget(one: Run, two: Run, step: str) -> None:
    assert 0 < measure_difference(one, two, step) < 1e-6
    budget = read_json(one.out / step / "budget.json", dict)
    assert budget == read_json(two.out / step / "budget.json", dict)
    rows, others = one.list_metrics(step), two.list_metrics(step)
    check_alike(rows, others, rel=1e-3, abs=1e-5)
    looks = [row["step"] for row in others if "heldout/n" in row]
    assert looks == {"sft": [8], "grpo": [2, 4, 6]}[step]


def test_others_take_the_same_places_in_two_processes(tmp_path) -> None:
    """Two may try one prompt more; who takes which place does not follow from that."""
    runs = [Run(tmp_path / str(processes)) for processes in (1, 2)]
    options = ["--set", "grpo.refill.max_tries=9"]
    for processes, run in enumerate(runs, start=1):
        run.finish(processes, *options, TOGETHER_DEAD="1")
    check_scored_alike(*runs)
    assert 0 < measure_difference(*runs, "grpo") < 1e-6
    names = ("num_groups", "num_dead_groups", "num_filled_groups")
    counts = [
        [sum(row.get(name, 0) for row in run.list_metrics("grpo")) for name in names]
        for run in runs
    ]
    assert counts[0] == counts[1]
    num_groups, num_dead, num_filled = counts[0]
    assert num_groups > num_dead == num_filled > 0


def test_their_trainings_change_the_policy(two: Run) -> None:
    weights, trained = two.load_weights("sft"), two.load_weights("grpo")
    assert max(float((weights[n] - trained[n]).abs().max()) for n in weights) > 1e-3


@pytest.mark.parametrize("who", ["0", "1"])
def test_where_one_is_killed_all_start_again_and_end_as_if_none_had(
    two: Run, tmp_path: Path, who: str
) -> None:
    run = Run(tmp_path / "killed")
    said = run.finish(2, restarts=3, TOGETHER_DIES="sft:5 grpo:4", TOGETHER_WHO=who)
    assert said.count("2 processes train on cpu") == 4
    assert sorted(path.name for path in run.folder.glob("died-*")) == ["died-grpo:4", "died-sft:5"]
    for step in ("sft", "grpo"):
        assert f"{step} resumed in" in said
        assert measure_difference(run, two, step) == 0
        assert run.list_metrics(step) == two.list_metrics(step)
    assert not list(run.out.glob("*/checkpoint-*"))


def test_where_the_launcher_is_killed_the_same_command_goes_on(two: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "orphans")
    launcher = run.start(2, TOGETHER_WAITS="grpo:4")
    try:
        wait_until(lambda: (run.out / "grpo" / "checkpoint-3" / "complete").exists(), most_s=1800)
        workers = psutil.Process(launcher.pid).children()
        assert len(workers) == 2
    finally:
        launcher.kill()
        launcher.communicate()
    wait_until(lambda: not any(map(is_alive, workers)))
    said = run.finish(2, "--resume")
    assert "sft reused" in said
    assert "grpo resumed" in said
    assert measure_difference(run, two, "grpo") == 0
    assert run.list_metrics("grpo") == two.list_metrics("grpo")


def test_one_that_hangs_is_replaced(two: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "hung")
    said = run.finish(2, "--set", "compute.timeout_s=20", restarts=1, TOGETHER_STOPS="sft:5")
    assert "error: another process has ended, or made no progress in 20 s" in said
    for step in ("sft", "grpo"):
        assert measure_difference(run, two, step) == 0


SPREAD = ("--set", "compute.sharding=fsdp")


@pytest.fixture(scope="module")
def spread(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("spread"))
    run.finish(2, *SPREAD)
    return run


def test_weights_in_parts_end_as_whole_ones(two: Run, spread: Run) -> None:
    assert spread.list_said() == two.list_said()
    for step in ("sft", "grpo"):
        held = read_json(spread.out / step / "memory.json", dict)["processes"]
        assert len(held) == 2
        assert measure_difference(spread, two, step) < 1e-6
        check_alike(spread.list_metrics(step), two.list_metrics(step), rel=1e-4, abs=1e-6)


def test_weights_in_parts_go_on_from_a_checkpoint(spread: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "killed")
    said = run.finish(2, *SPREAD, restarts=3, TOGETHER_DIES="sft:5 grpo:4", TOGETHER_ADAM="")
    assert "sft resumed in" in said
    assert "grpo resumed in" in said
    assert not list(run.out.glob("*/checkpoint-*"))
    whole = Run(tmp_path / "whole")
    whole.finish(2, *SPREAD, TOGETHER_ADAM="")
    for step in ("sft", "grpo"):
        assert measure_difference(run, whole, step) == 0
        assert run.list_metrics(step) == whole.list_metrics(step)
