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
from groupwise.evaluation.items import Items, list_measures, read_items
from groupwise.evaluation.matching import DiscordantItem, list_discordant
from groupwise.evaluation.metrics import (
    METRIC_VERSIONS,
    Metric,
    compute_metrics,
    read_metrics,
    write_metrics,
)
from groupwise.evaluation.paired import (
    PairedComparison,
    adjust,
    compare_items,
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
    "METRIC_VERSIONS",
    "POLICY_ORDER",
    "Confusion",
    "DiscordantItem",
    "Items",
    "Metric",
    "PairedComparison",
    "Prediction",
    "ReliabilityBin",
    "adjust",
    "bin_reliability",
    "compare_items",
    "compare_pairs",
    "compare_policies",
    "compute_metrics",
    "count_confusion",
    "digest_items",
    "group_by_policy",
    "list_discordant",
    "list_measures",
    "predict_majority",
    "predict_picture_only",
    "predict_text_only",
    "read_comparisons",
    "read_items",
    "read_metrics",
    "read_predictions",
    "score_brier",
    "score_calibration_error",
    "write_comparisons",
    "write_metrics",
    "write_predictions",
    "write_report",
]
