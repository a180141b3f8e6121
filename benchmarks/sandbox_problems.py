"""HumanEval and MBPP as programs with tests."""

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.sandbox import ProgramTests


@dataclass(frozen=True)
class Problem:
    """One program and its tests."""

    name: str
    program: str
    tests: ProgramTests


def read_human_eval(path: Path) -> tuple[list[Problem], list[Problem]]:
    """Return the problems with their solutions, and with ``pass`` in their place."""
    right: list[Problem] = []
    empty: list[Problem] = []
    for row in _read_rows(path):
        name = row["entry_point"]
        tests = ProgramTests(f"{row['test']}\ncheck({name})\n", name)
        right.append(Problem(row["task_id"], row["prompt"] + row["canonical_solution"], tests))
        empty.append(Problem(row["task_id"], row["prompt"] + "    pass\n", tests))
    return right, empty


def read_mbpp(path: Path) -> list[Problem]:
    """Return the problems with their solutions; the tests call the function they call first."""
    problems: list[Problem] = []
    for row in _read_rows(path):
        source = "\n".join([row["test_setup_code"], *row["test_list"]])
        names = re.findall(r"^def\s+(\w+)", row["code"], re.MULTILINE)
        called = row["test_list"][0]
        name = next((name for name in names if re.search(rf"\b{name}\s*\(", called)), None)
        problems.append(Problem(f"MBPP/{row['task_id']}", row["code"], ProgramTests(source, name)))
    return problems


def _read_rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in data.splitlines() if line.strip()]
