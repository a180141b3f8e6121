"""Measures what the task text alone says about the label of pairs. It never opens a picture."""
# scikit-learn ships without types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core import DataError, derive_seed
from groupwise.data.pairs import Pair


@dataclass(frozen=True, slots=True)
class TextLeakage:
    """How well a text-only model does on pairs.

    Attributes:
        accuracy: of TF-IDF with logistic regression on the test pairs, in [0, 1].
        majority: share of the test pairs' most frequent label, in [0, 1].
        ceiling: accuracy that the best rule from task text to label has on the test pairs; 0.5
            means that no text-only model can do better than guessing there.
        num_train: training pairs.
        num_test: test pairs.
    """

    accuracy: float
    majority: float
    ceiling: float
    num_train: int
    num_test: int


def measure_text_leakage(
    train: Sequence[Pair], test: Sequence[Pair], *, seed: int = 0
) -> TextLeakage:
    """Train on the task texts and labels of ``train`` and report how it does on ``test``.

    Raises:
        DataError: if either side is empty or the training labels do not differ.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    if not test or len({pair.label for pair in train}) < 2:
        raise DataError(
            "text leakage cannot be measured",
            got=f"{len(train)} training and {len(test)} test pairs",
            expected="training pairs of both labels and at least one test pair",
        )
    model: Any = make_pipeline(
        make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
        ),
        LogisticRegression(max_iter=1000, random_state=derive_seed(seed, "text_leakage")),
    )
    model.fit([pair.task for pair in train], [pair.label for pair in train])
    predicted = model.predict([pair.task for pair in test])
    hits = sum(str(guess) == pair.label for guess, pair in zip(predicted, test, strict=True))
    labels = Counter(pair.label for pair in test)
    return TextLeakage(
        accuracy=hits / len(test),
        majority=max(labels.values()) / len(test),
        ceiling=_count_best(test) / len(test),
        num_train=len(train),
        num_test=len(test),
    )


def _count_best(pairs: Sequence[Pair]) -> int:
    """Return how many pairs the rule "the label this text has most often" gets right."""
    by_text: dict[str, Counter[str]] = {}
    for pair in pairs:
        by_text.setdefault(pair.task, Counter())[pair.label] += 1
    return sum(max(counts.values()) for counts in by_text.values())
