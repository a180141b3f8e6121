"""What rewards tell of completions beside their scores, added up between two rows of metrics."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from groupwise.core import Fact

_MAX_SHOWN = 12
_COLLAPSED = "reward/collapsed"


@dataclass
class FactCounts:
    """Facts of completions: truth values are counted, numbers are added up, texts are tallied.

    Attributes:
        num: completions, whether anything is told of them or not.
        shares: by name, of how many it is told, and of how many it is true.
        sums: by name, of how many it is told, and their sum.
        texts: by name, how often each text is told.
    """

    num: int = 0
    shares: Counter[tuple[str, bool]] = field(default_factory=Counter)
    sums: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    texts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, facts: Iterable[Mapping[str, Fact]]) -> None:
        """Count the facts of further completions."""
        for told in facts:
            self.num += 1
            for name, value in told.items():
                if isinstance(value, bool):
                    self.shares[name, value] += 1
                elif isinstance(value, str):
                    self.texts[name][value] += 1
                else:
                    self.sums[name].append(value)

    def merge(self, other: Self) -> None:
        """Count what another process has counted."""
        self.num += other.num
        self.shares.update(other.shares)
        for name, values in other.sums.items():
            self.sums[name] += values
        for name, counts in other.texts.items():
            self.texts[name].update(counts)

    def tabulate(self) -> dict[str, Any]:
        """Return what a row of metrics says: curves by name, and under ``facts`` their counts."""
        shares = self._list_shares()
        sums = {name: [sum(values), len(values)] for name, values in self.sums.items()}
        curves = {f"reward/{name}": part / num for name, (part, num) in shares.items()}
        curves |= {f"mean/{name}": total / num for name, (total, num) in sums.items()}
        curves |= self._find_collapse()
        texts = {name: _tabulate(counts) for name, counts in sorted(self.texts.items())}
        if not (shares or sums or texts):
            return {}
        return {
            **curves,
            "facts": {"num": self.num, "shares": shares, "sums": sums, "texts": texts},
        }

    def _list_shares(self) -> dict[str, list[int]]:
        names = dict.fromkeys(name for name, _ in self.shares)
        found = {
            name: [self.shares[name, True], self.shares[name, True] + self.shares[name, False]]
            for name in names
        }
        for name, counts in sorted(self.texts.items()):
            if "/" in name:
                found[f"commonest_{name}"] = [max(counts.values()), counts.total()]
        return found

    def _find_collapse(self) -> dict[str, float]:
        """Return whether one text is the commonest of all kinds, where there are several."""
        families: defaultdict[str, list[str]] = defaultdict(list)
        for name, counts in self.texts.items():
            family, stroke, _ = name.partition("/")
            if stroke:
                families[family].append(counts.most_common(1)[0][0])
        found = [len(set(one)) == 1 for one in families.values() if len(one) > 1]
        return {_COLLAPSED: float(any(found))} if found else {}


def _tabulate(counts: Counter[str]) -> dict[str, Any]:
    commonest = [list(one) for one in counts.most_common(_MAX_SHOWN)]
    return {"num": counts.total(), "different": len(counts), "commonest": commonest}
