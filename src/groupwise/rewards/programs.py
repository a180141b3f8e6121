"""The answer parser of code: a program in a text, fenced or not."""

import ast
import re
from typing import Literal

from groupwise.core import Example
from groupwise.rewards.parser import OpenParser, Parsed
from groupwise.rewards.reward import Reward

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)


class CodeParser(OpenParser):
    """The last fenced block that defines the entry point, else the last one, else all of the text.

    Text without a program, or with one that does not parse, is no answer.

    Attributes:
        entry_point: field of examples with the name of the function that is to be defined.
    """

    kind: Literal["code"] = "code"
    entry_point: str = "entry_point"

    def make_reward(self) -> Reward:
        """Return the reward of a program that passes the tests of its example."""
        from groupwise.rewards.code_tests import CodeTests

        return CodeTests(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        name: object = example.fields.get(self.entry_point) if example else None
        program, start = find_program(text, name if isinstance(name, str) else None)
        problem = explain_unparsable(program)
        if problem:
            return Parsed(None, problem)
        return Parsed(program.strip("\n"), prefix=text[:start])

    def _normalize(self, target: str) -> str:
        """Return the program of a target; one that stands alone may have fences in its strings."""
        is_bare = not explain_unparsable(target)
        return (target if is_bare else find_program(target)[0]).strip("\n")

    def _spell(self, answer: str) -> str:
        longest = max(map(len, re.findall("`{3,}", answer)), default=2)
        fence = "`" * (longest + 1)
        return f"{fence}python\n{answer}\n{fence}"


def find_program(text: str, entry_point: str | None = None) -> tuple[str, int]:
    """Return the program in a text, and where it or its fence starts.

    Of fenced blocks it is the last that defines the entry point.
    """
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        return text, 0
    pattern = re.compile(rf"^\s*(?:async\s+def|def|class)\s+{re.escape(entry_point or '')}\b", re.M)
    fitting = [block for block in blocks if entry_point and pattern.search(block.group(2))]
    chosen = (fitting or blocks)[-1]
    return chosen.group(2), chosen.start()


def explain_unparsable(program: str) -> str:
    """Return why a text is no program; empty if it is one."""
    try:
        tree = ast.parse(program.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the program does not parse ({error})"
    return "" if tree.body else "there is no program"
