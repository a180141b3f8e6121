"""Programs over operators in a second: in our sandbox, and as a user would run them instead.

    python benchmarks/workflows.py --json results.json

``sandbox`` is ``Executor.run_all``. ``plain`` is a bare ``python -I`` process for each program,
which asks the same server by urllib: with all rights of the user, no limit and no count of what it
asks. Every program asks two or three times; the server is the stub, which answers at once, so that
what is measured is all but the model. Both are measured in turn.
"""

import argparse
import asyncio
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
from groupwise.data import Problem
from groupwise.inference import LimitSettings, ServerEngine, ServerSettings
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME
from groupwise_recipes.workflows.operators import TEMPLATES
from groupwise_recipes.workflows.outcome import ExecutionSettings

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
    "import sys; from pathlib import Path;"
    "from groupwise_recipes.workflows.executor_stub.command import executor_stub;"
    "executor_stub(Path(sys.argv[1]), 0, None)"
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
def serve(problems: list[Problem]) -> Iterator[str]:
    """Give the URL of the stub in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        write_jsonl(path, [dump_config(problem) for problem in problems])
        command = [sys.executable, "-c", _SERVER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield server.stdout.readline().split()[2].rstrip(":")
            finally:
                server.terminate()


def run_sandboxed(url: str, problems: list[Problem], at_once: int) -> None:
    """Run the program on all problems as a reward does; nothing is kept from before."""
    limits = LimitSettings(max_concurrency=64)
    engine = ServerEngine(ServerSettings(url=url, model=STUB_NAME, limits=limits))
    executor = Executor(engine, settings=ExecutionSettings(max_at_once=at_once))
    outcomes = executor.run_all([(PROGRAM, problem) for problem in problems])
    if any(outcome.fault for outcome in outcomes):
        raise SystemExit(f"programs failed: {executor.report()}")


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


def measure(num_programs: int) -> list[dict[str, Any]]:
    """Return programs in a second for every number at once: the mean of rounds, in turn."""
    problems = make_problems(num_programs)
    rows: list[dict[str, Any]] = []
    with serve(problems) as url:
        kinds = {"sandbox": run_sandboxed, "plain": run_plain}
        for at_once in AT_ONCE:
            rates: dict[str, list[float]] = {name: [] for name in kinds}
            count = min(num_programs, 8 * at_once)
            for _ in range(NUM_ROUNDS):
                for name, run in kinds.items():
                    start_s = time.monotonic()
                    run(url, problems[:count], at_once)
                    rates[name].append(round(count / (time.monotonic() - start_s), 2))
            means = {
                f"{name}_per_s": round(statistics.mean(found), 1) for name, found in rates.items()
            }
            rows.append({"at_once": at_once, "num_programs": count, **means, "rounds": rates})
            print(rows[-1])
    return rows


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
