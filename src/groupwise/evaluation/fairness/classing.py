"""Classing a difference: which rule makes it intended or harmless; without one it confounds.

Conditions of the evaluation itself (items, prompts and data of the split, decoding, parser,
normaliser, metrics) never follow from anything: they are intended only if they are named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from groupwise.core import find_effect
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.finding import RECORDED, Found, ItemRelation
from groupwise.evaluation.page.words import load_vocabulary

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
HARMLESS_FACTS = (
    ("hardware/*", "hardware"),
    ("time/*", "time"),
    ("command/*", "command"),
    ("judge/*.cache_hit_rate", "cache"),
)
"""Patterns of ``aspect/key`` with the reason; of settings their fields say it themselves."""
_CLOSE_RATE = 0.01
DifferenceKind = Literal["intended", "harmless", "confounding"]
Words = Mapping[str, str]
NOT_NAMEABLE = ("config", "conditions", "policies")
_REASONS = {"is_nested_subset_of": "subset"}


@dataclass(frozen=True, slots=True)
class Varied:
    """What is compared and does differ.

    Attributes:
        settings: keys of the config.
        has_data: whether data that is not evaluated on is compared.
        has_policy: whether policies are.
    """

    settings: tuple[str, ...]
    has_data: bool
    has_policy: bool


def find_cause(found: Found, varied: Varied, runs: Sequence[RunFacts]) -> str | None:
    """Return what a difference follows from, or None.

    Args:
        found: what differs.
        varied: what is compared.
        runs: all of them.
    """
    aspect, key = found.aspect, found.key
    if varied.has_policy and _belongs_to_policy(found, runs):
        return "policy"
    if aspect in ("data", "prompts") and any(key in run.scope.evaluated for run in runs):
        return None
    if aspect in ("resolved", "budget", "trainable"):
        step, _, name = key.partition(".")
        return _find_cause_in_step(aspect, step, name, varied, runs)
    if aspect in ("data", "prompts"):
        made = (k for k in varied.settings if any(run.scope.prepares(k) for run in runs))
        by_data = "data" if aspect == "prompts" and varied.has_data else None
        return next(made, by_data)
    prefixes = {
        "inputs": (key,),
        "judge": ("judge",),
        **dict.fromkeys(_OF_BASE, ("model.base",)),
    }
    return _first(varied.settings, prefixes.get(aspect, ()))


def _belongs_to_policy(found: Found, runs: Sequence[RunFacts]) -> bool:
    """Whether only some policies have it, and those that lack it were trained in other steps."""
    if found.aspect == "lineage":
        return True
    if found.aspect not in _OF_STEPS:
        return False
    having = {run.scope.steps for run in runs if run.name in found.values}
    lacking = {run.scope.steps for run in runs if run.name in found.lacking}
    return bool(lacking) and None not in having | lacking and not having & lacking


def _find_cause_in_step(
    aspect: str, step: str, name: str, varied: Varied, runs: Sequence[RunFacts]
) -> str | None:
    own = _list_settings(varied, step, runs)
    if aspect == "trainable":
        return next((key for key in own if _leaf(key) == "trainable"), None) or _first(
            varied.settings, ("model.base",)
        )
    if aspect == "resolved":
        found = next((key for key in own if _is_resolved_as(name, _leaf(key))), None)
        by_data = varied.has_data and name == _RESOLVED_BY_DATA
        return found or ("data" if by_data else None)
    found = next((key for key in own if find_kind(key, runs) == "budget"), None)
    if found is None and varied.has_data:
        found = "data"
    if found is None and name == "num_tokens":
        found = next(iter(_list_settings(varied, step, runs, earlier=True)), None)
    return found


def find_kind(key: str, runs: Sequence[RunFacts]) -> str:
    """Return the kind of effect of a setting; it counts unless all runs say the same else."""
    kinds = {find_effect(run.scope.effects, key).kind for run in runs}
    return kinds.pop() if len(kinds) == 1 else "counts"


def _list_settings(
    varied: Varied, step: str, runs: Sequence[RunFacts], *, earlier: bool = False
) -> list[str]:
    """Return the compared settings that a step, or one that it uses, reads in any of the runs."""
    found = {
        k for run in runs for k in run.scope.list_settings(varied.settings, step, earlier=earlier)
    }
    return [key for key in varied.settings if key in found]


def _is_resolved_as(name: str, leaf: str) -> bool:
    is_vllm = leaf == "vllm" and (name == "use_vllm" or name.startswith("vllm_"))
    return is_vllm or name == leaf or name in _RESOLVED_AS.get(leaf, ())


def _leaf(key: str) -> str:
    """Return the name behind the section: ``trainable`` of ``grpo.trainable.lora.rank``."""
    return key.split(".")[1] if "." in key else key


def _first(keys: Sequence[str], prefixes: Sequence[str]) -> str | None:
    return next(
        (k for k in keys for prefix in prefixes if k == prefix or k.startswith(f"{prefix}.")), None
    )


def find_harmless(name: str) -> str | None:
    """Return why ``aspect/key`` may have any values, or None."""
    return next((why for pattern, why in HARMLESS_FACTS if fnmatchcase(name, pattern)), None)


def are_harmless_values(name: str, values: Sequence[Any]) -> str | None:
    """Return why ``aspect/key`` may have these values, which every run has recorded, or None."""
    if name.startswith("packages/") and _are_builds_of_one_release(values, name):
        return "build"
    if name.endswith(".no_verdict_rate") and _are_close(values):
        return "close_rate"
    return None


def _are_builds_of_one_release(values: Sequence[Any], name: str) -> bool:
    try:
        found = [Version(value) for value in values]
    except (InvalidVersion, TypeError):
        return False
    if name == "packages/python":
        return len({version.release[:2] for version in found}) == 1
    return len({version.public for version in found}) == 1


def _are_close(values: Sequence[Any]) -> bool:
    rates = [value for value in values if isinstance(value, int | float)]
    return len(rates) == len(values) and max(rates) - min(rates) <= _CLOSE_RATE


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
    is_used = any(run.scope.is_behind(found.key) for run in context.runs)
    if found.aspect == "config" and not is_used:
        return "harmless", "unused", {}
    return "confounding", *_name_confounder(found, context)


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


def _name_confounder(found: Found, context: Context) -> tuple[str, Words]:
    if found.aspect == "items":
        other = [one for one in context.relations if one.kind != "exact"]
        return "items", {"cause": "; ".join(sorted({one.describe() for one in other}))}
    if found.lacking and found.name not in RECORDED:
        return "unknown", {}
    if found.key.endswith(".no_verdict_rate"):
        return "no_verdict_rate", {}
    reason = _REASONS.get(found.aspect, found.aspect)
    return (reason if reason in load_vocabulary("en")["confounding"] else "other"), {}


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
