"""Draws the words of one problem."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

from groupwise_drawn.problems.phrases import NAMES, PHRASES, Language

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_WORDINGS: Mapping[Split, tuple[int, ...]] = {"train": (0, 1), "validation": (2,), "test": (3,)}


@dataclass(frozen=True, slots=True)
class Pen:
    """What a problem is drawn with.

    Attributes:
        rng: of all that is drawn.
        split: whose wordings are used.
        language: of the problem.
    """

    rng: random.Random
    split: Split
    language: Language

    def say(self, slot: str, **values: object) -> str:
        """Return one of the split's wordings, filled."""
        wordings = PHRASES[self.language][slot]
        return wordings[self.rng.choice(_WORDINGS[self.split])].format(**values)

    def pick(self, words: Sequence[str]) -> str:
        """Return one of the words."""
        return self.rng.choice(words)

    def name(self) -> str:
        """Return a person's name."""
        return self.pick(NAMES[self.language])

    def ask_choice(self, question: str, answer: str, others: Sequence[str]) -> dict[str, Any]:
        """Return the fields of a question with the answer among four options."""
        options = [answer, *self.rng.sample([word for word in others if word != answer], 3)]
        self.rng.shuffle(options)
        lines = [
            f"{letter}. {word}" for letter, word in zip(ascii_uppercase, options, strict=False)
        ]
        return {
            "problem_type": "qa",
            "problem": "\n".join([question, *lines]),
            "ground_truth": ascii_uppercase[options.index(answer)],
            "options": tuple(options),
        }
