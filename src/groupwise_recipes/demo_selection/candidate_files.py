"""Files of recorded candidates: the own form, which grows query by query, and the published one.

The own form is JSONL: a row of conditions, then one row per query.
"""

from collections.abc import Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from groupwise.core import DataError, ResultFile, RunError, parse_value, read_jsonl
from groupwise_recipes.demo_selection.candidates import RecordedQuery, Recording
from groupwise_recipes.demo_selection.conditions import Conditions

_KEY = "query_id"
_HEADER = "_meta"
_CONDITIONS = TypeAdapter(Conditions)
_QUERY = TypeAdapter(RecordedQuery)


class CandidateFile:
    """A file that one process fills and any later one continues; hold it with ``with``.

    A query is on disk when ``append`` returns; one that a crash left half written is asked again.

    Args:
        path: the file; made if missing.
        conditions: that its lists are recorded under.
    """

    def __init__(self, path: Path, conditions: Conditions) -> None:
        self._rows = ResultFile(path, key=_KEY)
        try:
            self._begin(conditions)
        except BaseException:
            self._rows.close()
            raise

    def _begin(self, conditions: Conditions) -> None:
        header = next(self._rows.rows(), None)
        if header is None:
            self._rows.append({_KEY: _HEADER, "conditions": asdict(conditions)})
            return
        begun = _read_header(header, self._rows.path)
        if begun != conditions:
            former, now = asdict(begun), asdict(conditions)
            names = ", ".join(name for name in now if former[name] != now[name])
            raise RunError(
                f"{self._rows.path} was begun under other conditions",
                got=f"another {names}",
                fix="record into a new file",
            )

    @property
    def finished(self) -> Set[str]:
        """Ids of the queries that are recorded."""
        return self._rows.finished - {_HEADER}

    def append(self, query: RecordedQuery) -> None:
        """Write one query to disk."""
        self._rows.append(asdict(query))

    def close(self) -> None:
        """Let the file go."""
        self._rows.close()

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def read_candidates(path: Path) -> Recording:
    """Return what a ``CandidateFile`` recorded."""
    rows = read_jsonl(path)
    if not rows:
        raise DataError(f"{path} has no recorded candidates")
    conditions = _read_header(rows[0], path)
    queries = [
        parse_value(row, _QUERY, f"{path} query {number} is not as expected")
        for number, row in enumerate(rows[1:], start=1)
    ]
    return Recording(tuple(queries), conditions)


def _read_header(row: Mapping[str, Any], path: Path) -> Conditions:
    if row.get(_KEY) != _HEADER:
        raise DataError(
            f"{path} is no file of recorded candidates",
            fix="read a published one by read_published",
        )
    problem = f"the first row of {path} is not as expected"
    return parse_value(row.get("conditions"), _CONDITIONS, problem)
