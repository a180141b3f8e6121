"""Every policy of a run has its temperature, found by its weights, and confidence is that of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_task import PARSER, SmallTask

from groupwise.core import DataError, read_json
from groupwise.evaluation.metrics import Temperature, temper
from groupwise.evaluation.predictions import Prediction
from groupwise.flow import PolicyPredictor, answer_requests, name_version, open_run
from groupwise.flow.calibrating import make_calibration_sections, read_temperatures
from groupwise.flow.policies import RunPolicy
from groupwise.models import digest_base
from groupwise.rewards import LabelParser, Parsed
from groupwise.serving import Request

FILE = Path("evaluate", "calibration.json")


def test_a_run_fits_one_for_each_policy_on_validation_items_alone(finished: Path) -> None:
    rows = read_json(finished / FILE, dict)
    assert list(rows) == ["prompt", "sft", "sft_control", "grpo"]
    for name, row in rows.items():
        assert row["weights"] == digest_base(open_run(finished).find_policy(name))
        assert row["num_items"] <= 8
        assert (row["value"], row["reason"]) == (None, "fewer than 20 items")
    report = (finished / "report.md").read_text("utf-8")
    assert "Is the policy as sure as it should be?" in report
    assert "not fitted: fewer than 20 items" in report


def write(run: Path, **rows: object) -> Path:
    path = run / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows))
    return run


def test_confidence_is_that_of_the_temperature_of_these_weights(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Parsed(PARSER.labels[0])  # an untrained policy says nothing that is a label
    monkeypatch.setattr(LabelParser, "parse", lambda *given: said)
    run = open_run(finished)
    weights = str(digest_base(run.find_policy("grpo")))
    rows = {
        "grpo": {"weights": weights, "value": 4.0},
        "sft": {"weights": "other", "value": 0.1},
        "prompt": {"weights": None, "value": 2.0},
        "none": {"weights": "x", "value": None},
    }
    found = read_temperatures(write(tmp_path, **rows))
    assert found == {weights: 4.0, "other": 0.1}
    asked = [Request(str(n), {"question": f"第{n}个螺栓，合格还是不合格？"}) for n in range(6)]

    def ask(temperatures):
        place = run.find_policy("grpo")
        predictor = PolicyPredictor(SmallTask(), run.config, place, temperatures=temperatures)
        return predictor, answer_requests(predictor, asked)

    (plain, before), (other, untouched), (calibrated, after) = map(ask, ({}, {"other": 0.1}, found))
    assert untouched == before
    assert name_version(other) == name_version(plain) != name_version(calibrated)
    assert "temperature" not in plain.describe()
    assert calibrated.describe()["temperature"] == 4.0
    for one, two in zip(before, after, strict=True):
        assert one.answer
        assert replace(one, confidence=None) == replace(two, confidence=None)
        shares = {"said": one.confidence, "other": 1 - one.confidence}
        assert two.confidence == pytest.approx(temper(shares, 4.0)["said"], abs=1e-6)


def test_a_run_without_the_file_has_none(tmp_path: Path) -> None:
    assert read_temperatures(tmp_path) == {}


@pytest.mark.parametrize("row", [{"weights": 1, "value": 1}, {"weights": "w", "value": -1}])
def test_a_damaged_file_is_told(tmp_path: Path, row) -> None:
    with pytest.raises(DataError, match="has no temperature of grpo"):
        read_temperatures(write(tmp_path, grpo=row))


def make_prediction(number: int, confidence: float, policy: str = "grpo") -> Prediction:
    labels = PARSER.labels
    shares = {labels[0]: confidence, labels[1]: 1 - confidence}
    truth = labels[number % 10 >= 7]
    return Prediction(
        f"{number}", f"{number}", "test", policy, truth, labels[0], probabilities=shares
    )


def test_the_report_tells_the_error_before_and_after_in_both_languages() -> None:
    rows = [make_prediction(number, 0.99) for number in range(100)]
    rows += [make_prediction(number, 0.7, "majority") for number in range(100)]
    policy = RunPolicy(name="grpo", title="GRPO", title_zh="强化", kind="trained")
    english, chinese = make_calibration_sections(
        rows,
        {"grpo": Temperature(5.4, 96, 30)},
        labels=PARSER.labels,
        policies=[policy],
        seed=0,
    )
    (row,) = english.tables[0].rows
    assert row[:4] == ("GRPO", "5.4", "96", "30")
    assert str(row[4]).startswith("0.290")
    assert str(row[5]).startswith("0.00")
    assert "100 items of the split test" in english.text
    assert chinese.tables[0].rows[0][0] == "强化"
    assert (english.language, chinese.language) == ("en", "zh")
    assert not make_calibration_sections(rows, {}, labels=PARSER.labels, policies=[], seed=0)
