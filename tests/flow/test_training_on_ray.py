"""Workers of a Ray cluster train, bit for bit, what processes of this machine train together."""

import signal

import psutil
import pytest
from together_runs import Run, is_alive, measure_difference, wait_for

from groupwise.core import read_json

pytest.importorskip("ray.train.torch", reason="pip install 'groupwise[ray]'")
pytestmark = pytest.mark.slow

RAY = ("--set", "compute.engine=ray")


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("local"))
    run.finish(2)
    return run


def test_two_workers_train_what_two_processes_train(local: Run, tmp_path) -> None:
    run = Run(tmp_path / "ray")
    said = run.finish(2, *RAY)
    assert "2 processes on cpu train from the start" in said
    assert run.list_said() == local.list_said()
    assert run.list_scored() == local.list_scored()
    for step in ("sft", "grpo"):
        assert measure_difference(run, local, step) == 0
        assert run.list_metrics(step) == local.list_metrics(step)
        record = read_json(run.out / step / "processes.json", dict)
        assert record["engine"] == "ray"
        assert record["restarts"] == []
        assert "process 1 of 2 on" in (run.out / step / "processes" / "1.log").read_text()
        assert not list((run.out / step).glob(".groupwise-*"))


def test_where_a_worker_is_killed_all_start_again_and_end_as_if_none_had(
    local: Run, tmp_path
) -> None:
    run = Run(tmp_path / "killed")
    said = run.finish(2, *RAY, TOGETHER_DIES="sft:5 grpo:4")
    assert "process 1 was lost" in said
    assert "2 processes on cpu train from step 4" in said
    assert "2 processes on cpu train from step 3" in said
    for step in ("sft", "grpo"):
        assert len(run.list_restarts(step)) == 1
        assert measure_difference(run, local, step) == 0
        assert run.list_metrics(step) == local.list_metrics(step)


def test_one_worker_trains_what_the_run_itself_trains(tmp_path) -> None:
    here, there = Run(tmp_path / "here"), Run(tmp_path / "there")
    here.finish(1)
    there.finish(1, *RAY)
    assert measure_difference(here, there, "grpo") == 0


def test_no_worker_outlives_the_run_and_another_number_of_them_is_refused(tmp_path) -> None:
    run = Run(tmp_path / "orphans")
    driver = run.start(2, *RAY, TOGETHER_WAITS="sft:3")
    try:
        wait_for(lambda: (run.out / "sft" / "checkpoint-2" / "complete").exists())
        started = psutil.Process(driver.pid).children(recursive=True)
        assert any("ray::" in " ".join(one.cmdline()) for one in started)
    finally:
        driver.kill()
        driver.communicate()
    wait_for(lambda: not any(is_alive(one) for one in started))
    again = run.start(1, *RAY, "--resume")
    _, said = again.communicate()
    assert again.returncode == 2, said
    assert "checkpoint-2 was written by 2 training together; got compute.processes 1" in said
    assert run.list_restarts("sft") == []


def test_ctrl_c_ends_the_run_and_its_workers(tmp_path) -> None:
    run = Run(tmp_path / "stopped")
    driver = run.start(2, *RAY, TOGETHER_WAITS="sft:3")
    try:
        wait_for(lambda: (run.out / "sft" / "checkpoint-2" / "complete").exists())
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGTERM)
        _, said = driver.communicate()
    finally:
        driver.kill()
    assert driver.returncode == 130, said
    assert "Traceback" not in said
    wait_for(lambda: not any(is_alive(one) for one in started))
