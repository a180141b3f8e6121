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
from groupwise.evaluation.fairness import (
    CONDITIONS_FILE,
    USUAL_LINEAGE,
    USUAL_READS,
    Conditions,
    Difference,
    FairnessVerdict,
    ItemRelation,
    RunFacts,
    Sameness,
    check_fairness,
    count_grpo_budget,
    count_sampled_tokens,
    count_steps,
    describe_examples,
    describe_rewards,
    describe_rows,
    digest_prompts,
    digest_weights,
    read_conditions,
    read_facts,
    summarize_same,
    write_conditions,
)
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
from groupwise.evaluation.results import predict_each, write_evaluation

__all__ = [
    "CONDITIONS_FILE",
    "METRIC_VERSIONS",
    "POLICY_ORDER",
    "USUAL_LINEAGE",
    "USUAL_READS",
    "Conditions",
    "Confusion",
    "Difference",
    "DiscordantItem",
    "FairnessVerdict",
    "ItemRelation",
    "Items",
    "Metric",
    "PairedComparison",
    "Prediction",
    "ReliabilityBin",
    "RunFacts",
    "Sameness",
    "adjust",
    "bin_reliability",
    "check_fairness",
    "compare_items",
    "compare_pairs",
    "compare_policies",
    "compute_metrics",
    "count_confusion",
    "count_grpo_budget",
    "count_sampled_tokens",
    "count_steps",
    "describe_examples",
    "describe_rewards",
    "describe_rows",
    "digest_items",
    "digest_prompts",
    "digest_weights",
    "group_by_policy",
    "list_discordant",
    "list_measures",
    "predict_each",
    "predict_majority",
    "predict_picture_only",
    "predict_text_only",
    "read_comparisons",
    "read_conditions",
    "read_facts",
    "read_items",
    "read_metrics",
    "read_predictions",
    "score_brier",
    "score_calibration_error",
    "summarize_same",
    "write_comparisons",
    "write_conditions",
    "write_evaluation",
    "write_metrics",
    "write_predictions",
    "write_report",
]
