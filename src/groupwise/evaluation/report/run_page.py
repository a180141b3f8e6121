"""The page of a run: what its report says, in the phrases of one language."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from groupwise.core import digest_file, flatten_settings, is_below
from groupwise.evaluation.alarms import describe_value, is_share, title_series
from groupwise.evaluation.fairness import find_manifests
from groupwise.evaluation.metrics import MAX_LABELS, Metric, bin_reliability, count_confusion
from groupwise.evaluation.predictions import (
    ACCURACY,
    MARKS,
    MAX_TEXT,
    NEAR_DUPLICATE,
    REWARD,
    SEEN,
    Language,
    Prediction,
    have_truths,
    shorten,
)
from groupwise.evaluation.report import page, phrases, plots, tables
from groupwise.evaluation.report.page import Block, Cell, Table
from groupwise.evaluation.report.phrases import DASH, Phrases, format_count, mark_code
from groupwise.evaluation.report.run import (
    Report,
    judge_difference,
    tell_finding,
)

NUM_MISTAKES, NUM_CHANGES = 10, 3
_MAX_ANSWER = 60
_COMMANDS = {
    "predict": "groupwise predict {run} ROWS --out answers.jsonl",
    "evaluate": "groupwise evaluate {run} ROWS --out other-data",
    "serve": "groupwise serve {run}",
    "export-model": "groupwise export-model {run} --out model",
}
_PARTS = re.compile(r"[:\[]|_s$")  # measures of labels, of slices, and of time
_VERDICTS = {0: ("close", "harmless"), 1: ("better", "intended"), -1: ("worse", "confounding")}


def write_report(run_folder: Path, *, language: Language = "en") -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns:
        The paths of the two reports.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
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
        sections: dict[bool, list[page.Part]] = {True: [], False: []}  # those with tiles come first
        tiles: list[page.Tile] = []
        for number, one in enumerate(report.sections, start=1):
            if one.language in (None, self.language):
                text = (Block(one.text),) if one.text else ()
                folded = (Block(say("num_tables", num=len(one.tables)), "fold", blocks=one.tables),)
                blocks = (*text, *(folded if len(one.tables) > 1 else one.tables))
                sections[bool(one.tiles)].append(page.Part(f"section-{number}", one.title, blocks))
                tiles += one.tiles
        first = {"headline": self._headline(), "comparisons": self._comparisons()}
        first |= {"changes": self._changes(), "training": self._training()}
        last = {"answers": self._answers(), "mistakes": self._mistakes(), "prompt": self._prompt()}
        last |= {"data": self._data(), "settings": self._settings(), "next": self._next()}
        above, below = (
            [
                page.Part(key, say(key, measure=report.headline), tuple(blocks))
                for key, blocks in found.items()
                if blocks
            ]
            for found in (first, last)
        )
        unknown, recipe, name = say("unknown"), manifest.get("recipe"), report.folder.resolve().name
        moment = phrases.format_moment(manifest.get("started_at", unknown))
        version = manifest.get("packages", {}).get("groupwise", unknown)
        if report.main:
            about = {"measure": report.headline, "policy": report.last, "split": report.split}
            metric = report.main[report.last][report.headline.name]
            tile = tables.make_tile(metric, say("measure_of", **about))
            tiles.append(replace(tile, is_good=report.is_useful))
        findings = tuple(map(say, report.findings))
        return page.Page(
            title=f"{recipe} · {name}" if recipe and recipe != name else name,
            lead=say("started", moment=moment, seed=manifest.get("seed", unknown), version=version),
            language=self.language,
            notices=tuple(page.Notice(one.level, say(one), one.source) for one in report.notices),
            checked=say("run_checked"),
            tiles=tuple(tiles),
            boxes=(page.Box("findings", points=findings),) if findings else (),
            parts=(*sections[True], *above, *sections[False], *below),
            footer=(Block(say("run_footer"), "plain"),),
        )

    def _color(self, policy: str) -> str:
        return plots.color_policy(policy, self.report.policies)

    def _title(self, name: str) -> str:
        """Return what a measure is called, with the field and the value of a slice."""
        whole, _, part = name.partition("[")
        field, _, value = part.removesuffix("]").partition("=")
        title = self.phrases.title_measure(self.report.define(whole))
        if not part:
            return title
        value = self.say(value) if field in (NEAR_DUPLICATE, SEEN) else value
        return f"{title} · {self.phrases.title('field', field)}: {value}"

    def _headline(self) -> list[Block | Table]:
        """Return what was measured of every policy, by split; by labels and slices of the main."""
        report, main, say, blocks = (
            self.report,
            self.report.headline.name,
            self.say,
            list[Block | Table](),
        )
        log = report.logs.get(report.policies.find(report.last).step or "")
        paid = {REWARD.name, *(log.list_parts() if log else ())}
        for split, by_policy in report.by_split.items():
            names = dict.fromkeys([main, *(name for own in by_policy.values() for name in own)])
            columns = {name: self._title(name) for name in names if not _PARTS.search(name)}
            columns |= {name: columns[name] + say("is_rewarded") for name in paid & columns.keys()}
            rows: list[tuple[Cell, Mapping[str, Metric]]] = []
            for policy, own in by_policy.items():
                note, code = report.policies.describe(policy, self.language), mark_code(policy)
                rows.append((Cell(self.name(policy), f"{code} · {note}" if note else code), own))
            table = tables.tabulate_metrics(rows, columns, head=say("policy"), count=main)
            marks = tuple(self._color(policy) for policy in by_policy)
            clusters = {one.cluster for one in report.predictions if one.split == split}
            digests = sorted({own[main].split_digest[:8] for own in by_policy.values()})
            lead = say("headline_lead", num_clusters=len(clusters), digests=digests)
            leads = [Block(lead)] if clusters else []  # without predictions nobody knows
            blocks += [Block(split, "heading"), *leads, replace(table, marks=marks)]
        if blocks:
            bars: list[plots.Bar] = []
            for policy, one in ((policy, own[main]) for policy, own in report.main.items()):
                text, both = tables.describe_metric(one), (one.low, one.high)
                bar = plots.Bar(self.name(policy), text, one.value, both, self._color(policy))
                bars.append(bar)
            title = say("measure_on", measure=report.headline, split=report.split)
            plot = plots.plot_bars(plots.name_file("accuracy", report.split), title, bars)
            names = dict.fromkeys(name for own in report.main.values() for name in own)
            parts = [x for x in names if _PARTS.search(x) and ("[" not in x or x.startswith(main))]
            table = tables.tabulate_metrics(
                [
                    (self._title(x), {who: own[x] for who, own in report.main.items() if x in own})
                    for x in parts
                ],
                {policy: self.name(policy) for policy in report.main},
                head=say("measure"),
                count=report.last,
            )
            blocks.append(Block(plots=(plot,), kind="wide"))
            blocks += (
                [Block(say("by_parts", num=len(parts)), "fold", blocks=(table,))] if parts else []
            )
        return blocks

    def _comparisons(self) -> list[Block | Table]:
        report, several = self.report, len(self.report.by_split) > 1
        rows: list[tuple[str | Cell, ...]] = []
        for one in report.comparisons:
            measure = report.define(one.measure)
            kind, color = _VERDICTS[judge_difference(one, measure)]
            ends = self.phrases.interval(one.low, one.high)
            points, tag = phrases.format_points(one.difference), self.say(f"verdict.{kind}")
            of = "" if measure is ACCURACY else self.phrases.name_measure(measure)
            p_values = (one.p_value_holm, one.p_value_clustered, one.p_value)
            holm, clustered, mcnemar = map(phrases.format_p_cell, p_values)
            counts = (*one.count_wins(measure), one.num_same_answer, one.n)
            wins, losses, same, n = map(format_count, counts)
            rows.append(
                (
                    Cell(self.name(one.policy_b), one.split if several else ""),
                    Cell(self.name(one.policy_a), of),
                    Cell(points, ends, tag=tag, tag_kind=color),
                    *(holm, f"{wins} : {losses}", same, clustered, mcnemar, n),
                )
            )
        names = ("policy", "against", "points", "p_holm", "won_lost", "alike", "p_by_clusters")
        table = Table("", self.say_each(*names, "p_mcnemar", "n_items"), tuple(rows), num_heads=2)
        return [Block(self.say("comparisons_lead")), table] if rows else []

    def _rate(self, one: Prediction) -> float:
        """Return 1 for a right answer and 0 for a wrong one, or what a scored one is worth."""
        headline = self.report.headline
        if headline is ACCURACY:
            return float(one.is_correct)
        value = one.scores.get(headline.name, 0.0 if headline.is_higher_better else 1.0)
        return value if headline.is_higher_better else 1 - value

    def _changes(self) -> list[Block | Table]:
        """Return how many answers training has made better and worse, and the first few by id."""
        report, say, after = self.report, self.say, self.report.last
        before = report.policies.find(after).trained_from or ""
        earlier = {one.example_id: one for one in report.answers.get(before, ())}
        pairs = [
            (earlier[one.example_id], one)
            for one in report.answers.get(after, ())
            if one.example_id in earlier
        ]
        gains = [self._rate(new) - self._rate(old) for old, new in pairs]
        found = {
            kind: [pair for pair, gain in zip(pairs, gains, strict=True) if gain * sign > 0]
            for kind, sign in (("fixed", 1), ("broken", -1))
        }
        told = {"before": before, "after": after, "split": report.split, "n": len(pairs)}
        told |= {kind: len(own) for kind, own in found.items()}
        told |= {f"share_{kind}": len(own) / (len(pairs) or 1) for kind, own in found.items()}
        blocks: list[Block | Table] = [Block(say("changes_lead", most=NUM_CHANGES, **told))]
        for kind, own in found.items():
            cards = tuple(self._card(*pair) for pair in own[:NUM_CHANGES])
            blocks += [Block(say(kind), "heading"), Block(cards=cards)] if own else []
        return blocks if pairs else []

    def _card(self, *answers: Prediction) -> page.Card:
        """Return an item with what policies answered; what a field marks is drawn on its picture.

        An answer is good if there is no better one, or if the other is worse.
        """
        say, one, measures = self.say, answers[-1], self.report.measures
        marks, name = one.fields.get(MARKS, {}), one.example_id[:8]
        task = one.fields.get("task") or self.report.prompts.turns.get(one.example_id)
        pills: list[tuple[str, str]] = []
        said: list[str] = []
        if one.label is not None:
            pills.append(("truth", say("truth_is", label=shorten(one.label, _MAX_ANSWER))))
        for own in answers:
            told = [
                f"{self.phrases.name_measure(x)} {phrases.format_share(own.scores[x.name])}"
                for x in measures
                if x.name in own.scores
            ]
            if not told:
                answer = say("invalid_answer") if own.predicted is None else own.predicted
                told = [shorten(answer, _MAX_ANSWER)]
                told += [phrases.format_share(x) for x in [own.confidence] if x is not None]
            is_good = self._rate(own) == 1 or self._rate(own) > min(map(self._rate, answers))
            text = f"{self.name(own.policy)}: {self.phrases.join(told)}"
            pills.append(("truth" if is_good else "wrong", text))
            text = say("policy_said", policy=own.policy, text=shorten(own.text, MAX_TEXT))
            said.append(text + (f" ({self.phrases.translate(own.reason)})" if own.reason else ""))
        said.append(say("where", cluster=one.cluster, item=name))
        said.append(marks.get("remark", {}).get(self.language, ""))
        return page.Card(
            title=shorten(task, MAX_TEXT) if isinstance(task, str) else say("no_task"),
            pills=tuple(pills),
            said="; ".join(filter(None, said)),
            picture=_find_picture(one, self.report.folder),
            gone=say("picture_gone") if one.pictures else "",
            alt=say("picture_of", item=name),
            regions=tuple(
                (kind, title, *sides)
                for kind in ("reference", "answer")
                for *sides, title in marks.get(kind, ())
            ),
        )

    def _training(self) -> list[Block | Table]:
        """Return curves and values of every training, its time, and its on-policy check.

        A plot is of one series and has a line for each training that logged it.
        """
        report, say, logs = self.report, self.say, self.report.logs
        drawn: dict[bool, list[page.Plot]] = {True: [], False: []}
        rows: list[tuple[str, ...]] = []
        found = [(step, one) for step, log in logs.items() for one in log.list_series()]
        for key in dict.fromkeys(one.key for _, one in found):
            title = title_series(key, self.phrases).strip()
            title = say("reward_part", name=title) if key.startswith("reward/") else title
            lines: list[plots.Line] = []
            for step, one in [(step, one) for step, one in found if one.key == key]:
                ends = (one.values[-1], one.values[0], min(one.values), max(one.values))
                texts = (describe_value(key, value) for value in ends)
                rows.append((title, self.name(step), *texts, format_count(len(one))))
                if key != "loss" or not logs[step].is_rewarded:
                    look = {"color": self._color(step), "has_marks": key.startswith("heldout/")}
                    lines.append(plots.Line(self.name(step), one.steps, one.values, **look))
            if lines:
                kind, form = key.partition("/")[0], "percent" if is_share(key) else "plain"
                form = "share" if kind in ("reward", "heldout") else form
                plot = plots.plot_lines(plots.name_file(key), title, lines, self.phrases, form=form)
                drawn[kind in ("reward", "heldout", "loss")].append(plot)
        head = self.say_each("series", "training", "last", "first", "lowest", "highest", "rows")
        values = Table("", head, tuple(rows), num_heads=2)
        folded = Block(say("signals"), "fold", blocks=(Block(plots=tuple(drawn[False])), values))
        rows = []
        for step, log in logs.items():
            seconds, end = log.read("step_s").values, report.steps.get(step, {})
            took = (median(seconds) if seconds else None, end.get("duration_s"))
            times = (DASH if one is None else phrases.format_duration(one) for one in took)
            machine: Mapping[str, Any] = {}
            if report.manifest and "finished_at" in end:
                machine = find_manifests(report.folder, (step,))[0].hardware
            kind = self.phrases.join(machine.get("accelerators", ())) or machine.get("cpu", DASH)
            rows.append((self.name(step), format_count(log.last_step), *times, kind))
        head = self.say_each("training", "num_steps", "time_per_step", "total_time", "machine")
        times = Table("", head, tuple(rows), kind="wrap")
        checks = [
            say("on_policy", policy=step, values=[f"{key} = {one}" for key, one in check.items()])
            for step, check in report.on_policy.items()
            if check
        ]
        curves = (Block(say("training_lead")), Block(plots=tuple(drawn[True])), folded, times)
        return [*curves, *map(Block, checks)] if logs else []

    def _answers(self) -> list[Block | Table]:
        """Return how often each truth got each answer, and how often confidence is right."""
        report, confusions, reliabilities = self.report, list[Table](), list[page.Plot]()
        items = [item for items in report.answers.values() for item in items]
        labels = find_labels(items) if have_truths(items) else ()
        # Open answers are as many as items: a row for each shows nothing and takes minutes to draw.
        if not 2 <= len(labels) <= MAX_LABELS:
            return []
        for policy, own in report.answers.items():
            title, bins = self.name(policy), bin_reliability(own, labels)
            counts = count_confusion(own, labels)
            confusions.append(tables.tabulate_confusion(title, counts, self.phrases))
            if any(one.num_items for one in bins):
                file, color = plots.name_file("reliability", policy), self._color(policy)
                plot = plots.plot_reliability(file, title, bins, self.phrases, color=color)
                reliabilities.append(plot)
        lead = Block(self.say("answers_lead", split=report.split))
        blocks: list[Block | Table] = [lead, Block(tables=tuple(confusions))]
        if reliabilities:
            blocks += [Block(self.say("reliability_lead")), Block(plots=tuple(reliabilities))]
        return blocks

    def _mistakes(self) -> list[Block | Table]:
        """Return the most confident mistakes of the last policy, where answers can be wrong."""
        items = self.report.answers.get(self.report.last, [])
        wrong = [one for one in items if not one.is_correct]
        cards = tuple(map(self._card, choose_mistakes(wrong)))
        told = {"policy": self.report.last, "split": self.report.split, "shown": len(cards)}
        lead = Block(self.say("some_wrong", num=len(wrong), all=len(items), **told))
        return [lead, Block(cards=cards)] if have_truths(items) else []

    def _prompt(self) -> list[Block | Table]:
        """Return one prompt as the model sees it, where the run knows it."""
        asked, say = self.report.prompts, self.say
        lead = say("prompt_lead", item=asked.item[:8], split=self.report.split)
        lead += f" {say('with_pictures', names=asked.pictures)}" if asked.pictures else ""
        return [Block(lead), Block(asked.shown, "verbatim")] if asked.shown else []

    def _data(self) -> list[Block | Table]:
        """Return what the audits counted and found, and how often items were looked at."""
        say, audit, blocks = self.say, self.report.audit, list[Block | Table]()
        if audit.get("num_rows") is not None:
            drops: Mapping[str, Any] = audit.get("drops") or {}
            counts = drops.get("counts", {}).items()
            why = [f"{self.phrases.translate(key)} {format_count(num)}" for key, num in counts]
            told = {"num": audit["num_rows"], "dropped": drops.get("total", 0)}
            blocks.append(Block(say("rows_read", why=why or [say("none")], **told)))
        rows: list[tuple[str, ...]] = []
        for name, one in audit.get("splits", {}).items():
            sizes = (format_count(one[f"num_{k}"]) for k in ("examples", "clusters", "pictures"))
            labels = (f"{label} {format_count(num)}" for label, num in one["labels"].items())
            lengths = one.get("lengths") or {}
            tokens = ", ".join(str(lengths.get(key, DASH)) for key in ("median", "p99", "max"))
            rows.append((name, *sizes, self.phrases.join(labels), tokens))
        names = ("split", "examples", "clusters", "pictures", "truths", "tokens")
        blocks += [Table("", self.say_each(*names), tuple(rows))] if rows else []
        audits = (audit, self.report.reward_audit)
        found = [tell_finding(row, "") for one in audits for row in one.get("findings", ())]
        points = tuple(say(one) for one in found if one.level == "info")  # others are notices
        lines = Block(points=points)
        folded = Block(say("num_findings", num=len(points)), "fold", blocks=(lines,))
        blocks += [folded] if points else []
        return [*blocks, *(Block(say(one)) for one in self.report.looks)]

    def _settings(self) -> list[Block | Table]:
        """Return how the run was started, with which versions and which settings."""
        manifest, say = self.report.manifest or {}, self.say
        plain = {key: manifest.get(key) for key in ("python", "packages", "hardware")}
        coded = {key: manifest.get(key) for key in ("config_digest", "git_revision", "inputs")}
        found = dict(flatten_settings({**manifest.get("config", {}), **plain}))
        found |= {key: mark_code(value) for key, value in flatten_settings(coded)}
        rows = tuple(
            (mark_code(name), say("not_set") if value is None else str(value))
            for name, value in found.items()
        )
        every = Table("", self.say_each("setting", "value"), rows, kind="wrap")
        lead = Block(say("settings_lead", command=" ".join(manifest.get("command", ()))))
        folded = Block(say("num_settings", num=len(rows)), "fold", blocks=(every,))
        return [lead, folded] if manifest else []

    def _next(self) -> list[Block | Table]:
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
            is_ours = path.is_file() and is_below(path, folder)
            if is_ours or (path.is_file() and digest_file(path) in one.picture_digests[:1]):
                return path
        except (OSError, ValueError):  # such as a name that is too long
            continue
    return None


def find_labels(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return every label that occurs, in the order of the fullest probabilities, then by name."""
    shares = [list(one.probabilities) for one in predictions if one.probabilities is not None]
    known = max(shares, key=len, default=[])
    seen = {answer for one in predictions for answer in (one.label, one.predicted)}
    seen |= {name for labels in shares for name in labels}
    return (*known, *sorted(name for name in seen - set(known) if name is not None))


def choose_mistakes(wrong: Sequence[Prediction]) -> list[Prediction]:
    """Return the most confident mistakes, one per picture while there are others.

    Wrong labels come before invalid answers, and those without a known confidence last.
    """

    def rank(one: Prediction) -> tuple[bool, bool, float, str]:
        sure = one.confidence
        return (one.predicted is None, sure is None, -(sure or 0.0), one.example_id)

    ranked = sorted(wrong, key=rank)
    firsts = {one.pictures or one.example_id: one for one in reversed(ranked)}
    chosen = {one.example_id for one in firsts.values()}
    ranked.sort(key=lambda one: one.example_id not in chosen)
    return sorted(ranked[:NUM_MISTAKES], key=rank)
