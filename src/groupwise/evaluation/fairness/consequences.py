"""What follows from a setting that is compared: its resolved value, its budget, its data.

Conditions of the evaluation itself (items, prompts and data of the split, decoding, parser,
normaliser, metrics) never follow from anything: they are intended only if they are named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.core import find_effect
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.finding import Found

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
