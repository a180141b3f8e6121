"""What happens to variables on the paths through a part of a program.

A part is summed up once, whatever comes before it: by which ways it ends, which variables each
way assigns or takes the value from, and which have to be assigned before it. So parts are put
together without being looked at again, and the work grows with the program's length only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from groupwise_recipes.workflows.programs.scopes import Scope

Variable = tuple[Scope, str]
End = Literal["next", "break", "continue", "return", "raise"]
_NONE: frozenset[Variable] = frozenset()


@dataclass(frozen=True)
class Change:
    """What surely has a value after a path, and what may have lost it; disjoint."""

    assigned: frozenset[Variable] = _NONE
    lost: frozenset[Variable] = _NONE

    def then(self, after: "Change") -> "Change":
        """Return both, one after the other."""
        return Change(
            after.assigned | (self.assigned - after.lost),
            after.lost | (self.lost - after.assigned),
        )

    def either(self, other: "Change") -> "Change":
        """Return what holds if it is not known which of both happened."""
        return Change(self.assigned & other.assigned, self.lost | other.lost)


@dataclass(frozen=True)
class Paths:
    """The paths through a part of a program.

    Attributes:
        ends: the ways in which it ends, with what has changed then. "next" is the usual one;
            without it, what follows is never reached.
        reads: variables that it reads and that have to be assigned before, each with the first
            line.
        faults: variables that it may read although they have no value, whatever was before.
    """

    ends: Mapping[End, Change]
    reads: Mapping[Variable, int] = field(default_factory=dict)
    faults: frozenset[tuple[Variable, int]] = frozenset()

    def then(self, after: "Paths") -> "Paths":
        """Return this part followed by another."""
        if "next" not in self.ends:
            return self
        change = self.ends["next"]
        others: dict[End, Change] = {end: c for end, c in self.ends.items() if end != "next"}
        shifted: dict[End, Change] = {end: change.then(c) for end, c in after.ends.items()}
        known = change.assigned | change.lost
        reads = {v: line for v, line in after.reads.items() if v not in known}
        faults = {(v, line) for v, line in after.reads.items() if v in change.lost}
        return Paths(
            _join(others, shifted),
            _first_lines(self.reads, reads),
            self.faults | after.faults | faults,
        )

    def either(self, other: "Paths") -> "Paths":
        """Return this part or another, whichever is taken."""
        return Paths(
            _join(self.ends, other.ends),
            _first_lines(self.reads, other.reads),
            self.faults | other.faults,
        )

    def ending(self, *ends: End) -> "Paths":
        """Return the paths that end in some ways, all going on."""
        changes = [self.ends[end] for end in ends if end in self.ends]
        return Paths(_merge(changes), self.reads, self.faults)

    def without(self, *ends: End) -> "Paths":
        """Return the paths that end in the other ways."""
        left: dict[End, Change] = {e: c for e, c in self.ends.items() if e not in ends}
        return Paths(left, self.reads, self.faults)

    def finish(self, last: "Paths") -> "Paths":
        """Return this part with another at its end, in whichever way it ends."""
        result = Paths({}, self.reads, self.faults)
        for end, change in self.ends.items():
            through = Paths({"next": change}).then(last)
            if "next" in through.ends and end != "next":
                gone = through.without("next")
                ends = _join(gone.ends, {end: through.ends["next"]})
                through = Paths(ends, through.reads, through.faults)
            result = result.either(through)
        return result


NOTHING = Paths({"next": Change()})
NEVER = Paths({})
# Whatever can fail may fail before it has changed anything.
FAILING = Paths({"next": Change(), "raise": Change()})


def assign(variables: Iterable[Variable]) -> Paths:
    """Return a part that gives variables a value."""
    return Paths({"next": Change(assigned=frozenset(variables))})


def lose(variables: Iterable[Variable]) -> Paths:
    """Return a part that takes the value from variables."""
    return Paths({"next": Change(lost=frozenset(variables))})


def read(variable: Variable, line: int) -> Paths:
    """Return a part that reads a variable."""
    return Paths({"next": Change()}, {variable: line})


def leave(end: End) -> Paths:
    """Return a part that ends in one way."""
    return Paths({end: Change()})


def repeat(once: Paths, *, leaving: Paths, is_certain: bool = False) -> Paths:
    """Return a loop."""
    turned = once.ending("next", "continue")
    again = Change(lost=turned.ends["next"].lost) if turned.ends else Change()
    turns = Paths({"next": again}).then(once)
    over = turns.ending("next", "continue")
    done = (over if is_certain else over.either(Paths({"next": again}))).then(leaving)
    broken = turns.ending("break")
    jumps = turns.without("next", "continue", "break")
    return done.either(broken).either(jumps)


def _join(one: Mapping[End, Change], other: Mapping[End, Change]) -> dict[End, Change]:
    both: dict[End, Change] = dict(one)
    for end, change in other.items():
        both[end] = both[end].either(change) if end in both else change
    return both


def _merge(changes: list[Change]) -> dict[End, Change]:
    if not changes:
        return {}
    merged = changes[0]
    for change in changes[1:]:
        merged = merged.either(change)
    return {"next": merged}


def _first_lines(one: Mapping[Variable, int], other: Mapping[Variable, int]) -> dict[Variable, int]:
    lines = dict(one)
    for variable, line in other.items():
        lines[variable] = min(line, lines.get(variable, line))
    return lines
