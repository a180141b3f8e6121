"""The report of a run: what its folder holds, what must be known first, the findings, the page.

Every number comes from a file of the run folder; nothing is typed and nothing is trained. A file
that cannot be parsed is an error, because a report without it would look complete.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
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
from groupwise.evaluation import predictions
from groupwise.evaluation.alarms import SHARES, History, find_alarms, title_series
from groupwise.evaluation.fairness import read_record
from groupwise.evaluation.metrics import MAX_LABELS, Metric, PairedComparison, read_metrics
from groupwise.evaluation.predictions import ACCURACY, Language, Measure, Prediction, shorten
from groupwise.evaluation.report import page, phrases
from groupwise.evaluation.report.page import Block, Cell, Part, Table
from groupwise.evaluation.report.phrases import LEVELS, Phrases, Statement, format_count
from groupwise.evaluation.results import read_measures, state_looks
from groupwise.evaluation.statistics import FEW_CARRYING, MAX_INVALID_RATE, MIN_CLUSTERS, MIN_ITEMS

T = TypeVar("T")
_METRICS, _PREDICTIONS = "evaluate/metrics.json", "evaluate/predictions.jsonl"
_AUDITS = ("audit/audit.json", "audit_rewards/audit.json")
_NEEDED = {"manifest.json", _AUDITS[0], _METRICS, _PREDICTIONS}
NUM_MISTAKES, MAX_ANSWER = 10, 60
_COMMANDS = {
    "predict": "groupwise predict {run} ROWS --out answers.jsonl",
    "evaluate": "groupwise evaluate {run} ROWS --out other-data",
    "serve": "groupwise serve {run}",
    "export": "groupwise export {run} --out model",
}
_PARTS = re.compile(r"[:\[]|_s$")  # measures of labels, of slices, and of time
_VERDICTS = ("close", "better", "worse")  # where a difference is 0, 1 or -1
Blocks = list[Block | Table]


def write_report(run_folder: Path, *, language: Language = "en") -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns the paths of the two reports; errors are those of ``Report``.
    """
    return page.write_page(Report(run_folder, language).lay_out(), run_folder, name="report")


class Report(Phrases):
    """What the folder of a run holds, what is to be said of it, and its page in one language.

    What is not there is empty, and its file is named in ``absent``. No folder and a file that
    cannot be parsed are an EvaluationError, damaged lines a DataError, and a file that is not what
    its step wrote a RunError.
    """

    def __init__(self, folder: Path, language: Language = "en") -> None:
        if not folder.is_dir():
            raise EvaluationError(f"there is no run at {folder}", fix="give the folder of a run")
        check_records(folder)
        self.folder, self.absent = folder, list[str]()

        def read(name: str, how: Callable[[Path], T], default: T, *, is_due: bool = True) -> T:
            if (folder / name).is_file():
                return how(folder / name)
            self.absent += [name] if is_due else []
            return default

        read_object, read_list = partial(read_json, kind=dict), partial(read_json, kind=list)
        super().__init__(language, policies=predictions.read_policies(folder))
        self.measures = read_measures(folder)
        self.manifest = read("manifest.json", read_manifest, {})
        self.predictions = read(_PREDICTIONS, predictions.read_predictions, [])
        self.metrics = read(_METRICS, read_metrics, [])
        compared = partial(predictions.read_as, shape=list[PairedComparison])
        self.comparisons = read("evaluate/comparisons.json", compared, [])
        self.audits = {x: read(x, read_object, {}, is_due=x in _NEEDED) for x in _AUDITS}
        read_asked = partial(predictions.read_as, shape=predictions.Prompts)
        self.asked = read("evaluate/prompts.json", read_asked, predictions.Prompts(), is_due=False)
        self.sections = read("evaluate/sections.json", page.read_sections, (), is_due=False)
        # Commands that the run can be given to, what trainings logged, and what GRPO checked first.
        verbs: list[str] = read("evaluate/verbs.json", read_list, [], is_due=False)
        self.verbs = ["export" if one == "export-model" else one for one in verbs]  # as it was once
        steps = {path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")}
        steps |= {one.step for one in self.policies.listed if one.step and one.kind == "trained"}
        steps = self.policies.sort(sorted(steps))
        logs = {step: History(read(f"{step}/metrics.jsonl", read_jsonl, [])) for step in steps}
        self.logs = {step: log for step, log in logs.items() if not log.is_empty}
        if self.manifest and self.logs:
            read_record(folder)  # refuses a history that was changed
        checks = [f"{step}/on_policy.json" for step, log in self.logs.items() if log.is_rewarded]
        self.are_checked = all([read(name, read_object, {}) for name in checks])

        # Metrics of policies that have what heads the report, by split, the main one first.
        measured = {one.measure for one in self.metrics}
        self.headline = predictions.choose_headline(measured, self.measures)
        name, rank = self.headline.name, self.policies.rank
        headed = {(one.split, one.policy) for one in self.metrics if one.measure == name}
        metrics = [one for one in self.metrics if (one.split, one.policy) in headed]
        self.by_split: dict[str, dict[str, dict[str, Metric]]] = {}
        for one in sorted(metrics, key=lambda x: (x.split != "test", x.split, rank(x.policy))):
            self.by_split.setdefault(one.split, {}).setdefault(one.policy, {})[one.measure] = one
        # What details are about: a split, its metrics and answers, and its last policy, with 1, 0
        # or -1 for each that it is clearly better, not told apart or clearly worse than.
        self.items = predictions.group_by_policy(self.predictions)
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
        told = [*self._tell_files(), *self._tell_items(), *self._tell_answers()]
        told += [one for one in self.looks if one.level == "warning"]
        told.sort(key=lambda one: LEVELS.index(one.level))
        self.remarks = [one for one in told if one.level == "info" and one.source in _AUDITS]
        self.notices = [one for one in told if one not in self.remarks]
        self.findings = list(self._list_findings()) if self.main else []

    def define(self, name: str) -> Measure:
        """Return a measure; one that nobody defined is better when it is higher."""
        return predictions.find_measure(name, self.measures) or Measure(name, name, name)

    def _tell_files(self) -> Iterator[Statement]:
        """Yield what is missing, audits found and steps warn of, unlike packages, and alarms."""
        if self.absent:
            is_whole = self.are_checked and not _NEEDED.intersection(self.absent)
            yield Statement("run.absent", {"names": self.absent}, "info" if is_whole else "warning")
        rows = {name: audit.get("findings", []) for name, audit in self.audits.items()}
        for path in sorted(self.folder.glob("*/warnings.json")):
            rows[path.relative_to(self.folder).as_posix()] = read_json(path, list)
        for name, row in ((name, row) for name, found in rows.items() for row in found):
            accepted, places, level = map(row.get, ("accepted", "where", "level"))
            waiver = Statement("run.accepted", {"name": row.get("name", "")})
            values = {
                "message": str(row.get("message", row)),
                "example": Statement("run.example", {"place": places[0]}) if places else "",
                "accepted": waiver if accepted else "",
            }
            levels = LEVELS[:2] if accepted else LEVELS  # what was accepted is no footnote
            yield Statement("run.found", values, level if level in levels else "warning", name)
        ended = (read_json(path, dict) for path in self.folder.glob("[!.]*/step.json"))
        packages = [found for one in ended if (found := one.get("packages"))]
        for name in sorted({name for one in packages for name in one}):
            versions = sorted({one.get(name, "none") for one in packages})
            if len(versions) > 1:
                values = {"name": name, "versions": versions}
                yield Statement("run.packages", values, "warning", "manifest.json")
        for name, log in self.logs.items():
            for alarm in find_alarms(log):
                values = {"policy": name, "step": alarm.step}
                values |= {"said": alarm.said, "advice": alarm.advice}
                yield Statement("run.alarm", values, alarm.level, f"{name}/metrics.jsonl")

    def _tell_items(self) -> Iterator[Statement]:
        for split in sorted({split for split, _ in self.items} | set(self.by_split)):
            here = [rows for key, rows in self.items.items() if key[0] == split]
            digests = {one.split_digest for one in self.metrics if one.split == split}
            digests |= {predictions.digest_items(rows) for rows in here if digests}
            if len(digests) > 1:
                yield Statement("run.items", {"split": split}, "error", _METRICS)
            n = len({one.example_id for rows in here for one in rows})
            num = len({one.cluster for rows in here for one in rows})
            if here and (n < MIN_ITEMS or num < MIN_CLUSTERS):
                values = {"split": split, "n": n, "num_clusters": num}
                yield Statement("run.small", values, "warning", _PREDICTIONS)

    def _tell_answers(self) -> Iterator[Statement]:
        """Yield where answers are invalid, alike or useless, or half of a task gives them away."""
        for one in self.metrics:
            if one.measure == "invalid_rate" and one.value > MAX_INVALID_RATE:
                values = {"policy": one.policy, "split": one.split, "n": one.n, "rate": one.value}
                yield Statement("run.invalid", values, "warning", _METRICS)
        for split, by_policy in self.by_split.items() if self.headline is ACCURACY else ():
            found = {name: own[ACCURACY.name] for name, own in by_policy.items()}
            baselines = [name for name in found if self.policies.is_baseline(name)]
            others = [one for name, one in found.items() if name not in baselines]
            if not baselines or not others:
                continue
            best, last = max(baselines, key=lambda name: found[name].value), others[-1]
            if last.low <= found[best].value:
                ends = phrases.format_share_interval(last.low, last.high)
                values = {"policy": last.policy, "value": last.value, "ends": ends, "split": split}
                values |= {"best": best, "baseline": found[best].value}
                yield Statement("run.not_above", values, "warning", _METRICS)
            blind = {name: self.policies.find(name).blind_to for name in baselines}
            floors = [found[name].value for name, what in blind.items() if "everything" in what]
            for name, what in blind.items():
                if floors and what in (("picture",), ("text",)) and found[name].low > floors[0]:
                    values = {"policy": name, "value": found[name].value, "floor": floors[0]}
                    yield Statement("run.shortcut", values | {"split": split}, "warning", _METRICS)
        for (split, policy), items in self.items.items():
            answer, known = predictions.find_constant(items), self.policies.find(policy)
            if answer is not None and "everything" not in known.blind_to:
                values = {"policy": policy, "n": len(items), "split": split, "answer": answer}
                yield Statement("run.constant", values, "warning", _PREDICTIONS)
            before = self.items.get((split, known.trained_from or ""), [])
            texts = [{one.example_id: one.text for one in rows} for rows in (before, items)]
            if before and texts[0] == texts[1]:
                values = {"a": known.trained_from, "b": policy, "split": split}
                yield Statement("run.same_answers", values, "warning", _PREDICTIONS)

    def _list_doubts(self) -> Iterator[Statement]:
        """Yield doubts in the last policy: no better than a baseline or its base, or one answer."""
        about = {"policy": self.last, "split": self.split}.items()
        found = [one for one in self.notices if one.kind in ("run.not_above", "run.constant")]
        yield from (one for one in found if about <= one.values.items())
        for one in self.policies.list_ancestors(self.last)[:-1]:
            gain = self.gains.get(one.name, 1)
            if gain < 0 or (gain == 0 and one.kind == "prompted"):
                yield Statement("run.doubt", {"policy": self.last, "other": one.name})

    def _list_findings(self) -> Iterator[Statement]:
        for kind, gain in (("run.above", 1), ("run.below", -1), ("run.close", 0)):
            others: list[Statement] = []
            for one in [one for one in self.pairs if self.gains[one.policy_a] == gain]:
                values = {"policy": one.policy_a, "difference": one.difference}
                values |= {"ends": (one.low, one.high), "p": one.p_value_holm}
                others.append(Statement("run.other", values))
            if others:
                yield Statement(kind, {"policy": self.last, "others": others})
        clear = (one for one in self.comparisons if judge_difference(one, self.define(one.measure)))
        carrying = [one.num_carrying for one in clear if one.num_carrying is not None]
        if few := [num for num in carrying if num < FEW_CARRYING]:
            yield Statement("run.rests_on_few", {"num_clear": len(few), "num": round(min(few))})
        values = {name: own[self.headline.name].value for name, own in self.main.items()}
        baselines = [name for name in values if self.policies.is_baseline(name)]
        if baselines and baselines[-1] != self.last:
            best = max(baselines, key=lambda name: values[name] * self.headline.sign)
            yield Statement("run.baseline", {"policy": best, "value": values[best]})
        if self.gains:
            yield Statement("run.one_training")

    def lay_out(self) -> page.Page:
        """Return the page; a part that has nothing to show is left out."""
        say, manifest, measure = self.say, self.manifest, self.headline
        sections: dict[bool, list[Part]] = {True: [], False: []}  # the first ones, the others
        for number, one in enumerate(self.sections, start=1):
            if one.language in (None, self.language):
                blocks = (*([Block(one.text)] if one.text else []), *one.tables)
                sections[one.is_first].append(Part(f"section-{number}", one.title, blocks))

        def show(**parts: Blocks) -> list[Part]:
            return [Part(x, say(x, measure=measure), tuple(own)) for x, own in parts.items() if own]

        boxes: list[page.Box] = []
        if self.main:
            metric = self.main[self.last][measure.name]
            about = {"measure": measure, "policy": self.last, "split": self.split}
            title = say("measure_of", value=page.describe_metric(metric), n=metric.n, **about)
            boxes.append(page.Box("findings", (), title, tuple(map(say, self.findings))))
        recipe, name = manifest.get("recipe"), self.folder.resolve().name
        command = " ".join(manifest.get("command", ())) or say("unknown")
        known = {key: manifest.get(key, say("unknown")) for key in ("started_at", "seed")}
        known["started_at"] = known["started_at"].replace("T", " ")
        version = manifest.get("packages", {}).get("groupwise", say("unknown"))
        return page.Page(
            title=f"{recipe} · {name}" if recipe and recipe != name else name,
            lead=say("started", version=version, **known),
            language=self.language,
            notices=tuple(page.Notice(one.level, say(one), one.source) for one in self.notices),
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
        title = self.title_measure(self.define(whole))
        if field in (predictions.NEAR_DUPLICATE, predictions.SEEN):
            value = self.say(value)
        return f"{title} · {self.title('field', field)}: {value}" if part else title

    def _headline(self) -> Blocks:
        """Return what was measured of every policy by split; of the main one also its parts."""
        main, say, blocks = self.headline.name, self.say, Blocks()
        log = self.logs.get(self.policies.find(self.last).step or "", History())
        for split, by_policy in self.by_split.items():
            metrics = [one for own in by_policy.values() for one in own.values()]
            names = dict.fromkeys([main, *(one.measure for one in metrics)])
            columns = {name: self._title(name) for name in names if not _PARTS.search(name)}
            for name in columns:
                if name == predictions.REWARD.name or f"reward/{name}" in log.series:
                    columns[name] += say("is_rewarded")
            blocks.append(Block(split, "heading"))
            if clusters := {one.cluster for one in self.predictions if one.split == split}:
                digests = sorted({own[main].split_digest[:8] for own in by_policy.values()})
                lead = say("headline_lead", num_clusters=len(clusters), digests=digests)
                blocks.append(Block(lead))
            blocks.append(page.tabulate_policies(metrics, columns, phrases=self))
        if self.main:
            intervals = tuple(
                (self.title_policy(x.policy), page.describe_metric(x), x.value, x.low, x.high)
                for x in (own[main] for own in self.main.values())
            )
            title = f"{self._title(main)} · {self.split}"
            plot = page.Plot("headline", title, are_shares=True, intervals=intervals)
            blocks.append(Block(plots=(plot,), kind="wide"))
        fullest = sorted(self.main.values(), key=len, reverse=True)  # some never say some label
        names = dict.fromkeys(name for own in fullest for name in own)
        parts = [x for x in names if _PARTS.search(x) and ("[" not in x or x.startswith(main))]
        if parts:
            rows = [(self._title(x), {k: v.get(x) for k, v in self.main.items()}) for x in parts]
            columns = {policy: self.title_policy(policy) for policy in self.main}
            table = page.tabulate_metrics(rows, columns, head=say("measure"))
            blocks.append(Block(say("by_parts", num=len(parts)), "fold", blocks=(table,)))
        items = [one for one in self.answers.get(self.last, ()) if one.label is not None]
        labels = sorted({x for one in items for x in (one.label, one.predicted) if x is not None})
        # Open answers are as many as items: a row for each shows nothing.
        if 2 <= len(labels) <= MAX_LABELS:
            title = say("confusion", policy=self.last, split=self.split)
            blocks.append(page.tabulate_confusion(title, items, labels, self))
        return blocks

    def _comparisons(self) -> Blocks:
        rows: list[tuple[str | Cell, ...]] = []
        for one in self.comparisons:
            measure = self.define(one.measure)
            kind = _VERDICTS[judge_difference(one, measure)]
            ends, tag = self.interval(one.low, one.high), self.say(f"verdict.{kind}")
            of = "" if measure is ACCURACY else self.name_measure(measure)
            row = (
                Cell(self.title_policy(one.policy_b), one.split if len(self.by_split) > 1 else ""),
                Cell(self.title_policy(one.policy_a), of),
                Cell(phrases.format_points(one.difference), ends, tag=tag, tag_kind=kind),
                *map(phrases.format_p_cell, (one.p_value_holm, one.p_value_clustered)),
                *(" : ".join(map(format_count, one.count_wins(measure))), format_count(one.n)),
            )
            rows.append(row)
        names = ("policy", "against", "points", "p_holm", "p_by_clusters", "won_lost", "n_items")
        table = Table("", self.say_each(*names), tuple(rows), num_heads=2)
        return [Block(self.say("comparisons_lead")), table] if rows else []

    def _training(self) -> Blocks:
        """Return curves, each of one series with a line for every training that logged it."""
        say, first, others = self.say, list[page.Plot](), list[page.Plot]()
        colors = dict(zip(self.logs, cycle(page.PALETTE), strict=False))
        found = [(step, one) for step, log in self.logs.items() for one in log.list_series()]
        for key in dict.fromkeys(one.key for _, one in found):
            kind, title = key.partition("/")[0], title_series(key, self).strip()
            title = say("reward_part", name=title) if key.startswith("reward/") else title
            lines = tuple(
                (self.title_policy(step), one, colors[step])
                for step, one in found
                if one.key == key and (key != "loss" or not self.logs[step].is_rewarded)
            )
            if lines:
                are_shares = key in SHARES or kind in ("reward", "heldout")
                are_shares &= all(0 <= x <= 1 for _, one, _ in lines for x in one.values)
                file = re.sub(r"[^\w.-]+", "-", key)  # which a link of Markdown can hold
                plot = page.Plot(file, title, lines, say("step"), are_shares)
                (first if kind in ("reward", "heldout", "loss") else others).append(plot)
        folded = Block(say("signals"), "fold", blocks=(Block(plots=tuple(others)),))
        drawn: Blocks = [Block(say("training_lead")), Block(plots=tuple(first)), folded]
        return drawn if self.logs else []

    def _rate(self, one: Prediction) -> float | None:
        """Return 1 for a right answer and 0 for a wrong one, or what a score is worth."""
        if self.headline is ACCURACY:
            return None if one.label is None else float(one.is_correct)
        value = one.scores.get(self.headline.name)
        return value if value is None or self.headline.is_higher_better else 1 - value

    def _mistakes(self) -> Blocks:
        before = self.policies.find(self.last).trained_from or ""
        earlier = {one.example_id: one for one in self.answers.get(before, ())}
        rates = [(self._rate(one), one) for one in self.answers.get(self.last, ())]
        rated = [(rate, one) for rate, one in rates if rate is not None]
        wrong = [(rate, one) for rate, one in rated if rate < 1]
        shown = choose_mistakes(wrong)
        told = {"policy": self.last, "split": self.split, "shown": len(shown), "num": len(wrong)}
        kind = "some_wrong" if self.headline is ACCURACY else "some_low"
        lead = Block(self.say(kind, all=len(rated), **told))
        cards = (self._card(one, earlier.get(one.example_id)) for one in shown)
        return [lead, Block(cards=tuple(cards))] if rated else []

    def _card(self, one: Prediction, before: Prediction | None) -> page.Card:
        """Return an item with its answers; what a field marks is drawn on its picture."""
        say, marks = self.say, one.fields.get(predictions.MARKS, {})
        task = one.fields.get("task") or self.asked.turns.get(one.example_id)
        pills: list[tuple[str, str]] = []
        said: list[str] = []
        if one.label is not None:
            pills.append(("truth", say("truth_is", label=shorten(one.label, MAX_ANSWER))))
        for own in (before, one) if before else (one,):
            answer = say("invalid_answer") if own.predicted is None else own.predicted
            told = [shorten(answer, MAX_ANSWER)]
            told += [phrases.format_share(x) for x in [own.confidence] if x is not None]
            if self.headline is not ACCURACY:
                told = [phrases.format_share(own.scores.get(self.headline.name))]
            text = f"{self.title_policy(own.policy)}: {self.join(told)}"
            pills.append(("truth" if self._rate(own) == 1 else "wrong", text))
            text = shorten(own.text, predictions.MAX_TEXT)
            reason = f" ({self.translate(own.reason)})" if own.reason else ""
            said.append(say("policy_said", policy=own.policy, text=text) + reason)
        said.append(say("where", cluster=one.cluster, item=one.example_id[:8]))
        remark = marks.get("remark", {}).get(self.language)
        boxes = [(kind, box) for kind in ("reference", "answer") for box in marks.get(kind, ())]
        return page.Card(
            title=shorten(task, predictions.MAX_TEXT) if isinstance(task, str) else say("no_task"),
            pills=tuple(pills),
            said="; ".join([*said, *([remark] if remark else [])]),
            picture=_find_picture(one, self.folder),
            gone=say("picture_gone") if one.pictures else "",
            regions=tuple((kind, title, *sides) for kind, (*sides, title) in boxes),
        )

    def _prompt(self) -> Blocks:
        asked, say = self.asked, self.say
        lead = say("prompt_lead", item=asked.item[:8], split=self.split)
        lead += f" {say('with_pictures', names=asked.pictures)}" if asked.pictures else ""
        return [Block(lead), Block(asked.shown, "verbatim")] if asked.shown else []

    def _data(self) -> Blocks:
        """Return what the audits counted and found, and how often items were looked at."""
        say, audit, blocks = self.say, self.audits[_AUDITS[0]], Blocks()
        if audit.get("num_rows") is not None:
            drops: Mapping[str, Any] = audit.get("drops") or {}
            counts = drops.get("counts", {}).items()
            why = [f"{self.translate(key)} {format_count(num)}" for key, num in counts]
            told = {"num": audit["num_rows"], "dropped": drops.get("total", 0)}
            blocks.append(Block(say("rows_read", why=why or [say("none")], **told)))
        points = tuple(map(say, self.remarks))
        blocks += [Block(points=points)] if points else []
        return [*blocks, *(Block(say(one)) for one in self.looks)]

    def _next(self) -> Blocks:
        """Return the commands to go on with; a policy in doubt is not offered for use."""
        say, name = self.say, self.folder.resolve().name
        run = shlex.quote(name if not name.startswith("-") else f"./{name}")
        lines = [line.format(run=run) for verb, line in _COMMANDS.items() if verb in self.verbs]
        if lines and (doubt := next(self._list_doubts(), None)):
            lead = Block(say("next_doubt", policy=self.last, why=doubt), "plain")
            return [lead, Block(points=self.say_each("next_mistakes", "next_rows", "next_teach"))]
        return [Block(say("next_lead")), Block("\n".join(lines), "verbatim")] if lines else []


def judge_difference(one: PairedComparison, measure: Measure = ACCURACY) -> int:
    """Return 1 or -1 where b is clearly better or worse than a, 0 where neither is shown."""
    if one.p_value_holm >= 0.05 or one.low <= 0 <= one.high:
        return 0
    return 1 if measure.sign * one.difference > 0 else -1


def _find_picture(one: Prediction, folder: Path) -> Path | None:
    """Return the first picture, named from the run's folder or from here; None if it is gone."""
    # Rows come from anybody: a file outside the run is shown only if the run asked about it.
    asked = one.picture_digests[:1]
    for path in (path for name in one.pictures[:1] for path in (folder / name, Path(name))):
        with suppress(OSError, ValueError):  # such as a name that is too long
            if path.is_file() and (is_below(path, folder) or digest_file(path) in asked):
                return path
    return None


def choose_mistakes(wrong: Sequence[tuple[float, Prediction]]) -> list[Prediction]:
    """Return the worst and most confident mistakes by their rate, one for each picture."""
    firsts: dict[object, Prediction] = {}
    ranked = sorted(wrong, key=lambda x: (x[0], x[1].predicted is None, -(x[1].confidence or 0)))
    for _, one in ranked:
        firsts.setdefault(one.pictures or one.example_id, one)
    return list(firsts.values())[:NUM_MISTAKES]
