"""Rewards that say they may be at work while the policy is scored: distant judges mostly wait.

All others are TRL's to call: one after the other, on the main thread, when scoring is done.
"""

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
        self._begun: tuple[Any, Future[Any]] | None = None

    def start(self, *, completion_ids: Any, **given: Any) -> None:
        """Begin to score these completions; the next call with them gives the result."""
        values = self._pool.submit(self.function, completion_ids=completion_ids, **given)
        self._begun = completion_ids, values

    def __call__(self, *, completion_ids: Any, **given: Any) -> Any:
        """Return the values that were begun, or else score now; raises what scoring raised.

        A round that failed leaves values of other completions.
        """
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] is completion_ids:
            return begun[1].result()
        return self.function(completion_ids=completion_ids, **given)


def start_early(function: Any) -> Any:
    """Return the function as an EarlyReward if it says ``runs_beside_scoring``.

    Models and coroutines stay as they are.
    """
    called = getattr(function, "__call__", function)  # noqa: B004 (an object's own coroutine)
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    may_run = getattr(function, "runs_beside_scoring", False) and not isinstance(
        function, nn.Module
    )
    return EarlyReward(function) if may_run and not is_async else function


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
