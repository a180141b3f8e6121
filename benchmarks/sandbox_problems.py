"""HumanEval and MBPP as programs with tests; mutants of their solutions."""

import ast
import gzip
import json
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.core import derive_seed
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


def make_mutant(problem: Problem, number: int) -> Problem | None:
    """Return a problem whose solution is changed in one place, or None if nothing can be."""
    tree = ast.parse(problem.program)
    places = [n for n in ast.walk(tree) if isinstance(n, ast.Compare | ast.BinOp | ast.Constant)]
    places = [n for n in places if not isinstance(n, ast.Constant) or type(n.value) is int]
    if not places:
        return None
    chance = random.Random(derive_seed(0, problem.name, str(number)))
    node: Any = chance.choice(places)
    if isinstance(node, ast.Compare):
        node.ops[0] = chance.choice([ast.Lt(), ast.LtE(), ast.Gt(), ast.GtE(), ast.Eq()])
    elif isinstance(node, ast.BinOp):
        node.op = chance.choice([ast.Add(), ast.Sub(), ast.Mult(), ast.FloorDiv(), ast.Mod()])
    else:
        node.value += chance.choice([-1, 1])
    return replace(problem, program=ast.unparse(tree))


def _read_rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in data.splitlines() if line.strip()]
