"""What plans of recipes are made of."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from groupwise.core import Config
from groupwise.evaluation import METRIC_VERSIONS
from groupwise.pipeline import Planner, Step, StepContext, run_steps
from groupwise.pipeline.inputs import digest_code
from groupwise.pipeline.plans import bind_work


class Training(Config):
    epochs: int = 2
    rates: tuple[float, ...] = (0.5,)
    batch_size: int = 8


class Job(Config):
    seed: int = 7
    training: Training = Training()


def plan_step(reads: str, facts: Mapping[str, Any] = MappingProxyType({})) -> Step:
    return Planner(Job(), "heavy_work:WORK", facts).make_step("train", "", reads=reads)


def test_a_key_has_what_is_declared_settings_and_facts() -> None:
    reads = "seed training training.epochs metric_versions retry"
    assert plan_step(reads, {"retry": 3, "other": 4}).settings == {
        "seed": 7,
        "training": {"epochs": 2, "rates": [0.5], "batch_size": 8},
        "training.epochs": 2,
        "metric_versions": METRIC_VERSIONS,
        "retry": 3,
    }


def test_a_fact_stands_for_its_section_in_the_key_and_not_in_the_view() -> None:
    step = plan_step("training", {"training": "what counts"})
    assert step.settings == {"training": "what counts"}
    assert step.config.training == Training()


def test_a_work_that_reads_what_is_not_declared_stops_at_once(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "greedy_work.py").write_text(
        "WORK = {'train': lambda config, _: (config.training.epochs, config.seed)}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    planner = Planner(Job(), "greedy_work:WORK")
    whole, part = (planner.make_step("train", "", reads=r) for r in ("seed training", "training"))
    assert run_steps([whole], tmp_path)[0].state == "run"
    with pytest.raises(ValueError, match="step 'train' reads seed but does not list it in reads"):
        run_steps([part], tmp_path)


def test_work_is_imported_when_it_runs(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "heavy_work.py").write_text(
        "WORK = {'train': lambda *given: DONE.append(given), 'report': None}\nDONE = []\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = Job()
    work = bind_work("heavy_work:WORK", "train")
    assert "heavy_work" not in sys.modules
    context = StepContext(tmp_path, tmp_path / "train", "train", is_resumed=False, config=config)
    work(context)
    assert [(config, context)] == sys.modules.pop("heavy_work").DONE


def test_inputs_and_code_belong_to_the_steps_that_read_them() -> None:
    inputs = {"training.rates": "a", "seed": "b", "other": "c"}
    make = Planner(Job(), "any:WORK", inputs=inputs).make_step
    assert make("whole", "", reads="training").inputs == {"training.rates": "a"}
    assert make("part", "", reads="training.epochs").inputs == {}
    assert make("both", "", reads="seed training.rates").inputs == {
        "training.rates": "a",
        "seed": "b",
    }
    code = make("train", "", reads="", code="groupwise.rewards.labels").inputs
    assert code == digest_code("groupwise.rewards.labels")
