"""What the step ``evaluate`` leaves: the files that reports, comparisons and the gate read."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from groupwise.core import write_json
from groupwise.evaluation.fairness import Conditions
from groupwise.evaluation.metrics import Metric, write_metrics
from groupwise.evaluation.paired import PairedComparison, write_comparisons
from groupwise.evaluation.policies import RunPolicy, write_policies
from groupwise.evaluation.predictions import Prediction, Prompts, write_predictions
from groupwise.evaluation.report.tables import Section, write_sections


def write_evaluation(
    folder: Path,
    predictions: Sequence[Prediction],
    *,
    metrics: Sequence[Metric],
    comparisons: Sequence[PairedComparison],
    conditions: Conditions,
    policies: Sequence[RunPolicy],
    prompts: Prompts,
    sections: Sequence[Section] = (),
) -> None:
    """Write the files of an evaluation, under the names by which they are looked for.

    ``folder`` is the step's in the run folder; ``predictions`` of all policies and ``policies`` are
    in the order of reports; ``sections`` are what the recipe adds to the report.
    """
    write_predictions(folder / "predictions.jsonl", predictions)
    write_metrics(folder / "metrics.json", metrics)
    write_comparisons(folder / "comparisons.json", comparisons)
    write_json(folder / "conditions.json", conditions.model_dump())
    write_policies(folder.parent, policies)
    write_json(folder / "prompts.json", asdict(prompts))
    if sections:
        write_sections(folder / "sections.json", sections)
