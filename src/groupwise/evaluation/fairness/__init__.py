"""The fairness gate: what runs differ in beside what is compared, and what is too much the same.

Recipes write their conditions with ``write_conditions``; ``read_facts`` and ``check_fairness`` hold
run folders together. Nothing is measured here.
"""

from groupwise.evaluation.fairness.conditions import (
    CONDITIONS_FILE,
    Conditions,
    describe_examples,
    describe_rows,
    digest_prompts,
    digest_weights,
    read_headline,
    read_measures,
    read_recorded,
    write_conditions,
)
from groupwise.evaluation.fairness.facts import RunFacts, read_facts
from groupwise.evaluation.fairness.finding import Difference, DifferenceKind, ItemRelation
from groupwise.evaluation.fairness.scope import Scope
from groupwise.evaluation.fairness.verdict import (
    FairnessVerdict,
    Sameness,
    check_fairness,
    summarize_same,
)

__all__ = [
    "CONDITIONS_FILE",
    "Conditions",
    "Difference",
    "DifferenceKind",
    "FairnessVerdict",
    "ItemRelation",
    "RunFacts",
    "Sameness",
    "Scope",
    "check_fairness",
    "describe_examples",
    "describe_rows",
    "digest_prompts",
    "digest_weights",
    "read_facts",
    "read_headline",
    "read_measures",
    "read_recorded",
    "summarize_same",
    "write_conditions",
]
