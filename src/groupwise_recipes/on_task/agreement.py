"""Whether picture and text agree: candidates of the joint baseline.

Rows say what a screen shows and what a task is about. These models learn both from the training
examples, each from its own half, and answer by whether the two are the same.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from groupwise.core import Example
from groupwise.evaluation.baselines import (
    Features,
    Learn,
    Names,
    Predict,
    count_words,
    learn_line,
    learn_trees,
    take_rows,
)

Told = Mapping[str, tuple[str, str]]
"""What the picture shows and what the text is about, by the id of the example."""

_FLOOR = 1e-4  # of a concept that was not there, before shares sum to 1


def list_agreements(
    train: Sequence[Example], features: Features, seed: int, *, concepts: tuple[str, str]
) -> dict[str, Learn]:
    """Return the candidates by what they see of a picture, the words that were read in it, too.

    There are none where an example does not say its concepts, there is no picture, or all texts
    are the same; nor in two clusters: of what one held out leaves, the rest is divided again.

    Args:
        train: examples.
        features: theirs.
        seed: of the trees.
        concepts: fields that say what the picture shows and what the text is about.
    """
    shown, asked = concepts
    are_told = all(name in example.fields for example in train for name in concepts)
    num_texts, num_clusters = (len(set(features[part].tolist())) for part in ("texts", "clusters"))
    if not are_told or "pixels" not in features or num_texts < 2 or num_clusters < 3:
        return {}
    trees = partial(learn_trees, seed=seed)
    showing: dict[str, Learn] = {"picture": partial(trees, parts=("pixels",))}
    if "words" in features:
        line = partial(learn_line, part="words", make=count_words, strength=30.0)
        showing["words in the picture"] = line
        showing["picture with its words"] = partial(trees, parts=("pixels", "words"))
    told = {one.id: (str(one.fields[shown]), str(one.fields[asked])) for one in train}
    return {
        f"whether {name} and text agree": partial(_learn_agreement, told=told, learn=learn)
        for name, learn in showing.items()
    }


def _learn_agreement(features: Features, labels: Names, *, told: Told, learn: Learn) -> Predict:
    """Learn what pictures show and what texts are about; the label follows from how they agree.

    For the last step each example is judged by models that have not seen its cluster.
    """
    from sklearn.model_selection import GroupKFold

    shown, asked = np.array([told[one] for one in features["ids"]]).T
    features = {**features, "shown": shown, "asked": asked}
    agreement = np.zeros((len(labels), 1))
    for rows, held in GroupKFold(2).split(features["texts"], groups=features["clusters"]):
        agree = _learn_concepts(take_rows(features, rows), learn)
        agreement[held] = agree(take_rows(features, held))
    seen = {"agreement": agreement}
    judge = learn_line(seen, labels, part="agreement", make=lambda _: "passthrough")
    agree = _learn_concepts(features, learn)
    return lambda other: judge({"agreement": agree(other)})


def _learn_concepts(features: Features, learn: Learn) -> Predict:
    """Return what gives the log probability (n, 1) that picture and text are of one concept."""
    concepts = np.union1d(features["shown"], features["asked"])
    reading = partial(learn_line, part="texts", make=count_words, strength=30.0)
    models: list[tuple[Names, Predict]] = []
    for part, told, learn_part in (("pixels", "shown", learn), ("texts", "asked", reading)):
        _, rows = np.unique(features[part], axis=0, return_index=True)
        names = features[told][rows]
        models.append((np.unique(names), learn_part(take_rows(features, rows), names)))

    def agree(other: Features) -> np.ndarray:
        both = np.ones((len(other["texts"]), len(concepts)))
        for present, predict in models:
            shares = np.full(both.shape, _FLOOR)  # also of concepts that were not there
            shares[:, np.searchsorted(concepts, present)] += predict(other)
            both *= shares / shares.sum(axis=1, keepdims=True)
        return np.log(both.sum(axis=1, keepdims=True))

    return agree
