"""Differences between runs, each classed: intended, harmless or confounding, with one sentence.

Everything that no rule calls intended or harmless is confounding, and so is what only some of
the runs have recorded. Naming something with ``factors`` changes classes and never what is listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core import EvaluationError, suggest_name
from groupwise.evaluation.fairness.classing import (
    NOT_NAMEABLE,
    Context,
    DifferenceKind,
    class_difference,
    is_named,
    make_context,
)
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.finding import (
    Found,
    ItemRelation,
    find_unlike_facts,
    find_unlike_items,
)
from groupwise.evaluation.page.words import Language, explain

_ORDER: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
_OF_ITEMS = ("items", "labels")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in all runs.

    Attributes:
        aspect: what it is about: ``data``, ``config``, ``seeds``, ``packages`` …
        key: what exactly: a key of the config, a file, a package.
        values: by the run's name; a run that has not recorded it is not there.
        kind: ``intended``: it is compared, or follows from that; ``harmless``: it is on the
            documented list; ``confounding``: everything else.
        reason: fixed name of the sentence that says why, and what to do.
        words: what stands in the sentence's places.
    """

    aspect: str
    key: str
    values: Mapping[str, Any]
    kind: DifferenceKind
    reason: str
    words: Mapping[str, str]

    def explain(self, language: Language = "en") -> str:
        """Return the sentence in a language."""
        return explain(self.reason, self.words, language)


def find_differences(
    runs: Sequence[RunFacts],
    relations: Sequence[ItemRelation],
    *,
    factors: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Return all differences, the confounding ones first.

    Args:
        runs: two or more.
        relations: of their items.
        factors: keys of the config, their sections, or aspects that are compared.

    Raises:
        EvaluationError: if ``factors`` names what no run has.
    """
    check_factors(runs, factors)
    found = [*find_unlike_items(runs, relations), *find_unlike_facts(runs)]
    context = make_context(runs, relations, found, factors)
    classed = [_class(one, context) for one in found]
    return tuple(sorted(classed, key=lambda one: (_ORDER.index(one.kind), one.aspect, one.key)))


def check_factors(runs: Sequence[RunFacts], factors: Sequence[str]) -> None:
    """Refuse names that no run has.

    Raises:
        EvaluationError: with the nearest name.
    """
    facts = sorted({name for run in runs for name in run.facts})
    for name in factors:
        is_known = name in _OF_ITEMS or any(is_named(fact, [name]) for fact in facts)
        if not is_known:
            aspects = {fact.partition("/")[0] for fact in facts} - set(NOT_NAMEABLE)
            known = {fact.partition("/")[2] for fact in facts if fact.startswith("config/")}
            hint = suggest_name(name, sorted(known | aspects)) or "; give a key of the config"
            raise EvaluationError(f"--factor: no run has {name!r}{hint}")


def _class(found: Found, context: Context) -> Difference:
    kind, reason, given = class_difference(found, context)
    words = {"key": found.key, "cause": "", "runs": ", ".join(found.lacking), **given}
    return Difference(found.aspect, found.key, found.values, kind, reason, words)
