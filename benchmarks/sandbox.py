"""How long programs take in each sandbox, and whether right and wrong ones are told apart.

HumanEval and MBPP as the load: reference solutions, and bodies replaced by ``pass``. ``sandbox`` is
``run_python``; ``plain`` is a bare ``python`` process for each program, without any protection.

    python benchmarks/sandbox.py --human-eval HumanEval.jsonl.gz --mbpp mbpp.jsonl --json out.json
    python benchmarks/sandbox.py --hostile
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sandbox_problems import Problem, read_human_eval, read_mbpp

from groupwise.core import write_json
from groupwise.sandbox import Limits, Result, run_python

LIMITS = Limits(timeout_s=30)
SHORT = Limits(timeout_s=1.0, cpu_s=2, memory_mib=192, output_kib=64, file_mib=4)
FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures"
Run = Callable[[Problem], Result]


def main() -> None:
    """Run what is asked for and print it."""
    options = parse_options()
    report: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "num_cores": os.cpu_count()},
        "num_workers": options.workers,
    }
    backends: dict[str, Run] = {"sandbox": run_sandboxed, "plain": run_plain}
    if options.human_eval:
        right, empty = read_human_eval(options.human_eval)
        report["human_eval"] = measure(right, backends, options.workers, expected="passed")
        report["human_eval_pass"] = measure(empty, backends, options.workers, expected="failed")
    if options.mbpp:
        problems = read_mbpp(options.mbpp)
        report["mbpp"] = measure(problems, backends, options.workers, expected="passed")
    if options.hostile:
        report["hostile"] = run_hostile()
    print(json.dumps(report, indent=2))
    if options.json:
        write_json(options.json, report)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--human-eval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--mbpp", type=Path, help="mbpp.jsonl")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--hostile", action="store_true", help="the hostile programs of the tests")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    return parser.parse_args()


def run_sandboxed(problem: Problem) -> Result:
    """Run a problem as a reward does."""
    return run_python(problem.program, tests=problem.tests, limits=LIMITS)


def run_plain(problem: Problem) -> Result:
    """Run a problem in a bare process: program and tests in one file, all rights of the user."""
    start_s = time.monotonic()
    source = f"{problem.program}\n{problem.tests.source}"
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-"], input=source, capture_output=True, text=True, timeout=60
    )
    status = "passed" if done.returncode == 0 else "failed"
    return Result(status, message=done.stderr[-200:], duration_s=time.monotonic() - start_s)


def measure(
    problems: Sequence[Problem], backends: dict[str, Run], num_workers: int, *, expected: str
) -> dict[str, Any]:
    """Return for each sandbox its time and the problems that did not end as expected."""
    table: dict[str, Any] = {}
    for name, run in backends.items():
        run(problems[0])  # whatever starts only once
        start_s = time.monotonic()
        results = run_all(problems, run, num_workers)
        total_s = time.monotonic() - start_s
        others = [
            f"{problem.name}: {result.status} {result.error} {result.message}".strip()
            for problem, result in zip(problems, results, strict=True)
            if result.status != expected
        ]
        table[name] = {
            "n": len(problems),
            "total_s": round(total_s, 2),
            "median_ms": round(1000 * statistics.median(r.duration_s for r in results), 1),
            f"num_{expected}": len(problems) - len(others),
            "others": others,
        }
    return table


def run_all(problems: Sequence[Problem], run: Run, num_workers: int) -> list[Result]:
    """Run problems, several at a time."""
    with ThreadPoolExecutor(num_workers) as workers:
        return list(workers.map(run, problems))


def run_hostile() -> dict[str, Any]:
    """Run the hostile programs of the tests."""
    sys.path.insert(0, str(FIXTURES))
    from program_corpora import HOSTILE

    results = [(p, run_python(p.program, tests=p.tests, limits=SHORT)) for p in HOSTILE]
    return {
        "n": len(HOSTILE),
        "ended_as_expected": sum(r.status == p.status for p, r in results),
        "others": [f"{p.name}: {r.status}" for p, r in results if r.status != p.status],
        "unearned_passes": [
            p.name for p, r in results if r.status == "passed" and p.status != "passed"
        ],
        "most_seconds_over_the_limit": round(
            max(r.duration_s for _, r in results) - SHORT.timeout_s, 2
        ),
        "statuses": Counter(r.status for _, r in results),
    }


if __name__ == "__main__":
    main()
