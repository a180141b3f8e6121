"""Several processes train what one trains, and a run whose processes die ends as if none had."""

from pathlib import Path

import psutil
import pytest
from together_runs import Run, is_alive, measure_difference, wait_for

from groupwise.core import read_json

pytestmark = pytest.mark.slow


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


def test_two_processes_sample_what_one_samples(one: Run, two: Run) -> None:
    said = one.list_said()
    assert said == two.list_said()
    assert len(set(said)) > len(said) / 2
    assert (one.out / "grpo/judge.json").read_bytes() == (two.out / "grpo/judge.json").read_bytes()


def test_they_compute_its_log_probabilities_in_every_update(one: Run, two: Run) -> None:
    scored, others = one.list_scored(), two.list_scored()
    assert {row["step"] for row in scored} == set(range(6))
    for row, other in zip(scored, others, strict=True):
        assert (row["step"], row["ids"]) == (other["step"], other["ids"])
        assert row["log_probs"] == pytest.approx(other["log_probs"], abs=1e-5)


@pytest.mark.parametrize("step", ["sft", "grpo"])
def test_they_end_with_its_weights_metrics_and_budget(one: Run, two: Run, step: str) -> None:
    assert 0 < measure_difference(one, two, step) < 1e-6
    budget = read_json(one.out / step / "budget.json", dict)
    assert budget == read_json(two.out / step / "budget.json", dict)
    rows, others = one.list_metrics(step), two.list_metrics(step)
    for row, other in zip(rows, others, strict=True):
        facts, same = row.pop("facts", None), other.pop("facts", None)
        assert facts == same
        assert row == pytest.approx(other, rel=1e-3, abs=1e-5)
    looks = [row["step"] for row in others if "heldout/n" in row]
    assert looks == {"sft": [8], "grpo": [2, 4, 6]}[step]


def test_others_take_the_same_places_in_two_processes(tmp_path) -> None:
    """Two may try one prompt more; who takes which place does not follow from that."""
    runs = [Run(tmp_path / str(processes)) for processes in (1, 2)]
    options = ["--set", "grpo.refill.max_tries=9"]
    for processes, run in enumerate(runs, start=1):
        run.finish(processes, *options, TOGETHER_DEAD="1")
    scored, others = (run.list_scored() for run in runs)
    for row, other in zip(scored, others, strict=True):
        assert (row["step"], row["ids"]) == (other["step"], other["ids"])
        assert row["log_probs"] == pytest.approx(other["log_probs"], abs=1e-5)
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
        wait_for(lambda: (run.out / "grpo" / "checkpoint-3" / "complete").exists())
        workers = psutil.Process(launcher.pid).children()
        assert len(workers) == 2
    finally:
        launcher.kill()
        launcher.communicate()
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
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
        for row, other in zip(spread.list_metrics(step), two.list_metrics(step), strict=True):
            facts, same = row.pop("facts", None), other.pop("facts", None)
            assert facts == same
            assert row == pytest.approx(other, rel=1e-4, abs=1e-6)


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
