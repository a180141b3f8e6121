"""What becomes of workers of a Ray cluster, as the run says it; no cluster is needed here."""

from pathlib import Path

import pytest
from small_task import LORA, SmallConfig

from groupwise.core import TrainingError
from groupwise.flow import on_ray, processes
from groupwise.flow.on_ray import RefusedError, explain_end, find_refused, work_on_ray
from groupwise.flow.settings import ComputeSettings
from groupwise.flow.worker import Job

RAY = ComputeSettings(processes=3, engine="ray")
DEAD = """A worker health check failed.
The actor died unexpectedly before finishing this task.
\tpid: 30941
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"""


class LostError(Exception):
    """As Ray Train raises it."""

    def __init__(self, **failures: Exception) -> None:
        super().__init__("Training failed due to worker errors:\n…")
        self.worker_failures = {int(rank[1:]): error for rank, error in failures.items()}


def test_what_one_refuses_is_said_in_its_words_whatever_the_others_lost() -> None:
    both = LostError(p0=RuntimeError("peer"), p1=RefusedError("It has no rows."))
    assert find_refused(both) == "It has no rows."
    assert find_refused(LostError(p0=RuntimeError("peer"))) is None
    assert find_refused(OSError("no space")) is None


def test_a_loss_is_one_line() -> None:
    lost = explain_end(LostError(p1=RuntimeError(DEAD)))
    assert lost == "process 1 was lost: The actor is dead because its worker process has died"
    assert explain_end(LostError(p0=ValueError("a\nb"))) == "process 0 was lost: ValueError: a"
    assert explain_end(OSError("no\nspace")) == "the cluster could not train: OSError: no"


def test_a_machine_that_does_not_find_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    job = Job("/shared/run", "sft", False, {}, "gloo", str(tmp_path / "none"), 60)
    with pytest.raises(RefusedError, match="does not find the run folder /shared/run; put it on"):
        work_on_ray({"job": job.to_json(), "cwd": str(tmp_path), "logs": str(tmp_path)})


@pytest.mark.parametrize(
    ("node", "device"), [({"CPU": 8.0}, "cpu"), ({"CPU": 8.0, "GPU": 3.0}, "cuda")]
)
def test_the_layout_is_that_of_the_cluster(
    node: dict[str, float], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "look_at_cluster", lambda compute: [node])
    layout = processes.find_layout(RAY)
    assert (layout.processes, layout.device, layout.engine) == (3, device, "ray")


def test_more_workers_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "import_ray", lambda *parts: None)
    monkeypatch.setattr(processes, "look_at_cluster", lambda compute: [{"CPU": 64.0, "GPU": 2.0}])
    with pytest.raises(TrainingError, match="3 need a GPU each; got 2"):
        processes.find_layout(RAY)
    monkeypatch.setattr(processes, "look_at_cluster", lambda compute: [{"CPU": 2.0}])
    with pytest.raises(TrainingError, match="3 need a CPU each; got 2; lower it, or join more"):
        processes.find_layout(RAY)


def test_an_address_needs_the_engine() -> None:
    with pytest.raises(ValueError, match=r"compute\.address auto needs compute\.engine ray"):
        SmallConfig(**LORA, compute={"address": "auto"})
