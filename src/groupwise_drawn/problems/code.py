"""Small code tasks: a reference, a public test that the problem shows, and hidden ones."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise_drawn.problems.pen import Pen

_NUM_TESTS = 5
_LETTERS = "abcdeilnorst"
_VERBS = ("make", "find", "solve", "compute", "work_out", "derive")
_NOUNS = ("result", "value", "answer", "output", "outcome", "report")


@dataclass(frozen=True, slots=True)
class _Part:
    """A step: how it is said and written (with ``k``), and what it does."""

    words: str
    source: str
    run: Callable[[Any, Any], Any]


_KEEP = (
    _Part("greater than {k}", "n > {k}", lambda n, k: n > k),
    _Part("less than {k}", "n < {k}", lambda n, k: n < k),
    _Part("divisible by {k}", "n % {k} == 0", lambda n, k: n % k == 0),
    _Part("not divisible by {k}", "n % {k} != 0", lambda n, k: n % k != 0),
    _Part("at least {k} away from 0", "abs(n) >= {k}", lambda n, k: abs(n) >= k),
)
_CHANGE = (
    _Part("add {k} to each", "n + {k}", lambda n, k: n + k),
    _Part("multiply each by {k}", "n * {k}", lambda n, k: n * k),
    _Part("take {k} minus each", "{k} - n", lambda n, k: k - n),
    _Part("square each and add {k}", "n * n + {k}", lambda n, k: n * n + k),
)
_FOLD = (
    _Part("their sum", "sum(changed)", lambda n, _: sum(n)),
    _Part("how many there are", "len(changed)", lambda n, _: len(n)),
    _Part("the largest, or 0 if there is none", "max(changed, default=0)",
          lambda n, _: max(n, default=0)),
    _Part("the list of them in ascending order", "sorted(changed)", lambda n, _: sorted(n)),
    _Part("the list of them in their order", "changed", lambda n, _: n),
)  # fmt: skip
_TEXT = (
    _Part("turn it around", "text[::-1]", lambda t, _: t[::-1]),
    _Part("write it in capital letters", "text.upper()", lambda t, _: t.upper()),
    _Part("repeat it {k} times", "text * {k}", lambda t, k: t * k),
    _Part("keep its first {k} characters", "text[:{k}]", lambda t, k: t[:k]),
    _Part("drop its first {k} characters", "text[{k}:]", lambda t, k: t[k:]),
    _Part("keep every character number 0, {k}, twice {k} and so on", "text[::{k}]",
          lambda t, k: t[::k]),
    _Part("append its length plus {k}", "text + str(len(text) + {k})",
          lambda t, k: t + str(len(t) + k)),
)  # fmt: skip


def draw_code(pen: Pen) -> dict[str, Any]:
    """Return the fields of a code task."""
    name = f"{pen.pick(_VERBS)}_{pen.pick(_NOUNS)}"
    return pen.rng.choice((_draw_list_task, _draw_text_task))(pen, name)


def _draw_list_task(pen: Pen, name: str) -> dict[str, Any]:
    rng = pen.rng
    parts = {"keep": rng.choice(_KEEP), "change": rng.choice(_CHANGE), "fold": rng.choice(_FOLD)}
    limits = {"keep": rng.randint(2, 12), "change": rng.randint(2, 12), "fold": 0}
    words = {slot: part.words.format(k=limits[slot]) for slot, part in parts.items()}
    lines = {slot: part.source.format(k=limits[slot]) for slot, part in parts.items()}

    def solve(numbers: list[int]) -> Any:
        kept = [n for n in numbers if parts["keep"].run(n, limits["keep"])]
        return parts["fold"].run([parts["change"].run(n, limits["change"]) for n in kept], 0)

    source = (
        f"def {name}(numbers):\n"
        f"    kept = [n for n in numbers if {lines['keep']}]\n"
        f"    changed = [{lines['change']} for n in kept]\n"
        f"    return {lines['fold']}\n"
    )
    return _fill(pen, pen.say("list_task", name=name, **words), source, solve, _draw_numbers)


def _draw_text_task(pen: Pen, name: str) -> dict[str, Any]:
    first, second = pen.rng.sample(_TEXT, 2)
    limits = (pen.rng.randint(2, 5), pen.rng.randint(2, 5))
    words = {"first": first.words.format(k=limits[0]), "second": second.words.format(k=limits[1])}

    def solve(text: str) -> str:
        return second.run(first.run(text, limits[0]), limits[1])

    source = (
        f"def {name}(text):\n"
        f"    text = {first.source.format(k=limits[0])}\n"
        f"    return {second.source.format(k=limits[1])}\n"
    )
    return _fill(pen, pen.say("text_task", name=name, **words), source, solve, _draw_text)


def _draw_numbers(rng: random.Random) -> list[int]:
    return [rng.randint(-20, 30) for _ in range(rng.randint(3, 8))]


def _draw_text(rng: random.Random) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(6, 12)))


def _fill(
    pen: Pen,
    text: str,
    source: str,
    solve: Callable[[Any], Any],
    draw: Callable[[random.Random], Any],
) -> dict[str, Any]:
    """Return the fields: the first test is public and shown, the others, not the same, hidden."""
    name = source.removeprefix("def ").partition("(")[0]
    tests: Mapping[str, None] = {}
    while len(tests) < _NUM_TESTS:
        value = draw(pen.rng)
        tests = {**tests, f"assert {name}({value!r}) == {solve(value)!r}": None}
    public, *hidden = tests
    return {
        "problem_type": "code",
        "problem": f"{text}\n{pen.say('example', test=public)}",
        "ground_truth": source,
        "entry_point": name,
        "public_tests": (public,),
        "hidden_tests": tuple(hidden),
    }
