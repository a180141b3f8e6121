"""What is asked and what is answered, whichever policy of whichever recipe answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from groupwise.core import Example, digest_file, digest_json

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Request:
    """A row to be answered: the columns of the recipe's data, without its label.

    Attributes:
        id: what the asker calls it.
        row: JSON values by column.
        pictures: files in order.
    """

    id: str
    row: Mapping[str, Any]
    pictures: tuple[Path, ...] = ()

    def digest(self) -> str:
        """Return the digest of row and pictures; one that cannot be read counts as missing."""
        return digest_json([dict(self.row), [_digest_picture(path) for path in self.pictures]])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a policy says of a request.

    Attributes:
        text: the policy's own words; None: it could not be asked.
        answer: what the recipe's parser reads in them; None: there is no answer.
        reason: why there is none, or the policy's reason where answers have one.
        confidence: probability of the answer in [0, 1], or None where not known.
        needs_person: whether a person should look: no answer, or one that is not to be trusted.
        details: what else the policy gave on the way (such as a line for each picture).
    """

    text: str | None
    answer: str | None
    reason: str = ""
    confidence: float | None = None
    needs_person: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Predictor(Protocol):
    """Answers questions; called from one thread at a time but for ``make_question``."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Every answer there is; empty if answers are open."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return what its answers depend on (weights, prompts, decoding), as JSON values."""
        ...

    def make_question(self, request: Request, folder: Path) -> Example:
        """Return what the policy is asked.

        Args:
            request: row and pictures.
            folder: for pictures that are stored; it is there until there is an answer.

        Raises:
            DataError: if nothing can be asked, such as for a missing column.
        """
        ...

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return one answer for each question, in order.

        Raises:
            GroupwiseError: if one of them cannot be answered, such as a prompt that is too long.
        """
        ...


def try_each(work: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T]) -> list[R | Exception]:
    """Return what becomes of each item: together, or one by one if they fail together."""
    try:
        found = work(items)
        if len(found) != len(items):
            raise ValueError(f"{len(items)} questions got {len(found)} answers")
        return list(found)
    except Exception as error:  # noqa: BLE001 (one item must not take the others with it)
        if len(items) == 1:
            return [error]
    return [result for item in items for result in try_each(work, [item])]


def _digest_picture(path: Path) -> str | None:
    try:
        return digest_file(path)
    except OSError:
        return None
