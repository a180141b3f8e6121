"""A run by two machines, each a thread here: how they begin, work, and end together."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from small_task import LORA, SmallConfig

from groupwise.core import GroupwiseError, RunError, TrainingError, read_json
from groupwise.flow import channels, crew, processes, workers
from groupwise.flow.crew import CREW, introduce, lead
from groupwise.flow.helping import help_first, share_run
from groupwise.flow.machines import Machine
from groupwise.pipeline import StepContext

_FIXTURES = Path(__file__).parents[1] / "fixtures"
GRPO = LORA["grpo"] | {"entropy_bonus": 0.0}
CONFIG = SmallConfig(**LORA | {"grpo": GRPO, "compute": {"processes": 4, "nodes": 2}})
FIRST = Machine(0, 2, "127.0.0.1")


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORKER", "fake_worker")
    monkeypatch.setattr(processes, "list_gpus", list)
    monkeypatch.setattr(crew, "list_gpus", list)
    monkeypatch.setenv("PYTHONPATH", str(_FIXTURES), prepend=os.pathsep)


class Helper(Thread):
    """The other machine; ``changes`` are told of it instead of what it is."""

    def __init__(self, out: Path, **changes: Any) -> None:
        super().__init__(daemon=True)
        self.out, self.changes = out, changes
        self.error: GroupwiseError | None = None
        self.said: list[str] = []
        self.start()

    def run(self) -> None:
        """Help until the first machine has ended."""
        told = introduce(Machine(1, 2), CONFIG, recipe="small") | {"host": "second"}
        try:
            help_first(channels.enter(self.out), told | self.changes, say=self.said.append)
        except GroupwiseError as error:
            self.error = error


def work_together(run: Path, does: str, **compute: Any) -> tuple[Helper, list[str]]:
    """Do a step by four processes of two machines; return the other one and what was said."""
    said: list[str] = []
    (run / does).mkdir()
    context = StepContext(run, run / does, does, is_resumed=False, say=said.append)
    helper = Helper(run)
    settings = CONFIG.compute.model_copy(update=compute)
    try:
        with lead(FIRST, CONFIG, recipe="small", out=run, say=said.append):
            processes.work_together(context, settings)
    finally:
        helper.join()
    return helper, said


def test_each_machine_has_its_part_of_the_processes(tmp_path: Path) -> None:
    helper, said = work_together(tmp_path, "ends")
    assert helper.error is None
    assert helper.said == ["ends: 2 of 4 processes are here"]
    assert said[-1] == "4 processes on cpu train from the start"
    logs = [(tmp_path / f"ends/processes/{rank}.log").read_text() for rank in range(4)]
    places = [log.splitlines()[-1].removeprefix("here is ") for log in logs]
    assert places == [f"{rank} of 4, {rank % 2} of 2 on lo" for rank in range(4)]
    record = read_json(tmp_path / "ends/processes.json", dict)
    assert (record["nodes"], record["hosts"][1]) == (2, "second")
    assert not (tmp_path / channels.CARD).exists()


def test_where_one_dies_those_of_all_machines_end_and_start_again(tmp_path: Path) -> None:
    helper, said = work_together(tmp_path, "dies_far_once")
    assert said[-2] == "process 3 killed by SIGKILL; all end and start again"
    assert helper.error is None
    assert len(helper.said) == 2


def test_what_one_refuses_elsewhere_is_said_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"^The far process has no rows\.$"):
        work_together(tmp_path, "refuses_far")


def test_a_hung_process_of_another_machine_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as caught:
        work_together(tmp_path, "hangs_far", timeout_s=600, max_restarts=0)
    assert "process 3 made no progress while process 0 waited 600 s for it" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"config": "another"}, r"machine 1 \(second\) was started with other settings than the"),
        ({"packages": {}}, r"machine 1 \(second\) has other packages than the first .* got \w+ N"),
        ({"rank": 0}, r"two machines say that they are number 0; got second"),
    ],
)
def test_machines_that_would_not_train_the_same_end_with_the_same_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    helper = Helper(tmp_path, **changes)
    with (
        pytest.raises(RunError, match=sentence) as caught,
        lead(FIRST, CONFIG, recipe="small", out=tmp_path, say=str),
    ):
        raise AssertionError
    helper.join()
    assert str(helper.error) == f"the first machine has ended: {caught.value}"


def test_a_machine_without_enough_gpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "list_gpus", lambda: ["a GPU", "another"])
    Helper(tmp_path, num_gpus=1)
    with (
        pytest.raises(RunError, match="needs a GPU for each of 2 processes; got 1"),
        lead(FIRST, CONFIG, recipe="small", out=tmp_path, say=str),
    ):
        raise AssertionError


def test_a_machine_that_does_not_come_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MEET_S", 0.2)
    with (
        pytest.raises(RunError, match="machines 1 of 2 did not come within 0 s"),
        lead(FIRST, CONFIG, recipe="small", out=tmp_path, say=str),
    ):
        raise AssertionError


def _refuse() -> None:
    raise RunError("the disk is full")


def _break() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("work", "end"),
    [
        (_refuse, "the first machine has ended: the disk is full."),
        (_break, "the first machine has ended: it was stopped, or has a bug that is told there."),
    ],
)
def test_the_others_are_told_how_the_first_has_ended(
    tmp_path: Path, work: Callable[[], None], end: str
) -> None:
    helper = Helper(tmp_path)
    with (
        suppress(RunError, ZeroDivisionError),
        lead(FIRST, CONFIG, recipe="small", out=tmp_path, say=str),
    ):
        work()
    helper.join()
    assert str(helper.error) == end
    assert CREW.get().others == ()


def test_a_step_without_its_machines_is_refused(tmp_path: Path) -> None:
    context = StepContext(tmp_path, tmp_path, "ends", is_resumed=False)
    with pytest.raises(TrainingError, match=r"compute\.nodes 2 are machines on each of which"):
        processes.work_together(context, CONFIG.compute)


def test_another_config_has_one_machine(tmp_path: Path) -> None:
    done: list[int] = []
    config = CONFIG.model_copy(update={"compute": CONFIG.compute.model_copy(update={"nodes": 1})})
    assert share_run(lambda: done.append(1), config, recipe="small", out=tmp_path, say=str)
    assert done == [1]
