"""Calibration of judges: what people decided is put to a judge, and what it says is measured."""

from groupwise.evaluation.judges.calibrate import (
    Calibration,
    CalibrationPlan,
    calibrate_judge,
    measure_recorded,
    plan_calibration,
)
from groupwise.evaluation.judges.config import JudgeConfig
from groupwise.evaluation.judges.measures import JudgeMeasures, measure_judge
from groupwise.evaluation.judges.recorded import RecordedVerdicts, read_recorded
from groupwise.evaluation.judges.rows import VerdictRow, read_verdicts, write_verdicts
from groupwise.evaluation.judges.rules import RuleJudge

__all__ = [
    "Calibration",
    "CalibrationPlan",
    "JudgeConfig",
    "JudgeMeasures",
    "RecordedVerdicts",
    "RuleJudge",
    "VerdictRow",
    "calibrate_judge",
    "measure_judge",
    "measure_recorded",
    "plan_calibration",
    "read_recorded",
    "read_verdicts",
    "write_verdicts",
]
