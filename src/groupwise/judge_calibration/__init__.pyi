"""Calibration of judges: what people decided is put to a judge, and what it says is measured."""

from groupwise.judge_calibration.building import RuleJudge, build_judge, find_prompt, load_responder
from groupwise.judge_calibration.calibrate import (
    Calibration,
    CalibrationPlan,
    calibrate_judge,
    measure_recorded,
    plan_calibration,
)
from groupwise.judge_calibration.config import JudgeConfig
from groupwise.judge_calibration.measures import JudgeMeasures, measure_judge
from groupwise.judge_calibration.recorded import RecordedVerdicts, read_recorded
from groupwise.judge_calibration.rows import VerdictRow, read_verdicts, write_verdicts

__all__ = [
    "Calibration",
    "CalibrationPlan",
    "JudgeConfig",
    "JudgeMeasures",
    "RecordedVerdicts",
    "RuleJudge",
    "VerdictRow",
    "build_judge",
    "calibrate_judge",
    "find_prompt",
    "load_responder",
    "measure_judge",
    "measure_recorded",
    "plan_calibration",
    "read_recorded",
    "read_verdicts",
    "write_verdicts",
]
