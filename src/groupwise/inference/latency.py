"""How long a policy takes for an answer that is asked alone."""

import time
from collections.abc import Sequence

from groupwise.core import Example
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.models import Policy


def time_answers(
    policy: Policy, examples: Sequence[Example], *, sampling: Sampling, num_timed: int
) -> list[float | None]:
    """Return the seconds per answer of the first ``num_timed`` examples, and None for the others.

    Each is asked in a batch of its own, as somebody who waits for it would.
    """
    engine = LocalEngine(policy, batch_size=1)
    latencies_s: list[float | None] = [None] * len(examples)
    for number, example in enumerate(examples[:num_timed]):
        started = time.perf_counter()
        engine.generate([example], sampling=sampling)
        latencies_s[number] = time.perf_counter() - started
    return latencies_s
