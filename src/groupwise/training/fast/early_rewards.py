"""Rewards that are at work while the reference model is: judges and sandboxes mostly wait."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import nn


class EarlyReward:
    """A reward function whose values may be asked for before they are needed.

    Args:
        function: in the call shape of TRL's reward functions.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reward")
        self._asked: Future[Any] | None = None

    def start(self, **given: Any) -> None:
        """Begin to score these completions; the next call gives the result."""
        self._asked = self._pool.submit(self.function, **given)

    def __call__(self, **given: Any) -> Any:
        """Return the values that were begun, or else score now; raises what scoring raised."""
        asked, self._asked = self._asked, None
        return self.function(**given) if asked is None else asked.result()


def start_early(function: Any) -> Any:
    """Return the function as an EarlyReward; models and coroutines stay as they are."""
    called = getattr(function, "__call__", function)  # noqa: B004 (an object's own coroutine)
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    return function if is_async or isinstance(function, nn.Module) else EarlyReward(function)


def start_all(functions: Sequence[Any], rows: Sequence[Mapping[str, Any]], **given: Any) -> None:
    """Begin to score completions with every function that is an EarlyReward.

    Args:
        functions: of rewards.
        rows: of the data set, one for each completion; their columns are given, too.
        given: what TRL gives beside the columns.
    """
    names = set(rows[0]) - {"prompt", "completion", "completion_ids"}
    columns = {name: [row[name] for row in rows] for name in names}
    for function in functions:
        if isinstance(function, EarlyReward):
            function.start(**given, **columns)
