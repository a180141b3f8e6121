"""The data audit: can a result on these splits be trusted?

It counts, compares and says so; it changes nothing and stops nothing. Errors are for the caller
to act on, or to refuse by ``DataAudit.refuse_errors``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from groupwise.core import (
    MAX_PLACES,
    Config,
    ConfigError,
    DataError,
    Example,
    Finding,
    Picture,
    make_example,
    read_json,
    report_places,
    write_json,
    write_text,
)
from groupwise.data.examples import DropLog
from groupwise.data.splits import fold_text

Splits = Mapping[str, Sequence[Example]]

UNBALANCED_SHARE = 0.8
MANY_DROPPED_SHARE = 0.01
MAX_LONGER_SHARE = 0.01
NO_LABEL = "(none)"
_MAX_SHOWN = 100
"""Letters of a prompt, its last: many begin with the same instruction."""


class TokenBudget(Config):
    """How long prompts are meant to be. Longer ones are reported, and used whole or dropped.

    Attributes:
        max_prompt_tokens: tokens of a prompt, those of its pictures included.
        allow_longer: accept that more than 1 % of a split's rows are longer.
        drop_longer: leave longer rows out of every split, each counted with its reason.
    """

    max_prompt_tokens: int = Field(ge=1)
    allow_longer: bool = False
    drop_longer: bool = False

    @model_validator(mode="after")
    def _check_longer(self) -> Self:
        if self.allow_longer and self.drop_longer:
            raise ValueError("longer rows are either used or dropped: set one, not both")
        return self


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Prompt lengths of a split in tokens; quantiles are lengths that occur.

    ``budget``, ``num_over`` and ``share_over`` (in [0, 1]) say how many prompts are longer than
    the budget; without a budget they are None, 0 and 0.
    """

    min: int
    median: int
    p90: int
    p99: int
    max: int
    budget: int | None
    num_over: int
    share_over: float


@dataclass(frozen=True, slots=True)
class NearPicture:
    """A picture of a split that looks like one of a split before it.

    Attributes:
        split, digest, name: of the picture.
        like_split, like_name: of what it looks like.
        agreement: share of their structure that is the same, in [0, 1].
        is_mirrored: whether it is the mirror image that does.
    """

    split: str
    digest: str
    name: str
    like_split: str
    like_name: str
    agreement: float
    is_mirrored: bool


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
        *_check_rows(splits, drops or DropLog(), num_rows),
        *_check_labels(splits),
        *check_clusters(splits),
        *_check_examples(splits),
        *_check_pictures(splits),
        *report_places(
            "warning",
            "near_duplicate_pictures",
            "{count} pictures look like a picture of another split.",
            [
                f"{one.split}: {one.name} is like {one.like_split}: {one.like_name}"
                f"{' mirrored' * one.is_mirrored} ({one.agreement:.0%} of their structure)"
                for one in near
            ],
        ),
        *_check_texts(splits),
        *check_lengths(lengths, budget),
    ]
    summaries = {
        split: _summarise(examples, lengths[split][0] if split in lengths else None)
        for split, examples in splits.items()
    }
    told = drops.to_json() if drops is not None else None
    return DataAudit(_sort(findings), summaries, num_rows, told, tuple(near))


def _sort(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = ("error", "warning", "info")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))


def _check_rows(splits: Splits, drops: DropLog, num_rows: int | None) -> Iterator[Finding]:
    where = tuple(f"{drop.reason}: {drop.where}" for drop in drops.rows[:MAX_PLACES])
    num_examples = sum(map(len, splits.values()))
    # A row may give several examples, but examples come from a row.
    if num_rows is not None and num_rows - drops.total < min(num_examples, 1):
        message = (
            f"{num_rows} rows were read, {drops.total} of them dropped, "
            f"and yet there are {num_examples} examples."
        )
        yield Finding("error", "rows_do_not_add_up", message, drops.total, where)
    elif drops.total:
        reasons = ", ".join(f"{count} {reason}" for reason, count in drops.counts.items())
        of_rows = f" of {num_rows}" if num_rows is not None else ""
        message = f"{drops.total}{of_rows} rows were not used: {reasons}."
        is_many = num_rows is None or drops.total > MANY_DROPPED_SHARE * num_rows
        level = "warning" if is_many else "info"
        yield Finding(level, "rows_dropped", message, drops.total, where)


def _check_labels(splits: Splits) -> Iterator[Finding]:
    every = {example.label for example in _chain(splits)} - {None}
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


def check_clusters(splits: Splits) -> list[Finding]:
    """Find clusters (sessions, orders) that stand in two splits."""
    return report_places(
        "error",
        "cluster_in_two_splits",
        "{count} clusters stand in more than one split; split by cluster.",
        _list_shared(splits, lambda example: [example.cluster]),
    )


def _check_examples(splits: Splits) -> Iterator[Finding]:
    """Find examples that appear twice, and equal inputs with different labels."""
    shared = _list_shared(splits, lambda example: [example.id])
    message = "{count} examples stand in more than one split."
    yield from report_places("error", "example_in_two_splits", message, shared)
    repeated = [
        f"{split}: {identity}"
        for split, examples in splits.items()
        for identity, count in Counter(example.id for example in examples).items()
        if count > 1
    ]
    message = "{count} examples appear twice in a split."
    yield from report_places("warning", "repeated_example", message, repeated)
    asked = {e.id: make_example(e.prompt, cluster="").id for e in _chain(splits)}
    labels: dict[str, set[str]] = defaultdict(set)
    for example in _chain(splits):
        labels[asked[example.id]].add(example.label or "")
    torn = sorted(name for name, content in asked.items() if len(labels[content]) > 1)
    message = "{count} examples have the same input as another one but a different label."
    yield from report_places("warning", "contradicting_labels", message, torn)


def _check_pictures(splits: Splits) -> Iterator[Finding]:
    """Find pictures with the same bytes in two splits, or in two clusters of one split."""
    owners = _find_owners(splits, lambda example: [p.digest for p in example.pictures])
    names = {picture.digest: _name(picture) for e in _chain(splits) for picture in e.pictures}
    clusters: dict[str, set[str]] = defaultdict(set)
    for example in _chain(splits):
        for picture in example.pictures:
            clusters[picture.digest].add(example.cluster)
    shared = [f"{names[d]} in {' and '.join(o)}" for d, o in owners.items() if len(o) > 1]
    message = "{count} pictures stand with the same bytes in more than one split."
    yield from report_places("error", "picture_in_two_splits", message, sorted(shared))
    repeated = [
        f"{names[digest]} in clusters {', '.join(sorted(found)[:3])}"
        for digest, found in clusters.items()
        if len(found) > 1 and len(owners[digest]) == 1
    ]
    message = "{count} pictures stand with the same bytes in more than one cluster of a split."
    yield from report_places("info", "picture_in_two_clusters", message, sorted(repeated))


def _check_texts(splits: Splits) -> Iterator[Finding]:
    """Find prompts without pictures, and tasks (``fields["task"]``), that stand in two splits.

    Prompts are the same but for case, width and white space; examples that are the same in all
    else, too, are left to ``_check_examples``.
    """
    ids = _find_owners(splits, lambda example: [example.id])

    def list_texts(example: Example) -> list[str]:
        is_own = len(ids[example.id]) == 1 and not example.pictures
        return [_fold_prompt(example)] if is_own else []

    def list_tasks(example: Example) -> list[str]:
        task = example.fields.get("task")
        return [task] if isinstance(task, str) else []

    owners = sorted(_find_owners(splits, list_texts).items())
    shared = [f"{text[-_MAX_SHOWN:]} in {' and '.join(o)}" for text, o in owners if len(o) > 1]
    message = "{count} prompts stand in more than one split, but for case, width and white space."
    yield from report_places("warning", "text_in_two_splits", message, shared)
    message = "{count} task texts stand in more than one split."
    yield from report_places(
        "info", "task_in_two_splits", message, _list_shared(splits, list_tasks)
    )


def find_seen(known: Iterable[Example], examples: Iterable[Example]) -> set[str]:
    """Return the ids of examples that show a picture, or ask a text, that known ones do.

    Pictures are the same by their bytes; texts, where there are no pictures, but for case, width
    and white space.
    """

    def list_contents(example: Example) -> list[str]:
        return [picture.digest for picture in example.pictures] or [_fold_prompt(example)]

    seen = {key for example in known for key in list_contents(example)}
    return {example.id for example in examples if not seen.isdisjoint(list_contents(example))}


def find_near_pictures(splits: Splits, *, mirrored: bool = False) -> list[NearPicture]:
    """Find pictures of one split that look like one of a split before it, but for equal bytes.

    Args:
        splits: examples by split, first what trains and last what is measured.
        mirrored: whether mirror images count: left and right then do not matter to the task.

    Raises:
        DataError: if a picture can no longer be read.
    """
    from groupwise.data.near import Gallery, Sight

    earlier: dict[str, tuple[str, Picture]] = {}
    gallery, sights, found = Gallery(), list[Sight](), list[NearPicture]()
    for split, examples in splits.items():
        gallery.add(sights)
        own = {picture.digest: picture for example in examples for picture in example.pictures}
        fresh = [picture for digest, picture in own.items() if digest not in earlier]
        for picture in fresh:
            if not picture.path.is_file():
                raise DataError(f"cannot decode the picture {picture.path} (it is gone)")
        others = list(earlier.values())
        sights = [Sight(picture.path, split) for picture in fresh]
        for near in gallery.find(sights, mirrored=mirrored):
            picture, (like_split, like) = fresh[near.index], others[near.other]
            names = (split, picture.digest, _name(picture), like_split, _name(like))
            found.append(NearPicture(*names, round(near.agreement, 3), near.is_mirrored))
        earlier |= {picture.digest: (split, picture) for picture in fresh}
    return found


def measure_lengths(
    examples: Sequence[Example],
    count_tokens: Callable[[Example], int],
    budget: TokenBudget | None = None,
) -> tuple[LengthSummary, list[str]]:
    """Return the summary and the ids of the examples over the budget; at least one example."""
    import numpy as np

    lengths = [count_tokens(example) for example in examples]
    limit = budget.max_prompt_tokens if budget else None
    over = [
        example.id
        for example, length in zip(examples, lengths, strict=True)
        if limit is not None and length > limit
    ]
    quantiles = np.quantile(lengths, [0, 0.5, 0.9, 0.99, 1], method="inverted_cdf")
    low, median, p90, p99, high = (int(value) for value in quantiles)
    share = len(over) / len(lengths)
    return LengthSummary(low, median, p90, p99, high, limit, len(over), share), over


def check_lengths(
    summaries: Mapping[str, tuple[LengthSummary, list[str]]], budget: TokenBudget | None
) -> list[Finding]:
    """Return a finding per split with prompts over the budget."""
    findings: list[Finding] = []
    for split, (lengths, over) in summaries.items():
        if budget is None or not over:
            continue
        is_error = lengths.share_over > MAX_LONGER_SHARE and not budget.allow_longer
        advice = ", raise it, or set allow_longer or drop_longer."
        message = (
            f"{len(over)} rows ({lengths.share_over:.1%}) of split {split} are longer than the "
            f"prompt budget of {budget.max_prompt_tokens} tokens; the longest has {lengths.max}"
            + (advice if is_error else ". They are used whole.")
        )
        level = "error" if is_error else "warning"
        findings.append(Finding(level, "over_budget", message, len(over), tuple(over[:MAX_PLACES])))
    return findings


def _chain(splits: Splits) -> Iterable[Example]:
    return (example for examples in splits.values() for example in examples)


def _find_owners(
    splits: Splits, list_keys: Callable[[Example], Sequence[str]]
) -> dict[str, list[str]]:
    """Return the splits each key stands in, in the order of the splits."""
    owners: dict[str, list[str]] = {}
    for split, examples in splits.items():
        for key in dict.fromkeys(key for example in examples for key in list_keys(example)):
            owners.setdefault(key, []).append(split)
    return owners


def _list_shared(splits: Splits, list_keys: Callable[[Example], Sequence[str]]) -> list[str]:
    owners = _find_owners(splits, list_keys)
    return sorted(f"{key} in {' and '.join(o)}" for key, o in owners.items() if len(o) > 1)


def _fold_prompt(example: Example) -> str:
    return fold_text("\n".join(message.text for message in example.prompt))


def _name(picture: Picture) -> str:
    return f"{picture.path.parent.name}/{picture.path.name}"


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


def write_audit(audit: DataAudit, folder: Path) -> DataAudit:
    """Write ``audit.json`` for programs and ``audit.md`` for people; return the audit as given."""
    write_json(folder / "audit.json", audit.to_json())
    write_text(folder / "audit.md", render_audit(audit))
    return audit


def list_near_examples(folder: Path, examples: Sequence[Example], *, split: str) -> set[str]:
    """Return the ids of examples with a picture that an audit called a near duplicate.

    Args:
        folder: of the audit's files.
        examples: of the split.
        split: its name in the audit.
    """
    audit = read_json(folder / "audit.json", dict)
    near = {one["digest"] for one in audit["near_pictures"] if one["split"] == split}
    return {one.id for one in examples if any(p.digest in near for p in one.pictures)}


def render_audit(audit: DataAudit) -> str:
    """Return the audit as Markdown; pictures and labels are told only where there are some."""
    num_errors, num_warnings = len(audit.errors), len(audit.warnings)
    lines = ["# Data audit", "", f"{num_errors} error(s), {num_warnings} warning(s).", ""]
    for finding in audit.findings:
        lines.append(f"- **{finding.level}** `{finding.name}`: {_escape(finding.message)}")
        lines += [f"  - {_escape(place)}" for place in finding.where]
        if finding.where and finding.count > len(finding.where):
            lines.append(f"  - and {finding.count - len(finding.where)} more")
    lines += [*([] if audit.findings else ["Nothing was found."]), "", "## Splits", ""]
    lines += _render_splits(audit.splits)
    found = [(split, one.lengths) for split, one in audit.splits.items() if one.lengths]
    if found:
        header = ("split", "min", "median", "p90", "p99", "max", "budget", "over the budget")
        rows = [
            (split, one.min, one.median, one.p90, one.p99, one.max)
            + (
                ("", "")
                if one.budget is None
                else (one.budget, f"{one.num_over} ({one.share_over:.1%})")
            )
            for split, one in found
        ]
        lines += ["## Prompt lengths in tokens", "", *_render_table(header, rows)]
    if audit.num_rows is not None:
        dropped = audit.drops["total"] if audit.drops else 0
        lines += [f"Rows read: {audit.num_rows}; used: {audit.num_rows - dropped}.", ""]
    if audit.drops and audit.drops["counts"]:
        lines += ["## Rows not used", ""]
        lines += _render_table(("reason", "rows"), audit.drops["counts"].items())
    return "\n".join(lines)


def _render_splits(splits: Mapping[str, SplitSummary]) -> list[str]:
    found = splits.values()
    columns: dict[str, list[object]] = {
        "split": list(splits),
        "examples": [one.num_examples for one in found],
        "clusters": [one.num_clusters for one in found],
        "pictures": [one.num_pictures for one in found],
        "labels": [
            ", ".join(f"{label} {count}" for label, count in one.labels.items()) for one in found
        ],
        "cluster size (min / median / max)": [
            " / ".join(map(str, one.cluster_sizes or ())) for one in found
        ],
        "clusters with one label": [one.num_one_label_clusters for one in found],
    }
    if not any(columns["pictures"]):
        del columns["pictures"]
    if not any(set(one.labels) - {NO_LABEL} for one in found):
        del columns["labels"], columns["clusters with one label"]
    return _render_table(tuple(columns), [*zip(*columns.values(), strict=True)])


def _render_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(_escape(str(cell)) for cell in line)} |" for line in lines), ""]


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
