"""Which sessions teach and which test, and which answers of a session that tests are asked about.

Both are drawn by names before anybody sees an answer. Whoever tests on what people happened to
correct tests where the served version is wrong, and there any other version looks better.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core import derive_seed
from groupwise.feedback.items import FeedbackItem, Shown

Side = Literal["teaches", "tests"]
_ALL = 2**31


def name_session(shown: Shown) -> str:
    """Return the session of an answer; without one it is a session of its own."""
    return shown.session or shown.id


@dataclass(frozen=True, slots=True)
class Sides:
    """How the sessions of a loop are divided, for good.

    Attributes:
        seed: of the loop.
        test_share: of the sessions that test, in (0, 1).
    """

    seed: int
    test_share: float

    def find(self, session: str) -> Side:
        """Return the side of a session."""
        is_test = derive_seed(self.seed, "side", session) < self.test_share * _ALL
        return "tests" if is_test else "teaches"

    def draw_asked(self, shown: Iterable[Shown], num: int) -> dict[str, list[Shown]]:
        """Return the answers that people are asked about, by session that tests.

        Args:
            shown: answers, whether anybody spoke of them or not.
            num: the most answers of a session; those whose ids come first in a drawn order.
        """
        sessions: dict[str, list[Shown]] = {}
        for one in shown:
            sessions.setdefault(name_session(one), []).append(one)
        return {
            name: sorted(own, key=lambda one: (derive_seed(self.seed, "asked", one.id), one.id))[
                :num
            ]
            for name, own in sessions.items()
            if self.find(name) == "tests"
        }


def alternate(asked: Sequence[Shown], others: Sequence[Shown]) -> list[Shown]:
    """Return answers in turn: one that people are asked about, then one of the others, each once.

    So sessions become complete, and people still see what teaches most.
    """
    first = {one.id for one in asked}
    rest = [one for one in others if one.id not in first]
    pairs = [one for pair in zip(asked, rest, strict=False) for one in pair]
    num = min(len(asked), len(rest))
    return [*pairs, *asked[num:], *rest[num:]]


def list_complete(
    asked: Mapping[str, Sequence[Shown]], items: Mapping[str, FeedbackItem]
) -> list[FeedbackItem]:
    """Return what people said of the sessions in which they said it of every answer asked about.

    Answers that they disagree on count as said, and are left out: nobody knows what is right.

    Args:
        asked: answers by session, from ``Sides.draw_asked``.
        items: what people said, by the id of the answer.
    """
    whole = [own for own in asked.values() if all(one.id in items for one in own)]
    found = [items[one.id] for own in whole for one in own]
    return [item for item in found if item.label is not None]
