"""The published files themselves; skipped without the data."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sandbox_host import needs_bubblewrap

from groupwise.data.problems import (
    LoadedProblems,
    Problem,
    ProblemSource,
    load_problems,
    report_test_parts,
)
from groupwise.sandbox import Limits, ProgramTests, run_python

DEFAULT = Path(__file__).parents[3] / ".." / "shared" / "data"


def load(name: Any, **settings: Any) -> LoadedProblems:
    folder = Path(os.environ.get("GROUPWISE_DATA", DEFAULT)) / name
    if not folder.is_dir():
        pytest.skip(f"needs the set {name}; there is no {folder} (set GROUPWISE_DATA)")
    loaded = load_problems(ProblemSource(name=name, path=str(folder), **settings))
    assert len(loaded.train) + len(loaded.test) + loaded.drops.total == loaded.num_rows
    ids = [problem.id for problem in (*loaded.train, *loaded.test)]
    assert len(set(ids)) == len(ids)
    return loaded


def test_gsm8k():
    loaded = load("gsm8k")
    assert (len(loaded.train), len(loaded.test)) == (7473, 1319)
    assert loaded.test[0].ground_truth == "18"


def test_mbpp_is_divided_by_its_numbers():
    loaded = load("mbpp")
    assert loaded.num_rows == 974
    assert loaded.drops.counts == {
        "of the part for few-shot prompts": 10,
        "no hidden tests are left": 1,
        "repeats another row": 1,
    }
    numbers = [int(problem.id.partition(":")[2]) for problem in loaded.train]
    assert (min(numbers), max(numbers), len(numbers)) == (601, 974, 374)


def test_human_eval_is_for_tests_only():
    loaded = load("humaneval")
    assert loaded.num_rows == 164
    assert not loaded.train
    assert loaded.drops.counts == {"no hidden tests are left": 1}


def test_mmlu_trains_only_if_it_is_said_and_then_by_subject():
    assert not load("mmlu").train
    loaded = load("mmlu", split_test_part=True)
    assert loaded.num_rows == 14042 + 285
    subjects = [{p.cluster for p in side} for side in (loaded.train, loaded.test)]
    assert not subjects[0] & subjects[1]
    assert len(subjects[0] | subjects[1]) == 57
    assert [finding.name for finding in report_test_parts([loaded])] == ["trains_on_test_part"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
@needs_bubblewrap
def test_every_reference_passes_its_tests_as_they_are_loaded(name: str):
    loaded = load(name)
    problems = (*loaded.train, *loaded.test)

    def run(problem: Problem) -> str:
        tests = (problem.setup, *problem.public_tests, *problem.hidden_tests)
        asked = ProgramTests("\n".join(tests), problem.entry_point)
        result = run_python(problem.ground_truth, tests=asked, limits=Limits(timeout_s=60))
        return result.status if result.status == "passed" else f"{problem.id}: {result}"

    with ThreadPoolExecutor(2) as workers:
        results = Counter(workers.map(run, problems))
    assert results == {"passed": len(problems)}
