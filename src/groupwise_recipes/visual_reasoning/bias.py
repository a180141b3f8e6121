"""What words alone tell of the answer: probes of a run's rows, and what the audit says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.core import Example, Finding
from groupwise_recipes.visual_reasoning.loading import SplitRows
from groupwise_recipes.visual_reasoning.probe import (
    ProbeName,
    ProbeScore,
    check_probe,
    find_opposite_captions,
    fit_probe,
)
from groupwise_recipes.visual_reasoning.rows import VisualRow
from groupwise_recipes.visual_reasoning.variants import BiasedVariant, find_side

BIAS = "bias"
"""Field of test items: what the bias of training says of them."""
BIAS_NAME = "bias.json"
_PROBES: tuple[ProbeName, ...] = ("relation", "caption")


def describe_bias(
    loaded: SplitRows, train: Sequence[VisualRow], test: Sequence[VisualRow]
) -> dict[str, Any]:
    """Return what probes without a picture make of rows, as JSON values with findings."""
    known, asked = (
        [row for row in rows if row.is_statement and row.relation is not None]
        for rows in (train, test)
    )
    findings = [_soften(one) for one in loaded.shared]
    told = _describe_variant(loaded.variant, asked)
    if known and asked:
        findings += find_opposite_captions(known, asked)
        for name in _PROBES:
            probe = fit_probe(known, name)
            fitted, held_out = probe.score(known), probe.score(asked)
            told[name] = {"in_sample": fitted.to_json(), "test": held_out.to_json()}
            findings += [_tell_fit(fitted, name), *check_probe(held_out, name)]
    return {**told, "findings": [finding.to_json() for finding in findings]}


def read_findings(told: Mapping[str, Any]) -> list[Finding]:
    """Return the findings of ``describe_bias``."""
    return [Finding(**{**one, "where": tuple(one["where"])}) for one in told["findings"]]


def mark_sides(
    rows: Sequence[VisualRow], examples: Sequence[Example], labels: Mapping[str, str] | None
) -> list[Example]:
    """Return the examples of rows, each with what the bias says of it, where there is one.

    ``labels`` are those that training kept, by relation; None: it was not biased.
    Ids stay: a relation with as many true as false rows has one side under one seed and the other
    under another, and remains the same item.
    """
    if labels is None:
        return list(examples)
    return [
        replace(example, fields={**example.fields, BIAS: find_side(row, labels)})
        for row, example in zip(rows, examples, strict=True)
    ]


def _describe_variant(variant: BiasedVariant | None, test: Sequence[VisualRow]) -> dict[str, Any]:
    if variant is None:
        return {"keep": None}
    sides = [find_side(row, variant.kept_labels) for row in test]
    return {
        "keep": variant.keep,
        "num_train": len(variant.rows),
        "kept_labels": dict(variant.kept_labels),
        "ties": list(variant.ties),
        "num_test": {side: sides.count(side) for side in sorted(set(sides))},
    }


def _soften(shared: Finding) -> Finding:
    """Return the finding as a warning, for nothing is trained on that is measured."""
    message = f"{shared.message} Their rows are left out of the former."
    return replace(shared, level="warning", message=message)


def _tell_fit(score: ProbeScore, name: ProbeName) -> Finding:
    p_value = f"= {score.p_value:.2g}" if score.p_value > 0 else "< 1e-300"
    message = (
        f"A probe that sees the {name} alone is right in {score.accuracy:.1%} of the "
        f"{score.num_rows:,} rows of training that it was made from "
        f"(p {p_value}, two-sided)."
    )
    return Finding("info", f"text_probe_of_{name}_in_sample", message, score.num_rows)
