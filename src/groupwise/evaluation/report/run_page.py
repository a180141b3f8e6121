"""The page of a run: what its report says, in the phrases of one language."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from groupwise.core import digest_file, flatten_settings, is_below
from groupwise.evaluation.facts import find_manifests
from groupwise.evaluation.label_metrics import bin_reliability, count_confusion
from groupwise.evaluation.metrics import MAX_LABELS
from groupwise.evaluation.monitor import History, describe_value, is_share, title_series
from groupwise.evaluation.predictions import (
    ACCURACY,
    MARKS,
    MAX_TEXT,
    NEAR_DUPLICATE,
    REWARD,
    SEEN,
    Prediction,
    have_truths,
)
from groupwise.evaluation.report.page import (
    Block,
    Box,
    Bullets,
    Card,
    Cards,
    Cell,
    Fold,
    Heading,
    Notice,
    Page,
    Paragraph,
    Part,
    Plot,
    Plots,
    Region,
    Table,
    Tables,
    Tile,
    Verbatim,
    write_page,
)
from groupwise.evaluation.report.phrases import (
    DASH,
    Language,
    Phrases,
    format_count,
    format_duration,
    format_interval,
    format_moment,
    format_p_cell,
    format_p_value,
    format_points,
    format_share,
    format_value,
    mark_code,
    shorten,
)
from groupwise.evaluation.report.plots import (
    Bar,
    Line,
    choose_window,
    color_policy,
    name_file,
    pick_color,
    plot_bars,
    plot_beside_share,
    plot_lines,
    plot_reliability,
)
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

NAME = "report"
NUM_MISTAKES, NUM_CHANGES = 10, 3
_MAX_ANSWER = 60
_MAX_BESIDE = 4  # columns of tables that stand beside each other without being cut
_SIGNALS = (
    *("kl", "entropy", "dead_groups", "invalid", "truncated", "unscored", "reward_std"),
    *("completion_length", "tokens_per_s", "learning_rate", "grad_norm"),
)
_HELDOUT = "heldout/accuracy"
_MACHINE = ("cpu", "num_cpus", "memory_mib", "accelerators", "num_threads")
_COMMANDS = {
    "predict": "groupwise predict {run} ROWS --out answers.jsonl",
    "evaluate": "groupwise evaluate {run} ROWS --out other-data",
    "serve": "groupwise serve {run}",
    "export-model": "groupwise export-model {run} --out model",
}


def write_report(run_folder: Path, *, language: Language = "en") -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns:
        The paths of the two reports.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
    """
    return write_page(lay_out(build_report(run_folder), language), run_folder, name=NAME)


def lay_out(report: Report, language: Language = "en") -> Page:
    """Return the page of a run."""
    phrases = Phrases(language, policies=report.policies)
    say = phrases.say
    sections = [one for one in report.sections if one.language in (None, language)]
    parts: dict[bool, list[Part]] = {True: [], False: []}
    for number, one in enumerate(sections, start=1):
        text = (Paragraph(one.text),) if one.text else ()
        folded = (Fold(say("num_tables", num=len(one.tables)), one.tables),)
        tables = folded if len(one.tables) > 1 else one.tables
        part = Part(f"section-{number}", one.title, (*text, *tables))
        parts[bool(one.tiles)].append(part)
    changes = list(_show_changes(report, phrases))
    is_scored = report.headline is not ACCURACY
    unknown, manifest = say("unknown"), report.manifest
    lead = say("no_manifest")
    if manifest is not None:
        version = manifest.get("packages", {}).get("groupwise", unknown)
        moment = format_moment(manifest.get("started_at", unknown))
        lead = say("started", moment=moment, seed=manifest.get("seed", unknown), version=version)
    findings = ("" if language == "zh" else " ").join(map(say, report.findings))
    absent = f" {say('run_absent', names=report.absent)}" if report.absent else ""
    recipe, name = (manifest or {}).get("recipe"), report.folder.resolve().name
    return Page(
        title=f"{recipe} · {name}" if recipe and recipe != name else name,
        lead=lead,
        language=language,
        notices=tuple(Notice(one.level, say(one), one.source) for one in report.notices),
        checked=say("run_checked"),
        tiles=(*(tile for one in sections for tile in one.tiles), *_list_tiles(report, phrases)),
        boxes=(Box("findings", (findings,)),) if findings else (),
        parts=(
            *(changes if is_scored else ()),
            *parts[True],
            _show_accuracy(report, phrases),
            *_show_comparisons(report, phrases),
            *(() if is_scored else changes),
            *_show_training(report, phrases),
            *_show_slices(report, phrases),
            *parts[False],
            *_show_answers(report, phrases),
            *_show_mistakes(report, phrases),
            *_show_prompt(report, phrases),
            *_show_data(report, phrases),
            *_show_settings(report, phrases),
            *_show_next(report, phrases),
        ),
        footer=(Paragraph(f"{say('run_footer')}{absent}", ""),),
    )


def _list_tiles(report: Report, phrases: Phrases) -> Iterator[Tile]:
    if not report.main:
        return
    one = report.main[report.last][report.headline.name]
    measure, policy = phrases.name_measure(report.headline), phrases.title_policy(report.last)
    text = phrases.say("measure_of", measure=measure, policy=policy, split=report.split)
    tile = make_tile(one, text)
    yield Tile(tile.value, tile.text, tile.note, is_good=is_shown_useful(report))
    about = report.headline.name, report.split, report.last
    pairs = [p for p in report.comparisons if (p.measure, p.split, p.policy_b) == about]
    for pair in pairs[:3]:
        text = phrases.say("points_against", policy=phrases.title_policy(pair.policy_a))
        note = f"{phrases.interval(pair.low, pair.high)}, {format_p_value(pair.p_value_holm)}"
        yield Tile(format_points(pair.difference), text, note)


def _show_accuracy(report: Report, phrases: Phrases) -> Part:
    """Return the headline of every split, beside what else is measured, and a plot of the main."""
    headline, say = report.headline, phrases.say
    known = [report.define("balanced_accuracy")] if headline is ACCURACY else report.measures
    beside = [one for one in (*known, report.define("invalid_rate")) if one is not headline]
    blocks: list[Block] = [Paragraph(say("accuracy_lead"))]
    for split, by_policy in report.by_split.items():
        shown = [one for one in beside if any(one.name in own for own in by_policy.values())]
        best = max(own[headline.name].value * headline.sign for own in by_policy.values())
        rows: list[tuple[str | Cell, ...]] = []
        bars: list[Bar] = []
        for policy, own in by_policy.items():
            one, title = own[headline.name], phrases.title_policy(policy)
            color = color_policy(policy, report.policies)
            note = report.policies.describe(policy, phrases.language)
            value, ends = format_value(one), format_interval(one)
            bars.append(Bar(title, f"{value} ({ends})", one.value, (one.low, one.high), color))
            rows.append(
                (
                    Cell(title, f"{mark_code(policy)} · {note}" if note else mark_code(policy)),
                    Cell(value, ends, is_strong=one.value * headline.sign == best),
                    *(format_value(own[m.name]) if m.name in own else DASH for m in shown),
                    format_count(one.n),
                    Cell(one.split_digest[:8], hint=one.split_digest, is_code=True),
                )
            )
        titles = (phrases.title_measure(one) for one in (headline, *shown))
        head = (say("policy"), *titles, "n", say("digest"))
        colors = tuple(bar.color for bar in bars)
        blocks += [Heading(split), Table("", head, tuple(rows), kind="headline", marks=colors)]
        if split == report.split:
            title = say("measure_on", measure=phrases.name_measure(headline), split=split)
            blocks.append(Plots((plot_bars(name_file("accuracy", split), title, bars),), "wide"))
    return Part("accuracy", phrases.name_measure(headline), tuple(blocks))


def _show_comparisons(report: Report, phrases: Phrases) -> Iterator[Part]:
    say, several = phrases.say, len(report.by_split) > 1
    rows: list[tuple[str | Cell, ...]] = []
    clear: list[Any] = []
    for one in report.comparisons:
        measure = report.define(one.measure)
        verdict = judge_difference(one, measure)
        clear += [one] if verdict else []
        kind, color = {0: ("close", "harmless"), 1: ("better", "intended")}.get(
            verdict, ("worse", "confounding")
        )
        wins, losses = map(format_count, one.count_wins(measure))
        of = "" if measure is ACCURACY else phrases.name_measure(measure)
        ends = phrases.interval(one.low, one.high)
        difference = format_points(one.difference)
        rows.append(
            (
                Cell(phrases.title_policy(one.policy_b), one.split if several else ""),
                Cell(phrases.title_policy(one.policy_a), of),
                Cell(difference, ends, tag=say(f"verdict.{kind}"), tag_kind=color),
                format_p_cell(one.p_value_holm),
                f"{wins} : {losses}",
                format_count(one.num_same_answer),
                format_p_cell(one.p_value_clustered),
                format_p_cell(one.p_value),
                format_count(one.n),
            )
        )
    if rows:
        names = ("policy", "against", "points", "p_holm", "won_lost", "alike", "p_by_clusters")
        head = (*phrases.say_each(*names, "p_mcnemar"), "n")
        few = tuple(Bullets((say(one),)) for one in remark_carrying(clear))
        blocks = Paragraph(say("comparisons_lead")), Table("", head, tuple(rows), 2), *few
        yield Part("comparisons", say("paired_comparisons"), blocks)


def _show_slices(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield the accuracies on parts of the main split, if it was measured on any."""
    found: dict[str, set[str]] = {}
    for name in (name for own in report.main.values() for name in own):
        field, equals, value = name.removeprefix("accuracy[").removesuffix("]").partition("=")
        if name.startswith("accuracy[") and equals:
            found.setdefault(field, set()).add(value)
    tables: list[Table] = []
    for field, values in sorted(found.items()):
        columns: dict[str, str] = {}
        for value in sorted(values):
            name = f"accuracy[{field}={value}]"
            one = report.main[report.last].get(name)
            is_mark = field in (NEAR_DUPLICATE, SEEN) and value in ("yes", "no")
            n = format_count(one.n) if one else DASH
            columns[name] = f"{phrases.say(value) if is_mark else value}\nn = {n}"
        rows = [
            (phrases.title_policy(policy), own)
            for policy, own in report.main.items()
            if any(name in own for name in columns)
        ]
        title = phrases.say("by_field", field=phrases.title("field", field))
        head = phrases.say("policy")
        tables.append(tabulate_metrics(rows, columns, head=head, title=title))
    if tables:
        side = Tables(tuple(tables), is_wide=any(len(one.head) > _MAX_BESIDE for one in tables))
        lead = Paragraph(phrases.say("slices_lead", split=report.split))
        yield Part("slices", phrases.say("slices"), (lead, side))


def find_labels(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return every label that occurs, in the order of the fullest probabilities, then by name."""
    tables = [list(one.probabilities) for one in predictions if one.probabilities is not None]
    known = max(tables, key=len, default=[])
    seen = {answer for one in predictions for answer in (one.label, one.predicted)}
    seen |= {name for table in tables for name in table}
    return (*known, *sorted(name for name in seen - set(known) if name is not None))


def _show_answers(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield confusion, scores per label, reliability and latency of every policy."""
    say, blocks = phrases.say, list[Block]()
    items = [item for items in report.answers.values() for item in items]
    labels = find_labels(items) if have_truths(items) else ()
    # Open answers are as many as items: a row for each shows nothing and takes minutes to draw.
    if 2 <= len(labels) <= MAX_LABELS:
        confusions: list[Table] = []
        rows: list[tuple[str, ...]] = []
        plots: list[Plot] = []
        for policy, own in report.answers.items():
            title, found = phrases.title_policy(policy), report.main.get(policy, {})
            confusions.append(tabulate_confusion(title, count_confusion(own, labels), phrases))
            for place, label in enumerate(labels):
                scores = (found.get(f"{kind}:{label}") for kind in ("precision", "recall", "f1"))
                rows.append(("" if place else title, label, *map(show_metric, scores)))
            bins = bin_reliability(own, labels)
            if any(one.num_items for one in bins):
                name, color = (
                    name_file("reliability", policy),
                    color_policy(policy, report.policies),
                )
                caption = tell_calibration(found, phrases)
                plots.append(
                    plot_reliability(name, title, bins, phrases, color=color, caption=caption)
                )
        head = (*phrases.say_each("policy", "label", "precision", "recall"), "F1")
        blocks += [
            Paragraph(say("answers_lead", split=report.split)),
            Tables(tuple(confusions), is_wide=len(labels) > _MAX_BESIDE),
            Heading(say("per_label")),
            Table("", head, tuple(rows), num_heads=2),
        ]
        if plots:
            blocks += [Heading(say("reliability")), Paragraph(say("reliability_lead"))]
            blocks.append(Plots(tuple(plots)))
    timed = {name: found for name, found in report.main.items() if "latency_p50_s" in found}
    if timed:
        names = ("latency_p50_s", "latency_p95_s")
        columns = {name: phrases.name_measure(report.define(name)) for name in names}
        rows_of = [(phrases.title_policy(name), found) for name, found in timed.items()]
        blocks.append(Heading(say("latency")))
        blocks.append(tabulate_metrics(rows_of, columns, head=say("policy"), count=names[0]))
    if blocks:
        yield Part("answers", say("answers"), tuple(blocks))


def _make_card(
    one: Prediction, said: str, pills: Sequence[tuple[str, str]], report: Report, phrases: Phrases
) -> Card:
    """Return the card of an item; ``pills`` follow the truth.

    Its title is the item's field ``task`` or, where it has none, the last turn of its prompt. What
    the answer's field ``MARKS`` tells is drawn on the picture and said beside it.
    """
    say = phrases.say
    task = one.fields.get("task") or report.prompts.turns.get(one.example_id)
    picture = _find_picture(one, report.folder)
    truth = [] if one.label is None else [say("truth_is", label=shorten(one.label, _MAX_ANSWER))]
    marks = one.fields.get(MARKS, {})
    remark = marks.get("remark", {}).get(phrases.language, "")
    where = say("where", cluster=one.cluster, item=one.example_id[:8])
    gone = say("picture_gone" if picture is None else "picture_broken")
    return Card(
        title=shorten(task, MAX_TEXT) if isinstance(task, str) else say("no_task"),
        pills=(*(("truth", text) for text in truth), *pills),
        said="; ".join(part for part in (said, where, remark) if part),
        picture=picture,
        gone=gone if one.pictures else "",
        alt=say("picture_of", item=one.example_id[:8]),
        regions=tuple(
            Region(kind, *sides, name=name)
            for kind in ("reference", "answer")
            for *sides, name in marks.get(kind, ())
        ),
    )


def _find_picture(one: Prediction, folder: Path) -> Path | None:
    """Return the first picture, named from the run's folder or from here; None if it is gone.

    Rows may come from anybody, and a report may go to anybody: a file outside the run is shown
    only if it is the very one that the run asked about.
    """
    for name in one.pictures[:1]:
        for path in (folder / name, Path(name)):
            try:
                is_ours = path.is_file() and (
                    is_below(path, folder) or digest_file(path) in one.picture_digests[:1]
                )
            except (OSError, ValueError):  # such as a name that is too long
                is_ours = False
            if is_ours:
                return path
    return None


def _show_changes(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield what training changed: items both policies answered, a few of them side by side.

    Where answers are scored, each measure before and after; what was not rewarded shows what the
    policy did for its reward.
    """
    say, policies = phrases.say, report.policies
    after = policies.choose_last(report.answers) if report.answers else ""
    before = policies.find(after).trained_from
    if before is None or before not in report.answers:
        return
    earlier = {one.example_id: one for one in report.answers[before]}
    later = {one.example_id: one for one in report.answers[after]}
    pairs = [(earlier[item], later[item]) for item in sorted(earlier.keys() & later.keys())]
    told = {"before": before, "after": after, "num": len(pairs), "split": report.split}
    blocks: list[Block]
    if report.headline is ACCURACY:
        kinds = {(False, True): "fixed", (True, False): "broken"}
        kinds |= {(True, True): "right_twice", (False, False): "wrong_twice"}
        found = {
            say(f"changes.{kind}"): [p for p in pairs if (p[0].is_correct, p[1].is_correct) == key]
            for key, kind in kinds.items()
        }
        rows = tuple(
            (name, format_count(len(own)), format_share(len(own) / len(pairs) if pairs else None))
            for name, own in found.items()
        )
        head = say("before_after"), "n", say("share")
        blocks = [Paragraph(say("changes_lead", **told, most=NUM_CHANGES)), Table("", head, rows)]
        for name, own in list(found.items())[:2]:
            if own:
                cards = (_make_pair(pair, report, phrases) for pair in own[:NUM_CHANGES])
                blocks += [Heading(name), Cards(tuple(cards))]
    else:
        trained = policies.find(after)
        seconds = report.steps.get(trained.step or "", {}).get("duration_s")
        told["samples"] = int(trained.budget.get("num_samples", 0))
        told["minutes"] = DASH if seconds is None else f"{seconds / 60:.1f}"
        log = report.logs.get(trained.step or "")
        paid = {REWARD.name, *(log.list_parts() if log else ())}
        both = [report.main.get(name, {}) for name in (before, after)]
        rows = tuple(
            (
                phrases.title_measure(one),
                *(show_metric(found.get(one.name)) for found in both),
                say("yes" if one.name in paid else "no"),
            )
            for one in report.measures
            if one.name in both[-1]
        )
        titles = map(phrases.title_policy, (before, after))
        head = (say("measure"), *titles, say("is_rewarded"))
        cards = tuple(_make_pair(pair, report, phrases) for pair in pairs[:NUM_CHANGES])
        lead = Paragraph(say("scored_lead", **told, most=NUM_CHANGES))
        blocks = [lead, Table("", head, rows), Cards(cards)]
    yield Part("changes", say("changes"), tuple(blocks))


def _make_pair(pair: tuple[Prediction, Prediction], report: Report, phrases: Phrases) -> Card:
    """Return the card of an item with its answers before and after training.

    An answer is good if it is right or, where answers are scored, if its headline is the best
    there is or better than the other's.
    """
    headline = report.headline
    said: list[str] = []
    pills: list[tuple[str, str]] = []
    for one, other in (pair, pair[::-1]):
        if headline is ACCURACY:
            is_good = one.is_correct
            known = phrases.say("invalid_answer") if one.predicted is None else one.predicted
            told = shorten(known, _MAX_ANSWER)
        else:
            sign, best = headline.sign, max(0, headline.sign)
            ours, theirs = (sign * x.scores.get(headline.name, 1 - best) for x in (one, other))
            is_good = ours == sign * best or ours > theirs
            told = phrases.join(
                f"{phrases.name_measure(measure)} {format_share(one.scores[measure.name])}"
                for measure in report.measures
                if measure.name in one.scores
            )
        pills.append(
            ("truth" if is_good else "wrong", f"{phrases.title_policy(one.policy)}: {told}")
        )
        text = shorten(one.text, MAX_TEXT)
        said.append(phrases.say("policy_said", policy=one.policy, text=text))
    return _make_card(pair[1], "; ".join(said), pills, report, phrases)


def _show_training(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield curves and values of every training, its time, and what its on-policy check measured.

    Raw values are drawn faintly, with a light moving mean over them; nothing else is smoothed.
    """
    if not report.logs:
        return
    say, blocks = phrases.say, list[Block]()
    if plots := tuple(_plot_trainings(report, phrases)):
        blocks.append(Plots(plots))
    rewarded = [name for name, log in report.logs.items() if log.is_rewarded]
    signals: list[Plot] = []
    for name, key in ((name, key) for name in rewarded for key in _SIGNALS):
        if series := report.logs[name].read(key):
            title = phrases.title("series", key)
            if len(rewarded) > 1:
                title = say("plot_of", key=title, step=name)
            caption = phrases.title("signal", key)
            line = Line("", series.steps, series.values, color_policy(name, report.policies))
            signals.append(
                plot_lines(
                    name_file("signal", name, key.replace("_", "-")),
                    title,
                    [line],
                    phrases,
                    form="percent" if is_share(key) else "plain",
                    caption="" if caption == key else caption,
                )
            )
    if signals:
        blocks.append(Fold(say("signals"), (Plots(tuple(signals)),)))
    blocks.append(Heading(say("values")))
    head = phrases.say_each("series", "last", "first", "lowest", "highest", "rows")
    times: list[tuple[str, ...]] = []
    for name, log in report.logs.items():
        rows: list[tuple[str, ...]] = []
        for series in log.list_series():
            values, title = series.values, title_series(series.key, phrases.language)
            if title.startswith(" "):
                title = say("reward_part", name=title.strip())
            ends = (values[-1], values[0], min(values), max(values))
            texts = (describe_value(series.key, value) for value in ends)
            rows.append((title, *texts, format_count(len(values))))
        told = {"policy": name, "num": len(rows), "steps": log.last_step}
        blocks.append(Fold(say("series_over_steps", **told), (Table("", head, tuple(rows)),)))
        seconds, total = log.read("step_s").values, report.steps.get(name, {}).get("duration_s")
        times.append(
            (
                phrases.title_policy(name),
                format_count(log.last_step),
                format_duration(median(seconds)) if seconds else DASH,
                DASH if total is None else format_duration(total),
                _describe_machine(report, name, phrases) or DASH,
            )
        )
    head = phrases.say_each("training", "num_steps", "time_per_step", "total_time", "machine")
    blocks += [Heading(say("speed")), Table("", head, tuple(times), kind="wrap")]
    if report.on_policy:
        blocks += [Heading(say("on_policy")), Paragraph(say("on_policy_lead"))]
    for step, check in report.on_policy.items():
        values = [f"{k} = {say('not_measured') if v is None else v}" for k, v in check.items()]
        blocks.append(Paragraph(say("on_policy_of", policy=step, values=values)))
    yield Part("training", say("training"), tuple(blocks))


def _describe_machine(report: Report, step: str, phrases: Phrases) -> str:
    """Return the machine that a step ended on; all that was recorded stands with the settings."""
    if report.manifest is None or "finished_at" not in report.steps.get(step, {}):
        return ""
    hardware: Mapping[str, Any] = find_manifests(report.folder, (step,))[0].get("hardware", {})
    return _show_hardware({name: hardware[name] for name in _MACHINE if name in hardware}, phrases)


def _show_hardware(hardware: Mapping[str, Any], phrases: Phrases) -> str:
    """Return what a machine is; empty where nothing was recorded."""
    shown: list[str] = []
    for name, value in hardware.items():
        known = phrases.join(map(str, value)) if isinstance(value, list) else str(value)
        shown.append(f"{phrases.title('hardware', name)} {known or phrases.say('none')}")
    return phrases.join(shown)


def _plot_trainings(report: Report, phrases: Phrases) -> Iterator[Plot]:
    """Yield learning curves, losses and the parts of rewards, as far as there are numbers."""
    say, policies = phrases.say, report.policies

    def draw(log: History, key: str, title: str, color: str, *, has_marks: bool = False) -> Line:
        series = log.read(key)
        return Line(title, series.steps, series.values, color, has_marks=has_marks)

    def explain(*lines: Line) -> str:
        window = choose_window(max(len(one.values) for one in lines))
        return say("smoothed", window=window) if window > 1 else say("not_smoothed")

    alone: list[Line] = []
    for name, log in report.logs.items():
        color, heldout = color_policy(name, policies), log.heldout
        lines: list[Line] = []
        if log.is_rewarded and log.read("reward"):
            lines.append(draw(log, "reward", say("mean_reward"), color))
        if log.is_rewarded and heldout:
            title = title_series(heldout.key, phrases.language)
            lines.append(draw(log, heldout.key, title, pick_color(1), has_marks=True))
        if lines:
            caption = explain(*lines[:1])
            if heldout:
                caption = f"{caption} {say('diamonds', measure=lines[-1].title)}"
            file, title = name_file("learning-curve", name), say("learning_curve", policy=name)
            yield plot_lines(file, title, lines, phrases, form="share", caption=caption)
        if not log.is_rewarded and log.read("loss"):
            loss = draw(log, "loss", phrases.title_policy(name), color)
            if not log.read(_HELDOUT):
                alone.append(loss)
                continue
            titles = phrases.title("series", "loss"), phrases.title("series", _HELDOUT)
            left = draw(log, "loss", titles[0], pick_color(0))
            right = draw(log, _HELDOUT, titles[1], pick_color(1), has_marks=True)
            caption = f"{explain(loss)} {say('diamonds', measure=titles[1])}"
            file, title = (
                name_file("loss-and-accuracy", name),
                say("loss_and_accuracy", policy=name),
            )
            yield plot_beside_share(file, title, left, right, phrases, caption=caption)
    if alone:
        title = say("supervised_loss")
        yield plot_lines("loss", title, alone, phrases, caption=explain(*alone))
    for name, log in report.logs.items():
        parts = log.list_parts() if log.is_rewarded else []
        lines = [draw(log, f"reward/{p}", p, pick_color(n)) for n, p in enumerate(parts)]
        if lines:
            file, title = name_file("reward-parts", name), say("reward_parts", policy=name)
            yield plot_lines(file, title, lines, phrases, form="share", caption=explain(*lines))


def _show_mistakes(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield the most confident mistakes of the last policy; nothing where none can be wrong."""
    if not have_truths(one for own in report.answers.values() for one in own):
        return
    say = phrases.say
    policy, items = list(report.answers.items())[-1]
    wrong = [one for one in items if not one.is_correct]
    cards: list[Card] = []
    for one in choose_mistakes(wrong):
        said = say("said", text=shorten(one.text, MAX_TEXT)) if one.text else say("said_nothing")
        if one.reason:
            said = f"{said} ({phrases.translate(one.reason)})"
        answer = say("invalid_answer")
        if one.predicted is not None:
            answer = say("answered", answer=shorten(one.predicted, _MAX_ANSWER))
        sure = "" if one.confidence is None else say("sure", share=one.confidence)
        cards.append(_make_card(one, said, [("wrong", f"{answer}{sure}")], report, phrases))
    told = {"num": len(wrong), "all": len(items), "shown": len(cards), "split": report.split}
    lead = Paragraph(say("some_wrong" if wrong else "none_wrong", policy=policy, **told))
    yield Part("mistakes", say("mistakes"), (lead, *([Cards(tuple(cards))] if cards else [])))


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


def _show_prompt(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield one prompt as the model sees it, where the run knows it."""
    asked, say = report.prompts, phrases.say
    if asked.shown:
        lead = say("prompt_lead", item=asked.item[:8], split=report.split)
        if asked.pictures:
            lead = f"{lead} {say('with_pictures', names=asked.pictures)}"
        yield Part("prompt", say("prompt"), (Paragraph(lead), Verbatim(asked.shown)))


def _show_data(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield what the data audit counted and found, and how often the test split was looked at."""
    say, audit, blocks = phrases.say, report.audit, list[Block]()
    if audit.get("num_rows") is not None:
        drops: Mapping[str, Any] = audit.get("drops") or {}
        told = {"num": audit["num_rows"], "dropped": drops.get("total", 0)}
        blocks.append(Paragraph(say("rows_read", **told)))
        counts = drops.get("counts", {}).items()
        rows = tuple((phrases.translate(name), format_count(num)) for name, num in counts)
        if rows:
            blocks.append(Table("", phrases.say_each("reason", "count"), rows, kind="wrap"))
    rows = tuple(
        (
            name,
            *(format_count(split[f"num_{kind}"]) for kind in ("examples", "clusters", "pictures")),
            phrases.join(f"{label} {format_count(num)}" for label, num in split["labels"].items()),
            ", ".join(
                str((split.get("lengths") or {}).get(k, DASH)) for k in ("median", "p99", "max")
            ),
        )
        for name, split in audit.get("splits", {}).items()
    )
    if rows:
        names = ("split", "examples", "clusters", "pictures", "truths", "tokens")
        blocks.append(Table("", phrases.say_each(*names), rows))
    found = tuple(
        (
            Cell(mark_code(one["name"]), say(f"level.{one['level']}")),
            phrases.translate(one["message"]),
            str(one.get("count", DASH)),
        )
        for one in audit.get("findings", ())
    )
    if found:
        table = Table("", phrases.say_each("finding", "seen", "count"), found, kind="wrap")
        blocks.append(Fold(say("num_findings", num=len(found)), (table,)))
    blocks += [Paragraph(say(one)) for one in report.looks]
    if blocks:
        yield Part("data", say("data"), tuple(blocks))


def _show_settings(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield how the run was started, with which versions and which settings."""
    manifest, say, unknown = report.manifest, phrases.say, phrases.say("unknown")
    if manifest is None:
        return
    packages = [f"{name} {number}" for name, number in manifest.get("packages", {}).items()]
    python = f"Python {manifest.get('python', unknown)}"
    origin = (
        (say("command"), mark_code(" ".join(manifest.get("command", ())))),
        (say("config_digest"), mark_code(manifest.get("config_digest", unknown))),
        (say("git_revision"), mark_code(manifest.get("git_revision") or unknown)),
        (say("machine"), _show_hardware(manifest.get("hardware", {}), phrases) or unknown),
        (say("versions"), phrases.join([python, *packages])),
        *((say("input", name=k), mark_code(v)) for k, v in manifest.get("inputs", {}).items()),
    )
    settings = tuple(
        (mark_code(name), say("not_set") if value is None else str(value))
        for name, value in flatten_settings(manifest.get("config", {}))
    )
    head = phrases.say_each("setting", "value")
    blocks = (
        Table("", head, origin, kind="wrap"),
        Paragraph(say("bit_exact", doctor="groupwise doctor --numerics")),
        Fold(say("num_settings", num=len(settings)), (Table("", head, settings, kind="wrap"),)),
    )
    yield Part("settings", say("settings_versions"), blocks)


def _show_next(report: Report, phrases: Phrases) -> Iterator[Part]:
    """Yield the commands to go on with, as far as they exist for the run's recipe.

    A policy that is not shown to be of use is not offered for use.
    """
    name = report.folder.resolve().name
    run = shlex.quote(name if not name.startswith("-") else f"./{name}")
    lines = [line.format(run=run) for verb, line in _COMMANDS.items() if verb in report.verbs]
    if not lines:
        return
    say = phrases.say
    blocks: tuple[Block, ...] = Paragraph(say("next_lead")), Verbatim("\n".join(lines))
    if doubt := find_doubt(report):
        said = say("next_doubt", policy=report.last, why=doubt)
        points = phrases.say_each("next_mistakes", "next_rows", "next_teach")
        blocks = Paragraph(said, ""), Bullets(points)
    yield Part("next", say("next"), blocks)
