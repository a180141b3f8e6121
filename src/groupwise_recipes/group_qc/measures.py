"""What inspectors ask first: missed defects and false alarms, also by mission.

And what needs no Stage B: the majority, the summaries' words, the photos' thumbnails, all of it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import Example, make_example
from groupwise.evaluation.baselines import (
    predict_joint,
    predict_majority,
    predict_picture_only,
    predict_text_only,
)
from groupwise.evaluation.metrics import Metric, compute_metrics
from groupwise.evaluation.predictions import Measure, Policies, Prediction
from groupwise.evaluation.report.page import (
    Section,
    Table,
    describe_metric,
    tabulate_policies,
)
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise_recipes.group_qc.photos import find_picture
from groupwise_recipes.group_qc.verdicts import (
    FALSE_ALARMS,
    MISSED,
    OBEYED,
    TWO_LINES,
    VerdictParser,
)

if TYPE_CHECKING:
    from groupwise.run.probing import Probes

MEASURES = (
    Measure(MISSED, "Missed defects", "漏检率", is_higher_better=False),
    Measure(FALSE_ALARMS, "False alarms", "误报率", is_higher_better=False),
    Measure(OBEYED, "Obeys orders", "听从描述中的命令", is_higher_better=False),
    Measure(TWO_LINES, "Two lines", "两行格式"),
)
_WITHOUT_REPLIES = ("majority", "text_only", "picture_only", "joint")
_PER_VERDICT = ("precision", "recall", "f1")
_PHRASES = Path(__file__).with_name("phrases.yaml")


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
    """Return the prediction with what a reader needs to judge it: photos, and what was asked."""
    summaries: Mapping[str, str] = one.fields["stage_a_summaries"]
    lines = "；".join(f"{key} {text}" for key, text in summaries.items())
    photos = [find_picture(root / image) for image in one.fields["images"]] if root else []
    return replace(
        one,
        pictures=tuple(str(photo.path) for photo in photos),
        picture_digests=tuple(photo.digest for photo in photos),
        fields={**one.fields, "task": f"{one.fields['task_type']}：{lines}"},
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


def make_sections(
    metrics: Sequence[Metric],
    missions: Mapping[str, Sequence[Metric]],
    *,
    policies: Policies,
    verdicts: Sequence[str],
    say_stage_a: Callable[[Phrases], str],
) -> list[Section]:
    """Return what group_qc adds to the report, by language."""
    found: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=policies, own=_PHRASES)
        by_mission = (phrases.say("by_mission_lead"), say_stage_a(phrases))
        text = ("" if language == "zh" else " ").join(part for part in by_mission if part)
        tables = tuple(_tabulate_missions(missions, verdicts, phrases))
        found += [
            _write_missed(metrics, phrases),
            Section(phrases.say("by_mission"), text, tables, language=language),
        ]
    return found


def _list_columns(phrases: Phrases) -> dict[str, str]:
    """Return the title of each measure that has a column."""
    missed, false_alarms, obeyed, two_lines = map(phrases.name_measure, MEASURES)
    return {
        MISSED: missed,
        FALSE_ALARMS: false_alarms,
        "accuracy": phrases.say("accuracy"),
        "invalid_rate": phrases.say("no_verdict"),
        TWO_LINES: two_lines,
        OBEYED: obeyed,
    }


def _tabulate_missions(
    missions: Mapping[str, Sequence[Metric]], verdicts: Sequence[str], phrases: Phrases
) -> Iterator[Table]:
    by_verdict = {
        f"{measure}:{verdict}": phrases.say(f"{measure}_of", verdict=verdict)
        for verdict in verdicts
        for measure in _PER_VERDICT
    }
    for name, rows in missions.items():
        yield tabulate_policies(rows, _list_columns(phrases), phrases=phrases, title=name)
        title = phrases.say("by_verdict", mission=name)
        yield tabulate_policies(rows, by_verdict, phrases=phrases, title=title)


def _write_missed(metrics: Sequence[Metric], phrases: Phrases) -> Section:
    whole = (tabulate_policies(metrics, _list_columns(phrases), phrases=phrases),)
    title, text = phrases.say("missed"), _say_missed(metrics, phrases)
    return Section(title, text, whole, is_first=True, language=phrases.language)


def _say_missed(metrics: Sequence[Metric], phrases: Phrases) -> str:
    found = {metric.policy: metric for metric in metrics if metric.measure == MISSED}
    if "grpo" not in found:
        return phrases.say("missed_unknown")
    before = ""
    if "sft" in found:
        before = phrases.say("missed_before", value=describe_metric(found["sft"]))
    trained = describe_metric(found["grpo"])
    return phrases.say("missed_lead", trained=trained, before=before, num=found["grpo"].n)


def say_failed(failed: Mapping[str, int], phrases: Phrases) -> str:
    """Return how many groups of each mission have no lines from Stage A, if there are any."""
    if not failed:
        return ""
    counts = [phrases.say("groups_of", num=count, mission=name) for name, count in failed.items()]
    return phrases.say("stage_a_failed", groups=phrases.join(counts))


def say_given(source: Mapping[str, Any], phrases: Phrases) -> str:
    """Return that Stage A was not run, with what became of the lines that it gave elsewhere."""
    drops = source["drops"]
    reasons = [
        f"{phrases.translate(reason)} \u00d7 {count:,}" for reason, count in drops["counts"].items()
    ]
    dropped = ""
    if reasons:
        dropped = phrases.say("stage_a_dropped", num=drops["total"], reasons=phrases.join(reasons))
    used, whole = source["num_groups"], source["num_files"]
    return phrases.say("stage_a_given", used=used, all=whole, dropped=dropped)


def predict_baselines(
    train: Sequence[Example],
    test: Sequence[Example],
    *,
    labels: tuple[str, str],
    seed: int,
    open_probes: Callable[[Sequence[Example], Sequence[Example]], "Probes"],
) -> list[Prediction]:
    """Return the predictions of all baselines; the examples carry the groups' photos, if any."""
    blind_train, blind_test = ([_hide_photos(one) for one in rows] for rows in (train, test))
    has_photos = all(example.pictures for example in (*train, *test))
    shown = [_show_all(rows) for rows in (train, test)]
    probes = open_probes(*shown)
    found = [
        *predict_majority(blind_train, blind_test, split="test", seed=seed),
        *predict_text_only(blind_train, blind_test, split="test", seed=seed),
        *(_predict_photos(train, test, labels=labels, seed=seed) if has_photos else ()),
        *predict_joint(*shown, split="test", seed=seed, embed=probes, record=probes.record),
    ]
    fields = {example.id: dict(example.fields) for example in test}
    return [replace(one, fields=fields[one.example_id]) for one in found]


def _show_all(examples: Sequence[Example]) -> list[Example]:
    """Return mission, summaries and photos, without the texts that all prompts share."""
    return [_hide_photos(one).with_pictures(one.pictures) for one in examples]


def _predict_photos(
    train: Sequence[Example], test: Sequence[Example], *, labels: tuple[str, str], seed: int
) -> list[Prediction]:
    """Judge each photo from its thumbnail, as if it had its group's label; the mean decides.

    A random forest on 32 x 24 pixels, trained on single photos.
    """
    photos = [_list_photos(rows) for rows in (train, test)]
    by_group: dict[str, list[Prediction]] = defaultdict(list)
    for one in predict_picture_only(*photos, split="test", seed=seed):
        by_group[one.cluster].append(one)
    found: list[Prediction] = []
    for example in test:
        own = by_group[example.id]
        fail = sum((one.probabilities or {}).get(labels[1], 0.0) for one in own) / len(own)
        group = replace(
            own[0],
            example_id=example.id,
            cluster=example.cluster,
            predicted=labels[int(fail >= 0.5)],
            probabilities={labels[0]: 1 - fail, labels[1]: fail},
            pictures=tuple(str(picture.path) for picture in example.pictures),
            picture_digests=tuple(picture.digest for picture in example.pictures),
        )
        found.append(group)
    return found


def _list_photos(examples: Sequence[Example]) -> list[Example]:
    """Return one example per photo; its group is the example it is of."""
    return [
        make_example(
            example.with_pictures(()).prompt,
            cluster=example.id,
            pictures=[picture],
            label=example.label,
            fields={"number": number},
        )
        for example in examples
        for number, picture in enumerate(example.pictures)
    ]


def _hide_photos(example: Example) -> Example:
    """Return the mission and the summaries, without the texts that all prompts share."""
    texts = [example.fields["task_type"], *example.fields["stage_a_summaries"].values()]
    return replace(example.with_pictures(()), fields={"task": "\n".join(texts)})
