"""Scope: which steps, data and settings stand behind one policy of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.core import Effect
from groupwise.evaluation.policies import Policies, RunPolicy

EVALUATE = "evaluate"
Plan = Mapping[str, Mapping[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which parts of a run stand behind a policy.

    Attributes:
        chain: the policy behind all those that it was trained from; empty where the run does not
            say.
        evaluated: splits that the policy was asked about.
        reads: by step behind the policy, ``evaluate`` among them: paths of the config; None where
            the run does not say.
        uses: by step of the run: the steps that it uses.
        effects: of settings that do not simply count, by path.
    """

    chain: tuple[RunPolicy, ...] = ()
    evaluated: frozenset[str] = frozenset()
    reads: Mapping[str, Sequence[str]] | None = None
    uses: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])

    @property
    def steps(self) -> tuple[str, ...] | None:
        """Its training steps in order; None where the run does not say."""
        return tuple(one.step for one in self.chain if one.step) if self.chain else None

    @property
    def data(self) -> frozenset[str] | None:
        """Names of data that training and evaluation read; None where not all is recorded."""
        trained = {name for one in self.chain for name in one.trained_on}
        return self.evaluated | trained if self.chain else None

    def is_behind(self, key: str) -> bool:
        """Return whether a step behind the policy reads a setting, or may read it."""
        reads = None if self.reads is None else [p for paths in self.reads.values() for p in paths]
        return reads is None or covers(reads, key)

    def prepares(self, key: str) -> bool:
        """Return whether a step that makes data, and trains nothing, reads a setting."""
        making = set(self.reads or ()) - {EVALUATE, *(self.steps or ())}
        return covers([path for step in making for path in (self.reads or {})[step]], key)

    def list_settings(self, keys: Iterable[str], step: str, *, earlier: bool = False) -> list[str]:
        """Return the settings among ``keys`` that a step reads.

        Args:
            keys: of the config.
            step: whose.
            earlier: also those of the steps that it uses, directly or not.
        """
        steps = close(self.uses, [step]) if earlier else {step}
        paths = [path for name in steps for path in (self.reads or {}).get(name, ())]
        return [key for key in keys if covers(paths, key)]


def covers(paths: Iterable[str], key: str) -> bool:
    """Return whether a setting is one of the paths, in one of them, or a section with one."""
    return any(
        key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.") for path in paths
    )


def close(
    uses: Mapping[str, Sequence[str]], steps: Iterable[str], *, without: Iterable[str] = ()
) -> set[str]:
    """Return steps and all that they use, directly or not; ``without`` are not entered."""
    left, found = list(steps), set(without)
    passed = set(without)
    while left:
        step = left.pop()
        if step not in found:
            found.add(step)
            left += uses.get(step, ())
    return found - passed


def read_scope(
    policies: Policies,
    plan: Plan,
    name: str,
    *,
    evaluated: Iterable[str] = (),
    effects: Mapping[str, Effect] | None = None,
) -> Scope:
    """Return what stands behind a policy.

    That is what its training steps use, and what the evaluation uses beside the trainings of other
    policies.

    Args:
        policies: of the run.
        plan: of the run; empty where it does not say.
        name: of the policy.
        evaluated: splits that it was asked about.
        effects: of its settings.
    """
    chain = policies.list_ancestors(name)
    if any(one.kind == "unknown" for one in chain):
        return Scope(evaluated=frozenset(evaluated), effects=effects or {})
    uses: dict[str, Any] = {step: row.get("uses", ()) for step, row in plan.items()}
    own = {one.step for one in chain if one.step}
    others = {one.step for one in policies.listed if one.step} - own
    behind = close(uses, [*own, EVALUATE], without=others - close(uses, own))
    reads = {step: plan[step].get("reads", ()) for step in plan if step in behind}
    return Scope(chain, frozenset(evaluated), reads if plan else None, uses, effects or {})
