"""Programs over operators in a second: in our sandbox, and as a user would run them instead.

    python benchmarks/workflows.py --json results.json

``sandbox`` is ``Executor.run_all``; ``apart`` is the same where each program starts bubblewrap
and an interpreter, as where none can be forked. ``plain`` is a bare ``python -I`` process for each
program, which asks the same server by urllib: with all rights of the user, no limit and no count of
what it asks. Every program asks two or three times; the server is the stub, which answers at once,
so that what is measured is all but the model. All are measured in turn. Processor time is that of
the programs, with all that starts and ends them, and apart from it that of the process that asks.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupwise.core import describe_machine, dump_config, write_json, write_jsonl
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import LimitSettings, ServerSettings
from groupwise.sandbox import bubblewrap, cpython, template
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME
from groupwise_recipes.workflows.operators import TEMPLATES
from groupwise_recipes.workflows.outcome import ExecutionSettings
from groupwise_recipes.workflows.problem_sets import Problem

AT_ONCE = (1, 4, 16, 64)
NUM_ROUNDS = 2
PROGRAM = """
async def workflow(problem):
    a = await answer_generate(problem)
    r = await review(problem, a["answer"])
    if r["ok"]:
        return a["answer"]
    return (await revise(problem, a["answer"], r["feedback"]))["solution"]
"""
_PLAIN = """
import asyncio, json, re, urllib.request
def make(name, places):
    async def operator(*args):
        text = templates[name]
        for place, value in zip(places, args):
            fenced = "[[%s 0123456789abcdef]]\\n%s\\n[[end of %s 0123456789abcdef]]"
            text = text.replace("{{%s}}" % place, fenced % (place, value, place))
        body = {"model": model, "messages": [{"role": "user", "content": text}], "seed": 1}
        kind = {"Content-Type": "application/json"}
        asked = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), kind)
        said = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
        found = dict(re.findall(r"<(\\w+)>(.*?)</\\1>", said, re.DOTALL))
        return {**found, "ok": found.get("ok") == "True"}
    return operator
answer_generate = make("answer_generate", ["input"])
review = make("review", ["problem", "solution"])
revise = make("revise", ["problem", "solution", "feedback"])
"""
_SERVER = (
    "import sys;"
    "from groupwise_recipes.workflows.executor_stub.__main__ import executor_stub;"
    "executor_stub(['--problems', sys.argv[1], '--port', '0'])"
)


def make_problems(count: int) -> list[Problem]:
    """Return sums, each another one."""
    return [
        Problem(
            id=f"sum-{number}",
            source="made",
            problem_type="math",
            problem=f"What is {number} + {number}?",
            ground_truth=str(2 * number),
            cluster=f"sum-{number}",
        )
        for number in range(count)
    ]


@contextmanager
def serve(problems: list[Problem]) -> Iterator[tuple[str, int]]:
    """Give URL and number of a process that is the stub."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        write_jsonl(path, [dump_config(problem) for problem in problems])
        command = [sys.executable, "-c", _SERVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield server.stdout.readline().split()[2].rstrip(":"), server.pid
            finally:
                server.terminate()


def run_sandboxed(url: str, problems: list[Problem], at_once: int) -> None:
    """Run the program on all problems as a reward does; nothing is kept from before."""
    limits = LimitSettings(max_concurrency=64)
    engine = ServerModel(ServerSettings(url=url, model=STUB_NAME, limits=limits))
    executor = Executor(engine, settings=ExecutionSettings(max_at_once=at_once))
    outcomes = executor.run_all([(PROGRAM, problem) for problem in problems])
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(f"programs failed: {executor.report()}")


def run_apart(url: str, problems: list[Problem], at_once: int) -> None:
    """Run the program on all problems, each in bubblewrap and an interpreter of its own."""
    cpython.start_guest = bubblewrap.start_guest
    try:
        run_sandboxed(url, problems, at_once)
    finally:
        cpython.start_guest = template.start_guest


def run_plain(url: str, problems: list[Problem], at_once: int) -> None:
    """Run the program on all problems, each in a bare process."""
    asyncio.run(_run_plain(url, problems, at_once))


async def _run_plain(url: str, problems: list[Problem], at_once: int) -> None:
    places = asyncio.Semaphore(at_once)
    head = f"url, model, templates = {url!r}, {STUB_NAME!r}, {dict(TEMPLATES)!r}\n{_PLAIN}"

    async def run(problem: Problem) -> None:
        source = f"{head}\n{PROGRAM}\nprint(asyncio.run(workflow({problem.problem!r})))"
        async with places:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", source),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            said, errors = await process.communicate()
        if process.returncode or not said.strip():
            raise SystemExit(f"a program failed: {errors.decode()[-300:]}")

    await asyncio.gather(*(run(problem) for problem in problems))


def read_cpu_s(left_out: int) -> tuple[float, float]:
    """Return processor time of this process, and of all below it but one."""
    times = os.times()
    below = times.children_user + times.children_system
    return times.user + times.system, below + sum(
        map(_read_tree_s, _list_children(os.getpid(), left_out))
    )


def _list_children(process: int, left_out: int = 0) -> list[int]:
    threads = Path(f"/proc/{process}/task").iterdir()
    found = [int(n) for thread in threads for n in (thread / "children").read_text().split()]
    return [child for child in found if child != left_out]


def _read_tree_s(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = _list_children(process)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own_s = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(map(_read_tree_s, children))


def measure(num_programs: int) -> list[dict[str, Any]]:
    """Return programs in a second, and what each took, for every number at once."""
    problems = make_problems(num_programs)
    rows: list[dict[str, Any]] = []
    with serve(problems) as (url, server):
        run_sandboxed(url, problems[:1], 1)  # whatever starts only once
        for at_once in AT_ONCE:
            count = min(num_programs, 16 * at_once)
            found = [
                measure_round(url, server, problems[:count], at_once) for _ in range(NUM_ROUNDS)
            ]
            means = {
                name: round(statistics.mean(one[name] for one in found), 1) for name in found[0]
            }
            rows.append({"at_once": at_once, "num_programs": count, **means, "rounds": found})
            print(rows[-1])
    return rows


def measure_round(url: str, server: int, problems: list[Problem], at_once: int) -> dict[str, float]:
    """Return rates and milliseconds of processor time for each way, one after the other."""
    found: dict[str, float] = {}
    for name, run in {"sandbox": run_sandboxed, "apart": run_apart, "plain": run_plain}.items():
        start_s, before = time.monotonic(), read_cpu_s(server)
        run(url, problems, at_once)
        found[f"{name}_per_s"] = round(len(problems) / (time.monotonic() - start_s), 2)
        spent = [now - then for now, then in zip(read_cpu_s(server), before, strict=True)]
        for part, spent_s in zip(("asking", "programs"), spent, strict=True):
            found[f"{name}_{part}_ms"] = round(1000 * spent_s / len(problems), 2)
    return found


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--num-programs", type=int, default=64)
    given = parser.parse_args()
    rows = measure(given.num_programs)
    if given.json:
        write_json(given.json, {"rows": rows, "num_rounds": NUM_ROUNDS, **describe_machine()})


if __name__ == "__main__":
    main()
