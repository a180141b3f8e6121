"""Calibrating a judge: ask it what people decided already, measure, write files and the report.

Every number is a mean over items, so that an item judged in both orders counts once. Calls
without a verdict are left out of all but their own rate. What cannot be computed is left out. A
calibration that was interrupted goes on from the replies that are in its folder.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.core import (
    JudgeError,
    RunFolder,
    derive_seed,
    digest_file,
    digest_json,
    dump_config,
    seed_everything,
    write_json,
)
from groupwise.evaluation.metrics import Metric, Row, measure_labels
from groupwise.evaluation.predictions import Language, Prediction
from groupwise.evaluation.report.page import (
    Block,
    Notice,
    Page,
    Part,
    Table,
    tabulate_confusion,
    tabulate_metrics,
    write_page,
)
from groupwise.evaluation.report.phrases import LEVELS, Level, Phrases, Statement, mark_code
from groupwise.evaluation.statistics import assess_gains, bound_share
from groupwise.inference.opening import open_model
from groupwise.judge_calibration.verdicts import (
    SIDES,
    RatedItems,
    RecordedVerdicts,
    ReportProgress,
    VerdictRow,
    ask_items,
    check_labels,
    list_askings,
    write_verdicts,
)
from groupwise.judges import GenerativeJudge, JudgeConfig, LogitJudge, ReplyCache, build_judge
from groupwise.judges.model import OPTIONS

RECIPE = "judge calibrate"
HIGH_FLIP_RATE = 0.1


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What a calibration would ask."""

    judge: str  # its name
    num_items: int  # rated items
    subsets: Mapping[str, int]  # number of items by subset
    drops: Mapping[str, int]  # rows that are not used, by reason
    num_questions: int  # verdicts wanted: items, by orders
    num_calls: int  # requests to the model, if none is in the cache and none fails
    first_prompt: str | None  # the first question as the model would see it; None for a rule


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration that has ended; ``all`` is the name of the whole data."""

    judge: str  # its name
    labels: tuple[str, ...]  # what it could answer
    metrics: tuple[Metric, ...]  # by name (``JUDGE/agreement``) and subset (the metric's ``split``)
    report: Path  # the page
    causes: Mapping[str, int]  # why there was no verdict, by how often
    num_calls: int  # requests made now
    num_inconsistent_pairs: int  # with another verdict, or none, in the other order


def plan_calibration(config: JudgeConfig, rated: RatedItems) -> CalibrationPlan:
    """Check judge and data against each other and count what would be asked; asks nothing.

    Raises:
        JudgeError: if the prompt is not there, or an item lacks a text for it.
        EvaluationError: if the judge's labels are not those of the data.
    """
    prompt = config.find_prompt(are_pairs=rated.are_pairs)
    labels = config.list_labels(are_pairs=rated.are_pairs)
    check_labels(labels, rated)
    askings = list_askings(rated)
    needed = set(prompt.places if prompt is not None else ()) - {OPTIONS}
    lacking = {item.id: needed - set(question.texts) for item, _, question in askings}
    if prompt is not None and any(lacking.values()):
        raise JudgeError(
            f"{sum(map(bool, lacking.values()))} item(s) have no text for the prompt "
            f"{prompt.name!r}",
            got="no " + ", ".join(sorted(set[str]().union(*lacking.values()))),
            fix="give it in the data, or choose another prompt",
        )
    is_swapped = config.kind == "logit" and not rated.are_pairs
    calls_each = 0 if prompt is None else 2 if is_swapped and OPTIONS in prompt.places else 1
    texts, options = askings[0][2].texts, " / ".join(labels)
    return CalibrationPlan(
        judge=config.title,
        num_items=len(rated.items),
        subsets=dict(sorted(Counter(item.subset for item in rated.items).items())),
        drops=rated.drops.counts,
        num_questions=len(askings),
        num_calls=len(askings) * calls_each,
        first_prompt=prompt.render(texts, options=options) if prompt else None,
    )


def calibrate_judge(
    config: JudgeConfig,
    rated: RatedItems,
    source: Path,
    *,
    out: Path,
    report_progress: ReportProgress | None = None,
) -> Calibration:
    """Ask the judge about every item and measure it.

    Writes ``manifest.json``, ``verdicts.jsonl``, ``calibration.json`` and ``report.html`` into
    ``out``, and keeps the model's replies in ``out/cache``.

    Args:
        config: of the judge.
        rated: items of ``source``.
        source: where they are from; its digest goes into the manifest.
        out: folder; made if missing.
        report_progress: called with the numbers of finished and of all questions.

    Raises:
        JudgeError: if too many questions had no verdict; the rest is not asked.
        EvaluationError: if the judge's labels are not those of the data.
        RunError: if another process works in the folder, or it cannot be written.
    """
    plan_calibration(config, rated)
    seed, folder, told = derive_seed(0, RECIPE), RunFolder(out), {"judge": dump_config(config)}
    with folder.lock():
        inputs = {"data": digest_file(source)}
        folder.write_manifest(recipe=RECIPE, config=told, inputs=inputs, seed=seed)
        seed_everything(seed)
        model = None if config.kind == "rule" else open_model(config)
        cache = ReplyCache(out / "cache" / "replies-0.sqlite") if model else None
        judge = build_judge(config, model, are_pairs=rated.are_pairs, cache=cache)
        rows = ask_items(judge, rated, report_progress=report_progress)
        asked = judge.report() if isinstance(judge, GenerativeJudge | LogitJudge) else None
        facts: dict[str, Any] = {
            "judge": config.title,
            "version": judge.version,
            "describe": dict(judge.describe()),
            "kind_of_items": "pairs" if rated.are_pairs else "answers",
            "num_items": len(rated.items),
            "drops": rated.drops.to_json(),
            "asked": asked,
        }
        return _write_files(rows, facts, out, language=config.language)


def measure_recorded(recorded: RecordedVerdicts, source: Path, *, out: Path) -> Calibration:
    """Measure a judge by verdicts that it gave before; nothing is asked and no model is needed.

    Writes the same files as ``calibrate_judge``.

    Args:
        recorded: the verdicts of ``source``.
        source: where they are from; its name is the judge's, its digest the version.
        out: folder; made if missing.

    Raises:
        RunError: if another process works in the folder, or it cannot be written.
    """
    version, folder, told = digest_file(source), RunFolder(out), {"verdicts": source.name}
    with folder.lock():
        folder.write_manifest(recipe=RECIPE, config=told, inputs={"data": version}, seed=0)
        rows = recorded.rows
        facts: dict[str, Any] = {
            "judge": source.stem,
            "version": version,
            "describe": {"kind": "recorded", "file": source.name},
            "kind_of_items": "pairs" if any(row.order for row in rows) else "answers",
            "num_items": len({row.item_id for row in rows}),
            "drops": recorded.drops.to_json(),
            "asked": None,
        }
        return _write_files(rows, facts, out)


def _write_files(
    rows: Sequence[VerdictRow], facts: Mapping[str, Any], out: Path, *, language: Language = "en"
) -> Calibration:
    labels, metrics = measure_judge(rows, judge=facts["judge"])
    write_verdicts(out / "verdicts.jsonl", rows)
    causes = dict(Counter(sorted(row.cause for row in rows if row.verdict is None)).most_common())
    both = _list_both_orders(rows)
    num_inconsistent = sum(one.verdict != two.verdict for one, two in both)
    result: dict[str, Any] = {
        **facts,
        "labels": list(labels),
        "causes_of_no_verdict": causes,
        "num_pairs_in_both_orders": len(both),
        "num_inconsistent_pairs": num_inconsistent,
        "metrics": [asdict(metric) for metric in metrics],
    }
    write_json(out / "calibration.json", result)
    phrases = Phrases(language, own=Path(__file__).with_name("phrases.yaml"))
    report, _ = write_page(_lay_out(metrics, rows, result, phrases), out, name="report")
    num_calls = facts["asked"]["num_calls"] if facts["asked"] else 0
    return Calibration(facts["judge"], labels, metrics, report, causes, num_calls, num_inconsistent)


def measure_judge(
    rows: Sequence[VerdictRow], *, judge: str, seed: int = 0
) -> tuple[tuple[str, ...], tuple[Metric, ...]]:
    """Return a judge's labels, and what is measured on all items, every subset and level above it.

    Per subset: no_verdict_rate, agreement, kappa, right_in_both_orders, right_on_balance,
    flip_rate, first_position, agreement_unflipped, option_flip_rate, longer_judge, longer_people,
    length_bias (longer_judge minus longer_people), brier and ece.
    """
    labels = tuple(sorted({row.label for row in rows} | {r.verdict for r in rows if r.verdict}))
    subsets: dict[str, list[VerdictRow]] = {}
    for row in rows:
        parts = row.subset.split("/") if row.subset else []
        for depth in range(1, len(parts) + 1):
            subsets.setdefault("/".join(parts[:depth]), []).append(row)
    metrics: list[Metric] = []
    for subset, part in [("all", list(rows)), *sorted(subsets.items())]:
        digest = digest_json(sorted({(row.item_id, row.label) for row in part}))
        seed_here = derive_seed(seed, "judge", subset)
        found = [*_measure_verdicts(part, labels), *_measure_bias(part, labels, seed_here)]
        metrics += [
            Metric(f"{judge}/{name}", subset, value, min(low, value), max(high, value), n, digest)
            for name, value, (low, high), n in found  # rounding or draws may leave a value out
        ]
    return labels, tuple(metrics)


Scored = Iterable[tuple[VerdictRow, float]]
"""Verdicts, each with what it counts for."""


def _list_both_orders(rows: Iterable[VerdictRow]) -> list[tuple[VerdictRow, VerdictRow]]:
    """Return the verdicts on each pair that was put in both orders, whether there is one or not."""
    asked = {(row.item_id, row.order): row for row in rows}
    swapped = [(row, asked.get((row.item_id, "ba"))) for row in asked.values()]
    return [(one, two) for one, two in swapped if one.order == "ab" and two is not None]


def _average(scored: Scored) -> tuple[list[float], list[str]]:
    """Return the mean of each item, sorted by its id, and its cluster."""
    found: dict[str, tuple[str, list[float]]] = {}
    for row, score in scored:
        found.setdefault(row.item_id, (row.cluster, []))[1].append(score)
    items = [found[name] for name in sorted(found)]
    return [float(np.mean(scores)) for _, scores in items], [cluster for cluster, _ in items]


def _count_independent(clusters: Iterable[str]) -> float:
    """Return how many independent items these are worth if items of a cluster are all alike.

    Source: Kish 1965, "Survey Sampling": effective sample size (sum m)^2 / sum m^2 of clusters
    of m items, the design effect at an intraclass correlation of 1.
    """
    sizes = Counter(clusters).values()
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def _share(name: str, scored: Scored) -> Iterator[Row]:
    """Yield the mean over items of an item's mean score, in [0, 1], with Wilson's interval.

    Such a score has at most the variance of a hit or miss: counting items instead of calls
    makes the interval rather too wide than too narrow.
    """
    means, clusters = _average(scored)
    if means:
        value, size = float(np.mean(means)), _count_independent(clusters)
        yield name, value, bound_share(value * size, size), len(means)


def _measure_verdicts(rows: Sequence[VerdictRow], labels: Sequence[str]) -> Iterator[Row]:
    """Yield shares of verdicts, and Cohen's kappa of people and judge.

    Kappa is left out where both always say the same word; its table counts every item once, and is
    scaled to independent items for the interval. No verdict is not right over both orders of a
    pair. ``right_on_balance`` counts a pair that is right in more orders than wrong, so one right
    verdict and a tie are enough. What the order does is of pairs with a verdict in both.

    Source: ``right_on_balance`` is the accuracy of ScalerLab/JudgeBench, ``utils/metrics.py``;
    kappa is of Cohen 1960 and Fleiss, Cohen & Everitt 1969, through statsmodels ``cohens_kappa``.
    """
    given = [row for row in rows if row.verdict is not None]
    yield from _share("no_verdict_rate", ((row, row.verdict is None) for row in rows))
    yield from _share("agreement", ((row, row.agrees) for row in given))
    times = Counter(row.item_id for row in given)
    table = np.zeros((len(labels), len(labels)))
    for row in sorted(given, key=lambda row: row.item_id):
        table[labels.index(row.label), labels.index(str(row.verdict))] += 1 / times[row.item_id]
    by_chance = table.sum(axis=1) @ table.sum(axis=0) / max(len(times), 1) ** 2
    if times and not np.isclose(by_chance, 1):
        measure: Any = import_module("statsmodels.stats.inter_rater").cohens_kappa
        clusters = {row.item_id: row.cluster for row in reversed(given)}.values()
        with np.errstate(invalid="ignore"):
            value = float(measure(table).kappa)
            found = measure(table * (_count_independent(clusters) / len(times)))
        ends = [float(end) for end in np.nan_to_num([found.kappa_low, found.kappa_upp], nan=value)]
        yield "kappa", value, (max(-1.0, ends[0]), min(1.0, ends[1])), len(times)

    pairs = _list_both_orders(rows)
    right = ((one, one.agrees and two.agrees) for one, two in pairs)
    yield from _share("right_in_both_orders", right)
    balance = ((one, sum(r.agrees - r.contradicts for r in (one, two)) > 0) for one, two in pairs)
    yield from _share("right_on_balance", balance)
    twice = [
        (row, one.verdict != two.verdict)
        for one, two in _list_both_orders(given)
        for row in (one, two)
    ]
    yield from _share("flip_rate", twice)
    chosen = [row for row, _ in twice if row.verdict in SIDES]
    yield from _share("first_position", ((row, row.verdict == row.order[0]) for row in chosen))
    steady = [row for row, is_flipped in twice if not is_flipped]
    yield from _share("agreement_unflipped", ((row, row.agrees) for row in steady))
    options = [(row, row.is_option_flipped) for row in given if row.is_option_flipped is not None]
    yield from _share("option_flip_rate", options)


def _measure_bias(rows: Sequence[VerdictRow], labels: Sequence[str], seed: int) -> Iterator[Row]:
    """Yield shares of longer answers, their gap by item, Brier score and calibration error.

    Intervals of the last two are by whole clusters. A judge that only names labels gives each
    verdict the confidence 1, which says nothing about being right: it is left out. What the
    confidence leaves goes to the other labels in equal parts.
    """
    unlike = [row for row in rows if row.verdict in SIDES and row.longer is not None]
    yield from _share("longer_judge", ((row, row.verdict == row.longer) for row in unlike))
    yield from _share("longer_people", ((row, row.label == row.longer) for row in unlike))
    gaps, clusters = _average(
        (row, (row.verdict == row.longer) - (row.label == row.longer)) for row in unlike
    )
    if gaps:
        array = np.asarray(gaps, dtype=np.float64)
        found = assess_gains(clusters, array, is_binary=False, seed=seed, num_resamples=1999)
        yield "length_bias", float(array.mean()), (found.low, found.high), len(gaps)

    known = [row for row in rows if row.verdict is not None and row.confidence is not None]
    if len(labels) < 2 or all(row.confidence == 1 for row in known):
        return
    predictions: list[Prediction] = []
    for row in known:
        sure = row.confidence or 0.0
        rest = (1 - sure) / (len(labels) - 1)
        shares = {label: sure if label == row.verdict else rest for label in labels}
        predictions.append(replace(_make_prediction(row), probabilities=shares))
    num_items = len({row.item_id for row in known})
    for name, value, ends, _ in measure_labels(predictions, labels, seed=seed):
        if name in ("brier", "ece"):
            yield name, value, ends, num_items


def _make_prediction(row: VerdictRow) -> Prediction:
    """Return a verdict as a prediction of what people say."""
    return Prediction(
        example_id=row.item_id,
        cluster=row.cluster,
        split="rated",
        policy="judge",
        label=row.label,
        predicted=row.verdict,
        reason=row.cause,
    )


def list_notices(metrics: Sequence[Metric], drops: Mapping[str, Any]) -> list[Statement]:
    """Return what a reader must know before the numbers of the whole data, the gravest first."""
    found = {m.measure: m for m in metrics if m.split == "all"}
    kappa, rate = found.get("kappa"), found.get("no_verdict_rate")
    flips, bias = found.get("flip_rate"), found.get("length_bias")
    notices: list[Statement] = []

    def note(kind: str, level: Level, **values: object) -> None:
        notices.append(Statement(f"judge.{kind}", values, level, "calibration.json"))

    if kappa is not None and kappa.low <= 0:
        kind = "worse_than_chance" if kappa.high < 0 else "not_above_chance"
        note(kind, "error", value=kappa.value, low=kappa.low, high=kappa.high)
    if rate is not None and rate.value > 0:
        note("no_verdict", "warning", rate=rate.value)
    if flips is not None and flips.value > HIGH_FLIP_RATE:
        note("flips", "warning", rate=flips.value)
    if bias is not None and (bias.low > 0 or bias.high < 0):
        kind = "prefers_longer" if bias.value > 0 else "prefers_shorter"
        note(kind, "warning", value=bias.value)
    if "agreement" not in found:
        note("silent", "error")
    if drops["total"]:
        reasons = ", ".join(f"{number} {name}" for name, number in drops["counts"].items())
        note("drops", "info", num=drops["total"], reasons=reasons)
    return sorted(notices, key=lambda notice: LEVELS.index(notice.level))


_PARTS = {
    "agreement": "agreement kappa right_in_both_orders right_on_balance agreement_unflipped "
    "no_verdict_rate",
    "position": "flip_rate first_position option_flip_rate",
    "length": "longer_judge longer_people length_bias",
    "confidence": "ece brier",
}
"""The measures of each part of the page, by its name in the vocabulary."""


def _lay_out(
    metrics: Sequence[Metric],
    rows: Sequence[VerdictRow],
    facts: Mapping[str, Any],
    phrases: Phrases,
) -> Page:
    """Return the page: tables of the measures that there are, by subset, what was said, and facts.

    It computes nothing and changes no number.
    """
    by_subset: dict[str, dict[str, Metric]] = {}
    for metric in metrics:
        by_subset.setdefault(metric.split, {})[metric.measure] = metric
    known = {name for found in by_subset.values() for name in found}
    parts: list[Part] = []
    for name, names in _PARTS.items():
        columns = {
            one: phrases.title("judge_measures", one) for one in names.split() if one in known
        }
        if columns:
            table = tabulate_metrics(by_subset.items(), columns, head=phrases.say("subset"))
            lead = Block(phrases.say(f"{name}_lead"))
            parts.append(Part(name, phrases.say(f"{name}_title"), (lead, table)))
    if len(facts["labels"]) > 1:
        table = tabulate_confusion("", map(_make_prediction, rows), facts["labels"], phrases)
        parts.append(Part("confusion", phrases.say("people_and_judge"), (table,)))
    told = [(mark_code(name), str(value)) for name, value in facts["describe"].items()]
    told.append((phrases.say("items_digest"), mark_code(facts["metrics"][0]["split_digest"])))
    if facts["num_pairs_in_both_orders"]:
        part, of = facts["num_inconsistent_pairs"], facts["num_pairs_in_both_orders"]
        told.append((phrases.say("inconsistent"), phrases.say("of", part=part, all=of)))
    for name, number in facts["causes_of_no_verdict"].items():
        cause = phrases.say("cause", name=phrases.translate(name))
        told.append((cause, phrases.say("num_calls", num=number)))
    table = Table("", phrases.say_each("setting", "value"), tuple(told), kind="wrap")
    parts.append(Part("facts", phrases.say("measured"), (table,)))
    judged = "judged_pairs" if facts["kind_of_items"] == "pairs" else "judged_answers"
    version = f"{phrases.say('version')} {mark_code(facts['version'][:8])}"
    notices = list_notices(metrics, facts["drops"])
    said = phrases.say("judge_footer", file="calibration.json", verdicts="verdicts.jsonl")
    return Page(
        title=phrases.say("judge_title", judge=facts["judge"]),
        lead=f"{phrases.say(judged, num=facts['num_items'])} · {version}",
        language=phrases.language,
        notices=tuple(Notice(one.level, phrases.say(one), one.source) for one in notices),
        checked=phrases.say("judge_checked"),
        parts=tuple(parts),
        footer=(Block(said, "plain"),),
    )
