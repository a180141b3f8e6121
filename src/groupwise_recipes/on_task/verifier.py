"""The visual verifier: whether the words on a screen fit a task, by rule and without a model of ours.

The words of a task tell which activities it is, those of a screen which activities it shows. What
has no words on the screen (the bar of a player, a feed of cards) is not covered.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.core import DataError, Picture
from groupwise_recipes.on_task.vocabulary import TermFinder, list_distractions, load_vocabularies

TITLE_SHARE = 0.12
"""Share of the height that shows window titles, menus, tabs and addresses."""
ReadText = Callable[[Picture, float], Sequence[str]]
"""Returns the lines of the upper share of a picture.

Raises:
    DataError: if the picture cannot be read.
"""


@dataclass(frozen=True, slots=True)
class Finding:
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
        self._found: dict[tuple[str, str], Finding] = {}

    def verify(self, picture: Picture, task: str) -> Finding:
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

    def _verify(self, picture: Picture, task: str) -> Finding:
        wanted = self._tasks.weigh(task)
        try:
            for share in (TITLE_SHARE, 1.0):
                shown = self._screens.weigh("\n".join(self._read(picture, share)))
                found = decide(wanted, shown, distractions=self._distractions)
                if found.score is not None:
                    break
        except DataError as error:
            return Finding(None, str(error), has_failed=True)
        return found


def decide(
    wanted: Mapping[str, int], shown: Mapping[str, int], *, distractions: frozenset[str]
) -> Finding:
    """Return what the terms of a task and of a screen say.

    A task that tells no activity is some work: where a screen shows distractions alone it is
    off-task, and otherwise it is not known whether it is that work.

    Args:
        wanted: number of terms in the task by activity.
        shown: number of terms on the screen by activity.
        distractions: activities that are no work.
    """
    total = sum(shown.values())
    if not total:
        return Finding(None, "no known word is on the screen")
    named = f"the screen shows {_name(shown)}, the task is {_name(wanted) or 'not known'}"
    if not wanted:
        is_distraction = shown.keys() <= distractions
        return Finding(0.0 if is_distraction else None, named)
    score = sum(number for activity, number in shown.items() if activity in wanted) / total
    return Finding(None if score == 0.5 else score, named)


def _name(activities: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(activities.items()))
