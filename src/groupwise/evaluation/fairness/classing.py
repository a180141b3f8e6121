"""Classing a difference: which rule makes it intended or harmless; without one it confounds.

Conditions of the evaluation itself (items, prompts and data of the split, decoding, parser,
normaliser, metrics) never follow from anything: they are intended only if they are named. What only
some of the runs have recorded confounds. Naming something with ``factors`` changes classes and
never what is listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from packaging.version import InvalidVersion, Version

from groupwise.core import EvaluationError, find_effect, suggest_name
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.finding import (
    RECORDED,
    Difference,
    DifferenceKind,
    ItemRelation,
    find_unlike_facts,
    find_unlike_items,
)
from groupwise.evaluation.page.words import load_vocabulary

_ORDER: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
# Only where an argument of TRL has another name than our setting.
_RESOLVED_AS: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss_type", "epsilon_high"),
    "clip_low": ("epsilon",),
    "clip_high": ("epsilon_high",),
    "entropy_bonus": ("entropy_coef",),
    "max_new_tokens": ("max_completion_length",),
    "group_size": ("num_generations", "generation_batch_size"),
    "prompts_per_step": ("generation_batch_size", "prompts_left_out_per_epoch"),
    "steps_per_generation": ("generation_batch_size", "prompts_left_out_per_epoch"),
    "gradient_accumulation": (
        "steps_per_generation",
        "generation_batch_size",
        "prompts_left_out_per_epoch",
    ),
}
_RESOLVED_BY_DATA = "prompts_left_out_per_epoch"
_OF_BASE = ("base_weights", "template", "tokenizer")
_OF_STEPS = ("budget", "resolved", "trainable", "judge", "data", "prompts")
_OF_ITEMS = ("items", "labels")
HARMLESS_FACTS = (
    ("hardware/*", "hardware"),
    ("time/*", "time"),
    ("command/*", "command"),
    ("judge/*.cache_hit_rate", "cache"),
)
"""Patterns of ``aspect/key`` with the reason; of settings their fields say it themselves."""
_CLOSE_RATE = 0.01
_NOT_NAMEABLE = ("config", "conditions", "policies")
_REASONS = {"is_nested_subset_of": "subset"}


def find_differences(
    runs: Sequence[RunFacts], relations: Sequence[ItemRelation], *, factors: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """Return all differences, each classed, the confounding ones first.

    Args:
        runs: two or more.
        relations: of their items.
        factors: keys of the config, their sections, or aspects that are compared.

    Raises:
        EvaluationError: if ``factors`` names what no run has.
    """
    _check_factors(runs, factors)
    found = [*find_unlike_items(runs, relations), *find_unlike_facts(runs)]
    context = _make_context(runs, relations, found, factors)
    classed = [_class(one, context) for one in found]
    return tuple(sorted(classed, key=lambda one: (_ORDER.index(one.kind), one.aspect, one.key)))


def _check_factors(runs: Sequence[RunFacts], factors: Sequence[str]) -> None:
    facts = sorted({name for run in runs for name in run.facts})
    for name in factors:
        if name in _OF_ITEMS or any(is_named(fact, [name]) for fact in facts):
            continue
        aspects = {fact.partition("/")[0] for fact in facts} - set(_NOT_NAMEABLE)
        known = {fact.partition("/")[2] for fact in facts if fact.startswith("config/")}
        hint = suggest_name(name, sorted(known | aspects)) or "; give a key of the config"
        raise EvaluationError(f"--factor: no run has {name!r}{hint}")


def is_named(fact: str, factors: Sequence[str]) -> bool:
    """Return whether ``aspect/key`` is what one of the names means."""
    aspect, _, key = fact.partition("/")
    if aspect == "config":
        return any(key == name or key.startswith(f"{name}.") for name in factors)
    if aspect == "seeds" and "seed" in factors:
        return True
    return aspect not in _NOT_NAMEABLE and any(name in (aspect, fact) for name in factors)


@dataclass(frozen=True, slots=True)
class _Context:
    """What classing depends on.

    Attributes:
        runs: all that are held together.
        relations: of their items.
        factors: names of what is compared.
        settings: keys of the config that are compared and differ.
        has_data: whether data that is not evaluated on is compared and differs.
        has_policy: whether policies are.
        equal: aspects that every run has recorded and in which nothing differs.
    """

    runs: Sequence[RunFacts]
    relations: Sequence[ItemRelation]
    factors: Sequence[str]
    settings: tuple[str, ...]
    has_data: bool
    has_policy: bool
    equal: frozenset[str]

    def list_settings(self, step: str, *, earlier: bool = False) -> list[str]:
        """Return the compared settings that a step, or one that it uses, reads in any run."""
        scopes = [run.scope for run in self.runs]
        found = {k for s in scopes for k in s.list_settings(self.settings, step, earlier=earlier)}
        return [key for key in self.settings if key in found]

    def find_kind(self, key: str) -> str:
        """Return the kind of effect of a setting; it counts unless all runs say the same else."""
        kinds = {find_effect(run.scope.effects, key).kind for run in self.runs}
        return kinds.pop() if len(kinds) == 1 else "counts"

    def is_evaluated(self, name: str) -> bool:
        """Return whether a split is one that policies were asked about."""
        return any(name in run.answers for run in self.runs)


def _make_context(
    runs: Sequence[RunFacts],
    relations: Sequence[ItemRelation],
    found: Sequence[Difference],
    factors: Sequence[str],
) -> _Context:
    named = [one for one in found if is_named(one.name, factors)]
    settings = tuple(one.key for one in named if one.aspect == "config")
    is_set = any(run.scope.prepares(key) for run in runs for key in settings)
    has_policy = any(one.aspect == "policy" for one in named)
    differing = {{"labels": "items"}.get(one.aspect, one.aspect) for one in found}
    recorded = [{name.partition("/")[0] for name in run.facts} for run in runs]
    equal = frozenset({"items"}.union(recorded[0].intersection(*recorded)) - differing)
    context = _Context(runs, relations, factors, settings, False, has_policy, equal)
    has_data = any(
        is_set or is_named(one.name, factors)
        for one in found
        if one.aspect == "data" and not context.is_evaluated(one.key)
    )
    return replace(context, has_data=has_data)


def _class(found: Difference, context: _Context) -> Difference:
    kind, reason, given = _find_class(found, context)
    words = {"key": found.key, "cause": "", "runs": ", ".join(found.lacking), **given}
    return replace(found, kind=kind, reason=reason, words=words)


def _find_class(
    found: Difference, context: _Context
) -> tuple[DifferenceKind, str, Mapping[str, str]]:
    """Return the kind, the name of the reason and what stands in the places of its sentence."""
    if is_named(found.name, context.factors):
        return "intended", "named", {}
    cause = _find_cause(found, context)
    if cause is not None:
        return "intended", "follows", {"cause": cause}
    harmless = _find_harmless(found)
    if harmless is not None:
        return "harmless", harmless, {}
    # A setting is harmless by the mark of its field in all runs.
    effect, kind = (
        find_effect(context.runs[0].scope.effects, found.key),
        context.find_kind(found.key),
    )
    # What is read of other inputs is more than what is recorded of their content.
    is_content = found.aspect == "config" or (
        found.aspect == "inputs" and effect.reason == "base_weights"
    )
    if kind == "source" and is_content and effect.reason in context.equal:
        return "harmless", "same_content", {"cause": effect.reason}
    if kind == "harmless" and found.aspect in ("config", "inputs"):
        return "harmless", "field", {"cause": effect.reason, "cause_zh": effect.reason_zh}
    is_used = any(run.scope.is_behind(found.key) for run in context.runs)
    if found.aspect == "config" and not is_used:
        return "harmless", "unused", {}
    if found.aspect == "items":
        other = {one.describe() for one in context.relations if one.kind != "exact"}
        return "confounding", "items", {"cause": "; ".join(sorted(other))}
    return "confounding", _name_confounder(found), {}


def _name_confounder(found: Difference) -> str:
    if found.lacking and found.name not in RECORDED:
        return "unknown"
    if found.key.endswith(".no_verdict_rate"):
        return "no_verdict_rate"
    reason = _REASONS.get(found.aspect, found.aspect)
    return reason if reason in load_vocabulary("en")["confounding"] else "other"


def _find_cause(found: Difference, context: _Context) -> str | None:
    """Return what a difference follows from, or None."""
    aspect, key = found.aspect, found.key
    if context.has_policy and _belongs_to_policy(found, context.runs):
        return "policy"
    if aspect in ("resolved", "budget", "trainable"):
        step, _, name = key.partition(".")
        return _find_cause_in_step(aspect, step, name, context)
    if aspect in ("data", "prompts"):
        if context.is_evaluated(key):
            return None
        made = (k for k in context.settings if any(r.scope.prepares(k) for r in context.runs))
        return next(made, "data" if aspect == "prompts" and context.has_data else None)
    if aspect in _OF_BASE:
        return _find_section("model.base", context)
    return _find_section({"inputs": key, "judge": "judge"}.get(aspect), context)


def _belongs_to_policy(found: Difference, runs: Sequence[RunFacts]) -> bool:
    """Whether only some policies have it, and those that lack it were trained in other steps."""
    if found.aspect == "lineage":
        return True
    if found.aspect not in _OF_STEPS:
        return False
    having = {run.scope.steps for run in runs if run.name in found.values}
    lacking = {run.scope.steps for run in runs if run.name in found.lacking}
    return bool(lacking) and None not in having | lacking and not having & lacking


def _find_cause_in_step(aspect: str, step: str, name: str, context: _Context) -> str | None:
    own = context.list_settings(step)
    by_data = "data" if context.has_data else None
    if aspect == "trainable":
        found = next((key for key in own if _leaf(key) == "trainable"), None)
        return found or _find_section("model.base", context)
    if aspect == "resolved":
        found = next((key for key in own if _is_resolved_as(name, _leaf(key))), None)
        return found or (by_data if name == _RESOLVED_BY_DATA else None)
    found = next((key for key in own if context.find_kind(key) == "budget"), by_data)
    if found is None and name == "num_tokens":
        found = next(iter(context.list_settings(step, earlier=True)), None)
    return found


def _is_resolved_as(name: str, leaf: str) -> bool:
    is_vllm = leaf == "vllm" and (name == "use_vllm" or name.startswith("vllm_"))
    return is_vllm or name == leaf or name in _RESOLVED_AS.get(leaf, ())


def _leaf(key: str) -> str:
    """Return the name behind the section: ``trainable`` of ``grpo.trainable.lora.rank``."""
    return key.split(".")[1] if "." in key else key


def _find_section(name: str | None, context: _Context) -> str | None:
    """Return the first compared setting of a section, or the setting of this name."""
    return next((k for k in context.settings if k == name or k.startswith(f"{name}.")), None)


def _find_harmless(found: Difference) -> str | None:
    """Return why a fact may have any values, or the values that every run has, or None."""
    by_name = (why for pattern, why in HARMLESS_FACTS if fnmatchcase(found.name, pattern))
    reason = next(by_name, None)
    values = list(found.values.values())
    if reason or found.lacking:
        return reason
    if found.aspect == "packages" and _are_builds_of_one_release(values, found.key):
        return "build"
    return "close_rate" if found.key.endswith(".no_verdict_rate") and _are_close(values) else None


def _are_builds_of_one_release(values: Sequence[Any], package: str) -> bool:
    try:
        found = [Version(value) for value in values]
    except (InvalidVersion, TypeError):
        return False
    if package == "python":
        return len({version.release[:2] for version in found}) == 1
    return len({version.public for version in found}) == 1


def _are_close(values: Sequence[Any]) -> bool:
    rates = [value for value in values if isinstance(value, int | float)]
    return len(rates) == len(values) and max(rates) - min(rates) <= _CLOSE_RATE
