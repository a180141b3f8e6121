"""The data audit: can a result on these splits be trusted?

It counts, compares and says so; it changes nothing and stops nothing. Errors are for the caller
to act on, or to refuse by ``DataAudit.refuse_errors``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from groupwise.core import MAX_PLACES, ConfigError, DataError, Example, Finding
from groupwise.data.drops import DropLog
from groupwise.data.leakage import (
    NearPicture,
    Splits,
    check_clusters,
    check_examples,
    check_pictures,
    check_tasks,
    check_texts,
    find_near_pictures,
    report_near_pictures,
)
from groupwise.data.lengths import LengthSummary, TokenBudget, check_lengths, measure_lengths

UNBALANCED_SHARE = 0.8
MANY_DROPPED_SHARE = 0.01
NO_LABEL = "(none)"


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """Counts of one split.

    Attributes:
        num_examples: rows.
        num_clusters: different clusters.
        num_pictures: pictures with different bytes.
        labels: rows by label; ``NO_LABEL`` for rows without one.
        cluster_sizes: smallest, median and largest number of rows of a cluster.
        num_one_label_clusters: clusters of at least two rows that all have the same label.
        lengths: prompt lengths, or None if they were not counted.
    """

    num_examples: int
    num_clusters: int
    num_pictures: int
    labels: Mapping[str, int]
    cluster_sizes: tuple[int, int, int] | None
    num_one_label_clusters: int
    lengths: LengthSummary | None


@dataclass(frozen=True, slots=True)
class DataAudit:
    """All that an audit found.

    Attributes:
        findings: errors first, then warnings, then information.
        splits: counts by split.
        num_rows: rows read, or None if not known.
        drops: the drop log as JSON values, or None if there was none.
        near_pictures: near duplicates across splits.
    """

    findings: tuple[Finding, ...]
    splits: Mapping[str, SplitSummary]
    num_rows: int | None = None
    drops: Mapping[str, Any] | None = None
    near_pictures: tuple[NearPicture, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make results wrong."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that may make results wrong."""
        return tuple(finding for finding in self.findings if finding.level == "warning")

    def add(self, findings: Iterable[Finding]) -> "DataAudit":
        """Return the audit with what else was found."""
        return replace(self, findings=_sort([*self.findings, *findings]))

    def refuse_errors(self) -> None:
        """Stop on errors.

        Raises:
            DataError: naming every error that was found.
        """
        if self.errors:
            found = "".join(f"\n  {finding.name}: {finding.message}" for finding in self.errors)
            raise DataError(f"the data audit found {len(self.errors)} error(s):{found}\n ")

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON values."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "splits": {split: asdict(summary) for split, summary in self.splits.items()},
            "num_rows": self.num_rows,
            "drops": dict(self.drops) if self.drops is not None else None,
            "near_pictures": [asdict(near) for near in self.near_pictures],
        }


def audit_data(
    splits: Splits,
    *,
    drops: DropLog | None = None,
    num_rows: int | None = None,
    budget: TokenBudget | None = None,
    count_tokens: Callable[[Example], int] | None = None,
    near: Sequence[NearPicture] | None = None,
) -> DataAudit:
    """Audit the examples of named splits.

    Args:
        splits: examples by split.
        drops: what the loader dropped.
        num_rows: rows the loader read, dropped ones included.
        budget: longest prompt; needs ``count_tokens``.
        count_tokens: tokens of a prompt with its pictures.
        near: what ``find_near_pictures`` found; None: it is asked for these splits.

    Raises:
        ConfigError: if there is a budget but no way to count tokens.
        DataError: if a picture can no longer be read.
    """
    if budget is not None and count_tokens is None:
        raise ConfigError("a token budget needs count_tokens", got="a budget only")
    lengths = {
        split: measure_lengths(examples, count_tokens, budget)
        for split, examples in splits.items()
        if count_tokens is not None and examples
    }
    near = find_near_pictures(splits) if near is None else near
    findings = [
        *_check_rows(splits, drops, num_rows),
        *_check_labels(splits),
        *check_clusters(splits),
        *check_examples(splits),
        *check_pictures(splits),
        *report_near_pictures(near),
        *check_texts(splits),
        *check_tasks(splits),
        *check_lengths(lengths, budget),
    ]
    return DataAudit(
        _sort(findings),
        {
            split: _summarise(examples, lengths[split][0] if split in lengths else None)
            for split, examples in splits.items()
        },
        num_rows,
        drops.to_json() if drops is not None else None,
        tuple(near),
    )


def _sort(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = ("error", "warning", "info")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))


def _check_rows(splits: Splits, drops: DropLog | None, num_rows: int | None) -> Iterator[Finding]:
    drops = DropLog() if drops is None else drops
    where = tuple(f"{drop.reason}: {drop.where}" for drop in drops.rows[:MAX_PLACES])
    num_examples = sum(map(len, splits.values()))
    # A row may give several examples, but examples come from a row.
    if num_rows is not None and num_rows - drops.total < min(num_examples, 1):
        message = (
            f"{num_rows} rows were read, {drops.total} of them dropped, "
            f"and yet there are {num_examples} examples."
        )
        yield Finding("error", "rows_do_not_add_up", message, drops.total, where)
        return
    if not drops.total:
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in drops.counts.items())
    of_rows = f" of {num_rows}" if num_rows is not None else ""
    is_many = num_rows is None or drops.total > MANY_DROPPED_SHARE * num_rows
    yield Finding(
        "warning" if is_many else "info",
        "rows_dropped",
        f"{drops.total}{of_rows} rows were not used: {reasons}.",
        drops.total,
        where,
    )


def _check_labels(splits: Splits) -> Iterator[Finding]:
    every = {example.label for examples in splits.values() for example in examples} - {None}
    for split, examples in splits.items():
        counts = Counter(example.label for example in examples if example.label is not None)
        num_none = len(examples) - counts.total()
        if not examples:
            yield Finding("error", "empty_split", f"The split {split} has no examples.", 0)
        if counts and num_none:
            message = f"{num_none} examples of split {split} have no label."
            yield Finding("warning", "unlabelled_examples", message, num_none)
        if not counts or len(every) < 2:
            continue
        label, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if len(counts) == 1:
            message = f"All labels of split {split} are {label}."
            yield Finding("warning", "one_label", message, count)
        elif count > UNBALANCED_SHARE * counts.total():
            share = count / counts.total()
            message = f"{share:.1%} of the labels of split {split} are {label}."
            yield Finding("warning", "unbalanced_labels", message, count)


def _summarise(examples: Sequence[Example], lengths: LengthSummary | None) -> SplitSummary:
    clusters: dict[str, list[str | None]] = defaultdict(list)
    for example in examples:
        clusters[example.cluster].append(example.label)
    sizes = sorted(len(labels) for labels in clusters.values())
    labels = Counter(example.label or NO_LABEL for example in examples)
    return SplitSummary(
        num_examples=len(examples),
        num_clusters=len(clusters),
        num_pictures=len({picture.digest for e in examples for picture in e.pictures}),
        labels=dict(sorted(labels.items())),
        cluster_sizes=(sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None,
        num_one_label_clusters=sum(
            len(found) > 1 and len(set(found)) == 1 for found in clusters.values()
        ),
        lengths=lengths,
    )
