"""What is measured beside what every recipe measures: missed defects, false alarms, missions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.evaluation import Measure, Metric, Prediction, compute_metrics
from groupwise_recipes.group_qc.verdicts import (
    FALSE_ALARMS,
    MISSED,
    OBEYED,
    TWO_LINES,
    VerdictParser,
)

_WITHOUT_REPLIES = ("majority", "text_only", "picture_only")
MEASURES = (
    Measure(MISSED, "Missed defects", "漏检率", is_higher_better=False),
    Measure(FALSE_ALARMS, "False alarms", "误报率", is_higher_better=False),
    Measure(OBEYED, "Obeys orders", "听从描述中的命令", is_higher_better=False),
    Measure(TWO_LINES, "Two lines", "两行格式"),
)


def measure_missions(
    predictions: Sequence[Prediction], labels: Sequence[str], *, seed: int
) -> dict[str, list[Metric]]:
    """Return every metric of every policy by mission."""
    missions = sorted({str(one.fields["task_type"]) for one in predictions})
    found: dict[str, list[Metric]] = {}
    for mission in missions:
        rows = [one for one in predictions if one.fields["task_type"] == mission]
        found[mission] = compute_metrics(rows, labels=labels, seed=seed)
    return found


def score_defects(one: Prediction, parser: VerdictParser) -> Prediction:
    """Return the prediction with what inspectors ask first: was a defect missed?

    ``missed_defects`` is known for groups that fail, ``false_alarms`` for those that pass. A
    group without a verdict is counted against the policy in either: nobody was told of the defect,
    and a sound group has to be looked at.
    """
    name = MISSED if one.label == parser.words.fail_verdict else FALSE_ALARMS
    scores = {name: float(one.predicted != one.label)}
    if one.policy not in _WITHOUT_REPLIES:
        scores[TWO_LINES] = float(parser.judge(one.text).is_well_formed)
    return replace(one, scores={**one.scores, **scores})


def show_group(one: Prediction, root: Path | None) -> Prediction:
    """Return the prediction with what a reader needs to judge it: photos, and what was asked.

    Args:
        one: of a photo group.
        root: folder of the photos; None: they are not here.
    """
    summaries: Mapping[str, str] = one.fields["stage_a_summaries"]
    lines = "；".join(f"{key} {text}" for key, text in summaries.items())
    return replace(
        one,
        pictures=tuple(str(root / image) for image in one.fields["images"] if root is not None),
        fields={**one.fields, "task": f"{one.fields['task_type']}：{lines}"},
    )
