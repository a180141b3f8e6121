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
CountTokens = Callable[[Example], int]

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
class NearPicture:
    """A picture of a split that looks like one of a split before it."""

    split: str  # of the picture
    digest: str
    name: str
    like_split: str  # of what it looks like
    like_name: str
    agreement: float  # share of their structure that is the same, in [0, 1]
    is_mirrored: bool  # whether it is the mirror image that looks like it


@dataclass(frozen=True, slots=True)
class DataAudit:
    """All that an audit found, errors first, then warnings, then information.

    ``splits`` has counts by split: ``num_examples``, ``num_clusters``, ``num_pictures`` with
    different bytes, ``labels`` (rows by label, ``NO_LABEL`` for those without one),
    ``cluster_sizes`` (smallest, median, largest) and, where prompts were counted, their ``tokens``
    (``min``, ``median``, ``p90``, ``p99``, ``max``, all lengths that occur).
    """

    findings: tuple[Finding, ...]
    splits: Mapping[str, Mapping[str, Any]]
    num_rows: int | None = None  # rows read, or None if not known
    drops: Mapping[str, Any] | None = None  # the drop log as JSON values, or None if there was none
    near_pictures: tuple[NearPicture, ...] = ()  # near duplicates across splits

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
        return {**asdict(self), "findings": [finding.to_json() for finding in self.findings]}


def audit_data(
    splits: Splits,
    *,
    drops: DropLog | None = None,
    num_rows: int | None = None,
    budget: TokenBudget | None = None,
    count_tokens: CountTokens | None = None,
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
    tokens = {
        split: [(example.id, count_tokens(example)) for example in examples]
        for split, examples in splits.items()
        if count_tokens is not None and examples
    }
    near = find_near_pictures(splits) if near is None else near
    looks = [
        f"{one.split}: {one.name} is like {one.like_split}: {one.like_name}"
        f"{' mirrored' * one.is_mirrored} ({one.agreement:.0%} of their structure)"
        for one in near
    ]
    message = "{count} pictures look like a picture of another split."
    findings = [
        *_check_rows(splits, drops or DropLog(), num_rows),
        *_check_labels(splits),
        *_check_contents(splits),
        *report_places("warning", "near_duplicate_pictures", message, looks),
        *(_check_lengths(tokens, budget) if budget else ()),
    ]
    return DataAudit(
        findings=_sort(findings),
        splits={name: _count(rows, tokens.get(name, [])) for name, rows in splits.items()},
        num_rows=num_rows,
        drops=drops.to_json() if drops is not None else None,
        near_pictures=tuple(near),
    )


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


def _check_contents(splits: Splits) -> Iterator[Finding]:
    """Find what stands in two splits or twice in one, and what has two labels or clusters.

    Prompts without pictures are the same but for case, width and white space; examples that are the
    same in all else, too, are told as examples alone.
    """
    every = [(split, example) for split, examples in splits.items() for example in examples]
    names = {picture.digest: _name(picture) for _, e in every for picture in e.pictures}
    labels: dict[str, set[str]] = defaultdict(set)
    clusters: dict[str, set[str]] = defaultdict(set)
    asked = {example.id: make_example(example.prompt, cluster="").id for _, example in every}
    for _, example in every:
        labels[asked[example.id]].add(example.label or "")
        for picture in example.pictures:
            clusters[picture.digest].add(example.cluster)

    def find_owners(list_keys: Callable[[Example], Sequence[str]]) -> dict[str, list[str]]:
        """Return the splits each key stands in, in the order of the splits."""
        owners: dict[str, list[str]] = defaultdict(list)
        for key, split in dict.fromkeys((key, s) for s, e in every for key in list_keys(e)):
            owners[key].append(split)
        return owners

    def list_texts(example: Example) -> list[str]:
        is_own = len(ids[example.id]) == 1 and not example.pictures
        return [_fold_prompt(example)] if is_own else []

    def list_tasks(example: Example) -> list[str]:
        task = example.fields.get("task")
        return [task] if isinstance(task, str) else []

    def tell(owners: Mapping[str, list[str]], name: Callable[[str], str] = str) -> list[str]:
        shared = {key: found for key, found in owners.items() if len(found) > 1}
        return sorted(f"{name(key)} in {' and '.join(found)}" for key, found in shared.items())

    ids = find_owners(lambda example: [example.id])
    pictures = find_owners(lambda example: [picture.digest for picture in example.pictures])
    places = tell(find_owners(lambda example: [example.cluster]))
    message = "{count} clusters stand in more than one split; split by cluster."
    yield from report_places("error", "cluster_in_two_splits", message, places)
    message = "{count} examples stand in more than one split."
    yield from report_places("error", "example_in_two_splits", message, tell(ids))
    message = "{count} pictures stand with the same bytes in more than one split."
    places = tell(pictures, names.__getitem__)
    yield from report_places("error", "picture_in_two_splits", message, places)
    message = "{count} prompts stand in more than one split, but for case, width and white space."
    places = tell(find_owners(list_texts), lambda text: text[-_MAX_SHOWN:])
    yield from report_places("warning", "text_in_two_splits", message, places)
    message = "{count} task texts stand in more than one split."
    yield from report_places("info", "task_in_two_splits", message, tell(find_owners(list_tasks)))
    message = "{count} examples appear twice in a split."
    counts = Counter((split, example.id) for split, example in every)
    places = [f"{split}: {name}" for (split, name), count in counts.items() if count > 1]
    yield from report_places("warning", "repeated_example", message, places)
    message = "{count} examples have the same input as another one but a different label."
    places = sorted(name for name, content in asked.items() if len(labels[content]) > 1)
    yield from report_places("warning", "contradicting_labels", message, places)
    message = "{count} pictures stand with the same bytes in more than one cluster of a split."
    places = [
        f"{names[digest]} in clusters {', '.join(sorted(found)[:3])}"
        for digest, found in clusters.items()
        if len(found) > 1 and len(pictures[digest]) == 1
    ]
    yield from report_places("info", "picture_in_two_clusters", message, sorted(places))


def _check_lengths(
    tokens: Mapping[str, list[tuple[str, int]]], budget: TokenBudget
) -> Iterator[Finding]:
    for split, lengths in tokens.items():
        over = [name for name, length in lengths if length > budget.max_prompt_tokens]
        if not over:
            continue
        share, longest = len(over) / len(lengths), max(length for _, length in lengths)
        is_error = share > MAX_LONGER_SHARE and not budget.allow_longer
        advice = ", raise it, or set allow_longer or drop_longer."
        message = (
            f"{len(over)} rows ({share:.1%}) of split {split} are longer than the "
            f"prompt budget of {budget.max_prompt_tokens} tokens; the longest has {longest}"
            + (advice if is_error else ". They are used whole.")
        )
        level = "error" if is_error else "warning"
        yield Finding(level, "over_budget", message, len(over), tuple(over[:MAX_PLACES]))


def _count(examples: Sequence[Example], tokens: list[tuple[str, int]]) -> dict[str, Any]:
    import numpy as np

    sizes = sorted(Counter(example.cluster for example in examples).values())
    labels = Counter(example.label or NO_LABEL for example in examples)
    quantiles: dict[str, int] = {}
    if tokens:
        levels = {"min": 0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1}
        lengths = [length for _, length in tokens]
        values = np.quantile(lengths, [*levels.values()], method="inverted_cdf")
        quantiles = {name: int(value) for name, value in zip(levels, values, strict=True)}
    return {
        "num_examples": len(examples),
        "num_clusters": len(sizes),
        "num_pictures": len({picture.digest for e in examples for picture in e.pictures}),
        "labels": dict(sorted(labels.items())),
        "cluster_sizes": (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None,
        "tokens": quantiles,
    }


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


def _fold_prompt(example: Example) -> str:
    return fold_text("\n".join(message.text for message in example.prompt))


def _name(picture: Picture) -> str:
    return f"{picture.path.parent.name}/{picture.path.name}"


def write_audit(audit: DataAudit, folder: Path) -> DataAudit:
    """Write ``audit.json`` for programs and ``audit.md`` for people; return the audit as given."""
    write_json(folder / "audit.json", audit.to_json())
    write_text(folder / "audit.md", render_audit(audit))
    return audit


def list_near_examples(folder: Path, examples: Sequence[Example], *, split: str) -> set[str]:
    """Return the ids of a split's examples with a picture that its audit calls a near duplicate."""
    found = read_json(folder / "audit.json", dict)["near_pictures"]
    near = {one["digest"] for one in found if one["split"] == split}
    return {one.id for one in examples if any(p.digest in near for p in one.pictures)}


def render_audit(audit: DataAudit) -> str:
    """Return the audit as Markdown."""
    num_errors, num_warnings = len(audit.errors), len(audit.warnings)
    lines = ["# Data audit", "", f"{num_errors} error(s), {num_warnings} warning(s).", ""]
    for finding in audit.findings:
        lines.append(f"- **{finding.level}** `{finding.name}`: {_escape(finding.message)}")
        lines += [f"  - {_escape(place)}" for place in finding.where]
        if finding.where and finding.count > len(finding.where):
            lines.append(f"  - and {finding.count - len(finding.where)} more")
    lines += [*([] if audit.findings else ["Nothing was found."]), "", "## Splits", ""]
    for split, counts in audit.splits.items():
        labels = {name: number for name, number in counts["labels"].items() if name != NO_LABEL}
        sizes = " / ".join(map(str, counts["cluster_sizes"] or ()))
        told = {
            "examples": counts["num_examples"],
            "pictures": counts["num_pictures"] or None,
            "clusters": f"{counts['num_clusters']} (rows, min / median / max: {sizes})",
            "labels": ", ".join(f"{name} {number}" for name, number in labels.items()),
            "tokens": ", ".join(f"{name} {number}" for name, number in counts["tokens"].items()),
        }
        said = "; ".join(f"{name}: {value}" for name, value in told.items() if value)
        lines.append(_escape(f"- {split}: {said or 'empty'}"))
    if audit.num_rows is not None:
        dropped = audit.drops["total"] if audit.drops else 0
        lines += ["", f"Rows read: {audit.num_rows}; used: {audit.num_rows - dropped}."]
    if audit.drops and audit.drops["counts"]:
        lines += ["", "## Rows not used", ""]
        lines += [_escape(f"- {reason}: {n}") for reason, n in audit.drops["counts"].items()]
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
