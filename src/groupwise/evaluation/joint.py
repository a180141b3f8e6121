"""The joint baseline: a classical model that sees everything that a policy sees.

A policy that is not above it has not been worth its training. Candidates are small models of
scikit-learn: on words, on pairs of words in their order, on thumbnails, on thumbnails and words
together, and, where training examples tell what a picture shows and what a text is about, one
that learns both and answers by whether they agree. Where words were read in the pictures and
a policy is told them, more candidates see them, too. Where features of published models are given
(hidden states of the base, sentence embeddings, features of pictures), logistic regression on each
is a candidate. The best by cross-validation is taken. Folds divide clusters: items that resemble
each other never stand on both sides.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from groupwise.core import EvaluationError, Example, derive_seed
from groupwise.evaluation.baselines import (
    JOINT,
    count_words,
    make_predictions,
    read_labels,
    require_two,
)
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.sights import Embed, Names, Numbers, Sights, pair_words, see

NUM_FOLDS = 5
_NUM_INNER_FOLDS = 2
MAX_ROWS = 4000
_NUM_TREES = 60
_NUM_TOPICS = 48
_NUM_HASHES = 2**17
_FLOOR = 1e-4
_PROBE_STRENGTH = 0.01


Predict = Callable[[Sights], Numbers]
"""Returns probabilities (n, labels in sorted order)."""
Learn = Callable[[Sights, Names], Predict]
"""Learns labels (n,)."""
Look = Callable[[Sights], tuple[Any, Callable[[Sights], Any]]]
"""Returns an untrained model, and what it sees of examples."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model.

    Attributes:
        name: what it sees, in a few words.
        accuracy: share of the training examples that it gets right, each by a model that has
            seen nothing of the example's cluster.
        learn: trains it.
    """

    name: str
    accuracy: float
    learn: Learn


def predict_joint(  # noqa: PLR0913 (each is something else that it may see)
    train: Sequence[Example],
    test: Sequence[Example],
    *,
    split: str,
    seed: int,
    concepts: tuple[str, str] | None = None,
    read: str | None = None,
    embed: Embed | None = None,
    record: Callable[[Sequence[Candidate]], None] = lambda ranked: None,
) -> list[Prediction]:
    """Answer by the candidate that is best within the training clusters.

    Of one cluster nothing can be held out, and the candidate that sees most is taken.

    Args:
        train: with labels; of more than ``MAX_ROWS`` so many are drawn.
        test: likewise.
        split: of the test.
        seed: of the trees.
        concepts: fields of training examples that tell what the picture shows and what the text
            is about; of test examples they are not read.
        read: field with the words that were read in the pictures, of test examples, too.
        embed: gives features of published models; None: there are none.
        record: is given the candidates, the best first; not where nothing can be held out.

    Raises:
        EvaluationError: if an example has no label, or the training labels do not differ.
    """
    read_labels(test or train)
    train = _draw(train, seed)
    labels = np.asarray(read_labels(train))
    sights = see(train, concepts, read=read, embed=embed)
    predict = _choose(sights, labels, seed, record)(sights, labels)
    rows = predict(see(test, read=read, like=sights, embed=embed)) if test else ()
    return make_predictions(test, JOINT.name, split, list(np.unique(labels)), rows)


def rank_joint_candidates(
    train: Sequence[Example],
    *,
    seed: int,
    concepts: tuple[str, str] | None = None,
    read: str | None = None,
    embed: Embed | None = None,
) -> list[Candidate]:
    """Return the candidates, the best by cross-validation first; arguments as above.

    Raises:
        EvaluationError: likewise.
    """
    train = _draw(train, seed)
    sights = see(train, concepts, read=read, embed=embed)
    return _rank(sights, np.asarray(read_labels(train)), seed)


def _draw(train: Sequence[Example], seed: int) -> Sequence[Example]:
    """Return at most so many examples that the candidates take minutes at most."""
    if len(train) <= MAX_ROWS:
        return train
    return random.Random(derive_seed(seed, "joint_rows")).sample(list(train), MAX_ROWS)


def _choose(
    sights: Sights, labels: Names, seed: int, record: Callable[[Sequence[Candidate]], None]
) -> Learn:
    require_two(labels.tolist())
    if _count_clusters(sights) > 1:
        ranked = _rank(sights, labels, seed)
        record(ranked)
        return ranked[0].learn
    *_, (_, most) = _list_models(sights, seed)
    return most


def _rank(sights: Sights, labels: Names, seed: int) -> list[Candidate]:
    require_two(labels.tolist())
    folds = _divide(sights)
    found = [
        Candidate(name, _validate(learn, sights, labels, folds), learn)
        for name, learn in chain(
            _list_models(sights, derive_seed(seed, JOINT.name)), _list_probes(sights)
        )
    ]
    return sorted(found, key=lambda one: -one.accuracy)


def _divide(
    sights: Sights, most: int = NUM_FOLDS
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    num_clusters = _count_clusters(sights)
    if num_clusters < 2:
        raise EvaluationError("the joint baseline needs two clusters to learn from", got=1)
    folds = GroupKFold(min(most, num_clusters))
    return list(folds.split(sights.texts, groups=sights.clusters))


def _count_clusters(sights: Sights) -> int:
    return len(set(sights.clusters.tolist()))


def _validate(learn: Learn, sights: Sights, labels: Names, folds: Sequence[Any]) -> float:
    """Return the share of examples that are right out of fold."""
    num_right = 0
    for rows, held in folds:
        names = np.unique(labels[rows])
        if len(names) == 1:
            predicted = np.repeat(names, len(held))
        else:
            chances = learn(sights.take(rows), labels[rows])(sights.take(held))
            predicted = names[chances.argmax(axis=1)]
        num_right += int((predicted == labels[held]).sum())
    return num_right / len(labels)


def _list_models(sights: Sights, seed: int) -> Iterator[tuple[str, Learn]]:
    do_texts_differ = len(set(sights.texts.tolist())) > 1
    if not do_texts_differ and not sights.pixels.shape[1]:
        yield "nothing", _learn_shares
    if do_texts_differ:
        yield "words", _learn_words
        yield "words in their order", _learn_order
    if sights.pixels.shape[1]:
        yield "pictures", partial(_learn_pictures, seed=seed)
    if sights.pixels.shape[1] and do_texts_differ:
        yield "pictures and words", partial(_learn_both, seed=seed)
        if len(sights.words):
            yield "pictures, words in them and words", partial(_learn_all, seed=seed)
        # Of what is held out, the rest is divided again.
        if len(sights.shown) and _count_clusters(sights) > 2:
            for name, look in _list_looks(sights, seed):
                yield f"whether {name} and text agree", partial(_learn_agreement, look=look)


def _list_probes(sights: Sights) -> Iterator[tuple[str, Learn]]:
    for name in sights.embedded:
        yield name, partial(_learn_embedded, name=name)


def _list_looks(sights: Sights, seed: int) -> Iterator[tuple[str, Look]]:
    """Yield what may tell what a picture shows; what sees most comes last."""
    yield "picture", lambda seen: (_grow(seed), lambda other: other.pixels)
    if len(sights.words):
        yield "words in the picture", lambda seen: (_read(seen.words), lambda other: other.words)
        yield "picture with its words", partial(_look_and_read, seed=seed)


def _learn_shares(sights: Sights, labels: Names) -> Predict:
    _, counts = np.unique(labels, return_counts=True)
    return lambda other: np.tile(counts / len(labels), (len(other.texts), 1))


def _learn_words(sights: Sights, labels: Names) -> Predict:
    model = make_pipeline(count_words(sights.texts), _regress(1.0)).fit(sights.texts, labels)
    return lambda other: model.predict_proba(other.texts)


def _learn_order(sights: Sights, labels: Names) -> Predict:
    pairs = HashingVectorizer(
        analyzer=pair_words, n_features=_NUM_HASHES, alternate_sign=False, norm=None, binary=True
    )
    model = make_pipeline(pairs, TfidfTransformer(), _regress(10.0)).fit(sights.texts, labels)
    return lambda other: model.predict_proba(other.texts)


def _learn_pictures(sights: Sights, labels: Names, *, seed: int) -> Predict:
    model = _fit(_grow(seed), sights.pixels, labels)
    return lambda other: model.predict_proba(other.pixels)


def _learn_both(sights: Sights, labels: Names, *, seed: int) -> Predict:
    topics = _find_topics(sights.texts, seed)

    def join(seen: Sights) -> Numbers:
        return np.hstack([seen.pixels, topics(seen.texts)])

    model = _fit(_grow(seed), join(sights), labels)
    return lambda other: model.predict_proba(join(other))


def _learn_all(sights: Sights, labels: Names, *, seed: int) -> Predict:
    topics = _find_topics(sights.texts, seed)
    model, look = _look_and_read(sights, seed=seed)

    def join(seen: Sights) -> Numbers:
        return np.hstack([look(seen), topics(seen.texts)])

    _fit(model, join(sights), labels)
    return lambda other: model.predict_proba(join(other))


def _learn_embedded(sights: Sights, labels: Names, *, name: str) -> Predict:
    model = make_pipeline(StandardScaler(), _regress(_PROBE_STRENGTH))
    model.fit(sights.embedded[name], labels)
    return lambda other: model.predict_proba(other.embedded[name])


def _look_and_read(sights: Sights, *, seed: int) -> tuple[Any, Callable[[Sights], Numbers]]:
    """Return untrained trees, and the thumbnails with what the words in them are about."""
    topics = _find_topics(sights.words, seed)
    return _grow(seed), lambda other: np.hstack([other.pixels, topics(other.words)])


def _find_topics(texts: Names, seed: int) -> Callable[[Names], Numbers]:
    """Return what gives the topics (n, topics) of other texts."""
    words = count_words(texts).fit(texts)
    counts = words.transform(texts)
    num_topics = max(1, min(_NUM_TOPICS, *counts.shape) - 1)
    topics = TruncatedSVD(num_topics, random_state=seed).fit(counts)
    return lambda other: topics.transform(words.transform(other))


def _learn_agreement(sights: Sights, labels: Names, *, look: Look) -> Predict:
    """Learn what pictures show and what texts are about; the label follows from how they agree.

    For the last step each example is judged by models that have not seen its cluster.
    """
    agreement = np.zeros((len(labels), 1))
    for rows, held in _divide(sights, _NUM_INNER_FOLDS):
        agreement[held] = _learn_concepts(sights.take(rows), look)(sights.take(held))
    model = _regress(1.0).fit(agreement, labels)
    agree = _learn_concepts(sights, look)
    return lambda other: model.predict_proba(agree(other))


def _learn_concepts(sights: Sights, look: Look) -> Predict:
    """Return what gives the log probability (n, 1) that picture and text are of one concept."""
    concepts = np.union1d(sights.shown, sights.asked)
    _, pictures = np.unique(sights.pixels, axis=0, return_index=True)
    _, texts = np.unique(sights.texts, return_index=True)
    shown = sights.take(pictures)
    model, view = look(shown)
    looks = _fit_all(model, view(shown), shown.shown, concepts)
    asked = sights.texts[texts]
    reads = _fit_all(_read(asked), asked, sights.asked[texts], concepts)
    return lambda other: np.log(
        (looks(view(other)) * reads(other.texts)).sum(axis=1, keepdims=True)
    )


def _fit_all(model: Any, given: Any, names: Names, concepts: Names) -> Callable[[Any], Numbers]:
    """Return what gives probabilities (n, concepts), also of concepts that were not there."""
    if len(set(names.tolist())) < 2:
        only = (concepts == names[0]) + _FLOOR
        return lambda other: np.tile(only / only.sum(), (len(other), 1))
    _fit(model, given, names)
    known: Names = model.classes_
    columns = np.searchsorted(concepts, known)

    def predict(other: Any) -> Numbers:
        found = np.full((len(other), len(concepts)), _FLOOR)
        found[:, columns] += model.predict_proba(other)
        return found / found.sum(axis=1, keepdims=True)

    return predict


def _fit(model: Any, given: Any, names: Names) -> Any:
    """Fit a model; what grew in several threads answers in one, which adds up the same way."""
    with warnings.catch_warnings():  # texts may be about almost as many things as there are texts
        warnings.filterwarnings("ignore", message="The number of unique classes")
        model.fit(given, names)
    return model.set_params(n_jobs=1) if isinstance(model, ExtraTreesClassifier) else model


def _grow(seed: int) -> Any:
    return ExtraTreesClassifier(_NUM_TREES, random_state=seed, n_jobs=-1)


def _read(texts: Names) -> Any:
    return make_pipeline(count_words(texts), _regress(30.0))


def _regress(strength: float) -> Any:
    return LogisticRegression(C=strength, max_iter=2000)
