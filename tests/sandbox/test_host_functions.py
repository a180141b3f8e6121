import asyncio
import time
from typing import Any

import pytest
from sandbox_host import needs_bubblewrap

from groupwise.core import SandboxError
from groupwise.sandbox import Limits, Result, run_python, run_python_async


class Operators:
    """Host functions that write down how they were called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.num_at_work = self.most_at_work = 0

    async def ask(self, question: str, *, times: int = 1) -> str:
        self.calls.append(("ask", question, times))
        self.num_at_work += 1
        self.most_at_work = max(self.most_at_work, self.num_at_work)
        await asyncio.sleep(0.05)
        self.num_at_work -= 1
        return question.upper() * times

    def add(self, numbers: list[int]) -> int:
        self.calls.append(("add", numbers))
        return sum(numbers)

    async def fail(self) -> None:
        raise ValueError("no operator")

    def as_functions(self) -> dict[str, Any]:
        return {"ask": self.ask, "add": self.add, "fail": self.fail}


@needs_bubblewrap
def test_a_program_calls_functions_that_are_awaited_or_not() -> None:
    operators = Operators()
    program = (
        "async def solve(problem):\n"
        "    answer = await ask(problem, times=2)\n"
        "    return [answer, add([1, 2])]\n"
        "await solve('ab')"
    )
    result = run_python(program, functions=operators.as_functions())
    assert (result.status, result.value) == ("passed", ["ABAB", 3])
    assert operators.calls == [("ask", "ab", 2), ("add", [1, 2])]


@needs_bubblewrap
def test_calls_that_are_gathered_are_at_work_together() -> None:
    operators = Operators()
    program = "import asyncio\nawait asyncio.gather(ask('a'), ask('b'), ask('c'))"
    result = run_python(program, functions=operators.as_functions())
    assert result.value == ["A", "B", "C"]
    assert operators.most_at_work == 3


@needs_bubblewrap
def test_an_error_of_a_function_can_be_caught() -> None:
    program = "try:\n    await fail()\nexcept ValueError as e:\n    said = str(e)\nsaid"
    result = run_python(program, functions=Operators().as_functions())
    assert result.value == "no operator"
    result = run_python("await fail()", functions=Operators().as_functions())
    assert (result.status, result.error) == ("failed", "ValueError")


@needs_bubblewrap
def test_only_json_values_are_handed_over() -> None:
    functions = {"add": Operators().add, "odd": lambda: object()}
    result = run_python("add({1, 2})", functions=functions)
    assert (result.status, result.error) == ("failed", "TypeError")
    result = run_python("odd()", functions=functions)
    assert (result.status, result.error) == ("failed", "TypeError")


@needs_bubblewrap
def test_the_number_of_calls_is_limited() -> None:
    operators = Operators()
    program = "while True: add([1])"
    limits = Limits(num_host_calls=5)
    result = run_python(program, functions=operators.as_functions(), limits=limits)
    assert (result.status, result.error) == ("failed", "RuntimeError")
    assert len(operators.calls) == 5


@needs_bubblewrap
def test_waiting_for_the_host_does_not_count_as_the_programs_time() -> None:
    async def slow() -> int:
        await asyncio.sleep(1.0)
        return 1

    limits = Limits(timeout_s=0.6)
    result = run_python("await slow()", functions={"slow": slow}, limits=limits)
    assert (result.status, result.value) == ("passed", 1)


@needs_bubblewrap
def test_the_hosts_time_is_limited_too() -> None:
    async def never() -> None:
        await asyncio.sleep(60)

    start_s = time.monotonic()
    limits = Limits(host_timeout_s=0.3)
    result = run_python("await never()", functions={"never": never}, limits=limits)
    assert (result.status, result.message) == ("timeout", "the host functions took too long")
    assert time.monotonic() - start_s < 20


@needs_bubblewrap
def test_a_program_that_does_not_wait_uses_its_own_time() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    program = "import asyncio\nt = asyncio.ensure_future(slow())\nawait asyncio.sleep(0)\n"
    program += "while True: pass"
    limits = Limits(timeout_s=0.5, cpu_s=1, host_timeout_s=30)
    result = run_python(program, functions={"slow": slow}, limits=limits)
    assert (result.status, result.message) == ("timeout", "it used up its processor time")


@pytest.mark.parametrize("name", ["a b", "print", "", "1x"])
def test_names_that_cannot_be_called_are_errors(name: str) -> None:
    with pytest.raises(SandboxError, match="cannot call"):
        run_python("1", functions={name: lambda: 1})


@needs_bubblewrap
def test_many_workflows_run_at_once() -> None:
    operators = Operators()

    async def run_all() -> list[Result]:
        runs = (
            run_python_async(f"await ask('{n}')", functions=operators.as_functions())
            for n in range(40)
        )
        return await asyncio.gather(*runs)

    results = asyncio.run(run_all())
    assert [result.value for result in results] == [str(n) for n in range(40)]
    assert operators.most_at_work > 4
