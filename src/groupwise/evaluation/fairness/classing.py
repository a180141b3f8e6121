"""Classing a difference: which rule makes it intended or harmless; without one it confounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core import find_effect
from groupwise.evaluation.fairness.consequences import Varied, find_cause, find_kind
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.finding import RECORDED, Found
from groupwise.evaluation.fairness.harmless import are_harmless_values, find_harmless
from groupwise.evaluation.fairness.relations import ItemRelation
from groupwise.evaluation.fairness.wording import CONFOUNDING

DifferenceKind = Literal["intended", "harmless", "confounding"]
Words = Mapping[str, str]
NOT_NAMEABLE = ("config", "conditions", "policies")
_REASONS = {"is_nested_subset_of": "subset"}


@dataclass(frozen=True, slots=True)
class Context:
    """What classing depends on.

    Attributes:
        runs: all that are held together.
        relations: of their items.
        factors: names of what is compared.
        varied: what of it differs.
        equal: aspects that every run has recorded and in which nothing differs.
    """

    runs: Sequence[RunFacts]
    relations: Sequence[ItemRelation]
    factors: Sequence[str]
    varied: Varied
    equal: frozenset[str]


def make_context(
    runs: Sequence[RunFacts],
    relations: Sequence[ItemRelation],
    found: Sequence[Found],
    factors: Sequence[str],
) -> Context:
    """Return the context of all that was found."""
    varied = _find_varied(found, factors, runs)
    return Context(runs, relations, factors, varied, _find_equal_aspects(found, runs))


def class_difference(found: Found, context: Context) -> tuple[DifferenceKind, str, Words]:
    """Return the kind, the name of the reason and what stands in the places of its sentence."""
    if is_named(found.name, context.factors):
        return "intended", "named", {}
    cause = find_cause(found, context.varied, context.runs)
    if cause is not None:
        return "intended", "follows", {"cause": cause}
    harmless = find_harmless(found.name)
    if harmless is None and not found.lacking:
        harmless = are_harmless_values(found.name, list(found.values.values()))
    if harmless is not None:
        return "harmless", harmless, {}
    marked = _find_marked(found, context)
    if marked is not None:
        return "harmless", *marked
    if found.aspect == "config" and _is_unused(found.key, context.runs):
        return "harmless", "unused", {}
    reason, cause = _name_confounder(found, context)
    return "confounding", reason, {"cause": cause}


def _find_marked(found: Found, context: Context) -> tuple[str, Words] | None:
    """Return why a setting is harmless by the mark of its field in all runs, None if it is not."""
    if found.aspect not in ("config", "inputs"):
        return None
    effect = find_effect(context.runs[0].scope.effects, found.key)
    kind = find_kind(found.key, context.runs)
    # What is read of other inputs is more than what is recorded of their content.
    is_content = found.aspect == "config" or effect.reason == "base_weights"
    if kind == "source" and is_content and effect.reason in context.equal:
        return "same_content", {"cause": effect.reason}
    if kind == "harmless" and found.aspect == "config":
        return "field", {"cause": effect.reason, "cause_zh": effect.reason_zh}
    return None


def is_named(fact: str, factors: Sequence[str]) -> bool:
    """Return whether ``aspect/key`` is what one of the names means."""
    aspect, _, key = fact.partition("/")
    if aspect == "config":
        return any(key == name or key.startswith(f"{name}.") for name in factors)
    if aspect == "seeds" and "seed" in factors:
        return True
    return aspect not in NOT_NAMEABLE and any(name in (aspect, fact) for name in factors)


def _name_confounder(found: Found, context: Context) -> tuple[str, str]:
    if found.aspect == "items":
        other = [one for one in context.relations if one.kind != "exact"]
        return "items", "; ".join(sorted({one.describe() for one in other}))
    if found.lacking and found.name not in RECORDED:
        return "unknown", ""
    if found.key.endswith(".no_verdict_rate"):
        return "no_verdict_rate", ""
    reason = _REASONS.get(found.aspect, found.aspect)
    return (reason if reason in CONFOUNDING else "other"), ""


def _find_varied(
    found: Sequence[Found], factors: Sequence[str], runs: Sequence[RunFacts]
) -> Varied:
    named = [one for one in found if is_named(one.name, factors)]
    settings = tuple(one.key for one in named if one.aspect == "config")
    evaluated = {name for run in runs for name in run.scope.evaluated}
    trained = [one for one in found if one.aspect == "data" and one.key not in evaluated]
    is_set = any(run.scope.prepares(key) for run in runs for key in settings)
    return Varied(
        settings,
        has_data=any(is_set or is_named(one.name, factors) for one in trained),
        has_policy=any(one.aspect == "policy" for one in named),
    )


def _find_equal_aspects(found: Sequence[Found], runs: Sequence[RunFacts]) -> frozenset[str]:
    of_runs = [{name.partition("/")[0] for name in run.facts} for run in runs]
    differing = {one.aspect for one in found}
    if "labels" in differing:
        differing.add("items")
    shared = {aspect for aspect in of_runs[0] if all(aspect in names for names in of_runs)}
    return frozenset((shared | {"items"}) - differing)


def _is_unused(key: str, runs: Sequence[RunFacts]) -> bool:
    """Whether no step behind any of the policies reads a setting."""
    return not any(run.scope.is_behind(key) for run in runs)
