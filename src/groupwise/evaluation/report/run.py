"""What the report of a run says, as data: its files, what must be known first, the findings.

Every number comes from a file of the run folder; nothing is typed and nothing is trained. A file
that cannot be parsed is an error, because a report without it would look complete.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import EvaluationError, check_records, read_json, read_jsonl, read_manifest
from groupwise.evaluation.alarms import History, find_alarms
from groupwise.evaluation.metrics import Metric, read_metrics
from groupwise.evaluation.predictions import (
    ACCURACY,
    Measure,
    Prompts,
    choose_headline,
    digest_items,
    find_constant,
    find_measure,
    group_by_policy,
    read_policies,
    read_predictions,
    read_prompts,
)
from groupwise.evaluation.report.phrases import LEVELS, Statement, format_share_interval
from groupwise.evaluation.report.tables import read_sections
from groupwise.evaluation.results import read_measures, state_looks
from groupwise.evaluation.statistics import PairedComparison, read_comparisons

T = TypeVar("T")
Record = Mapping[str, Any]
MAX_INVALID_RATE, MIN_ITEMS, MIN_CLUSTERS = 0.05, 100, 20
_METRICS, _PREDICTIONS = "evaluate/metrics.json", "evaluate/predictions.jsonl"
_NEEDED = {"manifest.json", "audit/audit.json", _METRICS, _PREDICTIONS}


class Report:
    """What the folder of a run holds, and what is to be said of it.

    What is not there is empty, and its file is named in ``absent``.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
        RunError: if a file is not what its step wrote.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise EvaluationError(f"there is no run at {folder}", fix="give the folder of a run")
        check_records(folder)
        self.folder, self.absent = folder, list[str]()

        def read(name: str, how: Callable[[Path], T], default: T, *, is_due: bool = True) -> T:
            if (folder / name).is_file():
                return how(folder / name)
            self.absent += [name] if is_due else []
            return default

        def read_object(path: Path) -> Record:
            return read_json(path, dict)

        def read_log(path: Path) -> History:
            return History(read_jsonl(path))

        self.policies, self.measures = read_policies(folder), read_measures(folder)
        self.manifest = read("manifest.json", read_manifest, None)
        self.predictions = read(_PREDICTIONS, read_predictions, [])
        self.metrics = read(_METRICS, read_metrics, [])
        self.comparisons = read("evaluate/comparisons.json", read_comparisons, [])
        self.audit = read("audit/audit.json", read_object, {})
        self.reward_audit = read("audit_rewards/audit.json", read_object, {}, is_due=False)
        self.prompts = read("evaluate/prompts.json", read_prompts, Prompts(), is_due=False)
        self.sections = read("evaluate/sections.json", read_sections, (), is_due=False)
        verbs = folder / "evaluate/verbs.json"  # commands that the run can be given to
        self.verbs: list[str] = read_json(verbs, list) if verbs.is_file() else []
        # What each step left behind when it ended, and what trainings logged, in their order.
        self.steps = {
            path.parent.name: read_object(path) for path in folder.glob("[!.]*/step.json")
        }
        steps = {path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")}
        steps |= {one.step for one in self.policies.listed if one.step and one.kind == "trained"}
        steps = self.policies.sort(sorted(steps))
        logs = {step: read(f"{step}/metrics.jsonl", read_log, History()) for step in steps}
        self.logs = {step: log for step, log in logs.items() if not log.is_empty}
        steps = [step for step, log in self.logs.items() if log.is_rewarded]
        self.on_policy = {step: read(f"{step}/on_policy.json", read_object, {}) for step in steps}

        # Metrics of policies that have what heads the report, by split, the main one first.
        self.headline = choose_headline({x.measure for x in self.metrics}, self.measures)
        name, rank = self.headline.name, self.policies.rank
        headed = {(one.split, one.policy) for one in self.metrics if one.measure == name}
        metrics = [one for one in self.metrics if (one.split, one.policy) in headed]
        metrics.sort(key=lambda one: (one.split != "test", one.split, rank(one.policy)))
        self.by_split: dict[str, dict[str, dict[str, Metric]]] = {}
        for one in metrics:
            self.by_split.setdefault(one.split, {}).setdefault(one.policy, {})[one.measure] = one
        # What details are about: a split, its metrics and answers, and its last policy, with 1, 0
        # or -1 for each that it is clearly better, not told apart or clearly worse than.
        self.items = group_by_policy(self.predictions)
        self.split = next(iter([*self.by_split, *(split for split, _ in self.items)]), "")
        self.main = self.by_split.get(self.split, {})
        names = self.policies.sort(name for split, name in self.items if split == self.split)
        self.answers = {name: self.items[self.split, name] for name in names}
        self.last = next(reversed(self.main or self.answers), "")
        mine = (name, self.split, self.last)
        self.pairs = [x for x in self.comparisons if (x.measure, x.split, x.policy_b) == mine]
        self.gains = {one.policy_a: judge_difference(one, self.headline) for one in self.pairs}
        self.looks = [
            one
            for digest in sorted({one.split_digest for one in self.metrics})
            for one in state_looks(folder, digest)
        ]
        notices = [*_tell_files(self), *_tell_items(self), *_tell_answers(self)]
        notices += [one for one in self.looks if one.level == "warning"]
        self.notices = sorted(notices, key=lambda one: LEVELS.index(one.level))
        self.doubt = _find_doubt(self)
        self.findings = list(_list_findings(self)) if self.main else []

    def define(self, name: str) -> Measure:
        """Return a measure; one that nobody defined is better when it is higher."""
        return find_measure(name, self.measures) or Measure(name, name, name)

    @property
    def is_useful(self) -> bool:
        """Whether the last policy is shown to be of use: nothing speaks against it.

        One that does nothing but harm by some measure (100 % missed defects, a headline at its
        worst) is not, whatever else it does, nor one that stands beside no baseline.
        """
        is_baseline = self.policies.is_baseline
        if not self.main or self.doubt is not None or is_baseline(self.last):
            return False
        if self.headline is ACCURACY and not any(map(is_baseline, self.main)):
            return False
        own = self.main[self.last]
        if self.headline.is_higher_better and own[self.headline.name].value == 0:
            return False
        harms = [name for name in own if not self.define(name).is_higher_better]
        return all(own[name].value < 1 or name.startswith("latency") for name in harms)


def judge_difference(one: PairedComparison, measure: Measure = ACCURACY) -> int:
    """Return 1 or -1 where b is clearly better or worse than a, 0 where neither is shown.

    Clear means: the interval does not contain 0 and the p-value adjusted by Holm's method,
    with clusters as the unit, is below 0.05.
    """
    if one.p_value_holm >= 0.05 or one.low <= 0 <= one.high:
        return 0
    return 1 if measure.sign * one.difference > 0 else -1


def tell_finding(row: Record, source: str) -> Statement:
    """Return what an audit found, with the first place where it did, or what a step warns of."""
    is_accepted, level = bool(row.get("accepted")), row.get("level", "warning")
    places = [Statement("run.example", {"place": place}) for place in row.get("where", ())[:1]]
    values: dict[str, Any] = {"accepted": ""}
    if is_accepted:
        values["accepted"] = Statement("run.accepted", {"name": row.get("name", "")})
    values |= {"message": str(row.get("message", row)), "example": [*places, ""][0]}
    level = "warning" if is_accepted and level == "info" else level
    return Statement("run.found", values, level if level in LEVELS else "warning", source)


def _warn(kind: str, source: str, /, **values: Any) -> Statement:
    return Statement(kind, values, "warning", source)


def _tell_files(report: Report) -> Iterator[Statement]:
    """Yield what is missing, what audits found and steps warn of, unlike packages, and alarms.

    Faults of the rewards that a run was told to go on with are errors, not footnotes.
    """
    if report.absent:
        is_whole = not _NEEDED.intersection(report.absent) and all(report.on_policy.values())
        level = "info" if is_whole else "warning"
        yield Statement("run.absent", {"names": report.absent}, level)
    files = {"audit/audit.json": report.audit, "audit_rewards/audit.json": report.reward_audit}
    rows = {name: audit.get("findings", []) for name, audit in files.items()}
    for path in sorted(report.folder.glob("*/warnings.json")):
        rows[path.relative_to(report.folder).as_posix()] = read_json(path, list)
    for name, found in rows.items():
        told = [tell_finding(row, name) for row in found]
        yield from (one for one in told if one.level != "info" or name not in files)
    packages = [found for one in report.steps.values() if (found := one.get("packages"))]
    for name in sorted({name for one in packages for name in one}):
        versions = sorted({one.get(name, "none") for one in packages})
        if len(versions) > 1:
            yield _warn("run.packages", "manifest.json", name=name, versions=versions)
    for name, log in report.logs.items():
        for alarm in find_alarms(log):
            values = {"policy": name, "step": alarm.step, "said": alarm.said}
            values["advice"] = alarm.advice
            yield Statement("run.alarm", values, alarm.level, f"{name}/metrics.jsonl")


def _tell_items(report: Report) -> Iterator[Statement]:
    """Yield where numbers are not of the same items, and where these are few."""
    for split in sorted({split for split, _ in report.items} | set(report.by_split)):
        here = [rows for key, rows in report.items.items() if key[0] == split]
        digests = {one.split_digest for one in report.metrics if one.split == split}
        if len(digests | {digest_items(rows) for rows in here if digests}) > 1:
            yield Statement("run.items", {"split": split}, "error", _METRICS)
        n = len({one.example_id for rows in here for one in rows})
        num = len({one.cluster for rows in here for one in rows})
        if here and (n < MIN_ITEMS or num < MIN_CLUSTERS):
            yield _warn("run.small", _PREDICTIONS, split=split, n=n, num_clusters=num)


def _tell_answers(report: Report) -> Iterator[Statement]:
    """Yield where answers are invalid, alike or of no use, or half of a task gives them away."""
    policies = report.policies
    for one in report.metrics:
        if one.measure == "invalid_rate" and one.value > MAX_INVALID_RATE:
            values = {"policy": one.policy, "split": one.split, "n": one.n}
            yield _warn("run.invalid", _METRICS, rate=one.value, **values)
    for split, by_policy in report.by_split.items() if report.headline is ACCURACY else ():
        found = {name: own[ACCURACY.name] for name, own in by_policy.items()}
        baselines = [name for name in found if policies.is_baseline(name)]
        others = [name for name in found if not policies.is_baseline(name)]
        if not baselines or not others:
            continue
        best, last = max(baselines, key=lambda name: found[name].value), found[others[-1]]
        if last.low <= found[best].value:
            ends = format_share_interval(last.low, last.high)
            values = {"policy": last.policy, "value": last.value, "ends": ends, "split": split}
            values |= {"best": best, "baseline": found[best].value}
            yield _warn("run.not_above", _METRICS, **values)
        blind = {name: policies.find(name).blind_to for name in baselines}
        floors = [found[name].value for name, what in blind.items() if "everything" in what]
        for name, what in blind.items():
            if floors and what in (("picture",), ("text",)) and found[name].low > floors[0]:
                values = {"policy": name, "value": found[name].value, "floor": floors[0]}
                yield _warn("run.shortcut", _METRICS, split=split, **values)
    for (split, policy), items in report.items.items():
        answer, known = find_constant(items), policies.find(policy)
        if answer is not None and "everything" not in known.blind_to:
            values = {"policy": policy, "n": len(items), "split": split, "answer": answer}
            yield _warn("run.constant", _PREDICTIONS, **values)
        before = report.items.get((split, known.trained_from or ""), [])
        texts = [{one.example_id: one.text for one in rows} for rows in (before, items)]
        if before and texts[0] == texts[1]:
            values = {"a": known.trained_from, "b": policy, "split": split}
            yield _warn("run.same_answers", _PREDICTIONS, **values)


def _find_doubt(report: Report) -> Statement | None:
    """Return what speaks against using the last policy; None: nothing does.

    It is not clearly above the best baseline (of which one is the majority), it answers everything
    alike, it is not clearly better than the base before any training, or a policy that it was
    trained from is clearly better.
    """
    about = {"policy": report.last, "split": report.split}
    for one in report.notices:
        if one.kind in ("run.not_above", "run.constant") and about.items() <= one.values.items():
            return one
    for one in report.policies.list_ancestors(report.last)[:-1]:
        gain = report.gains.get(one.name, 1)
        if gain < 0 or (gain == 0 and one.kind == "prompted"):
            return Statement("run.doubt", {"policy": report.last, "other": one.name})
    return None


def _list_findings(report: Report) -> Iterator[Statement]:
    """Yield what is known of the last policy; what is not there is left out."""
    last, headline = report.last, report.headline
    for kind, gain in (("run.above", 1), ("run.below", -1), ("run.close", 0)):
        others: list[Statement] = []
        for one in [one for one in report.pairs if report.gains[one.policy_a] == gain]:
            values = {"policy": one.policy_a, "difference": one.difference}
            values |= {"ends": (one.low, one.high), "p": one.p_value_holm}
            others.append(Statement("run.other", values))
        if others:
            yield Statement(kind, {"policy": last, "others": others})
    few = [
        one.num_carrying or 0.0
        for one in report.comparisons
        if one.rests_on_few and judge_difference(one, report.define(one.measure))
    ]
    if few:
        yield Statement("run.rests_on_few", {"num_clear": len(few), "num": round(min(few))})
    values = {name: own[headline.name].value for name, own in report.main.items()}
    baselines = [name for name in values if report.policies.is_baseline(name)]
    if baselines and baselines[-1] != last:
        best = max(baselines, key=lambda name: values[name] * headline.sign)
        yield Statement("run.baseline", {"policy": best, "value": values[best]})
    if "ece" in report.main[last]:
        yield Statement("run.confidence", {"value": report.main[last]["ece"].value})
    if report.gains:
        yield Statement("run.one_training")
