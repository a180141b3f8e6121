"""Conditions of recordings and evaluations, and in what two of them differ.

A selector that was trained on one recording says nothing about another: other lists, pools, test
items, prompts or decoding make two results unlike, and the recipe compares what stands here first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ConfigDict, with_config

from groupwise.core import digest_json

ItemId = int | str
"""Id of a train item or of a query's parts: numbers in published files, else texts."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Conditions:
    """What lists are recorded or evaluated under; digests, None where not known.

    Attributes:
        sampler: of how pools are drawn (``Pools.digest``): equal in training and at inference.
        prompt: of the few-shot form.
        decoding: of the answerer's settings.
        answerer: of its weights, or the name of the served model.
        correct_above: an answer is correct if its accuracy is greater; None: as recorded.
    """

    sampler: str | None = None
    prompt: str | None = None
    decoding: str | None = None
    answerer: str | None = None
    correct_above: float | None = 0.0

    @property
    def correct(self) -> str:
        """What correct means, in words."""
        above = self.correct_above
        return "as recorded" if above is None else f"accuracy > {above:g}"

    def describe(self) -> dict[str, str | None]:
        """Return the digests by the names of ``COMPARED``.

        An evaluation adds ``items`` (``digest_items`` of its test items) and ``data``: the digest
        of the recording that its selector was trained on.
        """
        names = ("sampler", "prompt", "decoding", "answerer")
        return {name: getattr(self, name) for name in names} | {"correct": self.correct}


COMPARED = {
    "data": "recorded candidates",
    "items": "queries",
    "pools": "pools",
    "sampler": "sampler of the pools",
    "prompt": "prompt",
    "decoding": "decoding",
    "answerer": "answerer",
    "correct": "definition of correct",
}
"""What two recordings, two evaluations or one of each may differ in, with its words."""

SAME_IN_EVALUATION = ("sampler", "prompt", "decoding", "answerer", "correct")
"""What a selector's recording and its evaluation must have in common."""


def digest_items(ids: Iterable[ItemId]) -> str:
    """Return the digest of a set of queries or test items; their order does not count."""
    return digest_json(sorted(map(str, ids)))


def find_differences(
    ours: Mapping[str, str | None],
    theirs: Mapping[str, str | None],
    *,
    names: Sequence[str] = tuple(COMPARED),
) -> dict[str, str]:
    """Return a sentence on each thing in which two recordings or evaluations differ, by name.

    What is not known of one of them differs. What is not known of both does so too, unless both
    are the same recording.
    """
    is_same_data = ours.get("data") is not None and ours.get("data") == theirs.get("data")
    found: dict[str, str] = {}
    for name in names:
        our, their = ours.get(name), theirs.get(name)
        if our is None and their is None and not is_same_data:
            found[name] = f"The {COMPARED[name]} cannot be compared: not known of either."
        elif our != their:
            found[name] = f"Different {COMPARED[name]}: {_name(our)} and {_name(their)}."
    return found


def _name(value: str | None) -> str:
    return "not known" if value is None else value
