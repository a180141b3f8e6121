"""What needs no Stage B: the majority, the summaries' words, the photos' thumbnails, the base."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core import Example, make_example
from groupwise.evaluation import (
    Prediction,
    predict_majority,
    predict_picture_only,
    predict_text_only,
)

_TEST = "test"


def predict_baselines(
    train: Sequence[Example], test: Sequence[Example], *, labels: tuple[str, str], seed: int
) -> list[Prediction]:
    """Return the predictions of all baselines; the examples carry the groups' photos, if any.

    Raises:
        EvaluationError: if the training labels do not differ.
    """
    has_photos = any(example.pictures for example in train)
    words = [example.with_pictures(()) for example in (*train, *test)]
    texts = [replace(example, fields={"task": _join(example)}) for example in words]
    blind_train, blind_test = texts[: len(train)], texts[len(train) :]
    found = [
        *predict_majority(blind_train, blind_test, split=_TEST, seed=seed),
        *predict_text_only(blind_train, blind_test, split=_TEST, seed=seed),
        *(predict_photo_level(train, test, labels=labels, seed=seed) if has_photos else ()),
    ]
    fields = {example.id: dict(example.fields) for example in test}
    return [replace(one, fields=fields[one.example_id]) for one in found]


def predict_photo_level(
    train: Sequence[Example], test: Sequence[Example], *, labels: tuple[str, str], seed: int
) -> list[Prediction]:
    """Judge each photo from its thumbnail, as if it had its group's label; the mean decides.

    A random forest on 32 x 24 pixels, trained on single photos.
    """
    photos = predict_picture_only(_list_photos(train), _list_photos(test), split=_TEST, seed=seed)
    shares: dict[str, list[float]] = defaultdict(list)
    for one in photos:
        assert one.probabilities is not None
        shares[one.cluster].append(one.probabilities.get(labels[1], 0.0))
    found: list[Prediction] = []
    for example in test:
        own = shares[example.id]
        fail = sum(own) / len(own)
        found.append(
            Prediction(
                example_id=example.id,
                cluster=example.cluster,
                split=_TEST,
                policy="picture_only",
                label=str(example.label),
                predicted=labels[int(fail >= 0.5)],
                probabilities={labels[0]: 1 - fail, labels[1]: fail},
                pictures=tuple(str(picture.path) for picture in example.pictures),
            )
        )
    return found


def _list_photos(examples: Sequence[Example]) -> list[Example]:
    """Return one example per photo; its group is the example it is of."""
    return [
        make_example(
            example.with_pictures(()).prompt,
            cluster=example.id,
            pictures=[picture],
            label=example.label,
            fields={"number": number},
        )
        for example in examples
        for number, picture in enumerate(example.pictures)
    ]


def _join(example: Example) -> str:
    """Return the mission and the summaries, without the texts that all prompts share."""
    return "\n".join([example.fields["task_type"], *example.fields["stage_a_summaries"].values()])
