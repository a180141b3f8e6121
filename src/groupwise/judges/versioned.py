"""The version of a judge: a digest of all that its verdicts depend on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

from groupwise.core import digest_json


class Versioned(ABC):
    """Something whose version is the digest of its description."""

    @property
    def version(self) -> str:
        """Digest of what ``describe`` returns."""
        return self._version

    @cached_property
    def _version(self) -> str:
        return digest_json(dict(self.describe()))

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
