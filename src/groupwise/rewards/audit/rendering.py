"""A reward audit as Markdown: the faults with their answers, then the table of all probes."""

from collections.abc import Sequence

from groupwise.rewards.audit.audit import RewardAudit
from groupwise.rewards.audit.rows import AuditRow

_HEADER = ("finding", "what was tried", "what must hold", "highest", "result")


def render_reward_audit(audit: RewardAudit, *, accepted: Sequence[str] = ()) -> str:
    """Return the audit as Markdown; accepted findings are marked."""
    num_errors = len(audit.errors)
    lines = [
        "# Reward audit",
        "",
        f"{num_errors} error(s), {len(audit.findings) - num_errors} warning(s); "
        f"{audit.num_scored} answers to {audit.num_examples} examples were scored.",
        "",
    ]
    for finding in audit.findings:
        mark = " (accepted)" if finding.name in accepted else ""
        lines.append(f"- **{finding.level}**{mark} `{finding.name}`: {_escape(finding.message)}")
        lines += [f"  - {_escape(place)}" for place in finding.where]
    table = [_HEADER, ["---"] * len(_HEADER), *map(_list_cells, audit.rows)]
    lines += ["", *(f"| {' | '.join(map(_escape, cells))} |" for cells in table)]
    return "\n".join([*lines, ""])


def _list_cells(row: AuditRow) -> tuple[str, str, str, str, str]:
    highest = "" if row.highest is None else f"{row.highest:.3g}"
    result = "passed" if row.is_passed else f"{row.level}: {row.num_failed} of {row.num_tried}"
    return row.name, row.title, row.must, highest, result


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
