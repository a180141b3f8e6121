"""Baselines: the majority label, text alone, pictures alone, the nearest example, and all of it.

A policy that is not above these has not been worth its training. They learn from the training
split only and know nothing of prompts, models or rewards. Each raises an ``EvaluationError`` where
an example has no label, and where what it learns from is missing or does not differ.

The joint baseline sees everything that a policy sees. It is the best, by cross-validation, of small
models of scikit-learn, of those that a task suggests, and of logistic regression on each of the
features of published models (hidden states of the base, embeddings). Folds divide clusters: items
that resemble each other never stand on both sides.
"""

import random
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from groupwise.core import EvaluationError, Example, derive_seed, open_picture
from groupwise.evaluation.predictions import Prediction, RunPolicy

Numbers = NDArray[np.float64]
Names = NDArray[np.str_]
Features = Mapping[str, NDArray[Any]]
"""What the joint baseline sees of n examples, a row each, by name: ``ids``, ``texts``, ``clusters``
and, where pictures are there and words were read in them, ``pixels`` and ``words``; all others are
features of published models."""
Predict = Callable[[Features], Numbers]
"""Returns probabilities (n, labels in sorted order)."""
Learn = Callable[[Features, Names], Predict]
"""Learns labels (n,)."""
Embed = Callable[[Sequence[Example]], Mapping[str, NDArray[np.float32]]]
"""Returns features (examples, width) by what they are, such as those of a published model."""

_describe = partial(RunPolicy, kind="baseline", step="baselines", trained_on=("train",))
MAJORITY = _describe(
    name="majority",
    title="Majority label",
    title_zh="多数标签",
    note="always the most frequent training label",
    note_zh="总是回答训练中最常见的标签",
    blind_to=("everything",),
)
TEXT_ONLY = _describe(  # blind in a task with pictures only
    name="text_only",
    title="Text only",
    title_zh="仅文字",
    note="learned from words and letters of the text, without a language model",
    note_zh="从文字的词与字学得，不用语言模型",
    blind_to=("picture",),
)
PICTURE_ONLY = _describe(
    name="picture_only",
    title="Picture only",
    title_zh="仅图片",
    note="learned from thumbnails, without the text",
    note_zh="只看图片，看不到文字",
    blind_to=("text",),
)
NEAREST = _describe(
    name="nearest",
    title="Nearest example",
    title_zh="最近样本",
    note="the answer of the training example whose text is most alike",
    note_zh="文字最相近的训练样本的答案",
    blind_to=("picture",),
)
JOINT = _describe(
    name="joint",
    title="Joint baseline",
    title_zh="联合基线",
    note="the best of several small classical models; sees all that the policy sees",
    note_zh="几个小型经典模型中最好的一个；能看到策略所见的一切",
)

MAX_ROWS = 4000
"""Training examples that the joint baseline learns from at most: so it takes minutes."""
NUM_FOLDS = 5
_SEEN = ("ids", "texts", "clusters", "pixels", "words")
_SMALL, _EDGES, _GRID, _NUM_BINS = (24, 18), (64, 48), (12, 4, 16, 4), 16
_NUM_FEATURES = 3 * _SMALL[0] * _SMALL[1] + 2 * _GRID[0] * _GRID[2] + 3 * _NUM_BINS


def predict_majority(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer the most frequent training label always, of equal ones the first by name.

    Probabilities are the training shares; the seed changes nothing.
    """
    model = _fit(None, train, _read_labels(train))
    return _predict(MAJORITY, split, test, model.classes_, lambda: model.predict_proba(test))


def predict_text_only(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer from ``read_text``: TF-IDF of words and characters with logistic regression."""
    labels = np.asarray(_read_labels(train, at_least=2))
    seen, asked = ({"texts": np.array([*map(read_text, own)], object)} for own in (train, test))
    if not any(text.strip() for text in seen["texts"]):
        raise EvaluationError("the text-only baseline has no text", fix="give prompts or tasks")
    predict = learn_line(seen, labels, part="texts", make=count_words)
    return _predict(TEXT_ONLY, split, test, np.unique(labels), lambda: predict(asked))


def predict_picture_only(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer from the pictures: a random forest on 32 x 24 RGB thumbnails."""
    from sklearn.ensemble import RandomForestClassifier

    numbers = sorted({len(example.pictures) for example in [*train, *test]})
    if len(numbers) != 1 or numbers[0] == 0:
        what = "the picture-only baseline needs the same number of pictures in every example"
        raise EvaluationError(what, got=f"{numbers} pictures")
    labels = _read_labels(train, at_least=2)
    thumbnails = _look([*train, *test], lambda one: one.resize((32, 24)))
    seen = [(np.asarray(own, np.float32) / np.float32(255)).ravel() for own in thumbnails]
    forest = RandomForestClassifier(200, n_jobs=-1, random_state=derive_seed(seed, "picture_only"))
    model, asked = _fit(forest, seen[: len(train)], labels), seen[len(train) :]
    return _predict(PICTURE_ONLY, split, test, model.classes_, lambda: model.predict_proba(asked))


def predict_nearest(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer what is right for the training example whose text is most alike (TF-IDF, cosine)."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    labels = _read_labels(train)
    if not test:
        return []
    texts = [read_text(example) or " " for example in train]
    search = make_pipeline(count_words(texts), KNeighborsClassifier(1, metric="cosine"))
    nearest = _fit(search, texts, labels).predict([read_text(example) for example in test])
    names = np.unique(nearest)
    return _predict(NEAREST, split, test, names, lambda: nearest[:, None] == names)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may become the joint baseline."""

    name: str  # what it sees, in a few words
    accuracy: float  # share of training examples right, each by one that saw not its cluster
    learn: Learn


def predict_joint(
    train: Sequence[Example],
    test: Sequence[Example],
    *,
    split: str,
    seed: int,
    suggest: Callable[[Sequence[Example], Features, int], Mapping[str, Learn]] = lambda *_: {},
    read: str | None = None,
    embed: Embed | None = None,
    record: Callable[[Sequence[Candidate]], None] = lambda ranked: None,
) -> list[Prediction]:
    """Answer by the candidate that is best within the training clusters.

    Of one cluster nothing can be held out, and the candidate that sees most is taken.

    Args:
        train: with labels; of more than ``MAX_ROWS`` so many are drawn.
        test: likewise; without any, candidates are ranked only.
        split: of the test.
        seed: of the trees.
        suggest: gives further candidates by what they see, from training examples, their features
            and a seed; not asked where nothing can be held out.
        read: field with the words that were read in the pictures, of test examples, too.
        embed: gives features of published models; None: there are none.
        record: is given the candidates, the best first, by the share of training examples that
            are right out of fold; not where nothing can be held out.
    """
    from sklearn.preprocessing import StandardScaler

    _read_labels(test or train)
    if len(train) > MAX_ROWS:
        train = random.Random(derive_seed(seed, "joint_rows")).sample(list(train), MAX_ROWS)
    labels = np.asarray(_read_labels(train, at_least=2))
    features = read_features(train, read=read, embed=embed)
    if len(set(features["clusters"].tolist())) < 2:
        *_, learn = _list_models(features, seed).values()
    else:
        seed = derive_seed(seed, JOINT.name)
        line = partial(learn_line, make=lambda _: StandardScaler(), strength=0.01)
        learners = {**_list_models(features, seed), **suggest(train, features, seed)}
        learners |= {name: partial(line, part=name) for name in features if name not in _SEEN}
        candidates = _rank(learners, features, labels)
        record(candidates)
        learn = candidates[0].learn

    def answer() -> Numbers:
        asked = read_features(test, read=read, like=features, embed=embed)
        return learn(features, labels)(asked)

    return _predict(JOINT, split, test, np.unique(labels), answer)


def _rank(learners: Mapping[str, Learn], features: Features, labels: Names) -> list[Candidate]:
    """Return the candidates with the best first, of equal ones in the order that they came in."""
    from sklearn.model_selection import GroupKFold

    clusters = features["clusters"]
    divide = GroupKFold(min(NUM_FOLDS, len(set(clusters.tolist()))))
    folds = [*divide.split(features["texts"], groups=clusters)]
    ranked: list[Candidate] = []
    for name, learn in learners.items():
        num_right = 0
        for rows, held in folds:
            shares = learn(take_rows(features, rows), labels[rows])(take_rows(features, held))
            predicted = np.unique(labels[rows])[shares.argmax(axis=1)]
            num_right += int((predicted == labels[held]).sum())
        ranked.append(Candidate(name, num_right / len(labels), learn))
    return sorted(ranked, key=lambda one: -one.accuracy)


def take_rows(features: Features, rows: NDArray[np.intp]) -> Features:
    """Return the features of some of the examples."""
    return {name: part[rows] for name, part in features.items()}


def _list_models(features: Features, seed: int) -> dict[str, Learn]:
    """Return the usual candidates by what they see; what sees most comes last."""
    line, trees = partial(learn_line, part="texts"), partial(learn_trees, seed=seed)
    have_texts, have_pixels = len(set(features["texts"].tolist())) > 1, "pixels" in features
    models: dict[str, Learn] = {}
    if have_texts:
        models["words"] = partial(line, make=count_words)
        models["words in their order"] = partial(line, make=_count_pairs, strength=10.0)
    if have_pixels:
        models["pictures"] = partial(trees, parts=("pixels",))
    if have_pixels and have_texts:
        models["pictures and words"] = partial(trees, parts=("pixels", "texts"))
        if "words" in features:
            every = partial(trees, parts=("pixels", "words", "texts"))
            models["pictures, words in them and words"] = every
    return models or {"nothing": line}


def learn_line(
    features: Features, labels: Names, *, part: str, make: Any = None, strength: float = 1.0
) -> Predict:
    """Learn by logistic regression on one of the features; of one label, its share.

    Args:
        features: of n examples.
        labels: (n,).
        part: name of what is seen.
        make: returns a step of scikit-learn, untrained, for what is seen; without it labels' shares
            are learned and nothing is seen.
        strength: inverse of the regularisation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    seen, line = features[part], LogisticRegression(max_iter=2000, C=strength)
    model = _fit(make_pipeline(make(seen), line) if make else None, seen, labels)
    return lambda other: model.predict_proba(other[part])


def learn_trees(features: Features, labels: Names, *, parts: tuple[str, ...], seed: int) -> Predict:
    """Learn by trees on several features: on ``pixels``, and on the topics of texts."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.pipeline import make_pipeline

    if len({*labels}) < 2:  # of one label there is nothing to see
        return learn_line(features, labels, part="texts")
    topics: dict[str, Any] = {}
    for part in (one for one in parts if one != "pixels"):
        words = count_words(features[part]).fit(features[part])
        counts = words.transform(features[part])  # not in one: the last digits would differ
        num_topics = max(1, min(48, *counts.shape) - 1)
        svd = TruncatedSVD(num_topics, random_state=seed).fit(counts)
        topics[part] = make_pipeline(words, svd)

    def view(other: Features) -> Numbers:
        seen = (topics[p].transform(other[p]) if p in topics else other[p] for p in parts)
        return np.hstack([*seen])

    trees = ExtraTreesClassifier(60, random_state=seed, n_jobs=-1)
    model = _fit(trees, view(features), labels)
    return lambda other: model.predict_proba(view(other))


def _fit(model: Any, seen: Any, labels: Sequence[str] | Names) -> Any:
    """Return the model that has learned; without one, or of one label, it says their shares."""
    from sklearn.dummy import DummyClassifier

    model = DummyClassifier() if model is None or len({*labels}) < 2 else model
    with warnings.catch_warnings():  # there may be almost as many labels as examples
        warnings.filterwarnings("ignore", message="The number of unique classes")
        model.fit(seen, labels)
    if "n_jobs" in model.get_params():  # what grew in several threads adds up the same way in one
        model.set_params(n_jobs=1)
    return model


def count_words(texts: Iterable[str]) -> Any:
    """Return untrained TF-IDF features of letters up to four and, if texts have any, of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    letters = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True)
    if not any(map(re.compile(r"\w").search, texts)):
        return letters
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    return make_union(words, letters)


def _count_pairs(_: Any) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import make_pipeline

    options: dict[str, Any] = {"analyzer": pair_words, "norm": None, "n_features": 2**17}
    pairs = HashingVectorizer(alternate_sign=False, binary=True, **options)
    return make_pipeline(pairs, TfidfTransformer())


def pair_words(text: str) -> list[str]:
    """Return the ordered pairs of words that stand close to each other."""
    words = re.findall(r"\w+", text.lower())[:120]
    return [f"{a} {b}" for place, a in enumerate(words) for b in words[place + 1 : place + 17]]


def read_features(
    examples: Sequence[Example],
    *,
    read: str | None = None,
    like: Features | None = None,
    embed: Embed | None = None,
) -> Features:
    """Return what a model may see of examples, with any number of pictures each.

    Arguments as of ``predict_joint``. The features are those of ``like``; without it, of as many
    pictures as the examples have.
    """
    # Letters are counted, and of no letter at all nothing can be.
    features = {
        "ids": np.asarray([example.id for example in examples]),
        "texts": np.asarray([read_text(example) or " " for example in examples]),
        "clusters": np.asarray([example.cluster for example in examples]),
        **(embed(examples) if embed else {}),
    }
    num_pictures = max((len(example.pictures) for example in examples), default=0)
    width = (0, _NUM_FEATURES, 3 * _NUM_FEATURES)[min(num_pictures, 2)]
    if like is not None:
        width = like["pixels"].shape[1] if "pixels" in like else 0
    if width:
        # Of several the mean, the lowest and the highest; of none it is 0.
        seen = [np.stack(own or [np.zeros(_NUM_FEATURES)]) for own in _look(examples, _measure)]
        rows = [np.concatenate((own.mean(0), own.min(0), own.max(0))) for own in seen]
        features["pixels"] = np.stack(rows)[:, :width]
    words = [str(example.fields.get(read) or " ") for example in examples] if read else []
    if any(one.strip() for one in words) if like is None else "words" in like:
        features["words"] = np.asarray(words)
    return features


def _look(examples: Iterable[Example], at: Callable[[Image.Image], Any]) -> list[list[Any]]:
    """Return what is seen of each example's pictures; each is opened once."""
    paths = {one.digest: Path(one.path) for example in examples for one in example.pictures}
    known = {digest: at(open_picture(path)) for digest, path in paths.items()}
    return [[known[one.digest] for one in example.pictures] for example in examples]


def _measure(image: Image.Image) -> Numbers:
    """Return a thumbnail, where its edges are, and how often which colours are in it."""
    pixels = np.asarray(image.resize(_SMALL), dtype=np.float64) / 255
    gray = np.asarray(image.convert("L").resize(_EDGES), dtype=np.float64) / 255
    edges = [np.abs(g).reshape(_GRID).mean((1, 3)).ravel() for g in np.gradient(gray)]
    flat = pixels.reshape(-1, 3)
    colours = [np.histogram(c, _NUM_BINS, (0, 1))[0] / c.size for c in flat.T]
    return np.concatenate([pixels.ravel(), *edges, *colours])


def read_text(example: Example) -> str:
    """Return the field ``task`` where there is one, else the prompt."""
    task = example.fields.get("task")
    if isinstance(task, str):
        return task
    return "\n".join(message.text for message in example.prompt)


def _read_labels(examples: Sequence[Example], *, at_least: int = 1) -> list[str]:
    """Return the labels; refuse examples without one, none at all, or fewer different ones."""
    labels = [example.label for example in examples if example.label is not None]
    if not labels or len(labels) < len(examples):
        got = f"{len(labels)} labels for {len(examples)} examples"
        raise EvaluationError("a baseline needs labelled training examples", got=got)
    if len(set(labels)) < at_least:
        what = "a baseline needs two labels to learn from"
        raise EvaluationError(what, got=f"only {labels[0]!r} in training")
    return labels


def _predict(
    policy: RunPolicy,
    split: str,
    test: Sequence[Example],
    names: Iterable[str],
    answer: Callable[[], NDArray[Any]],
) -> list[Prediction]:
    """Return the likeliest labels; without items ``answer`` is not asked for probabilities."""
    if not test:
        return []
    labels, names = _read_labels(test), [str(name) for name in names]
    return [
        Prediction(
            example_id=example.id,
            cluster=example.cluster,
            split=split,
            policy=policy.name,
            label=label,
            predicted=(predicted := names[int(row.argmax())]),
            text=predicted,
            probabilities=dict(zip(names, map(float, row), strict=True)),
            pictures=tuple(str(picture.path) for picture in example.pictures),
            picture_digests=tuple(picture.digest for picture in example.pictures),
            fields=dict(example.fields),
        )
        for example, label, row in zip(test, labels, answer(), strict=True)
    ]
