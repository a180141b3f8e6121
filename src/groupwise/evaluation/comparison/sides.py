"""The fairness gate's verdicts on every cell, reported once, and what runs recorded side by side.

The gate itself is ``groupwise.evaluation.fairness``; here its differences are merged over cells.
Counts of the data audit stand beside: rows read and not used, findings, sizes of splits.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from groupwise.core import read_json
from groupwise.evaluation.comparison.material import Coordinates, Gate, SideRow
from groupwise.evaluation.facts import RunFacts
from groupwise.evaluation.fairness import Difference, DifferenceKind, FairnessVerdict
from groupwise.evaluation.page import Statement

DATA = "data"
_ORDER: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
_FIRST = (
    *(DATA, "items", "labels", "conditions", "policies", "prompts", "template", "decoding"),
    *("parser", "normalizer", "metrics", "judge", "base_weights", "config", "seeds", "budget"),
)
_DIGEST = re.compile(r"[0-9a-f]{32}")
_MAX_TOLD = 6
_MAX_VALUES = 4
_AUDIT = Path("audit") / "audit.json"
_SIZES = ("num_examples", "num_clusters")
_OF_AXES = (
    *("same_predictions", "same_answers"),
    *("identical", "identical_other_weights", "identical_answers"),
)
FactsByCell = Mapping[tuple[str, Coordinates], RunFacts]


def merge_verdicts(
    names: Sequence[str], verdicts: Sequence[FairnessVerdict], *, has_axes: bool
) -> Gate:
    """Return what the verdicts on all cells say together.

    With axes, what is too much the same is reported by axis (``notices``), not here cell by cell.
    """
    rows = merge_differences(names, [one for v in verdicts for one in v.differences])
    remarks = {
        (one.name, tuple(one.words.items())): one
        for verdict in verdicts
        for one in verdict.remarks
        if not (has_axes and one.name in _OF_AXES)
    }
    told = [
        Statement("notice.gate", {"reason": one.name, "words": one.words}, one.level)
        for one in remarks.values()
    ]
    is_fair = all(verdict.is_fair for verdict in verdicts)
    return Gate(is_fair, rows, (*tell_rows(rows), *told))


def merge_differences(
    names: Sequence[str], differences: Sequence[Difference]
) -> tuple[SideRow, ...]:
    """Return one row per thing that differs, with the worst of its classes."""
    found: dict[tuple[str, str], list[Difference]] = {}
    for one in differences:
        found.setdefault((one.aspect, one.key), []).append(one)
    rows = [_merge(names, group) for group in found.values()]
    return tuple(sorted(rows, key=_rank))


def _rank(row: SideRow) -> tuple[int, int, str, str]:
    """Data comes first: training on other data is the commonest way to fool oneself."""
    kind = _ORDER.index(row.kind) if row.kind else len(_ORDER)
    place = _FIRST.index(row.aspect) if row.aspect in _FIRST else len(_FIRST)
    return kind, place, row.aspect, row.key


def _merge(names: Sequence[str], group: Sequence[Difference]) -> SideRow:
    worst = min(group, key=lambda one: _ORDER.index(one.kind))
    values = tuple(
        _join_values([one.values[name] for one in group if name in one.values]) for name in names
    )
    return SideRow(worst.aspect, worst.key, values, worst.kind, worst.reason, worst.words)


def _join_values(values: Iterable[Any]) -> str | None:
    """Return all different values as one text, None if there are none."""
    shown = list(dict.fromkeys(map(show_value, values)))
    more = " …" if len(shown) > _MAX_VALUES else ""
    return " / ".join(shown[:_MAX_VALUES]) + more if shown else None


def show_value(value: Any) -> str:
    """Return a JSON value as text; of a digest the beginning."""
    if isinstance(value, str):
        return value[:8] if _DIGEST.fullmatch(value) else value
    return json.dumps(value, ensure_ascii=False, default=str)


def tell_rows(rows: Sequence[SideRow]) -> Iterator[Statement]:
    """Yield a notice per confounding row (six at most, then a list), and one for harmless ones."""
    unlike = [row for row in rows if row.kind == "confounding"]
    for row in unlike[:_MAX_TOLD]:
        kind = "notice.confounding" if any(row.values) else "notice.gate"
        values = {"aspect": row.aspect, "key": row.key, "pairs": _show_unlike(row.values)}
        yield Statement(kind, values | {"reason": row.reason, "words": row.words}, "error")
    rest = [f"{row.aspect}/{row.key}" for row in unlike[_MAX_TOLD:]]
    if rest:
        yield Statement("notice.more_unlike", {"num": len(rest), "keys": rest}, "error")
    harmless = [f"{row.aspect}/{row.key}" for row in rows if row.kind == "harmless"]
    if harmless:
        yield Statement("notice.harmless", {"num": len(harmless), "keys": harmless[:_MAX_VALUES]})


def _show_unlike(values: Sequence[str | None]) -> list[tuple[str, list[str | None]]]:
    """Return what differs with its values; where they are tables of counts, each unlike count."""
    tables = [_parse_table(value) for value in values]
    if not all(tables):
        return [("", list(values))]
    keys = dict.fromkeys(key for table in tables for key in table)
    shown = {key: [show_count(key, table) for table in tables] for key in keys}
    return [(key, [*parts]) for key, parts in shown.items() if len(set(parts)) > 1]


def _parse_table(text: str | None) -> dict[str, Any]:
    if text is None or not text.startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def show_count(key: str, table: Mapping[str, Any]) -> str:
    """Return a count with what it is a part of: ``5/800`` where ``num_queries`` is 800.

    The whole is a number whose key is the beginning of this key (``num_queries`` of
    ``num_queries_with_a_positive``).
    """
    value = table.get(key)
    wholes = [name for name in table if key.startswith((f"{name}_", f"{name}:"))]
    if isinstance(value, int) and wholes and isinstance(table[wholes[0]], int):
        return f"{value}/{table[wholes[0]]}"
    return "–" if value is None else show_value(value)


def arrange_configuration(
    names: Sequence[str], facts: FactsByCell, gate: Gate
) -> tuple[SideRow, ...]:
    """Return every fact but data, those that differ first."""
    unlike = [row for row in gate.rows if row.aspect != DATA]
    known = {(row.aspect, row.key) for row in unlike}
    return (
        *unlike,
        *(row for row in _list_rows(names, facts) if (row.aspect, row.key) not in known),
    )


def _list_rows(names: Sequence[str], facts: FactsByCell) -> Iterator[SideRow]:
    """Yield every fact but data side by side, over all cells of each system."""
    for name, values in _collect_values(names, facts):
        aspect, _, key = name.partition("/")
        if aspect not in (DATA, "conditions"):
            yield SideRow(aspect, key, tuple(map(_join_values, values)))


def _collect_values(names: Sequence[str], facts: FactsByCell) -> Iterator[tuple[str, list[Any]]]:
    """Yield every fact with all values of each system, by name."""
    for fact in sorted({name for one in facts.values() for name in one.facts}):
        of_systems = [[one for (system, _), one in facts.items() if system == n] for n in names]
        yield fact, [[one.facts[fact] for one in own if fact in one.facts] for own in of_systems]


def arrange_data(names: Sequence[str], facts: FactsByCell, gate: Gate) -> tuple[SideRow, ...]:
    """Return digests and counts of every file side by side, with the class of its difference."""
    classes = {row.key: row for row in gate.rows if row.aspect == DATA}
    found: list[SideRow] = []
    for name, tables in _collect_values(names, facts):
        aspect, _, file = name.partition("/")
        if aspect == DATA:
            found += _list_counts(file, tables, classes.get(file))
    return tuple(sorted(found, key=lambda row: row.kind is None))


def _list_counts(
    file: str, tables: Sequence[Sequence[Mapping[str, Any]]], unlike: SideRow | None
) -> Iterator[SideRow]:
    keys = dict.fromkeys(key for rows in tables for table in rows for key in table)
    for key in keys:
        values = tuple(
            _join_values(show_count(key, table) for table in rows if key in table)
            for rows in tables
        )
        if unlike is None or len(set(values)) == 1:
            yield SideRow(file, key, values)
        else:
            yield SideRow(file, key, values, unlike.kind, unlike.reason, unlike.words)


def arrange_audits(folders: Mapping[str, Sequence[Path]]) -> tuple[SideRow, ...]:
    """Return a row per count, a value per system; of several runs every different value.

    Args:
        folders: the finished runs of each system.

    Raises:
        DataError: if an audit is damaged.
    """
    counts = {name: [dict(_count_audit(run)) for run in runs] for name, runs in folders.items()}
    keys = dict.fromkeys(key for runs in counts.values() for run in runs for key in run)
    return tuple(
        SideRow(
            "audit",
            key,
            tuple(_join_values(run[key] for run in runs if key in run) for runs in counts.values()),
        )
        for key in keys
    )


def _count_audit(folder: Path) -> Iterator[tuple[str, int]]:
    path = folder / _AUDIT
    audit = read_json(path, dict) if path.is_file() else {}
    if isinstance(audit.get("num_rows"), int):
        yield "num_rows", audit["num_rows"]
    drops: Mapping[str, Any] = audit.get("drops") or {}
    if isinstance(drops.get("total"), int):
        yield "num_rows_not_used", drops["total"]
    findings: Sequence[Mapping[str, Any]] = audit.get("findings") or ()
    if audit:
        for level in ("error", "warning"):
            yield f"num_{level}s", sum(one.get("level") == level for one in findings)
    splits: Mapping[str, Mapping[str, Any]] = audit.get("splits") or {}
    for name, split in splits.items():
        for size in _SIZES:
            if isinstance(split.get(size), int):
                yield f"{name}.{size}", split[size]
