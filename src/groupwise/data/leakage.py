"""Checks for leakage between splits and duplicates within them, over examples of any task."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.core import DataError, Example, Finding, Picture, make_example, report_places
from groupwise.data.perceptual import Gallery, NearDuplicate, Sight

Splits = Mapping[str, Sequence[Example]]

_MAX_SHOWN = 100
"""Letters of a prompt, its last: many begin with the same instruction."""


def check_clusters(splits: Splits) -> list[Finding]:
    """Find clusters (sessions, orders) that stand in two splits."""
    owners = _find_owners(splits, lambda example: [example.cluster])
    return report_places(
        "error",
        "cluster_in_two_splits",
        "{count} clusters stand in more than one split; split by cluster.",
        _list_shared(owners),
    )


def check_examples(splits: Splits) -> list[Finding]:
    """Find examples that appear twice, and equal inputs with different labels."""
    owners = _find_owners(splits, lambda example: [example.id])
    repeated = [
        f"{split}: {identity}"
        for split, examples in splits.items()
        for identity in _find_repeated(example.id for example in examples)
    ]
    labels: dict[str, set[str]] = defaultdict(set)
    for example in _chain(splits):
        labels[_identify_input(example)].add(example.label or "")
    torn = {key for key, found in labels.items() if len(found) > 1}
    contradictions = sorted(
        {example.id for example in _chain(splits) if torn and _identify_input(example) in torn}
    )
    return [
        *report_places(
            "error",
            "example_in_two_splits",
            "{count} examples stand in more than one split.",
            _list_shared(owners),
        ),
        *report_places(
            "warning", "repeated_example", "{count} examples appear twice in a split.", repeated
        ),
        *report_places(
            "warning",
            "contradicting_labels",
            "{count} examples have the same input as another one but a different label.",
            contradictions,
        ),
    ]


def check_tasks(splits: Splits) -> list[Finding]:
    """Find task texts (``fields["task"]``) that stand in two splits."""
    owners = _find_owners(splits, _list_tasks)
    return report_places(
        "info",
        "task_in_two_splits",
        "{count} task texts stand in more than one split.",
        _list_shared(owners),
    )


def check_texts(splits: Splits) -> list[Finding]:
    """Find prompts without pictures that stand in two splits but for case, width and white space.

    Examples that are the same in all else, too, are left to ``check_examples``.
    """
    ids = _find_owners(splits, lambda example: [example.id])
    shared = {identity for identity, owners in ids.items() if len(owners) > 1}
    owners = _find_owners(
        splits, lambda e: [_fold_text(e)] if e.id not in shared and not e.pictures else []
    )
    return report_places(
        "warning",
        "text_in_two_splits",
        "{count} prompts stand in more than one split, but for case, width and white space.",
        [
            f"{text[-_MAX_SHOWN:]} in {' and '.join(found)}"
            for text, found in sorted(owners.items())
            if len(found) > 1
        ],
    )


def check_pictures(splits: Splits) -> list[Finding]:
    """Find pictures with the same bytes in two splits, or in two clusters of one split."""
    owners = _find_owners(splits, lambda example: [p.digest for p in example.pictures])
    names = {picture.digest: _name(picture) for e in _chain(splits) for picture in e.pictures}
    clusters: dict[str, set[str]] = defaultdict(set)
    for example in _chain(splits):
        for picture in example.pictures:
            clusters[picture.digest].add(example.cluster)
    shared = {digest for digest, found in owners.items() if len(found) > 1}
    repeated = sorted(
        f"{names[digest]} in clusters {', '.join(sorted(found)[:3])}"
        for digest, found in clusters.items()
        if len(found) > 1 and digest not in shared
    )
    places = sorted(f"{names[digest]} in {' and '.join(owners[digest])}" for digest in shared)
    return [
        *report_places(
            "error",
            "picture_in_two_splits",
            "{count} pictures stand with the same bytes in more than one split.",
            places,
        ),
        *report_places(
            "info",
            "picture_in_two_clusters",
            "{count} pictures stand with the same bytes in more than one cluster of a split.",
            repeated,
        ),
    ]


def find_seen(known: Iterable[Example], examples: Iterable[Example]) -> set[str]:
    """Return the ids of examples that show a picture, or ask a text, that known ones do.

    Pictures are the same by their bytes; texts, where there are no pictures, but for case, width
    and white space.
    """
    seen = {key for example in known for key in _list_contents(example)}
    return {example.id for example in examples if not seen.isdisjoint(_list_contents(example))}


def _list_contents(example: Example) -> list[str]:
    return [picture.digest for picture in example.pictures] or [_fold_text(example)]


@dataclass(frozen=True, slots=True)
class NearPicture:
    """A picture of a split that looks like one of a split before it.

    Attributes:
        split, digest, name: of the picture.
        like_split, like_name: of what it looks like.
        agreement: share of their structure that is the same, in [0, 1].
        is_mirrored: whether it is the mirror image that does.
    """

    split: str
    digest: str
    name: str
    like_split: str
    like_name: str
    agreement: float
    is_mirrored: bool


def find_near_pictures(splits: Splits, *, mirrored: bool = False) -> list[NearPicture]:
    """Find pictures of one split that look like one of a split before it, but for equal bytes.

    Args:
        splits: examples by split, first what trains and last what is measured.
        mirrored: whether mirror images count: left and right then do not matter to the task.

    Raises:
        DataError: if a picture can no longer be read.
    """
    earlier: dict[str, tuple[str, Picture]] = {}
    gallery, sights, found = Gallery(), list[Sight](), list[NearPicture]()
    for split, examples in splits.items():
        gallery.add(sights)
        own = {picture.digest: picture for example in examples for picture in example.pictures}
        fresh = [picture for digest, picture in own.items() if digest not in earlier]
        for picture in fresh:
            if not picture.path.is_file():
                raise DataError(f"cannot decode the picture {picture.path} (it is gone)")
        others = list(earlier.values())
        sights = [Sight(picture.path, split) for picture in fresh]
        for near in gallery.find(sights, mirrored=mirrored):
            like_split, like = others[near.other]
            found.append(_describe_near(near, split, fresh[near.index], like_split, like))
        earlier |= {picture.digest: (split, picture) for picture in fresh}
    return found


def _describe_near(
    near: NearDuplicate, split: str, picture: Picture, like_split: str, like: Picture
) -> NearPicture:
    return NearPicture(
        split,
        picture.digest,
        _name(picture),
        like_split,
        _name(like),
        round(near.agreement, 3),
        near.is_mirrored,
    )


def report_near_pictures(found: Sequence[NearPicture]) -> list[Finding]:
    """Return a warning about near duplicates, if there are any."""
    return report_places(
        "warning",
        "near_duplicate_pictures",
        "{count} pictures look like a picture of another split.",
        [
            f"{one.split}: {one.name} is like {one.like_split}: {one.like_name}"
            f"{' mirrored' * one.is_mirrored} ({one.agreement:.0%} of their structure)"
            for one in found
        ],
    )


def _chain(splits: Splits) -> Iterable[Example]:
    return (example for examples in splits.values() for example in examples)


def _find_owners(
    splits: Splits, list_keys: Callable[[Example], Sequence[str]]
) -> dict[str, list[str]]:
    """Return the splits each key stands in, in the order of the splits."""
    owners: dict[str, list[str]] = {}
    for split, examples in splits.items():
        for key in dict.fromkeys(key for example in examples for key in list_keys(example)):
            owners.setdefault(key, []).append(split)
    return owners


def _list_shared(owners: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted(f"{key} in {' and '.join(o)}" for key, o in owners.items() if len(o) > 1)


def _find_repeated(keys: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for key in keys:
        if key in seen:
            repeated[key] = None
        seen.add(key)
    return list(repeated)


def _list_tasks(example: Example) -> list[str]:
    task = example.fields.get("task")
    return [task] if isinstance(task, str) else []


def _identify_input(example: Example) -> str:
    return make_example(example.prompt, cluster="").id


def _fold_text(example: Example) -> str:
    text = "\n".join(message.text for message in example.prompt)
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _name(picture: Picture) -> str:
    return f"{picture.path.parent.name}/{picture.path.name}"
