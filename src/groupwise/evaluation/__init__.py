"""Measuring policies: predictions, metrics with intervals, paired comparison, baselines, report.

Reads predictions and files; trains nothing but the baselines.
"""

from groupwise.evaluation.baselines import (
    predict_majority,
    predict_picture_only,
    predict_text_only,
)
from groupwise.evaluation.calibration import (
    ReliabilityBin,
    bin_reliability,
    score_brier,
    score_calibration_error,
)
from groupwise.evaluation.confusion import Confusion, count_confusion
from groupwise.evaluation.metrics import (
    METRIC_VERSION,
    Metric,
    compute_metrics,
    read_metrics,
    write_metrics,
)
from groupwise.evaluation.paired import (
    PairedComparison,
    compare_pairs,
    compare_policies,
    read_comparisons,
    write_comparisons,
)
from groupwise.evaluation.predictions import (
    POLICY_ORDER,
    Prediction,
    digest_items,
    group_by_policy,
    read_predictions,
    write_predictions,
)
from groupwise.evaluation.report import write_report

__all__ = [
    "METRIC_VERSION",
    "POLICY_ORDER",
    "Confusion",
    "Metric",
    "PairedComparison",
    "Prediction",
    "ReliabilityBin",
    "bin_reliability",
    "compare_pairs",
    "compare_policies",
    "compute_metrics",
    "count_confusion",
    "digest_items",
    "group_by_policy",
    "predict_majority",
    "predict_picture_only",
    "predict_text_only",
    "read_comparisons",
    "read_metrics",
    "read_predictions",
    "score_brier",
    "score_calibration_error",
    "write_comparisons",
    "write_metrics",
    "write_predictions",
    "write_report",
]
