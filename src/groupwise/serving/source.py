"""Where predictors come from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from groupwise.serving.predictor import Predictor


@dataclass(frozen=True, slots=True)
class Opened:
    """A predictor that is ready to answer.

    Attributes:
        predictor: what answers.
        version: of all that its answers depend on.
        close: lets go of it, when it answers no more.
    """

    predictor: Predictor
    version: str
    close: Callable[[], object] = lambda: None


class Source(Protocol):
    """Where predictors come from."""

    def open(self) -> Opened:
        """Open the version that is to be served now; it takes a while.

        Raises:
            GroupwiseError: if it cannot be opened, or is another one than it should be.
        """
        ...

    def find_version(self) -> str:
        """Return the name of the version that is to be served now.

        Raises:
            GroupwiseError: if nothing says so, or there is but one for good.
        """
        ...
