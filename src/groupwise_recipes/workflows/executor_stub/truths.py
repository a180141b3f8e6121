"""The problems that the stub knows: which one a text is about, right answers and wrong ones."""

import ast
import math
import re
from collections.abc import Sequence
from functools import lru_cache

from groupwise.core import derive_seed, parse_python
from groupwise_recipes.workflows.problem_sets import Problem

NUM_WRONG = 6
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def draw(*parts: int | str) -> float:
    """Return a number in [0, 1) that follows from what it is for."""
    return derive_seed(*parts) / 2**31


class Truths:
    """Problems by their text.

    Args:
        problems: that are known.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: list[Problem] = []
        self._by_text: dict[str, Problem] = {}
        self.find = lru_cache(4096)(self._find)
        self.learn(problems)

    def learn(self, problems: Sequence[Problem]) -> None:
        """Know these problems, too."""
        self.problems += problems
        self._by_text |= {problem.problem.strip(): problem for problem in problems}
        self.find.cache_clear()

    def _find(self, text: str) -> Problem | None:
        """Return the problem that a text is, or the longest one it contains."""
        exact = self._by_text.get(text.strip())
        if exact is not None:
            return exact
        held = [known for known in self._by_text if known in text]
        return self._by_text[max(held, key=len)] if held else None

    def is_right(self, problem: Problem, candidate: str) -> bool:
        """Say whether a candidate is the answer; code has to be the reference solution."""
        said = candidate.strip()
        if problem.problem_type == "code":
            return said == problem.ground_truth.strip()
        if are_equal(said, problem.ground_truth):
            return True
        return any(are_equal(said, answer) for answer in problem.answers)

    def make_wrong(self, problem: Problem, number: int) -> str:
        """Return one of the wrong answers; the same number gives the same one."""
        if problem.problem_type == "code":
            return write_wrong_code(problem, number)
        if problem.options:
            letters = [chr(ord("A") + place) for place in range(len(problem.options))]
            wrong = [letter for letter in letters if letter != problem.ground_truth.strip()]
            return wrong[derive_seed(problem.id, "order", number) % len(wrong)] if wrong else "?"
        value = read_number(problem.ground_truth)
        if value is not None:
            shift = (1, -1, 10, -2, 5, 100)[number % NUM_WRONG]
            return f"{value + shift:g}" if abs(value) < 1e5 else str(int(value) + shift)
        if problem.problem_type == "math":
            return f"{problem.ground_truth} + {number + 1}"
        return self._find_other_answer(problem, number)

    def _find_other_answer(self, problem: Problem, number: int) -> str:
        place = derive_seed(problem.id, "other", number) % len(self.problems)
        for other in self.problems[place:] + self.problems[:place]:
            is_words = other.problem_type == "qa" and not other.options
            if is_words and not self.is_right(problem, other.ground_truth):
                return other.ground_truth
        return f"unknown {number}"


def are_equal(first: str, second: str) -> bool:
    """Say whether two short answers are the same: as numbers, else as words."""
    a, b = read_number(first), read_number(second)
    if a is not None and b is not None:
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return simplify(first) == simplify(second)


def simplify(answer: str) -> str:
    """Return an answer without capital letters, outer punctuation and further white space."""
    return " ".join(answer.casefold().strip(" .,!()\n\t").split())


def read_number(text: str) -> float | None:
    """Return the number that a text is, or None."""
    said = text.strip().strip("$").rstrip(".")
    return float(said.replace(",", "")) if _NUMBER.fullmatch(said) else None


def take_answer(text: str) -> str:
    """Return the last number, the last lone capital letter, or else the last line of a text."""
    numbers = _NUMBER.findall(text)
    letters = re.findall(r"\b[A-HJ]\b", text)
    return (numbers or letters or text.strip().splitlines() or [""])[-1]


def write_wrong_code(problem: Problem, number: int) -> str:
    """Return a wrong solution: number 0 knows the public tests by heart, if it can."""
    name = problem.entry_point
    learned = _learn_by_heart(problem) if number == 0 else None
    if learned is not None:
        return learned
    body = ("None", "0", "[]", "args[0] if args else None", "str(args)", "len(args) - 7")
    return f"def {name}(*args):\n    return {body[number % NUM_WRONG]}"


def _learn_by_heart(problem: Problem) -> str | None:
    lines = [f"def {problem.entry_point}(*args):"]
    for test in problem.public_tests:
        match = re.fullmatch(r"assert\s+(.*)", test.strip(), re.DOTALL)
        try:
            tree = parse_python(match.group(1) if match else "", mode="eval").body
        except SyntaxError:
            return None
        if not (isinstance(tree, ast.Compare) and isinstance(tree.left, ast.Call)):
            return None
        given = "".join(f"{ast.unparse(arg)}, " for arg in tree.left.args)
        expected = ast.unparse(tree.comparators[0])
        lines += [f"    if args == ({given}):", f"        return {expected}"]
    return "\n".join([*lines, "    return None"]) if len(lines) > 1 else None
