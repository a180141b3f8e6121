"""Confusion: how often each truth got each answer, with a column for invalid answers.

Invalid answers are counted beside the labels and are never one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.evaluation.predictions import Prediction, check_labels
from groupwise.evaluation.untyped import confusion_matrix


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of truths (rows) by answers (columns).

    Attributes:
        labels: names of the L rows and of the first L columns.
        counts: L rows of L + 1 counts; the last column counts invalid answers.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def num_items(self) -> int:
        """All items, invalid answers included."""
        return sum(map(sum, self.counts))


def encode_answers(
    predictions: Sequence[Prediction], labels: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return truths and answers as indices into ``labels``; an invalid answer is ``len(labels)``.

    Raises:
        EvaluationError: if a label is outside the set.
    """
    check_labels(predictions, labels)
    index = {label: number for number, label in enumerate(labels)}
    answers = [len(labels) if p.predicted is None else index[p.predicted] for p in predictions]
    return [index[p.label] for p in predictions], answers


def count_confusion(predictions: Sequence[Prediction], labels: Sequence[str]) -> Confusion:
    """Count truths by answers; with no predictions all counts are 0.

    Raises:
        EvaluationError: if a label is outside the set.
    """
    truths, answers = encode_answers(predictions, labels)
    if not truths:
        return Confusion(tuple(labels), ((0,) * (len(labels) + 1),) * len(labels))
    table = confusion_matrix(truths, answers, labels=range(len(labels) + 1))
    return Confusion(tuple(labels), tuple(tuple(map(int, row)) for row in table[:-1]))
