"""Predictions: one row per item and policy, the source of every number in a report.

Rows are read and checked here. Nothing is counted or averaged here.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError, digest_json, read_jsonl, write_jsonl
from groupwise.evaluation.measures import is_builtin

_SUM_TOLERANCE = 1e-3
_LATER_KEYS = {"scores", "samples", "pair", "picture_digests"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one policy answered to one item.

    Attributes:
        example_id: content id of the item.
        cluster: what statistics are clustered by (a session).
        split: the name of the split the item is in.
        policy: who answered, a name without ``/``.
        label: the truth; None where nothing but measures of its own say what an answer is worth.
        predicted: the label answered; None = the answer was invalid, which is never a class.
        reason: why the answer was invalid; empty for a valid one.
        text: the answer as it was given.
        probabilities: probability by label, summing to 1 (a label left out has 0), or None where
            not known.
        latency_s: seconds for this answer, or None where not measured.
        pictures: paths of the item's pictures.
        picture_digests: of the same; empty where not known. A picture outside the run is shown only
            where its file still has its digest.
        fields: the item's JSON values that reports show or slice by.
        scores: further measures of this answer by name, each in [0, 1].
        samples: whether each of several sampled answers was right; empty where none were drawn.
        pair: id of the minimally contrastive pair the item is one half of; empty for none.

    Raises:
        EvaluationError: if the row contradicts itself.
    """

    example_id: str
    cluster: str
    split: str
    policy: str
    label: str | None
    predicted: str | None
    reason: str = ""
    text: str = ""
    probabilities: Mapping[str, float] | None = None
    latency_s: float | None = None
    pictures: tuple[str, ...] = ()
    picture_digests: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    samples: tuple[bool, ...] = ()
    pair: str = ""

    def __post_init__(self) -> None:
        """Refuse rows that would give a wrong number later."""
        where = f"the prediction of {self.policy} for {self.example_id}"
        if not self.policy or "/" in self.policy:
            raise EvaluationError(
                "a policy's name is wrong", got=repr(self.policy), expected="a name without '/'"
            )
        if (self.predicted is None) != bool(self.reason):
            raise EvaluationError(
                f"{where} contradicts itself",
                got=f"predicted {self.predicted!r} with reason {self.reason!r}",
                expected="a reason for an invalid answer and none for a valid one",
            )
        if self.probabilities is not None:
            _check_probabilities(self.probabilities, where)
        if self.latency_s is not None and not 0 <= self.latency_s < math.inf:
            raise EvaluationError(f"{where} has a wrong latency", got=f"{self.latency_s} s")
        _check_scores(self.scores, where)
        if not {type(sample) for sample in self.samples} <= {bool}:
            raise EvaluationError(
                f"{where} has wrong samples", got=list(self.samples), expected="true or false each"
            )

    @property
    def is_correct(self) -> bool:
        """Whether the answered label is the truth; an invalid answer is wrong."""
        return self.label is not None and self.predicted == self.label

    @property
    def confidence(self) -> float | None:
        """Probability of the answered label; None where invalid or not known."""
        if self.probabilities is None or self.predicted is None:
            return None
        return self.probabilities.get(self.predicted)


_KEYS = {item.name for item in fields(Prediction)}


def _check_probabilities(probabilities: Mapping[str, float], where: str) -> None:
    values = list(probabilities.values())
    if not all(0 <= value <= 1 for value in values) or abs(sum(values) - 1) > _SUM_TOLERANCE:
        raise EvaluationError(
            f"{where} has wrong probabilities",
            got=dict(probabilities),
            expected="values in [0, 1] that sum to 1",
        )


def _check_scores(scores: Mapping[str, float], where: str) -> None:
    for name, value in scores.items():
        if not name or is_builtin(name):
            raise EvaluationError(
                f"{where} has a score under a name that is taken", got=repr(name), fix="rename it"
            )
        if not 0 <= value <= 1:
            raise EvaluationError(
                f"{where} has a wrong score", got=f"{name} = {value}", expected="a value in [0, 1]"
            )


MARKS = "marks"
"""Field of predictions: what reports draw on the first picture and say beside it.

``reference`` and ``answer`` are lists of ``[left, top, right, bottom, name]``, in shares of the
picture's sides, and ``remark`` has a sentence by language; each may be missing.
"""


NEAR_DUPLICATE = "near_duplicate"
"""Field of items: ``yes`` where a picture looks like one of another split, ``no`` elsewhere."""


SEEN = "seen_in_training"
"""Field of items of other data: ``yes`` where training showed the same text or picture."""


def mark_items(
    predictions: Sequence[Prediction], ids: Collection[str], field: str
) -> tuple[list[Prediction], tuple[str, ...]]:
    """Return predictions whose ``field`` says which items are meant, and the field to slice by.

    Args:
        predictions: of any policies.
        ids: of the examples that are meant; without any, nothing is marked.
        field: its name.
    """
    if not ids:
        return list(predictions), ()
    marked = [
        replace(one, fields={**one.fields, field: "yes" if one.example_id in ids else "no"})
        for one in predictions
    ]
    return marked, (field,)


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Replace ``path`` by one JSON row per prediction."""
    write_jsonl(path, (asdict(prediction) for prediction in predictions))


def read_predictions(path: Path) -> list[Prediction]:
    """Return the predictions of a file.

    Raises:
        DataError: if the file is missing or a line is not a JSON object.
        EvaluationError: if a row has other keys than a Prediction or contradicts itself.
    """
    return [_parse_row(row, f"{path} row {n}") for n, row in enumerate(read_jsonl(path), start=1)]


def _parse_row(row: dict[str, Any], where: str) -> Prediction:
    if not _KEYS - _LATER_KEYS <= set(row) <= _KEYS:
        raise EvaluationError(
            f"{where} is not a prediction",
            got=f"the keys {sorted(row)}",
            expected=f"the keys {sorted(_KEYS)}",
        )
    if not all(isinstance(name, str) for name in row["pictures"]):
        raise EvaluationError(f"{where} has pictures that are no paths", got=row["pictures"])
    row["pictures"] = tuple(row["pictures"])
    row["samples"] = tuple(row.get("samples", ()))
    row["picture_digests"] = tuple(row.get("picture_digests", ()))
    return Prediction(**row)


def group_by_policy(predictions: Iterable[Prediction]) -> dict[tuple[str, str], list[Prediction]]:
    """Return predictions by (split, policy), splits by name and policies as they come.

    Items are sorted by their id, so that the order of rows never changes a result.

    Raises:
        EvaluationError: if a policy answered one item of a split twice.
    """
    found: dict[tuple[str, str], dict[str, Prediction]] = {}
    for item in predictions:
        items = found.setdefault((item.split, item.policy), {})
        if item.example_id in items:
            raise EvaluationError(
                f"{item.policy} has two predictions for item {item.example_id} of {item.split}",
                fix="write each item once per policy and split",
            )
        items[item.example_id] = item
    keys = sorted(found, key=lambda key: key[0])
    return {key: [found[key][name] for name in sorted(found[key])] for key in keys}


def digest_items(predictions: Iterable[Prediction]) -> str:
    """Return the digest of a split: its sorted item ids with their labels."""
    return digest_json(sorted([item.example_id, item.label] for item in predictions))


def have_truths(predictions: Iterable[Prediction]) -> bool:
    """Return whether answers can be right or wrong: some item has a truth."""
    return any(item.label is not None for item in predictions)


def find_constant(items: Sequence[Prediction]) -> str | None:
    """Return the one answer that a policy gave to all of two or more items, None if there is none.

    Invalid answers are no answer: a policy that gives none is told by its invalid rate.
    """
    answers = {item.predicted for item in items}
    return answers.pop() if len(items) > 1 and len(answers) == 1 else None


def check_labels(predictions: Iterable[Prediction], labels: Sequence[str]) -> None:
    """Refuse labels outside the set.

    Raises:
        EvaluationError: if labels repeat, or a truth, an answer or the probabilities' keys
            are not among them.
    """
    allowed = set(labels)
    if len(allowed) != len(labels) or len(labels) < 2:
        raise EvaluationError("wrong labels", got=list(labels), expected="two or more, each once")
    for item in predictions:
        given = {one for one in (item.label, item.predicted) if one is not None}
        if not given <= allowed:
            raise EvaluationError(
                f"{item.policy} has a label outside the set for item {item.example_id}",
                got=sorted(given - allowed),
                expected=list(labels),
            )
        if item.probabilities is not None and not set(item.probabilities) <= allowed:
            raise EvaluationError(
                f"{item.policy} has probabilities of other labels for item {item.example_id}",
                got=sorted(item.probabilities),
                expected=list(labels),
            )
