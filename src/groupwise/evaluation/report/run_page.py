"""The page of a run: what its report says, in the phrases of one language."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import digest_file, flatten_settings, is_below
from groupwise.evaluation import predictions as rows_of
from groupwise.evaluation.label_metrics import bin_reliability, count_confusion
from groupwise.evaluation.metrics import MAX_LABELS
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.predictions import ACCURACY, MAX_TEXT, Prediction, shorten
from groupwise.evaluation.report import page, phrases, plots
from groupwise.evaluation.report.page import Block, Card, Cell, Part, Table
from groupwise.evaluation.report.phrases import DASH, Language, Phrases, format_count, format_share
from groupwise.evaluation.report.run import (
    Report,
    build_report,
    find_doubt,
    is_shown_useful,
    judge_difference,
    remark_carrying,
)
from groupwise.evaluation.report.tables import (
    make_tile,
    show_metric,
    tabulate_confusion,
    tabulate_metrics,
    tell_calibration,
)
from groupwise.evaluation.report.training import describe_machine, show_training

NAME = "report"
NUM_MISTAKES, NUM_CHANGES = 10, 3
_MAX_ANSWER = 60
_COMMANDS = {
    "predict": "groupwise predict {run} ROWS --out answers.jsonl",
    "evaluate": "groupwise evaluate {run} ROWS --out other-data",
    "serve": "groupwise serve {run}",
    "export-model": "groupwise export-model {run} --out model",
}
_VERDICTS = {0: ("close", "harmless"), 1: ("better", "intended"), -1: ("worse", "confounding")}


def write_report(run_folder: Path, *, language: Language = "en") -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns:
        The paths of the two reports.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
    """
    return page.write_page(lay_out(build_report(run_folder), language), run_folder, name=NAME)


def lay_out(report: Report, language: Language = "en") -> page.Page:
    """Return the page of a run."""
    return _Layout(report, language).make()


class _Layout:
    """The parts of a page; a part that has nothing to show is not yielded."""

    def __init__(self, report: Report, language: Language) -> None:
        self.report = report
        self.language: Language = language
        self.phrases = Phrases(language, policies=report.policies)
        self.say, self.name = self.phrases.say, self.phrases.title_policy

    def make(self) -> page.Page:
        report, say = self.report, self.say
        sections = [one for one in report.sections if one.language in (None, self.language)]
        own: dict[bool, list[Part]] = {True: [], False: []}
        for number, one in enumerate(sections, start=1):
            text = (Block(one.text),) if one.text else ()
            folded = (Block(say("num_tables", num=len(one.tables)), "fold", blocks=one.tables),)
            tables = folded if len(one.tables) > 1 else one.tables
            own[bool(one.tiles)].append(Part(f"section-{number}", one.title, (*text, *tables)))
        changes, is_scored = list(self._changes()), report.headline is not ACCURACY
        unknown, manifest = say("unknown"), report.manifest
        lead = say("no_manifest")
        if manifest is not None:
            version = manifest.get("packages", {}).get("groupwise", unknown)
            moment = phrases.format_moment(manifest.get("started_at", unknown))
            seed = manifest.get("seed", unknown)
            lead = say("started", moment=moment, seed=seed, version=version)
        findings = ("" if self.language == "zh" else " ").join(map(say, report.findings))
        absent = f" {say('run_absent', names=report.absent)}" if report.absent else ""
        recipe, name = (manifest or {}).get("recipe"), report.folder.resolve().name
        return page.Page(
            title=f"{recipe} · {name}" if recipe and recipe != name else name,
            lead=lead,
            language=self.language,
            notices=tuple(page.Notice(one.level, say(one), one.source) for one in report.notices),
            checked=say("run_checked"),
            tiles=(*(tile for one in sections for tile in one.tiles), *self._tiles()),
            boxes=(page.Box("findings", (findings,)),) if findings else (),
            parts=(
                *(changes if is_scored else ()),
                *own[True],
                *self._accuracy(),
                *self._comparisons(),
                *(() if is_scored else changes),
                *show_training(report, self.phrases),
                *self._slices(),
                *own[False],
                *self._answers(),
                *self._mistakes(),
                *self._prompt(),
                *self._data(),
                *self._settings(),
                *self._next(),
            ),
            footer=(Block(f"{say('run_footer')}{absent}", "plain"),),
        )

    def _heads(self, *keys: str) -> tuple[str, ...]:
        return tuple(self.say(key) if key != "n" else key for key in keys)

    def _color(self, policy: str) -> str:
        return plots.color_policy(policy, self.report.policies)

    def _tiles(self) -> Iterator[page.Tile]:
        report, say = self.report, self.say
        if not report.main:
            return
        about = {"measure": report.headline, "policy": report.last, "split": report.split}
        tile = make_tile(report.main[report.last][report.headline.name], say("measure_of", **about))
        yield page.Tile(tile.value, tile.text, tile.note, is_good=is_shown_useful(report))
        mine = report.headline.name, report.split, report.last
        for one in [p for p in report.comparisons if (p.measure, p.split, p.policy_b) == mine][:3]:
            p = phrases.format_p_value(one.p_value_holm)
            note = f"{self.phrases.interval(one.low, one.high)}, {p}"
            text = say("points_against", policy=one.policy_a)
            yield page.Tile(phrases.format_points(one.difference), text, note)

    def _accuracy(self) -> Iterator[Part]:
        """Yield the headline of every split, beside what else is measured, and a plot of one."""
        report, headline = self.report, self.report.headline
        known = [report.define("balanced_accuracy")] if headline is ACCURACY else report.measures
        beside = [one for one in (*known, report.define("invalid_rate")) if one is not headline]
        blocks: list[Block | Table] = [Block(self.say("accuracy_lead"))]
        for split, by_policy in report.by_split.items():
            shown = [one for one in beside if any(one.name in own for own in by_policy.values())]
            best = max(own[headline.name].value * headline.sign for own in by_policy.values())
            rows: list[tuple[str | Cell, ...]] = []
            bars: list[plots.Bar] = []
            for policy, own in by_policy.items():
                one, title = own[headline.name], self.name(policy)
                note = report.policies.describe(policy, self.language)
                code = phrases.mark_code(policy)
                value, ends = phrases.format_value(one), phrases.format_interval(one)
                both = (one.low, one.high)
                bars.append(
                    plots.Bar(title, f"{value} ({ends})", one.value, both, self._color(policy))
                )
                rows.append(
                    (
                        Cell(title, f"{code} · {note}" if note else code),
                        Cell(value, ends, is_strong=one.value * headline.sign == best),
                        *(
                            phrases.format_value(own[m.name]) if m.name in own else DASH
                            for m in shown
                        ),
                        format_count(one.n),
                        Cell(one.split_digest[:8], hint=one.split_digest, is_code=True),
                    )
                )
            titles = (self.phrases.title_measure(one) for one in (headline, *shown))
            head = (self.say("policy"), *titles, "n", self.say("digest"))
            marks = tuple(bar.color for bar in bars)
            blocks += [
                Block(split, "heading"),
                Table("", head, tuple(rows), kind="headline", marks=marks),
            ]
            if split == report.split:
                title = self.say("measure_on", measure=headline, split=split)
                plot = plots.plot_bars(plots.name_file("accuracy", split), title, bars)
                blocks.append(Block(plots=(plot,), kind="wide"))
        if report.by_split:
            yield Part("accuracy", self.phrases.name_measure(headline), tuple(blocks))

    def _comparisons(self) -> Iterator[Part]:
        report, several = self.report, len(self.report.by_split) > 1
        rows: list[tuple[str | Cell, ...]] = []
        clear: list[PairedComparison] = []
        for one in report.comparisons:
            measure = report.define(one.measure)
            verdict = judge_difference(one, measure)
            clear += [one] if verdict else []
            kind, color = _VERDICTS[verdict]
            ends = self.phrases.interval(one.low, one.high)
            points, tag = phrases.format_points(one.difference), self.say(f"verdict.{kind}")
            of = "" if measure is ACCURACY else self.phrases.name_measure(measure)
            p_values = (one.p_value_holm, one.p_value_clustered, one.p_value)
            holm, clustered, mcnemar = map(phrases.format_p_cell, p_values)
            wins, losses, same, n = map(
                format_count, (*one.count_wins(measure), one.num_same_answer, one.n)
            )
            rows.append(
                (
                    Cell(self.name(one.policy_b), one.split if several else ""),
                    Cell(self.name(one.policy_a), of),
                    Cell(points, ends, tag=tag, tag_kind=color),
                    *(holm, f"{wins} : {losses}", same, clustered, mcnemar, n),
                )
            )
        if rows:
            names = ("policy", "against", "points", "p_holm", "won_lost", "alike", "p_by_clusters")
            table = Table("", self._heads(*names, "p_mcnemar", "n"), tuple(rows), num_heads=2)
            few = tuple(Block(points=(self.say(one),)) for one in remark_carrying(clear))
            blocks = Block(self.say("comparisons_lead")), table, *few
            yield Part("comparisons", self.say("paired_comparisons"), blocks)

    def _slices(self) -> Iterator[Part]:
        """Yield the accuracies on parts of the main split, if it was measured on any."""
        main, found = self.report.main, dict[str, set[str]]()
        for name in (name for own in main.values() for name in own):
            field, equals, value = name.removeprefix("accuracy[").removesuffix("]").partition("=")
            if name.startswith("accuracy[") and equals:
                found.setdefault(field, set()).add(value)
        tables: list[Table] = []
        for field, values in sorted(found.items()):
            is_mark = field in (rows_of.NEAR_DUPLICATE, rows_of.SEEN)
            columns: dict[str, str] = {}
            for value in sorted(values):
                one = main[self.report.last].get(f"accuracy[{field}={value}]")
                shown = self.say(value) if is_mark and value in ("yes", "no") else value
                n = DASH if one is None else format_count(one.n)
                columns[f"accuracy[{field}={value}]"] = f"{shown}\nn = {n}"
            rows = [(self.name(k), own) for k, own in main.items() if columns.keys() & own.keys()]
            title = self.say("by_field", field=self.phrases.title("field", field))
            tables.append(tabulate_metrics(rows, columns, head=self.say("policy"), title=title))
        if tables:
            blocks = (
                Block(self.say("slices_lead", split=self.report.split)),
                Block(tables=tuple(tables)),
            )
            yield Part("slices", self.say("slices"), blocks)

    def _answers(self) -> Iterator[Part]:
        """Yield confusion, scores per label, reliability and latency of every policy."""
        report, blocks = self.report, list[Block | Table]()
        items = [item for items in report.answers.values() for item in items]
        labels = find_labels(items) if rows_of.have_truths(items) else ()
        # Open answers are as many as items: a row for each shows nothing and takes minutes to draw.
        if 2 <= len(labels) <= MAX_LABELS:
            confusions, reliabilities = list[Table](), list[page.Plot]()
            rows: list[tuple[str, ...]] = []
            for policy, own in report.answers.items():
                title, found = self.name(policy), report.main.get(policy, {})
                counts = count_confusion(own, labels)
                confusions.append(tabulate_confusion(title, counts, self.phrases))
                for place, label in enumerate(labels):
                    names = (f"{kind}:{label}" for kind in ("precision", "recall", "f1"))
                    scores = (show_metric(found.get(name)) for name in names)
                    rows.append(("" if place else title, label, *scores))
                bins = bin_reliability(own, labels)
                if any(one.num_items for one in bins):
                    file = plots.name_file("reliability", policy)
                    look = {"color": self._color(policy)}
                    look["caption"] = tell_calibration(found, self.phrases)
                    plot = plots.plot_reliability(file, title, bins, self.phrases, **look)
                    reliabilities.append(plot)
            head = (*self._heads("policy", "label", "precision", "recall"), "F1")
            blocks = [
                Block(self.say("answers_lead", split=report.split)),
                Block(tables=tuple(confusions)),
                Block(self.say("per_label"), "heading"),
                Table("", head, tuple(rows), num_heads=2),
            ]
            if reliabilities:
                lead = Block(self.say("reliability_lead"))
                blocks += [
                    Block(self.say("reliability"), "heading"),
                    lead,
                    Block(plots=tuple(reliabilities)),
                ]
        p50 = "latency_p50_s"
        timed = [(self.name(key), own) for key, own in report.main.items() if p50 in own]
        if timed:
            measures = map(report.define, (p50, "latency_p95_s"))
            columns = {one.name: self.phrases.name_measure(one) for one in measures}
            table = tabulate_metrics(timed, columns, head=self.say("policy"), count=p50)
            blocks += [Block(self.say("latency"), "heading"), table]
        if blocks:
            yield Part("answers", self.say("answers"), tuple(blocks))

    def _card(self, one: Prediction, said: str, pills: Sequence[tuple[str, str]]) -> Card:
        """Return the card of an item; ``pills`` follow the truth.

        Its title is the item's field ``task`` or, where it has none, the last turn of its prompt.
        What the answer's field ``MARKS`` tells is drawn on the picture and said beside it.
        """
        say, marks = self.say, one.fields.get(rows_of.MARKS, {})
        task = one.fields.get("task") or self.report.prompts.turns.get(one.example_id)
        picture = _find_picture(one, self.report.folder)
        truth = [
            say("truth_is", label=shorten(x, _MAX_ANSWER)) for x in [one.label] if x is not None
        ]
        where = say("where", cluster=one.cluster, item=one.example_id[:8])
        remark = marks.get("remark", {}).get(self.language, "")
        return Card(
            title=shorten(task, MAX_TEXT) if isinstance(task, str) else say("no_task"),
            pills=(*(("truth", text) for text in truth), *pills),
            said="; ".join(part for part in (said, where, remark) if part),
            picture=picture,
            gone=say("picture_gone" if picture is None else "picture_broken")
            if one.pictures
            else "",
            alt=say("picture_of", item=one.example_id[:8]),
            regions=tuple(
                (kind, name, left, top, right, bottom)
                for kind in ("reference", "answer")
                for left, top, right, bottom, name in marks.get(kind, ())
            ),
        )

    def _changes(self) -> Iterator[Part]:
        """Yield what training changed: the items both policies answered, a few side by side.

        Where answers are scored, each measure before and after; what was not rewarded shows what
        the policy did for its reward.
        """
        report, say, policies = self.report, self.say, self.report.policies
        after = policies.choose_last(report.answers) if report.answers else ""
        before = policies.find(after).trained_from
        if before is None or before not in report.answers:
            return
        earlier = {one.example_id: one for one in report.answers[before]}
        later = {one.example_id: one for one in report.answers[after]}
        pairs = [(earlier[item], later[item]) for item in sorted(earlier.keys() & later.keys())]
        told = {"before": before, "after": after, "num": len(pairs), "split": report.split}
        told["most"] = NUM_CHANGES
        if report.headline is ACCURACY:
            kinds = {"fixed": (False, True), "broken": (True, False)}
            kinds |= {"right_twice": (True, True), "wrong_twice": (False, False)}
            found = {
                say(f"changes.{kind}"): [
                    p for p in pairs if (p[0].is_correct, p[1].is_correct) == key
                ]
                for kind, key in kinds.items()
            }
            shares = [len(own) / len(pairs) if pairs else None for own in found.values()]
            rows = tuple(
                (name, format_count(len(own)), format_share(share))
                for (name, own), share in zip(found.items(), shares, strict=True)
            )
            table = Table("", self._heads("before_after", "n", "share"), rows)
            blocks: list[Block | Table] = [Block(say("changes_lead", **told)), table]
            for name, own in list(found.items())[:2]:
                if own:
                    blocks += [Block(name, "heading"), self._pairs(own)]
        else:
            trained = policies.find(after)
            seconds = report.steps.get(trained.step or "", {}).get("duration_s")
            told["samples"] = int(trained.budget.get("num_samples", 0))
            told["minutes"] = DASH if seconds is None else f"{seconds / 60:.1f}"
            log = report.logs.get(trained.step or "")
            paid = {rows_of.REWARD.name, *(log.list_parts() if log else ())}
            both = [report.main.get(name, {}) for name in (before, after)]
            rows = tuple(
                (
                    self.phrases.title_measure(one),
                    *(show_metric(found.get(one.name)) for found in both),
                    say("yes" if one.name in paid else "no"),
                )
                for one in report.measures
                if one.name in both[-1]
            )
            head = (say("measure"), self.name(before), self.name(after), say("is_rewarded"))
            lead = Block(say("scored_lead", **told))
            blocks = [lead, Table("", head, rows), self._pairs(pairs)]
        yield Part("changes", say("changes"), tuple(blocks))

    def _pairs(self, pairs: Sequence[tuple[Prediction, Prediction]]) -> Block:
        """Return the first items with their answers before and after training.

        An answer is good if it is right or, where answers are scored, if its headline is the best
        there is or better than the other's.
        """
        headline, cards = self.report.headline, list[Card]()
        sign, best = headline.sign, max(0, headline.sign)
        for pair in pairs[:NUM_CHANGES]:
            said: list[str] = []
            pills: list[tuple[str, str]] = []
            for one, other in (pair, pair[::-1]):
                answer = self.say("invalid_answer") if one.predicted is None else one.predicted
                is_good, told = one.is_correct, shorten(answer, _MAX_ANSWER)
                if headline is not ACCURACY:
                    both = (sign * x.scores.get(headline.name, 1 - best) for x in (one, other))
                    ours, theirs = both
                    is_good = ours == sign * best or ours > theirs
                    told = self.phrases.join(
                        f"{self.phrases.name_measure(m)} {format_share(one.scores[m.name])}"
                        for m in self.report.measures
                        if m.name in one.scores
                    )
                pills.append(("truth" if is_good else "wrong", f"{self.name(one.policy)}: {told}"))
                text = shorten(one.text, MAX_TEXT)
                said.append(self.say("policy_said", policy=one.policy, text=text))
            cards.append(self._card(pair[1], "; ".join(said), pills))
        return Block(cards=tuple(cards))

    def _mistakes(self) -> Iterator[Part]:
        """Yield the most confident mistakes of the last policy; nothing where none can be wrong."""
        report, say = self.report, self.say
        if not rows_of.have_truths(one for own in report.answers.values() for one in own):
            return
        policy, items = list(report.answers.items())[-1]
        wrong = [one for one in items if not one.is_correct]
        cards: list[Card] = []
        for one in choose_mistakes(wrong):
            text = shorten(one.text, MAX_TEXT)
            said = say("said", text=text) if text else say("said_nothing")
            said += f" ({self.phrases.translate(one.reason)})" if one.reason else ""
            answer = say("invalid_answer")
            if one.predicted is not None:
                answer = say("answered", answer=shorten(one.predicted, _MAX_ANSWER))
            sure = "" if one.confidence is None else say("sure", share=one.confidence)
            cards.append(self._card(one, said, [("wrong", f"{answer}{sure}")]))
        told = {"num": len(wrong), "all": len(items), "shown": len(cards), "split": report.split}
        lead = Block(say("some_wrong" if wrong else "none_wrong", policy=policy, **told))
        shown = (Block(cards=tuple(cards)),) if cards else ()
        yield Part("mistakes", say("mistakes"), (lead, *shown))

    def _prompt(self) -> Iterator[Part]:
        """Yield one prompt as the model sees it, where the run knows it."""
        asked, say = self.report.prompts, self.say
        if asked.shown:
            lead = say("prompt_lead", item=asked.item[:8], split=self.report.split)
            lead += f" {say('with_pictures', names=asked.pictures)}" if asked.pictures else ""
            yield Part("prompt", say("prompt"), (Block(lead), Block(asked.shown, "verbatim")))

    def _data(self) -> Iterator[Part]:
        """Yield what the data audit counted and found, and how often items were looked at."""
        say, audit, blocks = self.say, self.report.audit, list[Block | Table]()
        if audit.get("num_rows") is not None:
            drops: Mapping[str, Any] = audit.get("drops") or {}
            told = {"num": audit["num_rows"], "dropped": drops.get("total", 0)}
            blocks.append(Block(say("rows_read", **told)))
            counts = drops.get("counts", {}).items()
            rows = tuple((self.phrases.translate(why), format_count(num)) for why, num in counts)
            if rows:
                blocks.append(Table("", self._heads("reason", "count"), rows, kind="wrap"))
        splits: list[tuple[str, ...]] = []
        for name, one in audit.get("splits", {}).items():
            sizes = (format_count(one[f"num_{k}"]) for k in ("examples", "clusters", "pictures"))
            labels = (f"{label} {format_count(num)}" for label, num in one["labels"].items())
            lengths = one.get("lengths") or {}
            tokens = ", ".join(str(lengths.get(key, DASH)) for key in ("median", "p99", "max"))
            splits.append((name, *sizes, self.phrases.join(labels), tokens))
        if splits:
            names = ("split", "examples", "clusters", "pictures", "truths", "tokens")
            blocks.append(Table("", self._heads(*names), tuple(splits)))
        found = tuple(
            (
                Cell(phrases.mark_code(one["name"]), say(f"level.{one['level']}")),
                self.phrases.translate(one["message"]),
                str(one.get("count", DASH)),
            )
            for one in audit.get("findings", ())
        )
        if found:
            table = Table("", self._heads("finding", "seen", "count"), found, kind="wrap")
            blocks.append(Block(say("num_findings", num=len(found)), "fold", blocks=(table,)))
        blocks += [Block(say(one)) for one in self.report.looks]
        if blocks:
            yield Part("data", say("data"), tuple(blocks))

    def _settings(self) -> Iterator[Part]:
        """Yield how the run was started, with which versions and which settings."""
        found, say, code = self.report.manifest, self.say, phrases.mark_code
        if found is None:
            return
        unknown = say("unknown")
        packages = [f"{name} {number}" for name, number in found.get("packages", {}).items()]
        python = f"Python {found.get('python', unknown)}"
        origin = (
            (say("command"), code(" ".join(found.get("command", ())))),
            (say("config_digest"), code(found.get("config_digest", unknown))),
            (say("git_revision"), code(found.get("git_revision") or unknown)),
            (say("machine"), describe_machine(found.get("hardware", {}), self.phrases) or unknown),
            (say("versions"), self.phrases.join([python, *packages])),
            *((say("input", name=key), code(one)) for key, one in found.get("inputs", {}).items()),
        )
        settings = tuple(
            (code(name), say("not_set") if value is None else str(value))
            for name, value in flatten_settings(found.get("config", {}))
        )
        head = self._heads("setting", "value")
        every = Table("", head, settings, kind="wrap")
        blocks = (
            Table("", head, origin, kind="wrap"),
            Block(say("bit_exact")),
            Block(say("num_settings", num=len(settings)), "fold", blocks=(every,)),
        )
        yield Part("settings", say("settings_versions"), blocks)

    def _next(self) -> Iterator[Part]:
        """Yield the commands to go on with, as far as they exist for the run's recipe.

        A policy that is not shown to be of use is not offered for use.
        """
        report, name = self.report, self.report.folder.resolve().name
        run = shlex.quote(name if not name.startswith("-") else f"./{name}")
        lines = [line.format(run=run) for verb, line in _COMMANDS.items() if verb in report.verbs]
        lead: Block | Table = Block(self.say("next_lead"))
        todo: Block | Table = Block("\n".join(lines), "verbatim")
        if doubt := find_doubt(report):
            lead = Block(self.say("next_doubt", policy=report.last, why=doubt), "plain")
            todo = Block(points=self._heads("next_mistakes", "next_rows", "next_teach"))
        if lines:
            yield Part("next", self.say("next"), (lead, todo))


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
    tables = [list(one.probabilities) for one in predictions if one.probabilities is not None]
    known = max(tables, key=len, default=[])
    seen = {answer for one in predictions for answer in (one.label, one.predicted)}
    seen |= {name for table in tables for name in table}
    return (*known, *sorted(name for name in seen - set(known) if name is not None))


def choose_mistakes(wrong: Sequence[Prediction]) -> list[Prediction]:
    """Return the most confident mistakes, one per picture while there are others.

    Wrong labels come before invalid answers, and those without a known confidence last.
    """

    def rank(one: Prediction) -> tuple[bool, bool, float, str]:
        sure = one.confidence
        return (one.predicted is None, sure is None, -(sure or 0.0), one.example_id)

    firsts: dict[tuple[str, ...], Prediction] = {}
    for one in (ranked := sorted(wrong, key=rank)):
        firsts.setdefault(one.pictures or (one.example_id,), one)
    chosen = {one.example_id for one in firsts.values()}
    others = [one for one in ranked if one.example_id not in chosen]
    return sorted([*firsts.values(), *others][:NUM_MISTAKES], key=rank)
