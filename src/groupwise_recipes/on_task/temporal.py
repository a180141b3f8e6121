"""Flips in the report: verdicts that stand alone between two equal ones of their session."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from groupwise.core import write_jsonl
from groupwise.data.splits import find_near_texts
from groupwise.evaluation.predictions import Policies, Prediction, RunPolicy, group_by_policy
from groupwise.evaluation.report.page import Section, Table
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases, format_share
from groupwise.serving import FLIP_WINDOW_S, flag_flips
from groupwise_recipes.on_task.prompt import TIME

_PHRASES = Path(__file__).with_name("phrases.yaml")


def describe_flips(
    predictions: Sequence[Prediction], folder: Path, policies: Sequence[RunPolicy]
) -> list[Section]:
    """Return what the report says of flips, by language; nothing where no row has a time."""
    timed = [one for one in predictions if TIME in one.fields]
    if not timed:
        return []
    answers = {name: rows for (_, name), rows in group_by_policy(timed).items()}
    known = Policies(tuple(policies))
    flips = {
        name: find_flips(answers[name], [one.predicted for one in answers[name]])
        for name in known.sort(answers)
    }
    write_jsonl(folder / "flips.jsonl", (_to_row(one) for rows in flips.values() for one in rows))
    items = max(answers.values(), key=len)
    of_labels = find_flips(items, [one.label for one in items])
    found: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=known, own=_PHRASES)
        labels = (phrases.say("flips_of_labels"), f"{len(items):,}", f"{len(of_labels):,}")
        rows = [(*labels, DASH, DASH)]
        rows += [
            (phrases.title_policy(name), *_count(answers[name], flips[name])) for name in flips
        ]
        head = ("flips_of", "flips_timed", "flips", "flips_wrong", "flips_others_wrong")
        lead = phrases.say("flips_lead", num=len(items), window=f"{FLIP_WINDOW_S:g}")
        table = Table("", phrases.say_each(*head), tuple(rows))
        found.append(Section(phrases.say("flips"), lead, (table,), language=language))
    return found


def find_flips(items: Sequence[Prediction], verdicts: Sequence[str | None]) -> list[Prediction]:
    """Return the items whose verdict stands alone in its session, on nearly the same task."""
    found: list[Prediction] = []
    for places in _list_streams(items):
        times_s = [float(items[place].fields[TIME]) for place in places]
        flags = flag_flips(times_s, [verdicts[place] for place in places])
        found += [items[place] for place, is_flip in zip(places, flags, strict=True) if is_flip]
    return found


def _list_streams(items: Sequence[Prediction]) -> list[list[int]]:
    """Return the places of the items of each session and task; nearly the same tasks are one."""
    sessions: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    for place, item in enumerate(items):
        streams, task = sessions[item.cluster], str(item.fields["task"])
        near = find_near_texts([task], [known for known, _ in streams])
        if near:
            streams[near[0][1]][1].append(place)
        else:
            streams.append((task, [place]))
    return [places for streams in sessions.values() for _, places in streams]


def _to_row(one: Prediction) -> dict[str, object]:
    return {
        "policy": one.policy,
        "example_id": one.example_id,
        "session": one.cluster,
        "task": one.fields["task"],
        TIME: one.fields[TIME],
        "verdict": one.predicted,
        "label": one.label,
    }


def _count(items: Sequence[Prediction], flips: Sequence[Prediction]) -> tuple[str, ...]:
    ids = {one.example_id for one in flips}
    others = [one for one in items if one.predicted is not None and one.example_id not in ids]
    return f"{len(items):,}", f"{len(flips):,}", _share_wrong(flips), _share_wrong(others)


def _share_wrong(items: Sequence[Prediction]) -> str:
    return format_share(sum(not one.is_correct for one in items) / len(items)) if items else DASH
