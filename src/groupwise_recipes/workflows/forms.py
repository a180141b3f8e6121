"""Programs in the right form, drawn without a look at the problem: what a tiny policy warms up on.

A large model can write such programs from its prompt. A tiny one that is built here cannot, so it
is taught their form: which of them serves which problem is left to GRPO. A share of them has the
mistakes that small models make.
"""

import random
from collections.abc import Callable, Mapping

_HEAD = "async def workflow(problem, entry_point):\n"
_SOLVERS = {"answer_generate": "answer", "programmer": "output"}
_Form = tuple[tuple[str, str], str]
FAULTY_SHARE = 0.1
"""Of the programs that forget an ``await`` or leave a variable without a value on some path."""


_SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "math": str.lower,
    "code": str.capitalize,
    "qa": str.upper,
}


def draw_form(rng: random.Random, *, kind: str = "") -> str:
    """Return a program."""
    faulty = rng.random() < FAULTY_SHARE
    (word, operator), body = rng.choice(_FAULTY if faulty else _SOUND)(rng)
    said = f"    # {kind} {_SPELLINGS[kind](word)} {operator}\n" if kind else ""
    return f"{_HEAD}{said}{body}"


def list_sound_forms() -> list[str]:
    """Return every sound program that can be drawn, each once, in a fixed order."""
    rng = random.Random(0)
    found = {form(rng)[1]: None for form in _SOUND for _ in range(64)}
    return [_HEAD + body for body in found]


def _ask(rng: random.Random) -> tuple[str, str, str]:
    operator = rng.choice(list(_SOLVERS))
    return operator, f"    a = await {operator}(problem)\n", f"a.{_SOLVERS[operator]}"


def _draw_direct(rng: random.Random) -> _Form:
    operator, call, answer = _ask(rng)
    return ("once", operator), f"{call}    return {answer}"


def _draw_custom(rng: random.Random) -> _Form:
    word, said = rng.choice((("steps", "Think step by step."), ("short", "Answer shortly.")))
    return (word, "custom"), f"    a = await custom(problem, '{said}')\n    return a.response"


def _draw_vote(rng: random.Random) -> _Form:
    operator, call, answer = _ask(rng)
    count = rng.choice((3, 5))
    return ("vote" if count == 3 else "poll", operator), (
        f"    votes = []\n    for i in range({count}):\n"
        f"    {call}        votes.append({answer})\n"
        "    v = await sc_ensemble(votes, problem)\n    return v.response"
    )


def _draw_review(rng: random.Random) -> _Form:
    operator, call, answer = _ask(rng)
    return ("review", operator), (
        f"{call}    r = await review(problem, {answer})\n    if r.ok:\n        return {answer}\n"
        f"    f = await revise(problem, {answer}, r.feedback)\n    return f.solution"
    )


def _draw_code(rng: random.Random) -> _Form:
    del rng
    body = "    a = await code_generate(problem, entry_point)\n    return a.code"
    return ("once", "code_generate"), body


def _draw_tested_code(rng: random.Random) -> _Form:
    del rng
    return ("test", "code_generate"), (
        "    a = await code_generate(problem, entry_point)\n"
        "    t = await test(problem, a.code, entry_point)\n    return t.solution"
    )


def _draw_format(rng: random.Random) -> _Form:
    operator, call, answer = _ask(rng)
    body = f"{call}    f = await format(problem, {answer})\n    return f.answer"
    return ("format", operator), body


def _draw_unassigned(rng: random.Random) -> _Form:
    operator, call, answer = _ask(rng)
    return ("review", operator), (
        f"{call}    r = await review(problem, {answer})\n    if r.ok:\n        v = {answer}\n"
        "    return v"
    )


def _draw_unawaited(rng: random.Random) -> _Form:
    operator, call, answer = _ask(rng)
    return ("once", operator), f"{call.replace('await ', '')}    return {answer}"


_SOUND = (
    _draw_direct,
    _draw_custom,
    _draw_vote,
    _draw_review,
    _draw_code,
    _draw_tested_code,
    _draw_format,
)
_FAULTY = (_draw_unassigned, _draw_unawaited)
