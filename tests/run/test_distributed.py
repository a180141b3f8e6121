"""A run that a launcher has started several times: who works, who waits, and how all end."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from launched_task import SETTINGS, WAITED_S
from small_task import LORA, SmallConfig
from waiting import wait_until

from groupwise.core import ConfigError, list_effects, load_config, write_json
from groupwise.run.recipe import find_recipe
from groupwise.run.running import check_recipe
from groupwise.run.settings import ComputeSettings

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_TIMEOUT_S = 300
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def make_environ(**changes: str) -> dict[str, str]:
    ways = os.pathsep.join([str(_FIXTURES), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": ways, "OMP_NUM_THREADS": "1", **changes}


def make_command(folder: Path, *more: str) -> list[str]:
    write_json(folder / "config.json", SETTINGS)
    places = ["--config", str(folder / "config.json"), "--out", str(folder / "run")]
    return ["-m", "groupwise", "run", "launched_task:LaunchedTask", *places, *more]


def launch(
    folder: Path, does: str, *more: str, command: Sequence[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Start the command, or another one, by torchrun in two processes."""
    return subprocess.run(
        [*TORCHRUN, "2", *(command or make_command(folder, *more))],
        env=make_environ(LAUNCHED=does),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def read_sum(folder: Path) -> str:
    return (folder / "run/together/sum.txt").read_text()


def test_the_others_wait_longer_than_any_process_may_in_a_training(tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text("raise RuntimeError('a file of the working folder')")
    ended = launch(tmp_path, "waits", "--set", f"compute.timeout_s={WAITED_S - 2}")
    assert ended.returncode == 0, ended.stderr
    assert read_sum(tmp_path) == "3 of 2"
    assert ended.stderr.count("alone run in") == ended.stderr.count("together run in") == 1
    assert ended.stderr.count("  2 processes train on cpu") == 1
    assert ended.stdout.count("a library says something") == 1


def test_what_the_first_refuses_is_said_once_and_ends_all(tmp_path: Path) -> None:
    ended = launch(tmp_path, "refuses")
    assert ended.returncode == 1  # of torchrun
    assert ended.stderr.count("error: the first process has no rows") == 1
    assert ended.stderr.count("error: ") == 1
    assert ended.stderr.count("exitcode  : 2") >= 1
    assert 'Traceback (most recent call last):\n  File "/' not in ended.stderr.split("error: ")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "sentence"),
    [
        ("breaks", "ZeroDivisionError: the first process divides by zero"),
        ("refuses_together", "error: no process has rows"),
        ("refuses_first", "error: the first process has no judge"),
        ("refuses_alone", "error: the second process has no rows"),
    ],
)
def test_whoever_fails_says_it_once(tmp_path: Path, does: str, sentence: str) -> None:
    ended = launch(tmp_path, does)
    assert ended.returncode == 1
    assert ended.stderr.count(sentence) == 1
    assert ended.stderr.count("error: ") == sentence.count("error: ")
    assert not (tmp_path / "run/together/sum.txt").exists()


@pytest.mark.slow
def test_one_that_makes_no_progress_is_told(tmp_path: Path) -> None:
    ended = launch(tmp_path, "stops", "--set", "compute.timeout_s=6")
    assert ended.returncode == 1
    assert "error: another process has ended, or made no progress in 6 s (compute.timeout_s)" in (
        ended.stderr
    )
    assert launch(tmp_path, "").returncode == 0
    assert read_sum(tmp_path) == "3 of 2"


@pytest.mark.slow
def test_a_program_may_run_a_task_that_nobody_could_import(tmp_path: Path) -> None:
    program = [str(_FIXTURES / "launched_task.py"), str(tmp_path / "run")]
    ended = launch(tmp_path, "", command=program)
    assert ended.returncode == 0, ended.stderr
    for number in range(2):
        assert (tmp_path / f"run-{number}/together/sum.txt").read_text() == "3 of 2"
    assert (tmp_path / "run-went-on").is_dir()
    assert ended.stdout.count("Local has no import path") == 2


@pytest.mark.slow
def test_a_dry_run_shows_what_each_takes_and_refuses_what_cannot_be_shared(tmp_path: Path) -> None:
    shown = launch(tmp_path, "", "--dry-run", "--set", "compute.sharding=fsdp")
    assert shown.returncode == 0, shown.stderr
    layout = "2 on cpu; each takes 2 of 4 rows of sft, 2 of 4 prompts of grpo at a time, and holds"
    assert " ".join(shown.stdout.split()).count(layout) == 1
    refused = launch(tmp_path, "", "--dry-run", "--set", "sft.batch_size=3")
    assert "2 processes: sft.batch_size 3 cannot be shared equally; make it a" in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_processes_with_other_settings_are_refused(tmp_path: Path) -> None:
    start = "import os, runpy, sys; sys.argv += ['--set', 'num_rows=' + os.environ['RANK'] + '1']"
    program = tmp_path / "start.py"
    program.write_text(f"{start}; runpy.run_module('groupwise', run_name='__main__')")
    ended = launch(tmp_path, "", command=[str(program), *make_command(tmp_path)[2:]])
    assert ended.returncode == 1
    said = "was started with other settings than the first one; start the same command everywhere"
    assert ended.stderr.count(said) == ended.stderr.count("error: ") == 1


@pytest.mark.slow
def test_another_command_than_run_is_refused_once(tmp_path: Path) -> None:
    ended = launch(tmp_path, "", command=["-m", "groupwise", "run", "--list"])
    assert ended.stderr.count("error: a launcher has started this command 2 times") == 1
    assert ended.stdout == ""


@pytest.mark.slow
def test_no_process_outlives_its_launcher(tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [*TORCHRUN, "2", *make_command(tmp_path)],
        env=make_environ(LAUNCHED="waits"),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((tmp_path / "run/alone/started.json").exists, most_s=_TIMEOUT_S)
        workers = psutil.Process(launcher.pid).children()
        assert len(workers) == 2
    finally:
        launcher.kill()
        launcher.wait()
    psutil.wait_procs(workers, timeout=WAITED_S / 2)
    alive = [one for one in workers if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert alive == []


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"WORLD_SIZE": "2"},
            "WORLD_SIZE 2 is set, but torchrun has not started this; got no RANK, LOCAL_RANK, "
            "LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT; start it by",
        ),
        # As srun starts each process, without an agent that ends the others.
        (
            {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "a"},
            "got no LOCAL_WORLD_SIZE, MASTER_PORT, TORCHELASTIC_RESTART_COUNT; start it by a",
        ),
    ],
)
def test_processes_without_a_launcher_are_refused(
    environ: dict[str, str], sentence: str, command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert sentence in command_line.refuse("run", "on_task", "--dry-run")


def test_one_process_is_alone_and_does_not_see_its_launcher(
    command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    for name, value in one.items():
        monkeypatch.setenv(name, value)
    command_line.succeed("run", "--list")
    assert not {*one} & {*os.environ}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sft": {"batch_size": 3}}, "sft.batch_size 3 cannot be shared equally; make it a multi"),
        ({"grpo": {"prompts_per_step": 3}}, "grpo.prompts_per_step 3 cannot be shared equally"),
        ({"grpo": {"loss": "bnpo"}}, "grpo.loss bnpo is a mean over each process's own"),
        (
            {"grpo": {"entropy_bonus": 0.01}},
            "grpo.entropy_bonus 0.01 is a mean over each process's own tokens; set it to 0",
        ),
        ({"grpo": {"vllm": {}}}, "grpo.vllm samples for one process only"),
    ],
)
def test_what_processes_would_train_otherwise_is_listed(
    changes: dict[str, Any], sentence: str
) -> None:
    assert SmallConfig(**SETTINGS).list_unshared(2) == []
    settings = SETTINGS | {name: SETTINGS[name] | values for name, values in changes.items()}
    [problem] = SmallConfig(**settings).list_unshared(2)
    assert problem.startswith(sentence)


def test_prompts_are_not_trained_in_parts() -> None:
    grpo = SETTINGS["grpo"] | {"trainable": {"method": "prompt"}}
    with pytest.raises(ValueError, match=r"sharding fsdp: grpo.trainable.method prompt was not"):
        SmallConfig(**SETTINGS | {"compute": {"sharding": "fsdp"}, "grpo": grpo})


def test_one_process_has_no_parts_to_hold(tmp_path: Path) -> None:
    config = SmallConfig(**LORA | {"compute": {"sharding": "fsdp"}})
    preview = check_recipe(find_recipe("small_task:SmallTask"), config, out=tmp_path / "run")
    [problem] = preview.problems
    assert problem.startswith("compute.sharding fsdp: one process holds all weights; start several")


def test_no_step_is_done_again_for_another_layout() -> None:
    effects = list_effects(SmallConfig)
    fields = [f"compute.{name}" for name in ComputeSettings.model_fields]
    assert all(effects[field].is_place for field in fields)


def test_settings_of_the_former_launcher_name_torchrun(tmp_path: Path) -> None:
    former = {"processes": 4, "nodes": 1, "max_restarts": 3, "engine": "local", "address": None}
    sentence = r"compute.processes: the command starts .* torchrun --nproc-per-node 4 -m groupwise"
    write_json(tmp_path / "config.json", SETTINGS | {"compute": former})
    with pytest.raises(ConfigError, match=sentence):
        load_config(SmallConfig, tmp_path / "config.json")
    with pytest.raises(ConfigError, match=sentence):
        load_config(SmallConfig, SETTINGS, overrides=["compute.processes=4"])
    with pytest.raises(ValueError, match=r"compute.processes: the command starts no proc"):
        SmallConfig(**SETTINGS | {"compute": former})
    with pytest.raises(ValueError, match=r"compute.engine, compute.address: the command"):
        SmallConfig(**SETTINGS | {"compute": {"engine": "ray", "address": "auto"}})
    # What a finished run of theirs has recorded is still read; so are the defaults.
    recorded = SETTINGS | {"compute": former | {"timeout_s": 60.0}}
    assert load_config(SmallConfig, recorded).compute == ComputeSettings(timeout_s=60)
    write_json(tmp_path / "config.json", SETTINGS | {"compute": former | {"processes": 1}})
    assert load_config(SmallConfig, tmp_path / "config.json").compute == ComputeSettings()


def test_one_process_does_not_import_torch_distributed() -> None:
    code = "import sys, groupwise.run.distributed; print('torch.distributed' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
