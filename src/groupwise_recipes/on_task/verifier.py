"""The visual verifier: a rule that says by the words on a screen whether it fits a task.

The words of a task tell which activities it is, those of a screen which activities it shows. What
has no words on the screen (the bar of a player, a feed of cards) is not covered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.core import DataError, Picture
from groupwise_recipes.on_task.vocabulary import (
    TermFinder,
    Weighed,
    list_distractions,
    load_vocabularies,
)

TITLE_SHARE = 0.12
"""Share of the height that shows window titles, menus, tabs and addresses."""
ReadText = Callable[[Picture, float], Sequence[str]]
"""Returns the lines of the upper share of a picture.

Raises:
    DataError: if the picture cannot be read.
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the verifier says of a screen and a task.

    Attributes:
        score: share of the screen's terms that tell an activity of the task, in [0, 1]: above 1/2
            it is on-task, below off-task; None where nothing is decided.
        reason: what the score rests on, or why there is none.
        has_failed: the screen could not be read.
    """

    score: float | None
    reason: str
    has_failed: bool = False


class VisualVerifier:
    """Decides by the title strip, and by the whole screen where that decides nothing.

    Args:
        read: reads the text in pictures.
    """

    def __init__(self, read: ReadText) -> None:
        vocabularies = load_vocabularies()
        self._read = read
        self._tasks = TermFinder(vocabularies, "tasks")
        self._screens = TermFinder(vocabularies, "screens")
        self._distractions = list_distractions(vocabularies)
        self._found: dict[tuple[str, str], Decision] = {}

    def verify(self, picture: Picture, task: str) -> Decision:
        """Return what the words say; what was said before of the same two is said again."""
        key = (picture.digest, task)
        if key not in self._found:
            self._found[key] = self._verify(picture, task)
        return self._found[key]

    def count(self) -> dict[str, int]:
        """Return how many pairs of a screen and a task were decided, undecided and failed."""
        found = self._found.values()
        num_failed = sum(one.has_failed for one in found)
        num_decided = sum(one.score is not None for one in found)
        return {
            "num_decided": num_decided,
            "num_undecided": len(found) - num_decided - num_failed,
            "num_failed": num_failed,
        }

    def _verify(self, picture: Picture, task: str) -> Decision:
        wanted = self._tasks.weigh(task)
        try:
            for share in (TITLE_SHARE, 1.0):
                shown = self._screens.weigh("\n".join(self._read(picture, share)))
                found = decide(wanted, shown, distractions=self._distractions)
                # What a title tells is on the whole screen, too: it would say no more of a task
                # that tells nothing.
                if found.score is not None or (shown.is_telling and not wanted.numbers):
                    break
        except DataError as error:
            return Decision(None, str(error), has_failed=True)
        return found


def decide(wanted: Weighed, shown: Weighed, *, distractions: frozenset[str]) -> Decision:
    """Return what the terms of a task and of a screen say.

    Weak terms on a screen speak for a task and not against one: a browser may show anything. A task
    that tells no activity is some work: a screen that shows distractions alone is off-task, and of
    any other it is not known whether it shows that work.
    """
    total = sum(shown.numbers.values())
    if not total:
        return Decision(None, "no known word is on the screen")
    told = f"the screen tells {_name(shown)}, the task {_name(wanted) or 'nothing'}"
    if not wanted.numbers:
        return Decision(0.0 if shown.numbers.keys() <= distractions else None, told)
    score = sum(n for activity, n in shown.numbers.items() if activity in wanted.numbers) / total
    is_open = score == 0.5 or (shown.are_weak and score < 0.5)
    return Decision(None if is_open else score, told)


def _name(weighed: Weighed) -> str:
    return ", ".join(f"{activity} ({n})" for activity, n in sorted(weighed.numbers.items()))
