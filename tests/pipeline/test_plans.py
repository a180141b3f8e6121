"""What plans of recipes are made of."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from groupwise.core import Config
from groupwise.evaluation.metrics import METRIC_VERSIONS
from groupwise.pipeline import Planner, Step, StepContext, run_steps
from groupwise.pipeline.plans import digest_code


class Training(Config):
    epochs: int = 2
    rates: tuple[float, ...] = (0.5,)
    batch_size: int = 8


class Job(Config):
    seed: int = 7
    training: Training = Training()


def plan_step(reads: str, facts: Mapping[str, Any] = MappingProxyType({})) -> Step:
    return Planner(Job(), facts).make_step("train", read_epochs_and_seed, reads=reads)


def read_epochs_and_seed(context: StepContext) -> None:
    assert (context.config.training.epochs, context.config.seed) == (2, 7)


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


def test_a_work_that_reads_what_is_not_declared_stops_at_once(tmp_path: Path) -> None:
    assert run_steps([plan_step("seed training")], tmp_path)[0].state == "run"
    with pytest.raises(ValueError, match="step 'train' reads seed but does not list it in reads"):
        run_steps([plan_step("training")], tmp_path)


def test_inputs_and_code_belong_to_the_steps_that_read_them() -> None:
    inputs = {"training.rates": "a", "seed": "b", "other": "c"}
    plan = partial(Planner(Job(), inputs=inputs).make_step, run=read_epochs_and_seed)
    assert plan("whole", reads="training").inputs == {"training.rates": "a"}
    assert plan("part", reads="training.epochs").inputs == {}
    assert plan("both", reads="seed training.rates").inputs == {
        "training.rates": "a",
        "seed": "b",
    }
    code = plan("train", reads="", code="groupwise.rewards.labels").inputs
    assert code == digest_code("groupwise.rewards.labels")
