"""Processes that train together: what a config may ask of them, their start and their end."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_task import LORA, SmallConfig, SmallTask

from groupwise.core import ConfigError, TrainingError, list_effects, read_json
from groupwise.flow import processes, run, workers
from groupwise.flow.settings import ComputeSettings
from groupwise.pipeline import StepContext, check_recipe, find_recipe

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_PATIENCE_S = 60
GRPO = LORA["grpo"] | {"entropy_bonus": 0.0}
TWO: dict[str, Any] = LORA | {"grpo": GRPO, "compute": {"processes": 2}}


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORKER", "fake_worker")
    monkeypatch.setattr(processes, "list_gpus", list)
    monkeypatch.setenv("PYTHONPATH", str(_FIXTURES), prepend=os.pathsep)


def make_context(
    run: Path, does: str, *, is_resumed: bool = False
) -> tuple[StepContext, list[str]]:
    said: list[str] = []
    (run / does).mkdir(exist_ok=True)
    context = StepContext(run, run / does, does, is_resumed=is_resumed, say=said.append)
    return context, said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"compute": {"processes": 3}},
            "compute.processes 3: sft.batch_size 4 cannot be shared equally; make it a multiple of "
            "the processes; grpo.prompts_per_step 4 cannot be shared equally",
        ),
        ({"compute": {"processes": 8}}, "grpo.prompts_per_step 4 cannot be shared equally"),
        ({"sft": {"batch_size": 3}}, "sft.batch_size 3 cannot be shared equally"),
        ({"grpo": GRPO | {"loss": "bnpo"}}, "grpo.loss bnpo is a mean over each process's own"),
        (
            {"grpo": GRPO | {"entropy_bonus": 0.01}},
            "grpo.entropy_bonus 0.01 is a mean over each process's own tokens; set it to 0",
        ),
        ({"grpo": GRPO | {"vllm": {}}}, "grpo.vllm samples for one process only"),
        ({"compute": {"processes": 0}}, "greater than or equal to 1"),
        (
            {
                "compute": {"processes": 2, "sharding": "fsdp"},
                "grpo": GRPO | {"trainable": {"method": "prompt"}},
            },
            "compute.sharding fsdp: grpo.trainable.method prompt was not tried; take lora or full",
        ),
    ],
)
def test_what_processes_would_train_otherwise_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        SmallConfig(**TWO | changes)
    SmallConfig(**TWO | changes | {"compute": {"processes": 1}})


def test_one_process_has_no_parts_to_hold() -> None:
    with pytest.raises(ValueError, match="sharding fsdp: one process holds all weights; raise"):
        SmallConfig(**TWO | {"compute": {"sharding": "fsdp"}})


def test_a_bad_config_is_one_sentence_and_exit_code_2(command_line: Any) -> None:
    ended = command_line(
        "run", "on_task", "--set", "compute.processes=3", "--out", "run", "--dry-run"
    )
    assert ended.returncode == 2
    assert "grpo.prompts_per_step 16 cannot be shared equally" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_dry_run_shows_the_layout(command_line: Any) -> None:
    settings = ["--set", "compute.processes=2", "--set", "compute.sharding=fsdp"]
    ended = command_line("run", "on_task", "--config", "demo", *settings, "--dry-run")
    assert ended.returncode == 0
    layout = "2 on cpu (gloo); each takes 8 of 16 rows of sft, 8 of 16 prompts of grpo at a time"
    assert f"{layout}, and holds 1/2 of the weights (FSDP2)" in " ".join(ended.stdout.split())


def test_more_processes_than_gpus_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "list_gpus", lambda: ["a GPU"])
    preview = check_recipe(
        find_recipe("small_task:SmallTask"), SmallConfig(**TWO), out=tmp_path / "run"
    )
    [problem] = preview.problems
    assert problem.startswith("compute.processes 2 need a GPU each; got 1; lower it")


def test_a_task_that_others_cannot_import_trains_alone(tmp_path: Path) -> None:
    class Local(SmallTask):
        """Only here."""

    with pytest.raises(ConfigError, match="Local has no import path, by which other processes"):
        run(Local, SmallConfig(**TWO), out=tmp_path / "run")


def test_no_step_is_done_again_for_another_layout() -> None:
    effects = list_effects(SmallConfig)
    fields = [f"compute.{name}" for name in ComputeSettings.model_fields]
    assert all(effects[field].is_place for field in fields)


def test_what_the_first_says_is_passed_on_and_all_logs_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    context, said = make_context(tmp_path, "ends")
    processes.work_together(context, ComputeSettings(processes=2))
    assert capfd.readouterr().err == "here is 0 of 2\n"
    assert said == ["2 processes on cpu train from the start"]
    logs = [(context.folder / "processes" / f"{rank}.log").read_text() for rank in range(2)]
    assert [log.splitlines()[-1] for log in logs] == ["here is 0 of 2", "here is 1 of 2"]
    record = read_json(context.folder / "processes.json", dict)
    layout = {"processes": 2, "device": "cpu", "backend": "gloo", "sharding": "none"}
    places = {"engine": "local", "nodes": 1, "hosts": [socket.gethostname()]}
    assert record == layout | places | {"restarts": []}


def test_where_one_dies_all_end_and_start_again(tmp_path: Path) -> None:
    context, said = make_context(tmp_path, "dies_once")
    processes.work_together(context, ComputeSettings(processes=2))
    assert said[1] == "process 1 killed by SIGKILL; all end and start again"
    [restart] = read_json(context.folder / "processes.json", dict)["restarts"]
    assert restart["why"] == "process 1 killed by SIGKILL"
    assert (context.folder / "processes" / "0.log").read_text().count("here is 0 of 2") == 2


def test_restarts_are_bounded_and_those_of_an_earlier_start_are_kept(tmp_path: Path) -> None:
    for num_starts in (1, 2):
        context, said = make_context(tmp_path, "dies", is_resumed=num_starts == 2)
        with pytest.raises(TrainingError, match="training stopped after 1 restarts: process"):
            processes.work_together(context, ComputeSettings(processes=2, max_restarts=1))
        assert sum("train from" in line for line in said) == 2
        assert len(read_json(context.folder / "processes.json", dict)["restarts"]) == num_starts


def test_what_one_refuses_is_said_in_its_words_and_not_tried_again(tmp_path: Path) -> None:
    context, said = make_context(tmp_path, "refuses")
    with pytest.raises(TrainingError, match=r"^The other process has no rows\.$"):
        processes.work_together(context, ComputeSettings(processes=2))
    assert len(said) == 1
    assert not is_alive(context.folder / "1.pid")


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_no_process_outlives_the_run(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "sleeps"
    folder.mkdir()
    program = _FIXTURES / "fake_worker.py"
    driver = subprocess.Popen([sys.executable, str(program), str(tmp_path)], cwd=tmp_path)
    try:
        pids = [folder / f"{rank}.pid" for rank in range(2)]
        wait_for(lambda: all(pid.is_file() and pid.read_text() for pid in pids))
        assert all(is_alive(pid) for pid in pids)
        driver.send_signal(number)
        driver.wait(_PATIENCE_S)
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: Path) -> bool:
    """Return whether a process works; one that nobody has waited for does not."""
    try:
        return psutil.Process(int(pid.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(is_true: Any) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
