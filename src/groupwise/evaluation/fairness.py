"""The fairness gate: what runs differ in beside what is compared, and what is too much the same.

What is known of a run and one of its policies is a flat table of facts (``aspect/key``): resolved
config, digests, packages, revision, the conditions of its evaluation. The gate is a diff of these
tables. A difference is *intended* if it is named as compared or follows from that; *harmless* if
its field or ``fairness.yaml`` says so; otherwise it *confounds*. So does what only some runs have
recorded. Conditions of the evaluation itself follow from nothing.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import AwareDatetime, BaseModel

from groupwise.core import (
    Effect,
    EvaluationError,
    check_sealed,
    digest_json,
    drop_folders,
    find_effect,
    flatten_settings,
    read_json,
    read_jsonl,
    read_manifest,
    suggest_name,
)
from groupwise.evaluation.predictions import (
    Language,
    Prediction,
    RunPolicy,
    digest_items,
    group_by_policy,
    parse_as,
    read_as,
    read_policies,
    read_predictions,
)
from groupwise.evaluation.report.phrases import LANGUAGES, Level, Statement
from groupwise.evaluation.results import Conditions, read_conditions

RULES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
DifferenceKind = Literal["confounding", "intended", "harmless"]
_NOT_NAMEABLE = ("config", "conditions", "policies")


class Manifest(BaseModel, extra="allow"):
    """What is read of a manifest; a key may be missing, and there may be others."""

    started_at: AwareDatetime
    config: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    seed: int | None = None
    git_revision: str | None = None
    python: str | None = None
    packages: dict[str, str | None] = {}
    hardware: dict[str, Any] = {}
    metric_versions: dict[str, Any] = {}
    plan: dict[str, dict[str, list[str]]] = {}
    effects: dict[str, Effect] = {}


class Marker(BaseModel):
    """What a step left as it ended."""

    finished_at: AwareDatetime
    duration_s: float | None = None
    outputs: dict[str, Any] = {}
    uses: dict[str, Any] = {}  # digest of the outputs of each step that it used


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run and one of its policies; nothing is judged."""

    name: str  # ``FOLDER:POLICY``; ``dataclasses.replace`` gives another
    folder: Path
    policy: str  # whose answers are compared
    facts: Mapping[str, Any]  # JSON values by ``aspect/key``; what is not recorded is not there
    answers: Mapping[str, Mapping[str, Prediction]]  # by split and item
    # The policy behind all those that it was trained from; empty where the run does not say.
    chain: tuple[RunPolicy, ...] = ()
    unused: frozenset[str] = frozenset()  # settings that only other policies were trained with
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])  # marks of settings


def read_facts(
    folder: Path, *, policy: str | None = None, predictions: Sequence[Prediction] | None = None
) -> RunFacts:
    """Read what is known of a finished run.

    Without a ``policy`` it is the last one of the run; ``predictions`` are those of the run, if
    they have been read already. A run that is not evaluated, has no such policy or answered an item
    twice, and a damaged file, are an EvaluationError; a file that cannot be read is a DataError.
    """
    policies, (starts, markers) = read_policies(folder), read_record(folder)
    again = "finish it with the command that started it, and compare then"
    if (done := markers.get("evaluate")) is None:
        begun = sorted(path.parent.name for path in folder.glob("[!.]*/started.json"))
        where = f" (it is at the step {begun[0]})" if begun else ""
        raise EvaluationError(f"the run {folder} is not evaluated yet{where}", fix=again)
    for step in sorted({*done.uses, *(one.step for one in policies.listed if one.step)}):
        is_used = (own := markers.get(step)) is not None and (
            own.finished_at <= done.finished_at or done.uses.get(step) == digest_json(own.outputs)
        )
        if (folder / step).is_dir() and not is_used:
            older = f"the evaluation in {folder} is older than its step {step}"
            raise EvaluationError(f"{older}, which is being redone", fix=again)
    rows = predictions or read_predictions(folder / "evaluate" / "predictions.jsonl")
    names = policies.sort(row.policy for row in rows)
    if not names:
        raise EvaluationError(f"{folder} holds no predictions", fix="evaluate it again")
    name = policies.choose_last(names) if policy is None else policy
    if name not in names:
        what = f"the run {folder} has no policy {policy!r}"
        raise EvaluationError(what, expected=f"one of {', '.join(names)}")
    items = group_by_policy(row for row in rows if row.policy == name)
    answers = {split: {row.example_id: row for row in own} for (split, _), own in items.items()}
    chain = policies.list_ancestors(name)
    chain = () if any(one.kind == "unknown" for one in chain) else chain
    steps = {one.step for one in chain if one.step}
    used = list[Manifest]()  # the starts in force when the steps and last the evaluation ended
    for ended in (*map(markers.get, sorted(steps)), done):
        begun = [one for one in starts if ended and one.started_at <= ended.finished_at]
        last = (begun or starts[:1])[-1]
        used = [*(one for one in used if one is not last), last]
    last = used[-1]
    run = RunFacts(f"{folder}:{name}", folder, name, {}, answers, chain, effects=last.effects)
    facts = dict(_list_facts(run, used))
    spent = {step: markers[step].duration_s for step in sorted(steps & markers.keys())}
    facts |= {f"time/{x}.duration_s": one for x, one in spent.items() if one is not None}
    others = {one.step for one in policies.listed} - steps
    plans = [one for step, one in last.plan.items() if step not in others]
    reads = [f"config/{key}" for one in plans for key in one.get("reads", ())]
    settings = [fact for fact in facts if fact.startswith("config/")] if last.plan and chain else ()
    unused = (x for x in settings if not any(_is_in(x, y) or _is_in(y, x) for y in reads))
    return replace(run, facts=facts, unused=frozenset(unused))


def read_record(folder: Path) -> tuple[list[Manifest], dict[str, Marker]]:
    """Return a run's starts, the last one last, and what each step left; refuse changed starts."""
    history, single = folder / "history.jsonl", folder / "manifest.json"
    if not single.is_file():
        raise EvaluationError(f"{folder} holds no run", fix="give the folder of a finished run")
    last = read_manifest(single)  # refused if it was changed, also where the history has all starts
    rows = read_jsonl(history) if history.is_file() else []
    for row in rows:
        check_sealed(row, history)
    paths = sorted(folder.glob("[!.]*/step.json"))
    markers = {path.parent.name: read_as(path, Marker) for path in paths}
    return [parse_as(row, Manifest, single) for row in rows or [last]], markers


def _list_facts(run: RunFacts, starts: Sequence[Manifest]) -> Iterator[tuple[str, Any]]:
    """Yield what the run's starts, conditions and trainings tell; of its policy's training only."""
    last, conditions = starts[-1], read_conditions(run.folder)
    yield "policy/name", run.policy
    yield "time/started_at", last.started_at.isoformat()
    for fact, name in RULES["manifest"].items():
        if (value := getattr(last, name, None)) is not None:
            yield fact, value
    versions = [
        {"code/git_revision": start.git_revision, "packages/python": start.python}
        | {f"packages/{name}": version for name, version in start.packages.items()}
        for start in starts
    ]
    for fact in sorted({fact for one in versions for fact in one}):
        found = list(dict.fromkeys(one.get(fact) for one in versions))
        if found != [None]:
            yield fact, found[0] if len(found) == 1 else found
    config = drop_folders({key: value for key, value in last.config.items() if key != "seed"})
    sections = {"config/": config, "inputs/": last.inputs, "hardware/": last.hardware}
    if conditions is None:
        sections["metrics/"] = last.metric_versions
    else:
        yield "conditions/file", "recorded"
    told = (conditions or Conditions()).model_dump(exclude_unset=True, exclude={"measures"})
    known = {*run.answers, *(split for one in run.chain for split in one.trained_on)}
    for aspect, value in told.items():
        if aspect in ("data", "prompts"):
            kept = [name for name in value if name in known or not run.chain]
            yield from ((f"{aspect}/{name}", value[name]) for name in kept)
        else:
            whole = {RULES["whole"].get(aspect, "value"): value}
            sections[f"{aspect}/"] = value if isinstance(value, dict) else whole
    if run.chain:
        yield "policies/file", "recorded"
        yield "lineage/steps", [one.step for one in run.chain if one.step]
    for step, budget in [(one.step, one.budget) for one in run.chain if one.step]:
        sections[f"budget/{step}."] = budget
        for name, keys in RULES["of_training"].items():
            path = run.folder / step / f"{name}.json"
            told = read_json(path, dict) if path.is_file() else {}
            sections[f"{name}/{step}."] = {k: v for k, v in told.items() if re.match(keys, k)}
        if (path := run.folder / step / "trainable.json").is_file():
            rows = read_as(path, list[dict[str, Any]])
            count = sum(int(row.get("num_trainable", 0)) for row in rows)
            yield f"trainable/{step}.num_trainable", count
    for prefix, values in sections.items():
        yield from flatten_settings(values, prefix)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in all runs."""

    aspect: str  # ``data``, ``config``, ``seeds``, ``packages`` …
    key: str  # a key of the config, a file, a package
    values: Mapping[str, Any]  # by the run's name; one that has not recorded it is not there
    lacking: tuple[str, ...] = ()  # names of runs that would have recorded it and have not
    kind: DifferenceKind = "confounding"
    reason: str = "other"  # fixed name of the sentence that says why, and what to do
    words: Mapping[str, str] = field(default_factory=dict[str, str])  # for its other places

    @property
    def name(self) -> str:
        return f"{self.aspect}/{self.key}"

    def explain(self, language: Language = "en") -> str:
        known = {"key": self.key, "runs": ", ".join(self.lacking), **self.words}
        return RULES["reasons"][self.reason][language].format(**known)


@dataclass(frozen=True, slots=True)
class FairnessVerdict:
    """What must be known before runs are compared."""

    differences: tuple[Difference, ...]  # the confounding ones first
    remarks: tuple[Statement, ...]  # what is suspiciously the same

    @property
    def is_fair(self) -> bool:
        """Whether nothing confounds and every training step of every run trained something."""
        is_alike = all(one.kind != "confounding" for one in self.differences)
        return is_alike and all(one.level != "error" for one in self.remarks)


def check_fairness(
    runs: Sequence[RunFacts], *, factors: Sequence[str] = (), split: str = "test"
) -> FairnessVerdict:
    """Hold two or more runs together: every difference, their items, and what is too much the same.

    ``factors`` are what is compared: keys or sections of the config (``grpo.beta``), or aspects
    (``data``, ``policy``); what follows from it is intended, too. Fewer than two runs, a policy of
    a folder twice, damaged weights, and what ``find_differences`` refuses are an EvaluationError.
    """
    if len(runs) < 2:
        raise EvaluationError("a comparison needs runs", got=len(runs), expected="two or more")
    for one, two in combinations(runs, 2):
        is_same_policy = one.policy == two.policy and one.folder.resolve() == two.folder.resolve()
        if one.name == two.name or is_same_policy:
            other, fix = "different runs, or different policies of a run", "leave one of them out"
            raise EvaluationError(f"{two.name} is given twice", expected=other, fix=fix)
    differences = find_differences(runs, factors=factors, split=split)
    remarks: list[Statement] = []
    for run in runs:  # steps that trained nothing, where weights can be compared
        for before, policy in pairwise((None, *run.chain)):
            if policy is None or policy.step is None:
                continue
            name, old, new = "", _open_weights(run, before), _open_weights(run, policy)
            factors_b = [new[key].get_tensor(key) for key in new if "lora_B" in key]
            if run.facts.get(f"trainable/{policy.step}.num_trainable") == 0:
                name = "nothing_trainable"
            elif _are_same(old, new):
                name = "unmoved_weights"
            elif factors_b and not any(one.any() for one in factors_b):  # as at the start
                name = "unmoved_adapter"
            if name:
                remarks.append(_remark("error", name, key=policy.step, runs=run.name))
    counting = [d.values for d in differences if d.kind != "harmless" and d.aspect != "labels"]
    for one, two in combinations(runs, 2):
        ours, theirs = one.answers[split], two.answers[split]
        both = [(ours[item], theirs[item]) for item in ours.keys() & theirs.keys()]
        has_same_text = all(a.text == b.text for a, b in both)
        is_apart = any(v.get(one.name, ...) != v.get(two.name, ...) for v in counting)
        is_apart = is_apart or any(a.label != b.label for a, b in both)
        has_same_answers = bool(both) and all(a.predicted == b.predicted for a, b in both)
        if not has_same_answers or not (is_apart or has_same_text):
            continue
        level, name = "warning", "same_predictions" if has_same_text else "same_answers"
        if not is_apart:
            is_same = _are_same(*(_open_weights(run, *run.chain[-1:]) for run in (one, two)))
            names = {True: "identical", False: "identical_other_weights", None: "identical_answers"}
            level, name = "info", names[is_same]
        remarks.append(_remark(level, name, one=one.name, two=two.name, count=str(len(both))))
    for name in factors:
        if not any(is_named(one.name, [name]) for one in differences):
            remarks.append(_remark("warning", "not_varied", key=name))
    return FairnessVerdict(differences, tuple(remarks))


def find_differences(
    runs: Sequence[RunFacts], *, factors: Sequence[str] = (), split: str
) -> tuple[Difference, ...]:
    """Return all differences, each classed, the confounding ones first; of items those of a split.

    A run without items in the split, or a factor that no run has, is an EvaluationError.
    """
    for run in runs:
        if not run.answers.get(split):
            have = f"one of {', '.join(sorted(run.answers)) or 'none'}"
            raise EvaluationError(f"{run.name} has no items in the split {split!r}", expected=have)
    facts = sorted({name for run in runs for name in run.facts})
    for name in factors:
        if name not in ("items", "labels") and not any(is_named(fact, [name]) for fact in facts):
            aspects = {fact.partition("/")[0] for fact in facts} - set(_NOT_NAMEABLE)
            known = {fact.partition("/")[2] for fact in facts if fact.startswith("config/")}
            hint = suggest_name(name, sorted(known | aspects)) or "; give a key of the config"
            raise EvaluationError(f"--factor: no run has {name!r}{hint}")
    found = [*_list_unlike(runs), *_compare_items(runs, split)]
    named = [one for one in found if is_named(one.name, factors)]
    has_policy = any(one.aspect == "policy" for one in named)
    steps = {run.name: tuple(one.step for one in run.chain) for run in runs}
    settings = [f"{x.key} {_find_effect(x, runs).kind}" for x in named if x.aspect == "config"]
    differing = {"items" if one.aspect == "labels" else one.aspect for one in found}
    recorded = [{name.partition("/")[0] for name in run.facts} for run in runs]
    equal = {"items"}.union(recorded[0].intersection(*recorded)) - differing
    used = {fact for run in runs for fact in run.facts if fact not in run.unused}
    classed: list[Difference] = []
    for one in sorted(found, key=lambda one: one.aspect != "data"):  # budgets follow from data
        effect = _find_effect(one, runs)
        # What is read of other inputs is more than what is recorded of their content.
        is_place = one.aspect == "config" or effect.reason == "base_weights"
        is_unused = one.aspect == "config" and not any(_is_in(fact, one.name) for fact in used)
        is_evaluated = one.aspect in ("data", "prompts") and any(one.key in r.answers for r in runs)
        lines = {} if is_evaluated else {f"{one.name} <- {key}": key for key in settings}
        causes = [lines[x] for x in lines if any(re.fullmatch(p, x) for p in RULES["follows"])]
        # Only some policies have it, and those without it were trained in other steps.
        having, lacking = ({steps[run] for run in own} for own in (one.values, one.lacking))
        is_of_policy = bool(lacking) and not having & lacking
        is_of_policy &= one.aspect in (*RULES["files"]["policies/file"], "data", "prompts")
        causes = ["policy"] if has_policy and (is_of_policy or one.aspect == "lineage") else causes
        is_alike = is_place and effect.kind == "source" and effect.reason in equal
        harmless = _find_harmless(one)
        kinds: Sequence[tuple[bool, DifferenceKind, str]] = (  # the first that holds
            (one in named, "intended", "named"),
            (bool(causes), "intended", "follows"),
            (harmless is not None, "harmless", harmless or ""),
            (is_alike, "harmless", "same_content"),
            (effect.kind == "harmless", "harmless", "field"),
            (is_unused, "harmless", "unused"),
            (bool(one.lacking) and one.name not in RULES["files"], "confounding", "unknown"),
            (True, "confounding", one.aspect if one.aspect in RULES["reasons"] else "other"),
        )
        kind, reason = next((kind, reason) for holds, kind, reason in kinds if holds)
        cause = causes[0].partition(" ")[0] if reason == "follows" else effect.reason
        words = {"cause": cause, "cause_zh": effect.reason_zh, **one.words}
        if (one.aspect, kind) == ("data", "intended") and cause != "policy" and not is_evaluated:
            settings.append("data *")
        classed.append(replace(one, kind=kind, reason=reason, words=words))
    order = get_args(DifferenceKind)
    return tuple(sorted(classed, key=lambda one: (order.index(one.kind), one.aspect, one.key)))


def is_named(fact: str, factors: Sequence[str]) -> bool:
    """Return whether ``aspect/key`` is what one of the names means."""
    aspect, _, key = fact.partition("/")
    if aspect == "config":
        return any(_is_in(key, name) for name in factors)
    names = (aspect, fact, "seed") if aspect == "seeds" else (aspect, fact)
    return aspect not in _NOT_NAMEABLE and any(name in names for name in factors)


def _find_effect(one: Difference, runs: Sequence[RunFacts]) -> Effect:
    """Return the effect of a setting, or of the input behind it; it counts if runs disagree."""
    effects = [find_effect(run.effects, one.key) for run in runs]
    is_agreed = one.aspect in ("config", "inputs") and len({effect.kind for effect in effects}) == 1
    return effects[0] if is_agreed else Effect()


def _is_in(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


def _list_unlike(runs: Sequence[RunFacts]) -> Iterator[Difference]:
    """Yield the facts that differ or that only some runs have recorded.

    What some run lacks as a whole is one value: a section that is null there, a step, a file.
    """
    settings = {name for run in runs for name in run.facts if name.startswith("config/")}
    whole = {one for one in settings if any(other.startswith(f"{one}.") for other in settings)}
    steps = [{n.partition(".")[0] for n in run.facts if n.startswith("resolved/")} for run in runs]
    whole |= steps[0].union(*steps) - steps[0].intersection(*steps)
    facts: dict[str, dict[str, Any]] = {run.name: {} for run in runs}
    for run in runs:
        for name, value in run.facts.items():
            section = next((one for one in sorted(whole) if name.startswith(f"{one}.")), None)
            if section is None:
                facts[run.name][name] = value
            else:
                facts[run.name].setdefault(section, {})[name.removeprefix(f"{section}.")] = value
    for name in sorted({*RULES["files"], *(name for own in facts.values() for name in own)}):
        aspect, _, key = name.partition("/")
        file = next((file for file, told in RULES["files"].items() if aspect in told), name)
        values = {run: own[name] for run, own in facts.items() if name in own}
        lacking = tuple(
            run for run, own in facts.items() if run not in values and (file == name or file in own)
        )
        tables = [one if isinstance(one, dict) else {"digest": one} for one in values.values()]
        known = {json.dumps(one.get("digest", one), sort_keys=True) for one in tables}
        if lacking or len(known) > 1:  # of data the digest counts, and true is not 1
            yield Difference(aspect, key, values, lacking)


def _compare_items(runs: Sequence[RunFacts], split: str) -> Iterator[Difference]:
    """Yield that runs answered other items, and that items have other labels (the first one)."""
    answers = {run.name: [*run.answers[split].values()] for run in runs}
    labels: dict[str, dict[str, str | None]] = {}
    for name, own in answers.items():
        for answer in own:
            labels.setdefault(answer.example_id, {})[name] = answer.label
    shared = [item for item, own in labels.items() if len(own) == len(runs)]
    sizes = [len(own) for own in answers.values()]
    if max(sizes) > len(shared):
        values = {x: {"n": len(y), "split_digest": digest_items(y)} for x, y in answers.items()}
        words = {"sizes": ", ".join(map(str, sizes)), "shared": str(len(shared))}
        yield Difference("items", split, values, words=words)
    unlike = sorted(item for item, own in labels.items() if len({*own.values()}) > 1)
    for item in unlike[:1]:
        values = {name: {"item": item, "label": label} for name, label in labels[item].items()}
        yield Difference("labels", split, values, words={"count": str(len(unlike))})


def _find_harmless(found: Difference) -> str | None:
    """Return why a fact may have any values, or the values that the runs have, or None."""
    values = [*found.values.values(), *(None for _ in found.lacking)]
    rates = [one for one in values if isinstance(one, int | float)]
    for rule in RULES["harmless"]:
        if not fnmatchcase(found.name, rule["fact"]):
            continue
        starts = [re.match(rule.get("alike", ""), str(one)) for one in values]
        is_alike = all(starts) and len({one[0] for one in starts if one}) == 1
        limit, are_rates = rule.get("within"), len(rates) == len(values)
        if is_alike and (limit is None or (are_rates and max(rates) - min(rates) <= limit)):
            return rule["reason"]
    return None


def _remark(level: Level, name: str, **words: str) -> Statement:
    why = {lang: RULES["reasons"][name][lang].format(**words) for lang in LANGUAGES}
    return Statement("notice.gate", {"reason": name, "why": why}, level)


def _open_weights(run: RunFacts, policy: RunPolicy | None = None) -> Mapping[str, Any]:
    """Return the open file of each tensor of a policy, by the tensor's name; empty without any."""
    if policy is None or policy.weights is None:
        return {}
    import safetensors

    folder, found = run.folder / policy.weights, dict[str, Any]()
    adapter = folder / "adapter_model.safetensors"
    for path in [adapter] if adapter.is_file() else sorted(folder.glob("*.safetensors")):
        try:
            opened: Any = safetensors.safe_open(str(path), framework="pt")
        except (OSError, safetensors.SafetensorError) as error:
            raise EvaluationError(
                f"the weights {path} are damaged ({error})", fix="run the step that trains again"
            ) from error
        found |= dict.fromkeys(opened.keys(), opened)
    return found


def _are_same(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool | None:
    """Return whether all tensors are the same, read up to the first that differs; None without."""
    if not one or not two or one.keys() != two.keys():
        return False if one and two else None
    pairs = ((one[name].get_tensor(name), two[name].get_tensor(name)) for name in one)
    return all(a.shape == b.shape and bool((a == b.to(a.dtype)).all()) for a, b in pairs)


def find_same_axes(cells: Sequence[tuple[Mapping[str, str], Hashable]]) -> Iterator[Statement]:
    """Yield for each axis which of its values gave the same in all cells.

    A cell has coordinates by axis, and the digest of its predictions or its value (None: not run).
    A single pair of equal numbers may be chance and says nothing; one of equal digests does.
    """
    for axis in sorted({axis for coordinates, _ in cells for axis in coordinates}):
        rows: dict[str, set[tuple[Hashable, Hashable]]] = {}
        for coordinates, result in cells:
            if result is not None and axis in coordinates:
                rest = frozenset((k, v) for k, v in coordinates.items() if k != axis)
                rows.setdefault(coordinates[axis], set()).add((rest, result))
        for row in dict.fromkeys(map(frozenset, rows.values())):
            values = [value for value, own in rows.items() if own == row]
            is_chance = len(row) == 1 and not all(isinstance(result, str) for _, result in row)
            if len(values) > 1 and not is_chance:
                is_epoch = any(word in axis.lower() for word in ("epoch", "checkpoint"))
                words = {"key": axis, "cause": ", ".join(values), "count": str(len(row))}
                yield _remark("warning", "same_epochs" if is_epoch else "same_axis", **words)
