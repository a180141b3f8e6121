"""The policies of a run as data: what each is called, where it comes from, what it cannot see.

The step ``evaluate`` writes them in the order of reports. Reports, comparisons and the fairness
gate know no policy and no training step by its name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from groupwise.core import EvaluationError, read_json, write_json
from groupwise.evaluation.predictions import read_as

POLICIES_FILE = "evaluate/policies.json"
PolicyKind = Literal["baseline", "bound", "prompted", "trained", "unknown"]
Sight = Literal["picture", "text", "everything"]
Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """One policy of a run.

    ``kind`` is ``baseline``: no language model answers; ``bound``: it has seen the answers, so it
    is nothing to be compared with; ``prompted``: the model before any training; ``trained``: what a
    training step made of it; ``unknown``: the run does not say.
    """

    name: str  # as in predictions
    title: str
    title_zh: str
    note: str = ""  # what it is, in a few words
    note_zh: str = ""
    kind: PolicyKind
    step: str | None = None  # that trained it; None where nothing was trained
    trained_from: str | None = None  # the policy that training started from; None: the base
    trained_on: tuple[str, ...] = ()  # splits that its step reads
    blind_to: tuple[Sight, ...] = ()  # what of a task it does not see
    weights: str | None = None  # folder in the run folder; None where it has none of its own
    inapplicable: tuple[str, ...] = ()  # measures of what is not its task
    # ``num_steps`` (of the optimizer), ``num_samples`` and ``num_tokens`` of its step.
    budget: Mapping[str, float] = field(default_factory=dict[str, float])


_POLICIES = TypeAdapter(tuple[RunPolicy, ...])


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a run, in the order of reports; a name that is not among them is unknown."""

    listed: tuple[RunPolicy, ...] = ()

    def find(self, name: str) -> RunPolicy:
        """Return a policy by its name."""
        unknown = RunPolicy(name=name, title=name, title_zh=name, kind="unknown")
        return next((one for one in self.listed if one.name == name), unknown)

    def title(self, name: str, language: Language = "en") -> str:
        """Return what a policy is called, or what a training step makes; otherwise the name."""
        place = self.rank(name)
        found = self.listed[place] if place < len(self.listed) else self.find(name)
        return found.title_zh if language == "zh" else found.title

    def describe(self, name: str, language: Language = "en") -> str:
        """Return what a policy is, in a few words; empty where nobody says."""
        found = self.find(name)
        return found.note_zh if language == "zh" else found.note

    def rank(self, name: str) -> int:
        """Return the place of a policy, or of what a step trains; unknown names come last."""
        by_name = [n for n, one in enumerate(self.listed) if one.name == name]
        by_step = [n for n, one in enumerate(self.listed) if one.step == name]
        return (by_name + by_step + [len(self.listed)])[0]

    def sort(self, names: Iterable[str]) -> list[str]:
        """Return names in the order of reports; unknown ones follow in the order they came in."""
        return sorted(dict.fromkeys(names), key=self.rank)

    def choose_last(self, names: Iterable[str]) -> str:
        """Return the last name that is known, or the last of all."""
        ordered = self.sort(names)
        known = [name for name in ordered if self.find(name).kind != "unknown"]
        return (known or ordered)[-1]

    def is_baseline(self, name: str) -> bool:
        """Whether something other than the model answers."""
        return self.find(name).kind == "baseline"

    def list_ancestors(self, name: str) -> tuple[RunPolicy, ...]:
        """Return a policy behind all those that it was trained from, the first one first."""
        found = self.find(name)
        before = self.list_ancestors(found.trained_from) if found.trained_from else ()
        return (*before, found)


def write_policies(run: Path, policies: Sequence[RunPolicy]) -> None:
    """Write what policies a run has, in the order of reports, each with its training's budget.

    Raises:
        EvaluationError: if a name appears twice, or a policy was trained from one that does not
            stand before it.
    """
    _check_order(policies, run / POLICIES_FILE)
    counted = [
        replace(one, budget=read_json(run / one.step / "budget.json", dict))
        if one.step and (run / one.step / "budget.json").is_file()
        else one
        for one in policies
    ]
    write_json(run / POLICIES_FILE, _POLICIES.dump_python(tuple(counted), mode="json"))


def read_policies(run: Path) -> Policies:
    """Return the policies of a run; of one that did not write them nothing is known.

    Raises:
        DataError: if the file is not a JSON list.
        EvaluationError: if it is not one of policies.
    """
    path = run / POLICIES_FILE
    if not path.is_file():
        return Policies()
    found = read_as(path, _POLICIES)
    _check_order(found, path)
    return Policies(found)


def _check_order(policies: Sequence[RunPolicy], path: Path) -> None:
    seen: set[str] = set()
    for one in policies:
        if one.name in seen or (one.trained_from is not None and one.trained_from not in seen):
            raise EvaluationError(
                f"{path} is damaged",
                got=f"{one.name} (trained from {one.trained_from}) among {seen}",
                expected="each policy once and behind the one it was trained from",
                fix="run the step evaluate again",
            )
        seen.add(one.name)
