"""What a report says of reasoning, and of several test sets side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Policies, Prediction
from groupwise.evaluation.report.page import Section, Table, describe_metric
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases
from groupwise_recipes.visual_reasoning.config import AlignmentSettings
from groupwise_recipes.visual_reasoning.judging import FAULTS
from groupwise_recipes.visual_reasoning.measuring import ALIGNMENT, BOX_IOU, ENTAILMENT

PHRASES = Path(__file__).with_name("phrases.yaml")
NOT_RUN = "?"
_COLUMNS = (ALIGNMENT, "judged", "without_verdict", "no_answer", *FAULTS)


def make_sections(
    predictions: Sequence[Prediction],
    metrics: Sequence[Metric],
    *,
    policies: Policies,
    judge: AlignmentSettings,
) -> list[Section]:
    """Return what the report says of alignment, by language."""
    found: dict[str, list[Prediction]] = {}
    for one in predictions:
        found.setdefault(one.policy, []).append(one)
    names = [o.name for o in policies.listed if o.name in found or o.kind != "baseline"]
    silent = {one.name for one in policies.listed if ALIGNMENT in one.inapplicable}
    rows = {name: _list_cells(found.get(name, ()), name in silent) for name in names}
    known = {metric.name: describe_metric(metric) for metric in metrics}
    return [
        _write(rows, known, predictions, judge, Phrases(name, policies=policies, own=PHRASES))
        for name in LANGUAGES
    ]


def _list_cells(rows: Sequence[Prediction], is_silent: bool) -> dict[str, str]:
    """Return the cells of a policy but its shares, each a count or why there is none."""
    if not rows:
        return dict.fromkeys(_COLUMNS, NOT_RUN)
    if is_silent:
        return dict.fromkeys(_COLUMNS, DASH)
    said = [one.fields[ENTAILMENT] for one in rows if ENTAILMENT in one.fields]
    faults = Counter(one["type"] for one in said if one["aligns"] is False)
    num_judged = sum(one["aligns"] is not None for one in said)
    return {
        **({} if num_judged else {ALIGNMENT: "0 / 0"}),
        "judged": str(num_judged),
        "without_verdict": str(len(said) - num_judged),
        "no_answer": str(len(rows) - len(said)),
        **{name: str(faults[name]) for name in FAULTS},
    }


def _write(
    rows: Mapping[str, Mapping[str, str]],
    known: Mapping[str, str],
    predictions: Sequence[Prediction],
    judge: AlignmentSettings,
    phrases: Phrases,
) -> Section:
    head = ("policy", "accuracy_of_items", "aligned", *_COLUMNS[1:])
    table = Table(
        "",
        phrases.say_each(*head),
        tuple(
            (
                phrases.title_policy(name),
                known.get(f"{name}/accuracy", NOT_RUN),
                *(cells.get(one, known.get(f"{name}/{one}", DASH)) for one in _COLUMNS),
            )
            for name, cells in rows.items()
        ),
        kind="headline",
    )
    told = "by_rule" if judge.model is None else "by_model"
    lead = phrases.say(
        "alignment_lead",
        judge=phrases.say(told, model=judge.describe()),
        num=len({one.example_id for one in predictions}),
        split=predictions[0].split,
        dash=DASH,
    )
    return Section(phrases.say("alignment"), lead, (table,), language=phrases.language)


def make_source_sections(metrics: Sequence[Metric], policies: Policies) -> list[Section]:
    """Return the measures of each policy by test set, by language; nothing if there is one set."""
    known = {metric.name: describe_metric(metric) for metric in metrics}
    named = {name.partition("/")[2] for name in known}
    start = "accuracy[source="
    sources = sorted(name[len(start) : -1] for name in named if name.startswith(start))
    if len(sources) < 2:
        return []
    columns = [
        (measure, source)
        for measure in ("accuracy", "pair_accuracy", "invalid_rate", BOX_IOU)
        for source in sources
        if f"{measure}[source={source}]" in named
    ]
    shown = [one.name for one in policies.listed if f"{one.name}/accuracy" in known]
    found: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=policies, own=PHRASES)
        head = [phrases.say(f"{measure}_of", source=source) for measure, source in columns]
        names = {x: [f"{x}/{name}[source={source}]" for name, source in columns] for x in shown}
        rows = [
            (phrases.title_policy(policy), *(known.get(name, DASH) for name in own))
            for policy, own in names.items()
        ]
        table = Table("", (phrases.say("policy"), *head), tuple(rows), kind="headline")
        title, lead = phrases.say_each("test_sets", "sources_lead")
        found.append(Section(title, lead, (table,), language=language))
    return found
