"""Baselines: the majority label, the text alone, the picture alone, the nearest example.

A policy that is no better than these has not learned the task. They train on the training
split only and know nothing of prompts, models or rewards.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import EvaluationError, Example, derive_seed, open_picture
from groupwise.evaluation.policies import RunPolicy
from groupwise.evaluation.predictions import Prediction

_THUMBNAIL_SIZE, _NUM_TREES = (32, 24), 200
MAJORITY = RunPolicy(
    name="majority",
    title="Majority label",
    title_zh="多数标签",
    note="always the most frequent training label",
    note_zh="总是回答训练中最常见的标签",
    kind="baseline",
    step="baselines",
    trained_on=("train",),
    blind_to=("everything",),
)
TEXT_ONLY = replace(  # blind in a task with pictures only
    MAJORITY,
    name="text_only",
    title="Text only",
    title_zh="仅文字",
    note="learned from words and letters of the text, without a language model",
    note_zh="从文字的词与字学得，不用语言模型",
    blind_to=("picture",),
)
PICTURE_ONLY = replace(
    MAJORITY,
    name="picture_only",
    title="Picture only",
    title_zh="仅图片",
    note="learned from thumbnails, without the text",
    note_zh="只看图片，看不到文字",
    blind_to=("text",),
)
NEAREST = replace(
    MAJORITY,
    name="nearest",
    title="Nearest example",
    title_zh="最近样本",
    note="the answer of the training example whose text is most alike",
    note_zh="文字最相近的训练样本的答案",
    blind_to=("picture",),
)
JOINT = replace(
    MAJORITY,
    name="joint",
    title="Joint baseline",
    title_zh="联合基线",
    note="the best of several small classical models; sees all that the policy sees",
    note_zh="几个小型经典模型中最好的一个；能看到策略所见的一切",
    blind_to=(),
)


def predict_majority(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer the most frequent training label always, of equal ones the first by name.

    Probabilities are the training shares; the seed changes nothing.

    Raises:
        EvaluationError: if an example has no label or there is no training example.
    """
    counts = Counter(read_labels(train))
    names = sorted(counts)
    shares = np.asarray([[counts[name] / len(train) for name in names]] * len(test))
    return make_predictions(test, MAJORITY.name, split, names, shares)


def predict_text_only(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer from ``read_text``: TF-IDF of words and characters with logistic regression.

    Raises:
        EvaluationError: if an example has no label, or the training labels or texts do not
            differ.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if train and not any(read_text(example).strip() for example in train):
        raise EvaluationError("the text-only baseline has no text", fix="give prompts or tasks")
    learner = LogisticRegression(max_iter=2000, random_state=derive_seed(seed, "text_only"))
    model = make_pipeline(count_words([read_text(example) for example in train]), learner)
    names, rows = _learn(model, read_text, train, test)
    return make_predictions(test, TEXT_ONLY.name, split, names, rows)


def predict_picture_only(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer from the pictures: a random forest on 32 x 24 RGB thumbnails.

    Raises:
        EvaluationError: if an example has no label or no picture, the numbers of pictures
            differ, or the training labels do not differ.
    """
    from sklearn.ensemble import RandomForestClassifier

    numbers = sorted({len(example.pictures) for example in [*train, *test]})
    if len(numbers) != 1 or numbers[0] == 0:
        what = "the picture-only baseline needs the same number of pictures in every example"
        raise EvaluationError(what, got=f"{numbers} pictures")
    seed = derive_seed(seed, "picture_only")
    model = RandomForestClassifier(n_estimators=_NUM_TREES, n_jobs=-1, random_state=seed)
    thumbnails: dict[str, NDArray[np.float32]] = {}

    def read(example: Example) -> NDArray[np.float32]:
        for picture in example.pictures:
            if picture.digest not in thumbnails:
                small = open_picture(Path(picture.path)).resize(_THUMBNAIL_SIZE)
                pixels = np.asarray(small, dtype=np.float32).reshape(-1) / np.float32(255)
                thumbnails[picture.digest] = pixels
        return np.concatenate([thumbnails[picture.digest] for picture in example.pictures])

    names, rows = _learn(model, read, train, test)
    return make_predictions(test, PICTURE_ONLY.name, split, names, rows)


def _learn(
    model: Any, read: Callable[[Example], Any], train: Sequence[Example], test: Sequence[Example]
) -> tuple[list[str], Any]:
    """Return the labels of ``train`` and their probabilities (test, labels) by scikit-learn."""
    labels = read_labels(train)
    require_two(labels)
    model.fit([read(example) for example in train], labels)
    if "n_jobs" in model.get_params():
        model.set_params(n_jobs=1)  # several threads would add up the trees in any order
    return list(model.classes_), model.predict_proba([read(e) for e in test]) if test else ()


def predict_nearest(
    train: Sequence[Example], test: Sequence[Example], *, split: str, seed: int
) -> list[Prediction]:
    """Answer what is right for the training example whose text is most alike (TF-IDF, cosine).

    Raises:
        EvaluationError: if an example has no label or there is no training example.
    """
    from sklearn.neighbors import NearestNeighbors

    labels = read_labels(train)
    if not test:
        return []
    texts = [read_text(example) or " " for example in train]
    words = count_words(texts)
    search = NearestNeighbors(n_neighbors=1, metric="cosine").fit(words.fit_transform(texts))
    asked = words.transform([read_text(example) for example in test])
    places: NDArray[np.intp] = search.kneighbors(asked, return_distance=False)
    nearest: list[str] = [labels[int(place)] for place in places[:, 0]]
    names = sorted(set(nearest))
    rows = np.asarray([[float(name == own) for name in names] for own in nearest])
    return make_predictions(test, NEAREST.name, split, names, rows)


def count_words(texts: Iterable[str]) -> Any:
    """Return untrained TF-IDF features of letters up to four and, if texts have any, of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    letters = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True)
    if not any(map(re.compile(r"\w").search, texts)):
        return letters
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    return make_union(words, letters)


def require_two(labels: Sequence[str]) -> None:
    """Refuse labels that do not differ."""
    if len(set(labels)) < 2:
        what = "a baseline needs two labels to learn from"
        raise EvaluationError(what, got=f"only {labels[0]!r} in training")


def read_labels(examples: Sequence[Example]) -> list[str]:
    """Return the labels; an example without one, or no example at all, is refused."""
    labels = [example.label for example in examples if example.label is not None]
    if not labels or len(labels) < len(examples):
        given = f"{len(labels)} labels for {len(examples)} examples"
        raise EvaluationError("a baseline needs labelled training examples", got=given)
    return labels


def read_text(example: Example) -> str:
    """Return the field ``task`` where there is one, else the prompt."""
    task = example.fields.get("task")
    if isinstance(task, str):
        return task
    return "\n".join(message.text for message in example.prompt)


def make_predictions(
    test: Sequence[Example],
    policy: str,
    split: str,
    names: Sequence[str],
    probabilities: Iterable[NDArray[np.float64]],
) -> list[Prediction]:
    """Turn probabilities (items, labels) into predictions of the likeliest label."""
    truths = read_labels(test) if test else []
    names = [str(name) for name in names]
    return [
        Prediction(
            example_id=example.id,
            cluster=example.cluster,
            split=split,
            policy=policy,
            label=truth,
            predicted=(predicted := names[int(row.argmax())]),
            text=predicted,
            probabilities=dict(zip(names, map(float, row), strict=True)),
            pictures=tuple(str(picture.path) for picture in example.pictures),
            picture_digests=tuple(picture.digest for picture in example.pictures),
            fields=dict(example.fields),
        )
        for example, truth, row in zip(test, truths, probabilities, strict=True)
    ]
