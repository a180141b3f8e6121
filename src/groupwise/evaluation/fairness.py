"""The fairness gate: what runs differ in beside what is compared, and what is too much the same.

What is known of a run and one of its policies is a flat table of facts (``aspect/key``): the
resolved config, digests, packages, machine, revision. The gate is a diff of these tables. A
difference is *intended* if it is named as compared, or follows from that; *harmless* if its field
or the list below says so; otherwise it *confounds*. Conditions of the evaluation itself (items,
prompts and data of the split, decoding, parser, normaliser, metrics) never follow from anything.
What only some of the runs have recorded confounds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from groupwise.core import EvaluationError, find_effect, suggest_name
from groupwise.evaluation.facts import RunFacts
from groupwise.evaluation.predictions import Language, digest_items
from groupwise.evaluation.sameness import (
    ItemRelation,
    Sameness,
    explain,
    find_same_answers,
    find_untrained,
    load_reasons,
    relate_items,
)

DifferenceKind = Literal["intended", "harmless", "confounding"]
RECORDED = ("conditions/file", "policies/file")
HARMLESS_FACTS = (
    ("hardware/*", "hardware"),
    ("time/*", "time"),
    ("command/*", "command"),
    ("judge/*.cache_hit_rate", "cache"),
)
"""Patterns of ``aspect/key`` with the reason; of settings their fields say it themselves."""
_ORDER: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
_NOT_NAMEABLE = ("config", "conditions", "policies")
_OF_CONDITIONS = (
    *("data", "prompts", "template", "tokenizer", "base_weights", "decoding", "parser"),
    *("normalizer", "metrics", "is_nested_subset_of"),
)
_RECORDED_BY = {
    **dict.fromkeys(_OF_CONDITIONS, RECORDED[0]),
    **dict.fromkeys(("budget", "lineage"), RECORDED[1]),
}
_BATCHED = ("generation_batch_size", "prompts_left_out_per_epoch")
# Only where an argument of TRL has another name than our setting.
_RESOLVED_AS: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss_type", "epsilon_high"),
    "clip_low": ("epsilon",),
    "clip_high": ("epsilon_high",),
    "entropy_bonus": ("entropy_coef",),
    "max_new_tokens": ("max_completion_length",),
    "group_size": ("num_generations", "generation_batch_size"),
    "prompts_per_step": _BATCHED,
    "steps_per_generation": _BATCHED,
    "gradient_accumulation": ("steps_per_generation", *_BATCHED),
}
_CLOSE_RATE = 0.01


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in all runs.

    It is ``intended`` if it is compared or follows from that, ``harmless`` if it is on the
    documented list, otherwise ``confounding``.
    """

    aspect: str  # ``data``, ``config``, ``seeds``, ``packages`` …
    key: str  # a key of the config, a file, a package
    values: Mapping[str, Any]  # by the run's name; one that has not recorded it is not there
    lacking: tuple[str, ...] = ()  # names of runs that would have recorded it and have not
    kind: DifferenceKind = "confounding"
    reason: str = "other"  # fixed name of the sentence that says why, and what to do
    words: Mapping[str, str] = field(default_factory=dict[str, str])  # for its places

    @property
    def name(self) -> str:
        """``aspect/key``, as facts are called."""
        return f"{self.aspect}/{self.key}"

    def explain(self, language: Language = "en") -> str:
        """Return the sentence in a language."""
        return explain(self.reason, self.words, language)


@dataclass(frozen=True, slots=True)
class FairnessVerdict:
    """What must be known before two runs are compared.

    It is fair if nothing confounds and every training step of every run trained something. If not,
    nothing is recommended.
    """

    differences: tuple[Difference, ...]  # the confounding ones first
    relations: tuple[ItemRelation, ...]  # of the items of every two runs
    remarks: tuple[Sameness, ...]  # what is suspiciously the same
    is_fair: bool

    @property
    def confounding(self) -> tuple[Difference, ...]:
        """The differences that make the runs unlike."""
        return tuple(one for one in self.differences if one.kind == "confounding")


def check_fairness(
    runs: Sequence[RunFacts], *, factors: Sequence[str] = (), split: str = "test"
) -> FairnessVerdict:
    """Hold two or more runs together: every difference, their items, and what is too much the same.

    ``factors`` are what is compared: keys or sections of the config (``grpo.beta``), or aspects
    (``data``, ``policy``); what follows from it is intended, too.

    Raises:
        EvaluationError: with fewer than two runs, the same policy of the same folder twice, a run
            without items in the split, a name in ``factors`` that no run has, or damaged weights.
    """
    if len(runs) < 2:
        raise EvaluationError("a comparison needs runs", got=len(runs), expected="two or more")
    seen: dict[tuple[str, str], str] = {}
    for run in runs:
        place = (str(run.folder.resolve()), run.policy)
        if place in seen or run.name in seen.values():
            raise EvaluationError(
                f"{run.name} is given twice",
                expected="different runs, or different policies of a run",
                fix="leave one of them out",
            )
        seen[place] = run.name
    relations = relate_items(runs, split=split)
    differences = find_differences(runs, relations, factors=factors)
    remarks = [remark for run in runs for remark in find_untrained(run)]
    for one in relations:
        # Of labels a difference names one item, on which these two may agree: relations know.
        counting = (d.values for d in differences if d.kind != "harmless" and d.aspect != "labels")
        do_differ = any(values.get(one.a, ...) != values.get(one.b, ...) for values in counting)
        remarks += find_same_answers(one, runs, do_differ=do_differ or bool(one.relabelled))
    names = tuple(run.name for run in runs)
    remarks += [
        Sameness("warning", "not_varied", names, {"key": name})
        for name in factors
        if not any(is_named(one.name, [name]) for one in differences)
    ]
    is_fair = not any(one.kind == "confounding" for one in differences)
    is_fair = is_fair and not any(remark.level == "error" for remark in remarks)
    return FairnessVerdict(differences, relations, tuple(remarks), is_fair)


def find_differences(
    runs: Sequence[RunFacts], relations: Sequence[ItemRelation], *, factors: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """Return all differences, each classed, the confounding ones first."""
    facts = sorted({name for run in runs for name in run.facts})
    for name in factors:
        if name in ("items", "labels") or any(is_named(fact, [name]) for fact in facts):
            continue
        aspects = {fact.partition("/")[0] for fact in facts} - set(_NOT_NAMEABLE)
        known = {fact.partition("/")[2] for fact in facts if fact.startswith("config/")}
        hint = suggest_name(name, sorted(known | aspects)) or "; give a key of the config"
        raise EvaluationError(f"--factor: no run has {name!r}{hint}")
    found = list(_find_unlike_facts(runs))
    # Of items their number and the digest that metrics have, of labels the first that differs.
    if other := next((one for one in relations if one.kind != "exact"), None):
        rows = {run.name: run.answers[other.split].values() for run in runs}
        values = {n: {"n": len(own), "split_digest": digest_items(own)} for n, own in rows.items()}
        found.append(Difference("items", other.split, values))
    if unlike := next((one for one in relations if one.relabelled), None):
        item = unlike.relabelled[0]
        answers = {run.name: run.answers[unlike.split].get(item) for run in runs}
        values = {n: {"item": item, "label": one.label} for n, one in answers.items() if one}
        found.append(Difference("labels", unlike.split, values))
    classes, classed = _Classes(runs, relations, found, factors), []
    for one in found:
        kind, reason, given = classes.find_class(one)
        words = {"key": one.key, "cause": "", "runs": ", ".join(one.lacking), **given}
        classed.append(replace(one, kind=kind, reason=reason, words=words))
    return tuple(sorted(classed, key=lambda one: (_ORDER.index(one.kind), one.aspect, one.key)))


def is_named(fact: str, factors: Sequence[str]) -> bool:
    """Return whether ``aspect/key`` is what one of the names means."""
    aspect, _, key = fact.partition("/")
    if aspect == "config":
        return any(key == name or key.startswith(f"{name}.") for name in factors)
    if aspect == "seeds" and "seed" in factors:
        return True
    return aspect not in _NOT_NAMEABLE and any(name in (aspect, fact) for name in factors)


def _find_unlike_facts(runs: Sequence[RunFacts]) -> Iterator[Difference]:
    """Yield the facts that differ or that only some runs have recorded, by name.

    What some run lacks as a whole (a section that is null elsewhere, a step) is one value. What a
    file would say is held together among the runs that have it; its absence is a fact of its own.
    """
    names = {name for run in runs for name in run.facts if name.startswith("config/")}
    whole = {name for name in names if any(other.startswith(f"{name}.") for other in names)}
    steps = [
        {name.partition(".")[0] for name in run.facts if name.startswith("resolved/")}
        for run in runs
    ]
    whole |= set[str]().union(*steps) - steps[0].intersection(*steps)
    facts: dict[str, dict[str, Any]] = {run.name: {} for run in runs}
    for run in runs:
        for name, value in run.facts.items():
            section = next((one for one in sorted(whole) if name.startswith(f"{one}.")), None)
            if section is None:
                facts[run.name][name] = value
            else:
                part = facts[run.name].setdefault(section, {})
                part[name.removeprefix(f"{section}.")] = value
    for name in sorted({*RECORDED, *(name for values in facts.values() for name in values)}):
        is_placed = any(r.scope.steps is not None for r in runs if name in facts[r.name])
        asked = [run for run in runs if _can_have(run, name, is_placed=is_placed)]
        values = {r.name: facts[r.name][name] for r in asked if name in facts[r.name]}
        lacking = tuple(run.name for run in asked if run.name not in values)
        first = next(iter(values.values()), None)
        if lacking or not all(_is_same(first, value) for value in values.values()):
            aspect, _, key = name.partition("/")
            yield Difference(aspect, key, values, lacking)


def _is_same(one: Any, two: Any) -> bool:
    """Return whether two JSON values are the same; true is not 1, and data is its digest."""
    if isinstance(one, dict) and isinstance(two, dict):
        digests = one.get("digest"), two.get("digest")
        if None not in digests:
            return digests[0] == digests[1]
    return isinstance(one, bool) == isinstance(two, bool) and one == two


def _can_have(run: RunFacts, name: str, *, is_placed: bool) -> bool:
    """Whether a run without this fact would lack it.

    A file that a run has not written is reported once. Steps that another run knows to be no part
    of the policy do not count.
    """
    aspect, _, key = name.partition("/")
    is_of_step = aspect in ("resolved", "trainable", "judge")
    if is_of_step and not is_placed and run.scope.steps is not None:
        return key.partition(".")[0] in run.scope.steps
    if aspect not in _RECORDED_BY or _RECORDED_BY[aspect] in run.facts:
        return True
    return any(fact.startswith(f"{aspect}/") for fact in run.facts)


class _Classes:
    """Which rule makes a difference intended or harmless; without one it confounds."""

    def __init__(
        self,
        runs: Sequence[RunFacts],
        relations: Sequence[ItemRelation],
        found: Sequence[Difference],
        factors: Sequence[str],
    ) -> None:
        self.runs, self.relations, self.factors = runs, relations, factors
        named = [one for one in found if is_named(one.name, factors)]
        self.settings = [one.key for one in named if one.aspect == "config"]
        self.has_policy = any(one.aspect == "policy" for one in named)
        differing = {"items" if one.aspect == "labels" else one.aspect for one in found}
        recorded = [{name.partition("/")[0] for name in run.facts} for run in runs]
        self.equal = {"items"}.union(recorded[0].intersection(*recorded)) - differing
        is_set = any(run.scope.prepares(key) for run in runs for key in self.settings)
        self.has_data = any(
            is_set or is_named(one.name, factors)
            for one in found
            if one.aspect == "data" and not self._is_evaluated(one.key)
        )

    def find_class(self, found: Difference) -> tuple[DifferenceKind, str, Mapping[str, str]]:
        """Return the kind, the name of the reason and what stands in its sentence's places."""
        if is_named(found.name, self.factors):
            return "intended", "named", {}
        if (cause := self._find_cause(found)) is not None:
            return "intended", "follows", {"cause": cause}
        if (harmless := _find_harmless(found)) is not None:
            return "harmless", harmless, {}
        effect, kind = self._find_effect(found.key)
        # What is read of other inputs is more than what is recorded of their content.
        is_content = found.aspect == "config" or (
            found.aspect == "inputs" and effect.reason == "base_weights"
        )
        if kind == "source" and is_content and effect.reason in self.equal:
            return "harmless", "same_content", {"cause": effect.reason}
        if kind == "harmless" and found.aspect in ("config", "inputs"):
            return "harmless", "field", {"cause": effect.reason, "cause_zh": effect.reason_zh}
        is_used = any(run.scope.is_behind(found.key) for run in self.runs)
        if found.aspect == "config" and not is_used:
            return "harmless", "unused", {}
        if found.aspect == "items":
            told = {
                f"{one.kind}: {one.num_a} and {one.num_b} items, {one.num_shared} shared"
                for one in self.relations
                if one.kind != "exact"
            }
            return "confounding", "items", {"cause": "; ".join(sorted(told))}
        if found.lacking and found.name not in RECORDED:
            return "confounding", "unknown", {}
        if found.key.endswith(".no_verdict_rate"):
            return "confounding", "no_verdict_rate", {}
        reason = "subset" if found.aspect == "is_nested_subset_of" else found.aspect
        return "confounding", reason if reason in load_reasons() else "other", {}

    def _find_effect(self, key: str) -> tuple[Any, str]:
        """Return the mark of a setting's field; it counts unless all runs say the same else."""
        effects = [find_effect(run.scope.effects, key) for run in self.runs]
        kinds = {effect.kind for effect in effects}
        return effects[0], kinds.pop() if len(kinds) == 1 else "counts"

    def _is_evaluated(self, split: str) -> bool:
        return any(split in run.answers for run in self.runs)

    def _list_settings(self, step: str, *, earlier: bool = False) -> list[str]:
        """Return the compared settings that a step, or one that it uses, reads in any run."""
        scopes = [run.scope for run in self.runs]
        found = {k for s in scopes for k in s.list_settings(self.settings, step, earlier=earlier)}
        return [key for key in self.settings if key in found]

    def _find_cause(self, found: Difference) -> str | None:
        """Return what a difference follows from, or None."""
        aspect, key = found.aspect, found.key
        if self.has_policy and self._belongs_to_policy(found):
            return "policy"
        if aspect in ("resolved", "budget", "trainable"):
            return self._find_cause_in_step(aspect, *key.split(".", 1))
        if aspect in ("data", "prompts"):
            if self._is_evaluated(key):
                return None
            made = (k for k in self.settings if any(r.scope.prepares(k) for r in self.runs))
            return next(made, "data" if aspect == "prompts" and self.has_data else None)
        if aspect in ("base_weights", "template", "tokenizer"):
            return self._find_section("model.base")
        return self._find_section({"inputs": key, "judge": "judge"}.get(aspect))

    def _belongs_to_policy(self, found: Difference) -> bool:
        """Whether only some policies have it, and those without it were trained in other steps."""
        if found.aspect == "lineage":
            return True
        if found.aspect not in ("budget", "resolved", "trainable", "judge", "data", "prompts"):
            return False
        having = {run.scope.steps for run in self.runs if run.name in found.values}
        lacking = {run.scope.steps for run in self.runs if run.name in found.lacking}
        return bool(lacking) and None not in having | lacking and not having & lacking

    def _find_cause_in_step(self, aspect: str, step: str, name: str = "") -> str | None:
        own = self._list_settings(step)
        by_data = "data" if self.has_data else None
        # Behind the section: ``trainable`` of ``grpo.trainable.lora.rank``.
        leaves = {key: key.split(".")[1] if "." in key else key for key in own}
        if aspect == "trainable":
            found = next((key for key in own if leaves[key] == "trainable"), None)
            return found or self._find_section("model.base")
        if aspect == "resolved":
            for key, leaf in leaves.items():
                is_vllm = leaf == "vllm" and (name == "use_vllm" or name.startswith("vllm_"))
                if is_vllm or name == leaf or name in _RESOLVED_AS.get(leaf, ()):
                    return key
            return by_data if name == "prompts_left_out_per_epoch" else None
        found = next((key for key in own if self._find_effect(key)[1] == "budget"), by_data)
        if found is None and name == "num_tokens":
            found = next(iter(self._list_settings(step, earlier=True)), None)
        return found

    def _find_section(self, name: str | None) -> str | None:
        """Return the first compared setting of a section, or the setting of this name."""
        return next((k for k in self.settings if k == name or k.startswith(f"{name}.")), None)


def _find_harmless(found: Difference) -> str | None:
    """Return why a fact may have any values, or the values that every run has, or None."""
    by_name = (why for pattern, why in HARMLESS_FACTS if fnmatchcase(found.name, pattern))
    values = list(found.values.values())
    if (reason := next(by_name, None)) or found.lacking:
        return reason
    if found.aspect == "packages":
        try:
            versions = [Version(value) for value in values]
        except (InvalidVersion, TypeError):
            return None
        is_python = found.key == "python"
        builds = {one.release[:2] if is_python else one.public for one in versions}
        return "build" if len(builds) == 1 else None
    rates = [value for value in values if isinstance(value, int | float)]
    is_rate = found.key.endswith(".no_verdict_rate") and len(rates) == len(values)
    return "close_rate" if is_rate and max(rates) - min(rates) <= _CLOSE_RATE else None
