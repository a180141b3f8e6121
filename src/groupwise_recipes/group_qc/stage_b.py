"""The rows of Stage B: summaries as questions, and the warm-up's replies made by rule."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from groupwise.core import Example, derive_seed
from groupwise.data import split_by_shares
from groupwise.training import RowsOfEpoch, SftRow
from groupwise_drawn.cabinets import IRRELEVANT
from groupwise_recipes.group_qc.missions import MissionTable
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.prompts import make_group_example
from groupwise_recipes.group_qc.verdicts import FAIL, NEGATIVE, PASS, write_judgement

VERDICT_OF = {"pass": PASS, "fail": FAIL}
_COUNT = re.compile(r"×\d+")


def make_group_rows(
    groups: Sequence[PhotoGroup],
    summaries: Mapping[str, Mapping[str, str]],
    missions: MissionTable,
    *,
    root: Path,
) -> list[Example]:
    """Return the Stage B examples of the groups that have summaries.

    Args:
        groups: of one split.
        summaries: ``图片_i`` to text, by the key of a group.
        missions: the table that both stages use.
        root: folder of the photos.
    """
    return [
        make_group_example(
            group.mission,
            missions[group.mission].key_points,
            summaries[group.key],
            group=group.group_id,
            label=VERDICT_OF.get(group.label or ""),
            images=[path.relative_to(root).as_posix() for path in group.photos],
        )
        for group in groups
        if group.key in summaries
    ]


def write_row(example: Example) -> dict[str, Any]:
    """Return an example as other trainers read it: the group's facts and chat messages."""
    keys = ("group_id", "task_type", "group_label", "stage_a_summaries")
    messages = [{"role": message.role, "content": message.text} for message in example.prompt]
    return {**{key: example.fields[key] for key in keys}, "messages": messages}


def make_label_rows(examples: Sequence[Example]) -> RowsOfEpoch:
    """Return rows that teach the true verdict with a reason made by rule."""
    rows = [SftRow(example, write_target(example)) for example in examples]
    return lambda _: rows


def choose_few(examples: Sequence[Example], num_groups: int | None, *, seed: int) -> list[Example]:
    """Return so many of the examples; all of them if None.

    Verdicts come in turn, for each verdict summaries with and without negative remarks, and for
    each of these the missions: a group fails for what is seen or for what is not, and however few
    groups there are, they show both.
    """
    shuffled = list(examples)
    random.Random(derive_seed(seed, "few")).shuffle(shuffled)
    kinds = (
        lambda example: example.label,
        lambda example: bool(_list_negative(example.fields["stage_a_summaries"])),
        lambda example: example.fields["task_type"],
    )
    return _take_turns(shuffled, kinds)[:num_groups]


def draw_heldout(examples: Sequence[Example], num_groups: int, *, seed: int) -> list[Example]:
    """Return so many of the examples in their order, all of them if there are no more.

    Missions and labels have about the same shares in it as in the whole.
    """
    if num_groups >= len(examples):
        return list(examples)
    kinds = {one.id: f"{one.fields['task_type']}/{one.label}" for one in examples}
    share = num_groups / len(examples)
    shares = {"heldout": share, "rest": 1 - share}
    side = split_by_shares(kinds, shares=shares, seed=derive_seed(seed, "heldout"))
    return [example for example in examples if side[example.id] == "heldout"]


def _take_turns(
    examples: Sequence[Example], kinds: Sequence[Callable[[Example], object]]
) -> list[Example]:
    """Return the examples so that those of each first kind come in turn, ordered by the others."""
    if not kinds:
        return list(examples)
    by_kind: dict[object, list[Example]] = {}
    for example in examples:
        by_kind.setdefault(kinds[0](example), []).append(example)
    columns = [_take_turns(members, kinds[1:]) for members in by_kind.values()]
    return [one for turn in zip_longest(*columns) for one in turn if one is not None]


def write_target(example: Example) -> str:
    """Return the reply to teach: the label, and what the summaries say for it in short."""
    assert example.label is not None
    return write_judgement(example.label, write_reason(example.label, example.fields))


def write_reason(label: str, fields: Mapping[str, object]) -> str:
    """Return a reason by rule: a thing and its negative remarks, or that points are (un)clear."""
    summaries = fields["stage_a_summaries"]
    assert isinstance(summaries, Mapping)
    if label == PASS:
        return "要点均已确认"
    negative = _list_negative(summaries)
    if negative:
        name, *attributes = negative[0].split("/")
        remarks = [word for word in attributes if NEGATIVE.search(word)]
        return "：".join([name, *(["、".join(remarks)] if remarks else [])])
    if all(text == IRRELEVANT for text in summaries.values()):
        return "没有相关图片，要点无法确认"
    return "有要点无法确认"


def _list_negative(summaries: Mapping[str, str]) -> list[str]:
    """Return the parts of summaries with a negative remark, without counts."""
    parts = [_COUNT.sub("", part) for text in summaries.values() for part in text.split("，")]
    return [part for part in parts if NEGATIVE.search(part)]
