"""Wrong tokens: whoever has sent many of them is not listened to for a while."""

import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

_MOST, _PER_S = 10.0, 0.1
_MAX_ADDRESSES = 10_000

TOO_MANY = "too many wrong tokens came from this address; wait a little"
RETRY_AFTER = {"Retry-After": str(round(1 / _PER_S))}


class Guesses:
    """Counts wrong tokens by address; ten at once, then one each ten seconds.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def are_too_many(self, address: str) -> bool:
        """Say whether what comes from an address is not even looked at now."""
        return self._count(address) > _MOST - 1

    def note(self, address: str) -> None:
        """Count a wrong token."""
        self._known[address] = (self._count(address) + 1, self._clock())
        self._known.move_to_end(address)
        if len(self._known) > _MAX_ADDRESSES:
            self._known.popitem(last=False)

    def _count(self, address: str) -> float:
        count, at_s = self._known.get(address, (0.0, 0.0))
        return max(0.0, count - (self._clock() - at_s) * _PER_S)


def find_address(scope: Scope) -> str:
    """Return where a request comes from; behind a proxy of this machine, where it says so."""
    client = scope.get("client")
    return client[0] if client else ""
