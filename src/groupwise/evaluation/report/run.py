"""The report of a run: what its folder holds, what must be known first, the findings, the page.

Every number comes from a file of the run folder; nothing is typed and nothing is trained. A file
that cannot be parsed is an error, because a report without it would look complete.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import (
    EvaluationError,
    check_records,
    digest_file,
    is_below,
    read_json,
    read_jsonl,
    read_manifest,
)
from groupwise.evaluation.alarms import SHARES, History, find_alarms, title_series
from groupwise.evaluation.fairness import read_record
from groupwise.evaluation.metrics import MAX_LABELS, Metric, read_metrics
from groupwise.evaluation.predictions import (
    ACCURACY,
    MARKS,
    MAX_TEXT,
    NEAR_DUPLICATE,
    REWARD,
    SEEN,
    Language,
    Measure,
    Prediction,
    Prompts,
    choose_headline,
    digest_items,
    find_constant,
    find_measure,
    group_by_policy,
    read_as,
    read_policies,
    read_predictions,
    shorten,
)
from groupwise.evaluation.report import page, phrases
from groupwise.evaluation.report.page import Block, Cell, Part, Table
from groupwise.evaluation.report.phrases import LEVELS, Phrases, Statement, format_count
from groupwise.evaluation.results import read_measures, state_looks
from groupwise.evaluation.statistics import PairedComparison

T = TypeVar("T")
Record = Mapping[str, Any]
MAX_INVALID_RATE, MIN_ITEMS, MIN_CLUSTERS = 0.05, 100, 20
_METRICS, _PREDICTIONS = "evaluate/metrics.json", "evaluate/predictions.jsonl"
_NEEDED = {"manifest.json", "audit/audit.json", _METRICS, _PREDICTIONS}
NUM_MISTAKES, MAX_ANSWER = 10, 60
_COMMANDS = {
    "predict": "groupwise predict {run} ROWS --out answers.jsonl",
    "evaluate": "groupwise evaluate {run} ROWS --out other-data",
    "serve": "groupwise serve {run}",
    "export-model": "groupwise export-model {run} --out model",
}
_PARTS = re.compile(r"[:\[]|_s$")  # measures of labels, of slices, and of time
_VERDICTS = ("close", "better", "worse")  # where a difference is 0, 1 or -1
Blocks = list[Block | Table]


class Report:
    """What the folder of a run holds, and what is to be said of it.

    What is not there is empty, and its file is named in ``absent``. No folder and a file that
    cannot be parsed are an EvaluationError, damaged lines a DataError, and a file that is not what
    its step wrote a RunError.
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

        self.policies, self.measures = read_policies(folder), read_measures(folder)
        self.manifest = read("manifest.json", read_manifest, None)
        self.predictions = read(_PREDICTIONS, read_predictions, [])
        self.metrics = read(_METRICS, read_metrics, [])
        self.comparisons = read(
            "evaluate/comparisons.json", lambda x: read_as(x, list[PairedComparison]), []
        )
        self.audit = read("audit/audit.json", read_object, {})
        self.reward_audit = read("audit_rewards/audit.json", read_object, {}, is_due=False)
        self.prompts = read(
            "evaluate/prompts.json", lambda x: read_as(x, Prompts), Prompts(), is_due=False
        )
        self.sections = read("evaluate/sections.json", page.read_sections, (), is_due=False)
        # Commands that the run can be given to, what trainings logged, and what GRPO checked first.
        verbs = read("evaluate/verbs.json", lambda path: read_json(path, list), [], is_due=False)
        self.verbs: list[str] = verbs
        steps = {path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")}
        steps |= {one.step for one in self.policies.listed if one.step and one.kind == "trained"}
        steps = self.policies.sort(sorted(steps))
        logs = {step: History(read(f"{step}/metrics.jsonl", read_jsonl, [])) for step in steps}
        self.logs = {step: log for step, log in logs.items() if not log.is_empty}
        if self.manifest is not None and self.logs:
            read_record(folder)  # refuses a history that was changed
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
        digests = sorted({one.split_digest for one in self.metrics})
        self.looks = [one for digest in digests for one in state_looks(folder, digest)]
        notices = [*_tell_files(self), *_tell_items(self), *_tell_answers(self)]
        notices += [one for one in self.looks if one.level == "warning"]
        self.notices = sorted(notices, key=lambda one: LEVELS.index(one.level))
        self.doubt = _find_doubt(self)
        self.findings = list(_list_findings(self)) if self.main else []

    def define(self, name: str) -> Measure:
        """Return a measure; one that nobody defined is better when it is higher."""
        return find_measure(name, self.measures) or Measure(name, name, name)


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
    accepted, places = {"name": row.get("name", "")}, row.get("where", ())
    values = {
        "message": str(row.get("message", row)),
        "example": Statement("run.example", {"place": places[0]}) if places else "",
        "accepted": Statement("run.accepted", accepted) if is_accepted else "",
    }
    level = "warning" if (is_accepted and level == "info") or level not in LEVELS else level
    return Statement("run.found", values, level, source)


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
    ended = (read_json(path, dict) for path in report.folder.glob("[!.]*/step.json"))
    packages = [found for one in ended if (found := one.get("packages"))]
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
            ends = phrases.format_share_interval(last.low, last.high)
            values = {"policy": last.policy, "value": last.value, "ends": ends, "split": split}
            yield _warn("run.not_above", _METRICS, best=best, baseline=found[best].value, **values)
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
            yield _warn("run.same_answers", _PREDICTIONS, a=before[0].policy, b=policy, split=split)


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
    if report.gains:
        yield Statement("run.one_training")


def write_report(run_folder: Path, *, language: Language = "en") -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns the paths of the two reports; errors are those of ``Report``.
    """
    return page.write_page(lay_out(Report(run_folder), language), run_folder, name="report")


def lay_out(report: Report, language: Language = "en") -> page.Page:
    """Return the page of a run."""
    return _Layout(report, language).make()


class _Layout:
    """The parts of a page, each a list of blocks; one that has nothing to show is left out."""

    def __init__(self, report: Report, language: Language) -> None:
        self.report = report
        self.language: Language = language
        self.phrases = Phrases(language, policies=report.policies)
        self.say, self.say_each = self.phrases.say, self.phrases.say_each
        self.name = self.phrases.title_policy

    def make(self) -> page.Page:
        report, say, manifest = self.report, self.say, self.report.manifest or {}
        sections: dict[bool, list[Part]] = {True: [], False: []}  # the first ones, the others
        for number, one in enumerate(report.sections, start=1):
            if one.language in (None, self.language):
                blocks = (*([Block(one.text)] if one.text else []), *one.tables)
                sections[one.is_first].append(Part(f"section-{number}", one.title, blocks))

        def show(**parts: Blocks) -> list[Part]:
            titles = {name: say(name, measure=report.headline) for name in parts}
            return [Part(name, titles[name], tuple(own)) for name, own in parts.items() if own]

        boxes: list[page.Box] = []
        if report.main:
            metric = report.main[report.last][report.headline.name]
            about = {"measure": report.headline, "policy": report.last, "split": report.split}
            title = say("measure_of", value=page.describe_metric(metric), n=metric.n, **about)
            boxes.append(page.Box("findings", (), title, tuple(map(say, report.findings))))
        recipe, name = manifest.get("recipe"), report.folder.resolve().name
        command = " ".join(manifest.get("command", ())) or say("unknown")
        known = {key: manifest.get(key, say("unknown")) for key in ("started_at", "seed")}
        known["started_at"] = known["started_at"].replace("T", " ")
        version = manifest.get("packages", {}).get("groupwise", say("unknown"))
        return page.Page(
            title=f"{recipe} · {name}" if recipe and recipe != name else name,
            lead=say("started", version=version, **known),
            language=self.language,
            notices=tuple(page.Notice(one.level, say(one), one.source) for one in report.notices),
            checked=say("run_checked"),
            boxes=tuple(boxes),
            parts=(
                *sections[True],
                *show(headline=self._headline(), comparisons=self._comparisons()),
                *show(training=self._training()),
                *sections[False],
                *show(mistakes=self._mistakes(), prompt=self._prompt(), data=self._data()),
                *show(next=self._next()),
            ),
            footer=(Block(say("run_footer", command=command), "plain"),),
        )

    def _title(self, name: str) -> str:
        """Return what a measure is called, with the field and the value of a slice."""
        whole, _, part = name.partition("[")
        field, _, value = part.removesuffix("]").partition("=")
        title = self.phrases.title_measure(self.report.define(whole))
        if not part:
            return title
        value = self.say(value) if field in (NEAR_DUPLICATE, SEEN) else value
        return f"{title} · {self.phrases.title('field', field)}: {value}"

    def _headline(self) -> Blocks:
        """Return what was measured of every policy by split; of the main one also its parts."""
        report, main, say, blocks = self.report, self.report.headline.name, self.say, Blocks()
        log = report.logs.get(report.policies.find(report.last).step or "")
        paid = {REWARD.name, *(log.list_parts() if log else ())}
        for split, by_policy in report.by_split.items():
            names = dict.fromkeys([main, *(name for own in by_policy.values() for name in own)])
            columns = {name: self._title(name) for name in names if not _PARTS.search(name)}
            columns |= {name: columns[name] + say("is_rewarded") for name in paid & columns.keys()}
            metrics = [one for own in by_policy.values() for one in own.values()]
            table = page.tabulate_policies(metrics, columns, phrases=self.phrases)
            clusters = {one.cluster for one in report.predictions if one.split == split}
            digests = sorted({own[main].split_digest[:8] for own in by_policy.values()})
            lead = Block(say("headline_lead", num_clusters=len(clusters), digests=digests))
            # Without predictions nobody knows the clusters.
            blocks += [Block(split, "heading"), *([lead] if clusters else []), table]
        if report.main:
            title = f"{self._title(main)} · {report.split}"
            metrics = [own[main] for own in report.main.values()]
            intervals = [
                page.Interval(self.name(one.policy), page.describe_metric(one), *at)
                for one in metrics
                for at in [(one.value, one.low, one.high)]
            ]
            plot = page.Plot("headline", title, are_shares=True, intervals=tuple(intervals))
            blocks.append(Block(plots=(plot,), kind="wide"))
        names = dict.fromkeys(name for own in report.main.values() for name in own)
        parts = [x for x in names if _PARTS.search(x) and ("[" not in x or x.startswith(main))]
        if parts:
            found = {x: {who: own.get(x) for who, own in report.main.items()} for x in parts}
            rows = [(self._title(x), own) for x, own in found.items()]
            columns = {policy: self.name(policy) for policy in report.main}
            table = page.tabulate_metrics(rows, columns, head=say("measure"))
            blocks.append(Block(say("by_parts", num=len(parts)), "fold", blocks=(table,)))
        items = [one for one in report.answers.get(report.last, ()) if one.label is not None]
        labels = sorted({x for one in items for x in (one.label, one.predicted) if x is not None})
        # Open answers are as many as items: a row for each shows nothing.
        if 2 <= len(labels) <= MAX_LABELS:
            title = say("confusion", policy=report.last, split=report.split)
            blocks.append(page.tabulate_confusion(title, items, labels, self.phrases))
        return blocks

    def _comparisons(self) -> Blocks:
        report, several, say = self.report, len(self.report.by_split) > 1, self.say
        rows: list[tuple[str | Cell, ...]] = []
        for one in report.comparisons:
            measure = report.define(one.measure)
            kind = _VERDICTS[judge_difference(one, measure)]
            points = phrases.format_points(one.difference)
            ends, tag = self.phrases.interval(one.low, one.high), say(f"verdict.{kind}")
            of = "" if measure is ACCURACY else self.phrases.name_measure(measure)
            wins, losses = map(format_count, one.count_wins(measure))
            row = (
                Cell(self.name(one.policy_b), one.split if several else ""),
                Cell(self.name(one.policy_a), of),
                Cell(points, ends, tag=tag, tag_kind=kind),
                *map(phrases.format_p_cell, (one.p_value_holm, one.p_value_clustered)),
                *(f"{wins} : {losses}", format_count(one.n)),
            )
            rows.append(row)
        names = ("policy", "against", "points", "p_holm", "p_by_clusters", "won_lost", "n_items")
        table = Table("", self.say_each(*names), tuple(rows), num_heads=2)
        return [Block(say("comparisons_lead")), table] if rows else []

    def _training(self) -> Blocks:
        """Return curves, each of one series with a line for every training that logged it."""
        say, logs = self.say, self.report.logs
        drawn: dict[bool, list[page.Plot]] = {True: [], False: []}
        colors = {step: page.pick_color(place) for place, step in enumerate(logs)}
        found = [(step, one) for step, log in logs.items() for one in log.list_series()]
        for key in dict.fromkeys(one.key for _, one in found):
            kind, title = key.partition("/")[0], title_series(key, self.phrases).strip()
            title = say("reward_part", name=title) if key.startswith("reward/") else title
            lines = tuple(
                page.Line(self.name(step), one.steps, one.values, colors[step])
                for step, one in found
                if one.key == key and (key != "loss" or not logs[step].is_rewarded)
            )
            if lines:
                are_shares = key in SHARES or kind in ("reward", "heldout")
                are_shares &= all(0 <= x <= 1 for one in lines for x in one.values)
                plot = page.Plot(page.name_file(key), title, lines, say("step"), are_shares)
                drawn[kind in ("reward", "heldout", "loss")].append(plot)
        folded = Block(say("signals"), "fold", blocks=(Block(plots=tuple(drawn[False])),))
        return (
            [Block(say("training_lead")), Block(plots=tuple(drawn[True])), folded] if logs else []
        )

    def _rate(self, one: Prediction) -> float | None:
        """Return 1 for a right answer and 0 for a wrong one, or what a score is worth."""
        headline = self.report.headline
        if headline is ACCURACY:
            return None if one.label is None else float(one.is_correct)
        value = one.scores.get(headline.name)
        return value if value is None or headline.is_higher_better else 1 - value

    def _mistakes(self) -> Blocks:
        """Return the most confident mistakes of the last policy, and what it was before said."""
        report, say, after = self.report, self.say, self.report.last
        before = report.policies.find(after).trained_from or ""
        earlier = {one.example_id: one for one in report.answers.get(before, ())}
        rates = [(self._rate(one), one) for one in report.answers.get(after, ())]
        rated = [(rate, one) for rate, one in rates if rate is not None]
        wrong = [(rate, one) for rate, one in rated if rate < 1]
        shown = choose_mistakes(wrong)
        told = {"policy": after, "split": report.split, "shown": len(shown), "num": len(wrong)}
        kind = "some_wrong" if report.headline is ACCURACY else "some_low"
        lead = Block(say(kind, all=len(rated), **told))
        cards = (self._card(one, earlier.get(one.example_id)) for one in shown)
        return [lead, Block(cards=tuple(cards))] if rated else []

    def _card(self, one: Prediction, before: Prediction | None) -> page.Card:
        """Return an item with its answers; what a field marks is drawn on its picture."""
        say, headline, marks = self.say, self.report.headline, one.fields.get(MARKS, {})
        task = one.fields.get("task") or self.report.prompts.turns.get(one.example_id)
        pills: list[tuple[str, str]] = []
        said: list[str] = []
        if one.label is not None:
            pills.append(("truth", say("truth_is", label=shorten(one.label, MAX_ANSWER))))
        for own in (before, one) if before else (one,):
            answer = say("invalid_answer") if own.predicted is None else own.predicted
            told = [shorten(answer, MAX_ANSWER)]
            told += [phrases.format_share(x) for x in [own.confidence] if x is not None]
            if headline is not ACCURACY:
                told = [phrases.format_share(own.scores.get(headline.name))]
            text = f"{self.name(own.policy)}: {self.phrases.join(told)}"
            pills.append(("truth" if self._rate(own) == 1 else "wrong", text))
            text = say("policy_said", policy=own.policy, text=shorten(own.text, MAX_TEXT))
            said.append(text + (f" ({self.phrases.translate(own.reason)})" if own.reason else ""))
        said.append(say("where", cluster=one.cluster, item=one.example_id[:8]))
        said += [remark for remark in [marks.get("remark", {}).get(self.language)] if remark]
        return page.Card(
            title=shorten(task, MAX_TEXT) if isinstance(task, str) else say("no_task"),
            pills=tuple(pills),
            said="; ".join(said),
            picture=_find_picture(one, self.report.folder),
            gone=say("picture_gone") if one.pictures else "",
            regions=tuple(
                (kind, title, *sides)
                for kind in ("reference", "answer")
                for *sides, title in marks.get(kind, ())
            ),
        )

    def _prompt(self) -> Blocks:
        """Return one prompt as the model sees it, where the run knows it."""
        asked, say = self.report.prompts, self.say
        lead = say("prompt_lead", item=asked.item[:8], split=self.report.split)
        lead += f" {say('with_pictures', names=asked.pictures)}" if asked.pictures else ""
        return [Block(lead), Block(asked.shown, "verbatim")] if asked.shown else []

    def _data(self) -> Blocks:
        """Return what the audits counted and found, and how often items were looked at."""
        say, audit, blocks = self.say, self.report.audit, Blocks()
        if audit.get("num_rows") is not None:
            drops: Mapping[str, Any] = audit.get("drops") or {}
            counts = drops.get("counts", {}).items()
            why = [f"{self.phrases.translate(key)} {format_count(num)}" for key, num in counts]
            told = {"num": audit["num_rows"], "dropped": drops.get("total", 0)}
            blocks.append(Block(say("rows_read", why=why or [say("none")], **told)))
        audits = (audit, self.report.reward_audit)
        found = [tell_finding(row, "") for one in audits for row in one.get("findings", ())]
        points = tuple(say(one) for one in found if one.level == "info")  # others are notices
        blocks += [Block(points=points)] if points else []
        return [*blocks, *(Block(say(one)) for one in self.report.looks)]

    def _next(self) -> Blocks:
        """Return the commands to go on with, as far as they exist for the run's recipe.

        A policy that is not shown to be of use is not offered for use.
        """
        report, name = self.report, self.report.folder.resolve().name
        run = shlex.quote(name if not name.startswith("-") else f"./{name}")
        lines = [line.format(run=run) for verb, line in _COMMANDS.items() if verb in report.verbs]
        if lines and report.doubt:
            lead = Block(self.say("next_doubt", policy=report.last, why=report.doubt), "plain")
            points = self.say_each("next_mistakes", "next_rows", "next_teach")
            return [lead, Block(points=points)]
        lead = Block(self.say("next_lead"))
        return [lead, Block("\n".join(lines), "verbatim")] if lines else []


def _find_picture(one: Prediction, folder: Path) -> Path | None:
    """Return the first picture, named from the run's folder or from here; None if it is gone.

    Rows may come from anybody, and a report may go to anybody: a file outside the run is shown
    only if it is the very one that the run asked about.
    """
    for path in (path for name in one.pictures[:1] for path in (folder / name, Path(name))):
        try:
            if not path.is_file():
                continue
            if is_below(path, folder) or digest_file(path) in one.picture_digests[:1]:
                return path
        except (OSError, ValueError):  # such as a name that is too long
            continue
    return None


def choose_mistakes(wrong: Sequence[tuple[float, Prediction]]) -> list[Prediction]:
    """Return the worst and most confident mistakes by their rate, one for each picture.

    Wrong labels come before invalid answers, and those without a known confidence last.
    """

    def rank(pair: tuple[float, Prediction]) -> tuple[float, bool, bool, float]:
        rate, one = pair
        return rate, one.predicted is None, one.confidence is None, -(one.confidence or 0.0)

    firsts: dict[object, Prediction] = {}
    for _, one in sorted(wrong, key=rank):
        firsts.setdefault(one.pictures or one.example_id, one)
    return list(firsts.values())[:NUM_MISTAKES]
