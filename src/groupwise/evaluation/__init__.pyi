"""Measuring policies: predictions, metrics with intervals, paired comparison, baselines, report.

Reads predictions and files; trains nothing but the baselines.
"""

from groupwise.evaluation.baselines import (
    MAJORITY,
    PICTURE_ONLY,
    TEXT_ONLY,
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
    Conditions,
    Difference,
    FairnessVerdict,
    ItemRelation,
    RunFacts,
    Sameness,
    check_fairness,
    describe_examples,
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
from groupwise.evaluation.measures import Measure
from groupwise.evaluation.metrics import (
    Metric,
    compute_metrics,
    read_metrics,
    write_metrics,
)
from groupwise.evaluation.page import Table, Tile
from groupwise.evaluation.paired import (
    PairedComparison,
    adjust,
    compare_items,
    compare_pairs,
    compare_policies,
    read_comparisons,
    write_comparisons,
)
from groupwise.evaluation.policies import (
    POLICIES_FILE,
    Policies,
    RunPolicy,
    read_policies,
    write_policies,
)
from groupwise.evaluation.predictions import (
    NEAR_DUPLICATE,
    SEEN,
    Prediction,
    digest_items,
    group_by_policy,
    mark_items,
    read_predictions,
    write_predictions,
)
from groupwise.evaluation.prompts import Prompts, collect_prompts
from groupwise.evaluation.report import (
    Section,
    describe_metric,
    make_tile,
    read_sections,
    tabulate_policies,
    tabulate_trainable,
    write_report,
    write_sections,
)
from groupwise.evaluation.results import predict_each, write_evaluation
from groupwise.evaluation.versions import METRIC_VERSIONS

__all__ = [
    "CONDITIONS_FILE",
    "MAJORITY",
    "METRIC_VERSIONS",
    "NEAR_DUPLICATE",
    "PICTURE_ONLY",
    "POLICIES_FILE",
    "SEEN",
    "TEXT_ONLY",
    "Conditions",
    "Confusion",
    "Difference",
    "DiscordantItem",
    "FairnessVerdict",
    "ItemRelation",
    "Items",
    "Measure",
    "Metric",
    "PairedComparison",
    "Policies",
    "Prediction",
    "Prompts",
    "ReliabilityBin",
    "RunFacts",
    "RunPolicy",
    "Sameness",
    "Section",
    "Table",
    "Tile",
    "adjust",
    "bin_reliability",
    "check_fairness",
    "collect_prompts",
    "compare_items",
    "compare_pairs",
    "compare_policies",
    "compute_metrics",
    "count_confusion",
    "describe_examples",
    "describe_metric",
    "describe_rows",
    "digest_items",
    "digest_prompts",
    "digest_weights",
    "group_by_policy",
    "list_discordant",
    "list_measures",
    "make_tile",
    "mark_items",
    "predict_each",
    "predict_majority",
    "predict_picture_only",
    "predict_text_only",
    "read_comparisons",
    "read_conditions",
    "read_facts",
    "read_items",
    "read_metrics",
    "read_policies",
    "read_predictions",
    "read_sections",
    "score_brier",
    "score_calibration_error",
    "summarize_same",
    "tabulate_policies",
    "tabulate_trainable",
    "write_comparisons",
    "write_conditions",
    "write_evaluation",
    "write_metrics",
    "write_policies",
    "write_predictions",
    "write_report",
    "write_sections",
]
