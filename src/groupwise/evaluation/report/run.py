"""What the report of a run says, as data: its files, what must be known first, the findings.

Every number comes from a file of the run folder; nothing is typed and nothing is trained. A file
that cannot be parsed is an error, because a report without it would look complete.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import EvaluationError, check_records, read_json, read_jsonl, read_manifest
from groupwise.evaluation.alarms import History, find_alarms
from groupwise.evaluation.looks import state_looks
from groupwise.evaluation.metrics import Metric, read_metrics
from groupwise.evaluation.predictions import (
    ACCURACY,
    Measure,
    Policies,
    Prediction,
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
from groupwise.evaluation.report.phrases import LEVELS, Level, Statement, format_share_interval
from groupwise.evaluation.report.tables import Section, read_sections
from groupwise.evaluation.results import read_measures
from groupwise.evaluation.statistics import PairedComparison, read_comparisons

T = TypeVar("T")
Record = Mapping[str, Any]
ByPolicy = Mapping[str, Mapping[str, Metric]]
MAIN_SPLIT = "test"
MAX_INVALID_RATE = 0.05
MIN_ITEMS = 100
MIN_CLUSTERS = 20
_MAX_DEAD_SHARE = 0.8
_METRICS, _PREDICTIONS = "evaluate/metrics.json", "evaluate/predictions.jsonl"
_NEEDED = (_PREDICTIONS, _METRICS, "audit/audit.json", "manifest.json")


@dataclass(frozen=True)
class Report:
    """Everything the report of a run is made of; what is not there is empty or None."""

    folder: Path
    predictions: list[Prediction]
    prompts: Prompts
    verbs: Sequence[str]  # commands that the run can be given to
    metrics: list[Metric]
    comparisons: list[PairedComparison]
    sections: tuple[Section, ...]
    logs: dict[str, History]  # of every step that logged rows, in the order of what they trained
    warnings: list[tuple[str, Record]]  # rows of every step's warnings.json, with the file
    audit: Record
    reward_audit: Record
    on_policy: Mapping[str, Record]  # by step
    manifest: Record | None
    steps: Mapping[str, Record]  # what each step left behind when it ended
    policies: Policies
    measures: tuple[Measure, ...]
    looks: tuple[Statement, ...]  # how often the splits were looked at
    absent: tuple[str, ...]  # files that are not there

    @cached_property
    def headline(self) -> Measure:
        """What heads the report."""
        return choose_headline({one.measure for one in self.metrics}, self.measures)

    @cached_property
    def by_split(self) -> Mapping[str, ByPolicy]:
        """Metrics of policies that have the headline, by split (the main one first) and policy."""
        found: dict[tuple[str, str], dict[str, Metric]] = {}
        for one in self.metrics:
            found.setdefault((one.split, one.policy), {})[one.measure] = one
        found = {key: own for key, own in found.items() if self.headline.name in own}
        main = choose_split(split for split, _ in found)
        by_split: dict[str, dict[str, Mapping[str, Metric]]] = {}
        for split, policy in sorted(
            found, key=lambda key: (key[0] != main, key[0], self.policies.rank(key[1]))
        ):
            by_split.setdefault(split, {})[policy] = found[split, policy]
        return by_split

    @cached_property
    def split(self) -> str:
        """The split that plots and details are about; empty where nothing was answered."""
        return next(iter(self.by_split), choose_split(one.split for one in self.predictions))

    @property
    def main(self) -> ByPolicy:
        """The metrics of that split."""
        return self.by_split.get(self.split, {})

    @property
    def last(self) -> str:
        """The policy that the report is about, the last one of the main split."""
        return ["", *self.main][-1]

    @cached_property
    def answers(self) -> Mapping[str, Sequence[Prediction]]:
        """Those of each policy to the items of the main split, in order."""
        items = [one for one in self.predictions if one.split == self.split]
        found = {policy: rows for (_, policy), rows in group_by_policy(items).items()}
        return {name: found[name] for name in self.policies.sort(found)}

    @cached_property
    def notices(self) -> tuple[Statement, ...]:
        """What must be known before any number, the worst first."""
        return tuple(sorted(_list_notices(self), key=lambda one: LEVELS.index(one.level)))

    @cached_property
    def findings(self) -> tuple[Statement, ...]:
        """What the numbers say; the same numbers say the same."""
        return tuple(_list_findings(self)) if self.main else ()

    def define(self, name: str) -> Measure:
        """Return a measure; one that nobody defined is better when it is higher."""
        return find_measure(name, self.measures) or Measure(name, name, name)


def choose_split(splits: Iterable[str]) -> str:
    """Return the split that a report is about: ``test``, or the first by name; may be empty."""
    names = sorted(set(splits))
    return MAIN_SPLIT if MAIN_SPLIT in names else [*names, ""][0]


def build_report(run_folder: Path) -> Report:
    """Read what is there of a run; what is not there is named.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
        RunError: if a file is not what its step wrote.
    """
    folder = run_folder
    if not folder.is_dir():
        raise EvaluationError(f"there is no run at {folder}", fix="give the folder of a run")
    check_records(folder)

    def read(name: str, how: Callable[[Path], T], default: T) -> T:
        return how(folder / name) if (folder / name).is_file() else default

    def read_object(path: Path) -> Record:
        return read_json(path, dict)

    policies = read_policies(folder)
    trained = policies.sort(sorted(one.parent.name for one in folder.glob("[!.]*/metrics.jsonl")))
    logs = {name: History(read_jsonl(folder / name / "metrics.jsonl")) for name in trained}
    logs = {name: log for name, log in logs.items() if not log.is_empty}
    metrics = read(_METRICS, read_metrics, [])
    digests = sorted({one.split_digest for one in metrics})
    expected = (
        *("manifest.json", _PREDICTIONS, _METRICS, "evaluate/comparisons.json", "audit/audit.json"),
        *(f"{one.step}/metrics.jsonl" for one in policies.listed if one.kind == "trained"),
        *(f"{name}/on_policy.json" for name, log in logs.items() if log.is_rewarded),
    )
    checks = {name: read(f"{name}/on_policy.json", read_object, {}) for name in logs}
    return Report(
        folder=folder,
        predictions=read(_PREDICTIONS, read_predictions, []),
        prompts=read("evaluate/prompts.json", read_prompts, Prompts()),
        verbs=read("evaluate/verbs.json", lambda path: read_json(path, list), []),
        metrics=metrics,
        comparisons=read("evaluate/comparisons.json", read_comparisons, []),
        sections=read("evaluate/sections.json", read_sections, ()),
        logs=logs,
        warnings=[
            (path.relative_to(folder).as_posix(), row)
            for path in sorted(folder.glob("*/warnings.json"))
            for row in read_json(path, list)
        ],
        audit=read("audit/audit.json", read_object, {}),
        reward_audit=read("audit_rewards/audit.json", read_object, {}),
        on_policy={name: check for name, check in checks.items() if check},
        manifest=read("manifest.json", read_manifest, None),
        steps={path.parent.name: read_object(path) for path in folder.glob("[!.]*/step.json")},
        policies=policies,
        measures=read_measures(folder),
        looks=tuple(one for digest in digests for one in state_looks(folder, digest)),
        absent=tuple(name for name in expected if not (folder / name).is_file()),
    )


def judge_difference(one: PairedComparison, measure: Measure = ACCURACY) -> int:
    """Return 1 or -1 where b is clearly better or worse than a, 0 where neither is shown.

    Clear means: the interval does not contain 0 and the p-value adjusted by Holm's method,
    with clusters as the unit, is below 0.05.
    """
    if one.p_value_holm >= 0.05 or one.low <= 0 <= one.high:
        return 0
    return 1 if measure.sign * one.difference > 0 else -1


def remark_carrying(comparisons: Iterable[PairedComparison]) -> Iterator[Statement]:
    """Say once if clear differences rest on few clusters: on how many the one with fewest does."""
    few = [one.num_carrying or 0.0 for one in comparisons if one.rests_on_few]
    if few:
        yield Statement("run.rests_on_few", {"num_clear": len(few), "num": round(min(few))})


def _list_findings(report: Report) -> Iterator[Statement]:
    """Yield what is known of the last policy; what is not there is left out."""
    split, last, headline = report.split, report.last, report.headline
    own = report.main[last]
    one = own[headline.name]
    num_clusters = len({item.cluster for item in report.predictions if item.split == split})
    clusters = Statement("run.in_clusters", {"num": num_clusters}) if num_clusters else ""
    about = {"split": split, "policy": last, "value": one.value, "n": one.n, "measure": headline}
    ends = format_share_interval(one.low, one.high)
    yield Statement("run.reaches", about | {"clusters": clusters, "ends": ends})
    here = [pair for pair in report.comparisons if pair.split == split]
    for kind, wanted in (("above", 1), ("below", -1), ("close", 0)):
        pairs = [
            pair
            for pair in here
            if (pair.measure, pair.policy_b) == (headline.name, last)
            and not report.policies.is_baseline(pair.policy_a)
            and judge_difference(pair, headline) == wanted
        ]
        others = [
            Statement(
                "run.other",
                {
                    "policy": pair.policy_a,
                    "difference": pair.difference,
                    "ends": (pair.low, pair.high),
                    "p": pair.p_value_holm,
                },
            )
            for pair in pairs
        ]
        if others:
            yield Statement(f"run.{kind}", {"others": others})
        if wanted:
            yield from remark_carrying(pairs)
    baselines = [name for name in report.main if report.policies.is_baseline(name)]
    if baselines and baselines[-1] != last:
        best = max(baselines, key=lambda name: report.main[name][headline.name].value)
        value = report.main[best][headline.name].value
        yield Statement("run.baseline", {"policy": best, "value": value})
    found = {name: m.value for name, m in own.items() if name.startswith("recall:")}
    low, high = (pick(found, key=found.__getitem__, default="") for pick in (min, max))
    if found and found[low] < found[high]:
        labels = {"worst": low.removeprefix("recall:"), "best": high.removeprefix("recall:")}
        values = {"value_worst": found[low], "value_best": found[high]}
        yield Statement("run.labels", labels | values)
    if "invalid_rate" in own:
        yield Statement("run.invalid_share", {"value": own["invalid_rate"].value})
    if "ece" in own:
        yield Statement("run.confidence", {"value": own["ece"].value})
    if here:
        yield Statement("run.one_training")


def _warn(kind: str, source: str, /, **values: Any) -> Statement:
    return Statement(kind, values, "warning", source)


def _list_notices(report: Report) -> Iterator[Statement]:
    yield from (_warn("run.absent", one, name=one) for one in _NEEDED if one in report.absent)
    yield from _note_audits(report)
    yield from _note_items(report)
    yield from _note_answers(report)
    for name, log in report.logs.items():
        rows = f"{name}/metrics.jsonl"
        if log.is_rewarded:
            if name not in report.on_policy:
                yield _warn("run.no_on_policy", f"{name}/on_policy.json", policy=name)
            dead = log.read("dead_groups").values
            end = dead[-max(1, len(dead) // 4) :]
            if end and sum(end) / len(end) > _MAX_DEAD_SHARE:
                values = {"policy": name, "share": sum(end) / len(end)}
                yield Statement("run.dead", values, "info", rows)
        for alarm in find_alarms(log):
            told = {"said": alarm.said, "advice": alarm.advice}
            values = {"policy": name, "step": alarm.step, **told}
            yield Statement("run.alarm", values, alarm.level, rows)
    yield from (one for one in report.looks if one.level == "warning")


def _note_audits(report: Report) -> Iterator[Statement]:
    """Yield what the audits found, and what steps warn of.

    Faults of the rewards that a run was told to go on with are errors, not footnotes.
    """
    for row in report.audit.get("findings", ()):
        is_accepted = bool(row.get("accepted"))
        if row.get("level") in ("error", "warning") or is_accepted:
            level: Level = "error" if row.get("level") == "error" else "warning"
            values = {"message": row.get("message", row.get("name", ""))}
            kind = "run.accepted" if is_accepted else "run.data"
            yield Statement(kind, values, level, "audit/audit.json")
    for row in report.reward_audit.get("findings", ()):
        is_accepted, name = bool(row.get("accepted")), row.get("name", "")
        if row.get("level") != "info" or is_accepted:
            where = [Statement("run.example", {"place": one}) for one in row.get("where", ())[:1]]
            values = {"name": name, "message": row.get("message", name), "example": [*where, ""][0]}
            level = "error" if row.get("level") == "error" else "warning"
            kind = "run.accepted_reward" if is_accepted else "run.reward"
            yield Statement(kind, values, level, "audit_rewards/audit.json")
    for name, row in report.warnings:
        level = row["level"] if row.get("level") in LEVELS else "warning"
        yield Statement("run.step", {"message": str(row.get("message", row))}, level, name)
    packages = {step: report.steps[step].get("packages", {}) for step in sorted(report.steps)}
    for name in sorted({name for found in packages.values() for name in found}):
        steps: dict[str, list[str]] = {}
        for step, found in packages.items():
            if found:
                steps.setdefault(found.get(name, "none"), []).append(step)
        if len(steps) > 1:
            shown = "; ".join(f"{version}: {', '.join(own)}" for version, own in steps.items())
            yield _warn("run.packages", "manifest.json", name=name, versions=shown)


def _note_items(report: Report) -> Iterator[Statement]:
    """Yield where numbers are not of the same items, and where these are few."""
    items = group_by_policy(report.predictions)
    digests = {key: digest_items(rows) for key, rows in items.items()}
    wrong = [
        one for one in report.metrics if digests.get((one.split, one.policy)) != one.split_digest
    ]
    if digests and wrong:
        names = sorted({one.policy for one in wrong})
        yield Statement("run.mismatch", {"names": names}, "error", _METRICS)
    for split in sorted({one.split for one in report.metrics}):
        num = len({one.split_digest for one in report.metrics if one.split == split})
        if num > 1:
            yield Statement("run.digests", {"split": split, "num": num}, "error", _METRICS)
    for one in report.metrics:
        if one.measure == "invalid_rate" and one.value > MAX_INVALID_RATE:
            values = {"policy": one.policy, "split": one.split, "n": one.n}
            yield _warn("run.invalid", _METRICS, rate=one.value, **values)
    for split in sorted({split for split, _ in items}):
        here = [one for one in report.predictions if one.split == split]
        n, num = len({one.example_id for one in here}), len({one.cluster for one in here})
        if n < MIN_ITEMS or num < MIN_CLUSTERS:
            yield _warn("run.small", _PREDICTIONS, split=split, n=n, num_clusters=num)


def _note_answers(report: Report) -> Iterator[Statement]:
    """Yield where a policy is of no use, or where half of a task gives its answer away."""
    policies = report.policies
    for split in sorted({one.split for one in report.metrics}):
        found = {
            one.policy: one
            for one in report.metrics
            if (one.split, one.measure) == (split, ACCURACY.name)
        }
        baselines = [one for name, one in found.items() if policies.is_baseline(name)]
        others = policies.sort(name for name in found if not policies.is_baseline(name))
        if not baselines or not others:
            continue
        best, last = max(baselines, key=lambda one: one.value), found[others[-1]]
        if last.low <= best.value:
            ends = format_share_interval(last.low, last.high)
            values = {"policy": last.policy, "value": last.value, "ends": ends, "split": split}
            values |= {"best": best.policy, "baseline": best.value}
            yield _warn("run.not_above", _METRICS, **values)
        blind = {name: policies.find(name).blind_to for name in policies.sort(found)}
        floors = [found[name].value for name, what in blind.items() if "everything" in what]
        for name, what in blind.items():
            if floors and what in (("picture",), ("text",)) and found[name].low > floors[0]:
                values = {"policy": name, "value": found[name].value, "floor": floors[0]}
                kind = "run.shortcut_text" if what == ("picture",) else "run.shortcut_picture"
                yield _warn(kind, _METRICS, split=split, **values)
    texts: dict[str, dict[str, dict[str, str]]] = {}
    for (split, policy), items in group_by_policy(report.predictions).items():
        if not policies.is_baseline(policy):
            own = {one.example_id: one.text for one in items}
            texts.setdefault(split, {})[policy] = own
        answer = find_constant(items)
        if answer is not None and "everything" not in policies.find(policy).blind_to:
            values = {"policy": policy, "n": len(items), "split": split, "answer": answer}
            yield _warn("run.constant", _PREDICTIONS, **values)
    for split, by_policy in texts.items():
        for a, b in combinations(policies.sort(by_policy), 2):
            if by_policy[a] == by_policy[b]:
                yield _warn("run.same_answers", _PREDICTIONS, a=a, b=b, split=split)


def find_doubt(report: Report) -> Statement | None:
    """Return what speaks against using the last policy; None: nothing does.

    It is not clearly above the best baseline (of which one is the majority), it answers everything
    alike, it is not clearly better than the base before any training, or a policy that it was
    trained from is clearly better.
    """
    last, headline = report.last, report.headline
    about = {"policy": last, "split": report.split}
    for one in report.notices if last else ():
        if one.kind in ("run.not_above", "run.constant") and about.items() <= one.values.items():
            return one
    before = {one.name: one.kind for one in report.policies.list_ancestors(last)[:-1]}
    for pair in report.comparisons:
        is_mine = (pair.measure, pair.split, pair.policy_b) == (headline.name, report.split, last)
        if is_mine and pair.policy_a in before:
            gain = judge_difference(pair, headline)
            if gain < 0 or (gain == 0 and before[pair.policy_a] == "prompted"):
                ends = pair.low, pair.high
                values = {"difference": pair.difference, "ends": ends, "p": pair.p_value_holm}
                values |= {"policy": last, "other": pair.policy_a, "measure": headline}
                return Statement("run.doubt", values)
    return None


def is_shown_useful(report: Report) -> bool:
    """Whether the last policy was trained and nothing speaks against it, baselines included.

    A policy that does nothing but harm by one of its measures (100 % missed defects, a headline
    at its worst) is not, whatever else it does.
    """
    if not report.main or report.policies.is_baseline(report.last):
        return False
    has_baseline = any(map(report.policies.is_baseline, report.main))
    if not has_baseline and report.headline is ACCURACY:
        return False
    worst = 0.0 if report.headline.is_higher_better else 1.0
    found = report.main[report.last]
    harms = [
        one.value
        for name, one in found.items()
        if not report.define(name).is_higher_better and not name.startswith("latency")
    ]
    is_worst = found[report.headline.name].value == worst or any(value >= 1.0 for value in harms)
    return not is_worst and find_doubt(report) is None
