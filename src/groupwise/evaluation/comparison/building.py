"""Building a comparison: from what was read to what is said.

Reads nothing and lays nothing out.
"""

from dataclasses import fields

from groupwise.evaluation.comparison.content import Comparison, Setup
from groupwise.evaluation.comparison.differences import compare_systems
from groupwise.evaluation.comparison.findings import recommend, state_findings
from groupwise.evaluation.comparison.material import Material
from groupwise.evaluation.comparison.notices import collect_notices


def build_comparison(material: Material, *, seed: int = 0) -> Comparison:
    """Build a comparison; the same material and seed give the same comparison."""
    versus = compare_systems(material, seed=seed)
    return Comparison(
        **{one.name: getattr(material, one.name) for one in fields(Setup)},
        is_fair=material.gate.is_fair,
        notices=collect_notices(material, versus),
        findings=state_findings(material, versus),
        recommendation=recommend(material, versus),
        versus=versus,
    )
