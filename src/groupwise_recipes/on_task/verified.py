"""What the visual verifier does in a run: it pays a part of the reward, and is a baseline."""

from collections.abc import Sequence
from pathlib import Path

from groupwise.core import Completion, Example, Picture, Score
from groupwise.evaluation.predictions import Prediction, RunPolicy
from groupwise.judges import ReplyCache
from groupwise.rewards import LabelParser, RewardKind
from groupwise_recipes.on_task.ocr import TextReader
from groupwise_recipes.on_task.verifier import VisualVerifier

VISUAL_VERIFIER = RunPolicy(
    name="visual_verifier",
    title="Visual verifier",
    title_zh="视觉校验器",
    note="a rule on the words that the screen shows; undecided counts as no answer",
    note_zh="按屏幕上的文字判断的规则；无法判断时算作没有回答",
    kind="baseline",
    step="baselines",
)


def open_verifier(folder: Path) -> VisualVerifier:
    """Return the verifier; the words of screens are kept in ``folder``."""
    reader = TextReader(ReplyCache(folder / "words.sqlite", max_mib=256))

    def read(picture: Picture, share: float) -> Sequence[str]:
        return reader.read(picture, top=share)

    return VisualVerifier(read)


class Verified:
    """Pays how far the words on the screen speak for the label that the policy gave.

    Where they decide nothing it weighs nothing, for any answer; where a screen cannot be read, no
    answer about it has a score.
    """

    name = "visual_verifier"
    kind: RewardKind = "judgement"

    def __init__(self, verifier: VisualVerifier, parser: LabelParser) -> None:
        self.verifier = verifier
        self.parser = parser

    def applies_to(self, example: Example) -> bool:
        """Return whether the screen decides, or cannot be read."""
        found = self.verifier.verify(*_read_pair(example))
        return found.score is not None or found.has_failed

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        answer = self.parser.parse(completion.text)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        found = self.verifier.verify(*_read_pair(example))
        if found.score is None or answer.label == self.parser.labels[0]:
            return Score(found.score, found.reason)
        return Score(1 - found.score, found.reason)


def predict_verified(
    verifier: VisualVerifier, test: Sequence[Example], labels: Sequence[str]
) -> list[Prediction]:
    """Return what the verifier alone says of labelled examples; undecided is no answer."""
    return [_predict(verifier, example, labels) for example in test]


def _predict(verifier: VisualVerifier, example: Example, labels: Sequence[str]) -> Prediction:
    found = verifier.verify(*_read_pair(example))
    on_task, off_task = labels
    shares = None if found.score is None else {on_task: found.score, off_task: 1 - found.score}
    predicted = None if shares is None else max(shares, key=lambda label: shares[label])
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=VISUAL_VERIFIER.name,
        label=str(example.label),
        predicted=predicted,
        text=predicted or "",
        reason="" if predicted else found.reason,
        probabilities=shares,
        pictures=tuple(str(picture.path) for picture in example.pictures),
        picture_digests=tuple(picture.digest for picture in example.pictures),
        fields=dict(example.fields),
    )


def _read_pair(example: Example) -> tuple[Picture, str]:
    return example.pictures[0], str(example.fields["task"])
