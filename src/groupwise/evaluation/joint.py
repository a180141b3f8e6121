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
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from groupwise.core import EvaluationError, Example, Picture, derive_seed, open_picture
from groupwise.evaluation.baselines import (
    JOINT,
    count_words,
    make_predictions,
    read_labels,
    read_text,
    require_two,
)
from groupwise.evaluation.predictions import Prediction

NUM_FOLDS, _NUM_INNER_FOLDS = 5, 2
MAX_ROWS = 4000
_NUM_TREES, _NUM_TOPICS, _NUM_HASHES = 60, 48, 2**17
_FLOOR = 1e-4
_PROBE_STRENGTH = 0.01
_NUM_WORDS, _REACH = 120, 16
_SMALL, _EDGES, _GRID = (24, 18), (64, 48), (12, 4, 16, 4)
_NUM_BINS = 16
_NUM_FEATURES = 3 * _SMALL[0] * _SMALL[1] + 2 * _GRID[0] * _GRID[2] + 3 * _NUM_BINS
_WIDTHS = (0, _NUM_FEATURES, 3 * _NUM_FEATURES)  # features of no picture, of one, and of several
Numbers = NDArray[np.float64]
Names = NDArray[np.str_]
Embed = Callable[[Sequence[Example]], Mapping[str, NDArray[np.float32]]]
"""Returns features (examples, width) by what they are, such as those of a published model."""


@dataclass(frozen=True, slots=True)
class Features:
    """What is seen of n examples, and what training examples tell beside the label."""

    texts: Names
    pixels: Numbers  # (n, features); no features where there are no pictures
    clusters: Names
    shown: Names  # what the pictures show; empty where that is not told
    asked: Names  # what the texts are about, in the same words; empty where that is not told
    words: Names  # what was read in the pictures; empty where nothing was read in any
    embedded: Mapping[str, NDArray[np.float32]] = field(
        default_factory=dict[str, NDArray[np.float32]]
    )

    def take(self, rows: NDArray[np.intp]) -> "Features":
        """Return some of the examples."""

        def choose(part: Any) -> Any:
            return part[rows] if len(part) else part

        return Features(
            texts=choose(self.texts),
            pixels=choose(self.pixels),
            clusters=choose(self.clusters),
            shown=choose(self.shown),
            asked=choose(self.asked),
            words=choose(self.words),
            embedded={name: found[rows] for name, found in self.embedded.items()},
        )


Predict = Callable[[Features], Numbers]
"""Returns probabilities (n, labels in sorted order)."""
Learn = Callable[[Features, Names], Predict]
"""Learns labels (n,)."""
Look = Callable[[Features], tuple[Any, Callable[[Features], Any]]]
"""Returns an untrained model, and what it reads of examples."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model."""

    name: str  # what it sees, in a few words
    accuracy: float  # share of training examples right, each by one that saw not its cluster
    learn: Learn


def predict_joint(
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
    features = read_features(train, concepts, read=read, embed=embed)
    require_two(labels.tolist())
    if len(set(features.clusters.tolist())) > 1:
        ranked = _rank(features, labels, seed)
        record(ranked)
        learn = ranked[0].learn
    else:
        *_, (_, learn) = _list_models(features, seed)
    predict = learn(features, labels)
    rows = predict(read_features(test, read=read, like=features, embed=embed)) if test else ()
    return make_predictions(test, JOINT.name, split, list(np.unique(labels)), rows)


def rank_joint_candidates(
    train: Sequence[Example],
    *,
    seed: int,
    concepts: tuple[str, str] | None = None,
    read: str | None = None,
    embed: Embed | None = None,
) -> list[Candidate]:
    """Return the candidates, the best first; arguments and errors as of ``predict_joint``."""
    train = _draw(train, seed)
    features = read_features(train, concepts, read=read, embed=embed)
    return _rank(features, np.asarray(read_labels(train)), seed)


def _draw(train: Sequence[Example], seed: int) -> Sequence[Example]:
    """Return at most so many examples that the candidates take minutes at most."""
    if len(train) <= MAX_ROWS:
        return train
    return random.Random(derive_seed(seed, "joint_rows")).sample(list(train), MAX_ROWS)


def _rank(features: Features, labels: Names, seed: int) -> list[Candidate]:
    """Return the candidates by the share of examples that are right out of fold."""

    def probe(_: Features, name: str) -> tuple[Any, Callable[[Features], Any]]:
        model = make_pipeline(StandardScaler(), _regress(_PROBE_STRENGTH))
        return model, lambda other: other.embedded[name]

    require_two(labels.tolist())
    folds = _divide(features)
    probes = [(n, partial(_learn, look=partial(probe, name=n))) for n in features.embedded]
    found: list[Candidate] = []
    for name, learn in chain(_list_models(features, derive_seed(seed, JOINT.name)), probes):
        num_right = 0
        for rows, held in folds:
            names = np.unique(labels[rows])
            if len(names) == 1:
                predicted = np.repeat(names, len(held))
            else:
                chances = learn(features.take(rows), labels[rows])(features.take(held))
                predicted = names[chances.argmax(axis=1)]
            num_right += int((predicted == labels[held]).sum())
        found.append(Candidate(name, num_right / len(labels), learn))
    return sorted(found, key=lambda one: -one.accuracy)


def _divide(
    features: Features, most: int = NUM_FOLDS
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    num_clusters = len(set(features.clusters.tolist()))
    if num_clusters < 2:
        raise EvaluationError("the joint baseline needs two clusters to learn from", got=1)
    folds = GroupKFold(min(most, num_clusters))
    return list(folds.split(features.texts, groups=features.clusters))


def _list_models(features: Features, seed: int) -> Iterator[tuple[str, Learn]]:
    """Yield the candidates by what they see; what sees most comes last."""

    def grow() -> Any:
        return ExtraTreesClassifier(_NUM_TREES, random_state=seed, n_jobs=-1)

    def see_both(seen: Features) -> tuple[Any, Callable[[Features], Numbers]]:
        topics = _find_topics(seen.texts, seed)
        return grow(), lambda other: np.hstack([other.pixels, topics(other.texts)])

    def look_and_read(seen: Features) -> tuple[Any, Callable[[Features], Numbers]]:
        topics = _find_topics(seen.words, seed)
        return grow(), lambda other: np.hstack([other.pixels, topics(other.words)])

    def see_all(seen: Features) -> tuple[Any, Callable[[Features], Numbers]]:
        topics = _find_topics(seen.texts, seed)
        model, look = look_and_read(seen)
        return model, lambda other: np.hstack([look(other), topics(other.texts)])

    def see_order(_: Features) -> tuple[Any, Callable[[Features], Names]]:
        given: dict[str, Any] = {"analyzer": pair_words, "norm": None, "n_features": _NUM_HASHES}
        pairs = HashingVectorizer(alternate_sign=False, binary=True, **given)
        return make_pipeline(pairs, TfidfTransformer(), _regress(10.0)), lambda other: other.texts

    looks: dict[str, Look] = {}
    do_texts_differ = len(set(features.texts.tolist())) > 1
    has_pixels, has_words = features.pixels.shape[1] > 0, len(features.words) > 0
    if not do_texts_differ and not has_pixels:
        looks["nothing"] = lambda _: (DummyClassifier(), lambda other: other.texts)
    if do_texts_differ:
        looks["words"] = lambda seen: (_read(seen.texts, 1.0), lambda other: other.texts)
        looks["words in their order"] = see_order
    if has_pixels:
        looks["pictures"] = lambda _: (grow(), lambda other: other.pixels)
    if has_pixels and do_texts_differ:
        looks["pictures and words"] = see_both
        if has_words:
            looks["pictures, words in them and words"] = see_all
    yield from ((name, partial(_learn, look=look)) for name, look in looks.items())
    # Of what is held out, the rest is divided again.
    can_agree = len(features.shown) > 0 and len(set(features.clusters.tolist())) > 2
    if has_pixels and do_texts_differ and can_agree:
        showing: dict[str, Look] = {"picture": lambda _: (grow(), lambda other: other.pixels)}
        if has_words:
            showing["words in the picture"] = lambda seen: (_read(seen.words), lambda o: o.words)
            showing["picture with its words"] = look_and_read
        for name, look in showing.items():
            yield f"whether {name} and text agree", partial(_learn_agreement, look=look)


def _learn(features: Features, labels: Names, *, look: Look) -> Predict:
    model, view = look(features)
    _fit(model, view(features), labels)
    return lambda other: model.predict_proba(view(other))


def _find_topics(texts: Names, seed: int) -> Callable[[Names], Numbers]:
    """Return what gives the topics (n, topics) of other texts."""
    words = count_words(texts).fit(texts)
    counts = words.transform(texts)
    num_topics = max(1, min(_NUM_TOPICS, *counts.shape) - 1)
    topics = TruncatedSVD(num_topics, random_state=seed).fit(counts)
    return lambda other: topics.transform(words.transform(other))


def _learn_agreement(features: Features, labels: Names, *, look: Look) -> Predict:
    """Learn what pictures show and what texts are about; the label follows from how they agree.

    For the last step each example is judged by models that have not seen its cluster.
    """
    agreement = np.zeros((len(labels), 1))
    for rows, held in _divide(features, _NUM_INNER_FOLDS):
        agreement[held] = _learn_concepts(features.take(rows), look)(features.take(held))
    model = _regress(1.0).fit(agreement, labels)
    agree = _learn_concepts(features, look)
    return lambda other: model.predict_proba(agree(other))


def _learn_concepts(features: Features, look: Look) -> Predict:
    """Return what gives the log probability (n, 1) that picture and text are of one concept."""
    concepts = np.union1d(features.shown, features.asked)
    _, pictures = np.unique(features.pixels, axis=0, return_index=True)
    _, texts = np.unique(features.texts, return_index=True)
    shown = features.take(pictures)
    model, view = look(shown)
    looks = _fit_all(model, view(shown), shown.shown, concepts)
    asked = features.texts[texts]
    reads = _fit_all(_read(asked), asked, features.asked[texts], concepts)
    return lambda other: np.log(
        (looks(view(other)) * reads(other.texts)).sum(axis=1, keepdims=True)
    )


def _fit_all(model: Any, given: Any, names: Names, concepts: Names) -> Callable[[Any], Numbers]:
    """Return what gives probabilities (n, concepts), also of concepts that were not there."""
    if len(set(names.tolist())) < 2:
        only = (concepts == names[0]) + _FLOOR
        return lambda other: np.tile(only / only.sum(), (len(other), 1))
    _fit(model, given, names)
    columns = np.searchsorted(concepts, model.classes_)

    def predict(other: Any) -> Numbers:
        found = np.full((len(other), len(concepts)), _FLOOR)
        found[:, columns] += model.predict_proba(other)
        return found / found.sum(axis=1, keepdims=True)

    return predict


def _fit(model: Any, given: Any, names: Names) -> None:
    """Fit a model; what grew in several threads answers in one, which adds up the same way."""
    with warnings.catch_warnings():  # texts may be about almost as many things as there are texts
        warnings.filterwarnings("ignore", message="The number of unique classes")
        model.fit(given, names)
    if isinstance(model, ExtraTreesClassifier):
        model.set_params(n_jobs=1)


def _read(texts: Names, strength: float = 30.0) -> Any:
    return make_pipeline(count_words(texts), _regress(strength))


def _regress(strength: float) -> Any:
    return LogisticRegression(C=strength, max_iter=2000)


def read_features(
    examples: Sequence[Example],
    concepts: tuple[str, str] | None = None,
    *,
    read: str | None = None,
    like: Features | None = None,
    embed: Embed | None = None,
) -> Features:
    """Return what a model may see of examples, with any number of pictures each.

    Arguments as of ``predict_joint``; a concept that some of the examples do not tell is left out.
    The features are those of ``like``; without it, of as many pictures as the examples have.
    """
    fields = concepts or ()
    told = [[str(e.fields[name]) for e in examples if name in e.fields] for name in fields]
    is_told = len(told) == 2 and all(len(column) == len(examples) for column in told)
    shown, asked = told if is_told else ([], [])
    words = [str(example.fields.get(read) or " ") for example in examples] if read else []
    is_read = any(one.strip() for one in words) if like is None else len(like.words) > 0
    num_pictures = max((len(example.pictures) for example in examples), default=0)
    width = _WIDTHS[min(num_pictures, 2)] if like is None else like.pixels.shape[1]
    known: dict[str, Numbers] = {}
    return Features(
        # Letters are counted, and of no letter at all nothing can be.
        texts=np.asarray([read_text(example) or " " for example in examples]),
        pixels=np.stack([_join_pictures(example.pictures, width, known) for example in examples]),
        clusters=np.asarray([example.cluster for example in examples]),
        shown=np.asarray(shown, dtype=np.str_),
        asked=np.asarray(asked, dtype=np.str_),
        words=np.asarray(words if is_read else [], dtype=np.str_),
        embedded={} if embed is None else embed(examples),
    )


def pair_words(text: str) -> list[str]:
    """Return the ordered pairs of words that stand close to each other."""
    words = re.findall(r"\w+", text.lower())[:_NUM_WORDS]
    return [
        f"{first} {second}"
        for place, first in enumerate(words)
        for second in words[place + 1 : place + 1 + _REACH]
    ]


def _join_pictures(pictures: Sequence[Picture], width: int, known: dict[str, Numbers]) -> Numbers:
    """Return the mean (width,) over pictures, or mean, lowest and highest; of none it is 0."""
    if not pictures or not width:
        return np.zeros(width)
    for picture in pictures:
        if picture.digest not in known:
            # A thumbnail, where its edges are, and how often which colours are in it.
            image = open_picture(Path(picture.path))
            pixels = np.asarray(image.resize(_SMALL), dtype=np.float64) / 255
            gray = np.asarray(image.convert("L").resize(_EDGES), dtype=np.float64) / 255
            edges = [np.abs(g).reshape(_GRID).mean((1, 3)).ravel() for g in np.gradient(gray)]
            colours = [
                np.histogram(pixels[..., c], _NUM_BINS, (0, 1))[0] / pixels[..., c].size
                for c in range(3)
            ]
            known[picture.digest] = np.concatenate([pixels.ravel(), *edges, *colours])
    own = np.stack([known[picture.digest] for picture in pictures])
    return np.concatenate((own.mean(0), own.min(0), own.max(0)))[:width]
