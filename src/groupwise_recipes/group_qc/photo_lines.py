"""Stage A measured: do its lines say what the labels of photos say?

A wrong line is wrong for every judge behind it; Stage B's figures do not tell the two apart.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.evaluation.metrics import Metric, compute_metrics
from groupwise.evaluation.predictions import Language, Prediction
from groupwise.evaluation.report.page import Section, describe_metric, tabulate_metrics
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise_recipes.group_qc.verdicts import MISSED
from groupwise_recipes.group_qc.words import Words

_PHRASES = Path(__file__).with_name("phrases.yaml")
_POLICY = "stage_a"
_MOST_LABELS = 12
ALL, OTHERS = "", "…"
"""Names of rows that are no label's."""

Lines = Mapping[str, Sequence[Metric]]
"""Measures of photos: of all, of each frequent label, and of the others together."""


def measure_lines(
    predictions: Sequence[Prediction], labels: Mapping[str, str], words: Words, *, seed: int
) -> dict[str, list[Metric]]:
    """Return how often Stage A's lines agree with the labels of their photos.

    ``accuracy``: the line names the same things as the label, in whatever order.
    ``missed_defects``: of photos whose label has a negative remark, those whose line has none.

    Returns:
        The measures of ``ALL`` photos, then, if there are several labels, of the photos of each,
        the most frequent first; nothing where no photo has a label.
    """
    groups = {one.example_id: one for one in predictions}.values()
    rows = [
        _compare(group, photo, line, labels[photo], words)
        for group in groups
        for photo, line in zip(
            group.fields["images"], group.fields["stage_a_summaries"].values(), strict=True
        )
        if photo in labels
    ]
    if not rows:
        return {}
    counts = Counter(str(row.label) for row in rows)
    named = [label for label, _ in counts.most_common(_MOST_LABELS)] if len(counts) > 1 else []
    parts = {ALL: rows, **{label: [r for r in rows if r.label == label] for label in named}}
    if others := [row for row in rows if named and row.label not in named]:
        parts[OTHERS] = others
    return {name: compute_metrics(own, labels=(), seed=seed) for name, own in parts.items()}


def _compare(group: Prediction, photo: str, line: str, label: str, words: Words) -> Prediction:
    is_same = _list_things(line, words) == _list_things(label, words)
    missed = {MISSED: float(not words.is_negative(line))} if words.is_negative(label) else {}
    return Prediction(
        example_id=photo,
        cluster=group.cluster,
        split=group.split,
        policy=_POLICY,
        label=label,
        predicted=label if is_same else line,
        scores=missed,
    )


def _list_things(text: str, words: Words) -> list[str]:
    return sorted(" ".join(part.split()) for part in text.split(words.comma.strip()))


def make_line_sections(found: Lines) -> list[Section]:
    """Return what the report says of Stage A's lines, by language; nothing without labels."""
    return [_tell(found, language) for language in LANGUAGES] if found else []


def _tell(found: Lines, language: Language) -> Section:
    phrases = Phrases(language, own=_PHRASES)
    rows = {name: {one.measure: one for one in own} for name, own in found.items()}
    whole = rows[ALL]
    right, missed = whole["accuracy"], whole.get(MISSED)
    told = {"num": right.n, "value": describe_metric(right), "split": right.split}
    text = [phrases.say("lines_lead", **told)]
    if missed is None:
        text.append(phrases.say("lines_without_defects"))
    else:
        told = {"num": missed.n, "value": describe_metric(missed)}
        text.append(phrases.say("lines_missed", **told))
    titles = {ALL: phrases.say("lines_all"), OTHERS: phrases.say("lines_others")}
    table = tabulate_metrics(
        [(titles.get(name, name), own) for name, own in rows.items()],
        {"accuracy": phrases.say("lines_right"), MISSED: phrases.say("missed")},
        head=phrases.say("lines_label"),
    )
    join = "" if language == "zh" else " "
    return Section(phrases.say("lines"), join.join(text), (table,), language=language)
