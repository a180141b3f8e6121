"""What rewards tell of completions besides their scores, counted."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from groupwise.core import Fact


@dataclass
class FactCounts:
    """What rewards tell of completions: truth values, numbers and texts, added up between rows."""

    num: int = 0  # completions, whether anything is told of them or not
    shares: Counter[tuple[str, bool]] = field(default_factory=Counter[tuple[str, bool]])
    sums: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    texts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, facts: Iterable[Mapping[str, Fact]]) -> None:
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
        shares = {
            name: [self.shares[name, True], self.shares[name, True] + self.shares[name, False]]
            for name in dict.fromkeys(name for name, _ in self.shares)
        }
        families: defaultdict[str, list[str]] = defaultdict(list)
        for name, counts in sorted(self.texts.items()):
            family, stroke, _ = name.partition("/")
            if stroke:
                shares[f"commonest_{name}"] = [max(counts.values()), counts.total()]
                families[family].append(counts.most_common(1)[0][0])
        sums = {name: [sum(values), len(values)] for name, values in self.sums.items()}
        if not (shares or sums or self.texts):
            return {}
        curves = {f"reward/{name}": part / num for name, (part, num) in shares.items()}
        curves |= {f"mean/{name}": total / num for name, (total, num) in sums.items()}
        # Whether one text is the commonest of all kinds, where there are several.
        alike = [len(set(one)) == 1 for one in families.values() if len(one) > 1]
        if alike:
            curves["reward/collapsed"] = float(any(alike))
        texts = {
            name: {
                "num": counts.total(),
                "different": len(counts),
                "commonest": [list(one) for one in counts.most_common(12)],
            }
            for name, counts in sorted(self.texts.items())
        }
        facts = {"num": self.num, "shares": shares, "sums": sums, "texts": texts}
        return {**curves, "facts": facts}
