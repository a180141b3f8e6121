"""HumanEval and MBPP: what is right passes, what does nothing fails; skipped without the data."""

import builtins
import gzip
import json
import re
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from real_data import find_real
from sandbox_host import needs_bubblewrap

from groupwise.rewards.code import prepare_tests
from groupwise.sandbox import Limits, ProgramTests, Result, run_python

LIMITS = Limits(timeout_s=30)
Row = dict[str, Any]
_HIDES_A_BUILTIN = re.compile(rf"^def ({'|'.join(dir(builtins))})\b", re.MULTILINE)

pytestmark = needs_bubblewrap


def read_rows(name: str) -> list[Row]:
    path = find_real(name)
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in data.splitlines()]


def run_all(rows: list[Row], run: Callable[[Row], Result]) -> list[Result]:
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(run, rows))


def list_others(rows: list[Row], results: list[Result], status: str) -> list[Any]:
    pairs = zip(rows, results, strict=True)
    return [(row["task_id"], result) for row, result in pairs if result.status != status]


@pytest.mark.slow
def test_all_solutions_of_human_eval_pass_and_no_empty_one() -> None:
    rows = read_rows("humaneval/HumanEval.jsonl.gz")

    def run(row: Row, body: str) -> Result:
        name = row["entry_point"]
        tests = ProgramTests(f"{row['test']}\ncheck({name})\n", name)
        return run_python(row["prompt"] + body, tests=tests, limits=LIMITS)

    right = run_all(rows, lambda row: run(row, row["canonical_solution"]))
    assert list_others(rows, right, "passed") == []
    empty = run_all(rows, lambda row: run(row, "    pass\n"))
    assert list_others(rows, empty, "failed") == []


UNITTEST = "import unittest\n{setup}\nclass TestIt(unittest.TestCase):\n{methods}"
PYTEST = "{setup}\nclass TestIt:\n{methods}"


@pytest.mark.slow
@pytest.mark.parametrize("form", [UNITTEST, PYTEST], ids=["unittest", "pytest"])
def test_solutions_pass_tests_that_are_written_as_classes(form: str) -> None:
    def write(setup: str, bodies: list[str]) -> ProgramTests:
        methods = [
            f"    def test_{number}(self):\n{textwrap.indent(body, ' ' * 8)}"
            for number, body in enumerate(bodies)
        ]
        return prepare_tests(form.format(setup=setup, methods="\n".join(methods)), None)

    def run_mbpp(row: Row) -> Result:
        tests = write(row["test_setup_code"], row["test_list"])
        return run_python(row["code"], tests=tests, limits=LIMITS)

    def run_human_eval(row: Row) -> Result:
        tests = write(row["test"], [f"check({row['entry_point']})"])
        program = row["prompt"] + row["canonical_solution"]
        return run_python(
            program, tests=ProgramTests(tests.source, row["entry_point"]), limits=LIMITS
        )

    mbpp = [row for row in read_rows("mbpp/mbpp.jsonl") if not _HIDES_A_BUILTIN.search(row["code"])]
    assert list_others(mbpp, run_all(mbpp, run_mbpp), "passed") == []
    human_eval = read_rows("humaneval/HumanEval.jsonl.gz")
    assert list_others(human_eval, run_all(human_eval, run_human_eval), "passed") == []
