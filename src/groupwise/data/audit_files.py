"""Writes a data audit as ``audit.json`` for programs and ``audit.md`` for people."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from groupwise.core import Example, Finding, read_json, write_json, write_text
from groupwise.data.audit import NO_LABEL, DataAudit


def write_audit(audit: DataAudit, folder: Path) -> DataAudit:
    """Write both files into ``folder`` and return the audit as given."""
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
    """Return the audit as Markdown."""
    num_errors, num_warnings = len(audit.errors), len(audit.warnings)
    lines = ["# Data audit", "", f"{num_errors} error(s), {num_warnings} warning(s).", ""]
    lines += _render_findings(audit.findings)
    lines += _render_splits(audit)
    lines += _render_lengths(audit)
    if audit.num_rows is not None:
        dropped = audit.drops["total"] if audit.drops else 0
        lines += [f"Rows read: {audit.num_rows}; used: {audit.num_rows - dropped}.", ""]
    if audit.drops and audit.drops["counts"]:
        lines += ["## Rows not used", ""]
        lines += _render_table(("reason", "rows"), audit.drops["counts"].items())
    return "\n".join(lines)


def _render_findings(findings: Sequence[Finding]) -> list[str]:
    lines: list[str] = []
    for finding in findings:
        lines.append(f"- **{finding.level}** `{finding.name}`: {_escape(finding.message)}")
        lines += [f"  - {_escape(place)}" for place in finding.where]
        if finding.where and finding.count > len(finding.where):
            lines.append(f"  - and {finding.count - len(finding.where)} more")
    return [*(lines or ["Nothing was found."]), ""]


def _render_splits(audit: DataAudit) -> list[str]:
    """Return counts by split; pictures and labels only where there are some."""
    found = audit.splits.values()
    has_pictures = any(summary.num_pictures for summary in found)
    has_labels = any(set(summary.labels) - {NO_LABEL} for summary in found)
    columns: dict[str, list[object]] = {
        "split": list(audit.splits),
        "examples": [summary.num_examples for summary in found],
        "clusters": [summary.num_clusters for summary in found],
    }
    if has_pictures:
        columns["pictures"] = [summary.num_pictures for summary in found]
    if has_labels:
        columns["labels"] = [
            ", ".join(f"{label} {count}" for label, count in summary.labels.items())
            for summary in found
        ]
    columns["cluster size (min / median / max)"] = [
        " / ".join(map(str, summary.cluster_sizes or ())) for summary in found
    ]
    if has_labels:
        columns["clusters with one label"] = [summary.num_one_label_clusters for summary in found]
    return ["## Splits", "", *_render_table(tuple(columns), [*zip(*columns.values(), strict=True)])]


def _render_lengths(audit: DataAudit) -> list[str]:
    rows = [
        (
            split,
            lengths.min,
            lengths.median,
            lengths.p90,
            lengths.p99,
            lengths.max,
            "" if lengths.budget is None else lengths.budget,
            "" if lengths.budget is None else f"{lengths.num_over} ({lengths.share_over:.1%})",
        )
        for split, summary in audit.splits.items()
        if (lengths := summary.lengths) is not None
    ]
    if not rows:
        return []
    header = ("split", "min", "median", "p90", "p99", "max", "budget", "over the budget")
    return ["## Prompt lengths in tokens", "", *_render_table(header, rows)]


def _render_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(_escape(str(cell)) for cell in line)} |" for line in lines), ""]


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
