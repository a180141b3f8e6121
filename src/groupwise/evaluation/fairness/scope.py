"""Scope: which steps, data and sections of the config stand behind one policy of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Scope:
    """Which parts of a run stand behind a policy.

    Attributes:
        steps: its training steps in order; None where the run does not say.
        every_step: training steps of all policies of the run.
        reads: by step, ``evaluate`` among them: names of data.
        sections: by step: sections of the config.
    """

    steps: tuple[str, ...] | None = None
    every_step: frozenset[str] = frozenset()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def evaluated(self) -> frozenset[str]:
        """Names of data that the evaluation reads."""
        return frozenset(self.reads.get("evaluate", ()))

    @property
    def read(self) -> frozenset[str] | None:
        """Names of data that training and evaluation read; None where not all is recorded."""
        if self.steps is None or not {"evaluate", *self.steps} <= set(self.reads):
            return None
        return self.evaluated.union(*(self.reads[step] for step in self.steps))


def read_scope(conditions: Mapping[str, Any] | None, policy: str) -> Scope:
    """Return what stands behind a policy by the conditions of its run."""
    if conditions is None:
        return Scope()
    lineage: Mapping[str, Sequence[str]] = conditions.get("lineage", {})
    steps = lineage.get(policy)
    return Scope(
        steps=None if steps is None else tuple(steps),
        every_step=frozenset(step for steps in lineage.values() for step in steps),
        reads={name: tuple(items) for name, items in conditions.get("reads", {}).items()},
        sections={name: tuple(items) for name, items in conditions.get("sections", {}).items()},
    )
