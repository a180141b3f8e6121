"""An answer that was shown to people, and what they said of it."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer as it was served.

    Attributes:
        id: of the answer.
        at_s: when it was given, in seconds since the epoch.
        row: what was asked, JSON values by column.
        session: what is never split: the items of one sitting. Empty: the item is one of its own.
        pictures: digest of each picture's content, in order.
        prediction: what the policy answered; None: it gave no answer.
        confidence: probability of it in [0, 1], or None where not known.
        version: of the model that answered.
        decided_by: ``policy`` or ``judge``, whose label was given; None: nobody's, or not known.
        judge_label: verdict of the judge; None: there was none.
        judge_probability: that the judge gives its label, in [0, 1].
    """

    id: str
    at_s: float
    row: Mapping[str, Any]
    session: str
    pictures: tuple[str, ...]
    prediction: str | None
    confidence: float | None
    version: str
    decided_by: str | None = None
    judge_label: str | None = None
    judge_probability: float | None = None


@dataclass(frozen=True, slots=True)
class GivenLabel:
    """What one person says of an answer, their last word.

    Attributes:
        person: from ``name_person``.
        label: the right answer.
        at_s: when it was said, in seconds since the epoch.
    """

    person: str
    label: str
    at_s: float


@dataclass(frozen=True, slots=True)
class FeedbackItem:
    """An answer with all that people said of it.

    Attributes:
        shown: the answer.
        labels: by person, in the order of their last words; at least one.
    """

    shown: Shown
    labels: tuple[GivenLabel, ...]

    @property
    def label(self) -> str | None:
        """What all of them say; None where they disagree: nothing is learned from it then."""
        said = {given.label for given in self.labels}
        return said.pop() if len(said) == 1 else None

    @property
    def is_correction(self) -> bool:
        """Whether people agree on something else than the policy answered."""
        return self.label is not None and self.label != self.shown.prediction

    @property
    def at_s(self) -> float:
        """When the last of them spoke, in seconds since the epoch."""
        return max(given.at_s for given in self.labels)


def name_person(user: str, key: bytes) -> str:
    """Return the name under which a user's labels are kept: a keyed digest (HMAC-SHA-256).

    Without the key nobody can find a user's labels, or try names until one fits.
    """
    return hmac.new(key, user.encode(), hashlib.sha256).hexdigest()
