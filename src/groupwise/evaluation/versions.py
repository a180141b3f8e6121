"""Versions of the metrics, known without computing any."""

from collections.abc import Mapping

METRIC_VERSIONS: Mapping[str, int] = {
    "accuracy": 1,
    "accuracy_clustered": 3,
    "balanced_accuracy": 3,
    "brier": 3,
    "comparison": 3,
    "ece": 2,
    "f1": 3,
    "invalid_rate": 1,
    "latency": 1,
    "mean@k": 2,
    "pair_accuracy": 2,
    "pass@k": 2,
    "precision": 1,
    "recall": 1,
    "scores": 3,
    "slices": 1,
}
"""Version of each family of metrics; it rises with any change of a value or an interval."""
