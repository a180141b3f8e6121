"""A text-only probe of statements: how often do words alone tell the answer?

It gives the majority label of what it looks up, in rows it has seen (in-sample) and in rows it has
not (held out). Its test is two-sided: where captions recur with opposite labels, a model that
learned captions scores far below chance, which a one-sided test would call clean.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from groupwise.core import DataError, Finding, report_places
from groupwise_recipes.visual_reasoning.rows import FALSE, TRUE, VisualRow

ProbeName = Literal["relation", "caption"]
CHANCE = 0.5
SIGNIFICANCE = 0.01


@dataclass(frozen=True, slots=True)
class ProbeScore:
    """How often a probe was right.

    Attributes:
        num_right, num_rows: counts.
        accuracy: their ratio, in [0, 1]; in-sample at least ``CHANCE``, whatever the rows are.
        p_value: of the exact two-sided binomial test against ``CHANCE``. It takes rows as
            independent; several of one picture are not, so that it is somewhat too small.
    """

    num_right: int
    num_rows: int
    accuracy: float
    p_value: float

    def to_json(self) -> dict[str, Any]:
        """Return the score as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Probe:
    """The majority label of each relation or caption; what is not known falls back.

    Attributes:
        name: what is looked up first; a caption falls back to its relation, and a relation to all.
        labels: by what is looked up, relations and captions apart.
    """

    name: ProbeName
    labels: Mapping[tuple[str, str], str]

    def predict(self, row: VisualRow) -> str:
        """Return ``True`` or ``False`` without seeing a picture."""
        found = (self.labels.get(key) for key in _list_keys(row, self.name))
        return next(label for label in found if label is not None)

    def score(self, rows: Sequence[VisualRow]) -> ProbeScore:
        """Return how often the probe is right."""
        from scipy.stats import binomtest

        if not rows:
            raise DataError("there are no rows to probe")
        num_right = sum(self.predict(row) == row.answer for row in rows)
        p_value = float(binomtest(num_right, len(rows), CHANCE).pvalue)
        return ProbeScore(num_right, len(rows), num_right / len(rows), p_value)


def fit_probe(rows: Sequence[VisualRow], name: ProbeName) -> Probe:
    """Return the probe of statements; where labels are equally frequent, it looks further."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        if not row.is_statement:
            raise DataError("a row cannot be probed", got=row.id, expected="a statement")
        for key in _list_keys(row, name):
            counts[key][row.answer] += 1
    if not rows:
        raise DataError("there are no rows to probe")
    labels = {key: _find_majority(found) for key, found in counts.items()}
    known = {key: label for key, label in labels.items() if label is not None}
    return Probe(name, {_ALL: FALSE, **known})


def check_probe(score: ProbeScore, name: ProbeName) -> list[Finding]:
    """Return a warning if words alone are right more, or less, often than chance."""
    if score.p_value >= SIGNIFICANCE:
        return []
    side = "above" if score.accuracy > CHANCE else "below"
    message = (
        f"A probe that sees the {name} alone is right in {score.accuracy:.1%} of "
        f"{score.num_rows:,} held-out rows, {side} chance (p = {score.p_value:.2g})."
    )
    return [Finding("warning", f"text_probe_{side}_chance", message, score.num_rows)]


def find_opposite_captions(train: Sequence[VisualRow], test: Sequence[VisualRow]) -> list[Finding]:
    """Find captions of test that stand in train with the opposite label."""
    labels: dict[str, set[str]] = defaultdict(set)
    for row in train:
        labels[row.text].add(row.answer)
    found = [row.id for row in test if labels.get(row.text, set()) - {row.answer}]
    return report_places(
        "warning",
        "caption_with_opposite_label",
        "{count} rows of test have a caption that stands in train with the opposite label.",
        found,
    )


def find_shared_pictures(splits: Mapping[str, Sequence[VisualRow]]) -> list[Finding]:
    """Find pictures, or what else is a cluster, that stand in two splits; one finding per pair."""
    clusters = {name: {row.cluster for row in rows} for name, rows in splits.items()}
    names = list(clusters)
    pairs = [(one, other) for n, one in enumerate(names) for other in names[n + 1 :]]
    return [
        finding
        for one, other in pairs
        for finding in report_places(
            "error",
            "picture_in_two_splits",
            f"{{count}} pictures stand in {one} and in {other}.",
            sorted(clusters[one] & clusters[other]),
        )
    ]


_ALL = ("all", "")


def _list_keys(row: VisualRow, name: ProbeName) -> list[tuple[str, str]]:
    """Return what is looked up, in order."""
    relation = ("relation", row.relation or "")
    return [("caption", row.text), relation, _ALL] if name == "caption" else [relation, _ALL]


def _find_majority(counts: Counter[str]) -> str | None:
    """Return the more frequent label; None if both are equally frequent."""
    lead = counts[TRUE] - counts[FALSE]
    return None if lead == 0 else TRUE if lead > 0 else FALSE
