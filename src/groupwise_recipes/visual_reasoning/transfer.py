"""What a report says of several test sets, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Policies
from groupwise.evaluation.report.page import Table
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases
from groupwise.evaluation.report.tables import Section, describe_metric
from groupwise_recipes.visual_reasoning.measuring import BOX_IOU

PHRASES = Path(__file__).with_name("phrases.yaml")
_MEASURES = ("accuracy", "pair_accuracy", "invalid_rate", BOX_IOU)


def make_source_sections(metrics: Sequence[Metric], policies: Policies) -> list[Section]:
    """Return the measures of each policy by test set, by language; nothing if there is one set.

    Args:
        metrics: of all policies on one split.
        policies: of the run.
    """
    known = {metric.name: describe_metric(metric) for metric in metrics}
    named = {name.partition("/")[2] for name in known}
    start = "accuracy[source="
    sources = sorted(name[len(start) : -1] for name in named if name.startswith(start))
    if len(sources) < 2:
        return []
    columns = [
        (measure, source)
        for measure in _MEASURES
        for source in sources
        if f"{measure}[source={source}]" in named
    ]
    shown = [one.name for one in policies.listed if f"{one.name}/accuracy" in known]
    return [
        _write(known, shown, columns, Phrases(name, policies=policies, own=PHRASES))
        for name in LANGUAGES
    ]


def _write(
    known: Mapping[str, str],
    policies: Sequence[str],
    columns: Sequence[tuple[str, str]],
    phrases: Phrases,
) -> Section:
    head = [phrases.say(f"{measure}_of", source=source) for measure, source in columns]
    rows = [
        (
            phrases.title_policy(policy),
            *(known.get(f"{policy}/{name}[source={source}]", DASH) for name, source in columns),
        )
        for policy in policies
    ]
    table = Table("", (*phrases.say_each("policy"), *head), tuple(rows), kind="headline")
    lead = phrases.say("sources_lead")
    return Section(phrases.say("test_sets"), lead, (table,), language=phrases.language)
