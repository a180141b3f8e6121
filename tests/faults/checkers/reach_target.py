"""Reward for an arithmetic expression over given numbers that comes to a target."""

import ast
import re
from fractions import Fraction

OPERATIONS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def _evaluate(node, used):
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left = _evaluate(node.left, used)
        return OPERATIONS[type(node.op)](left, _evaluate(node.right, used))
    raise ValueError("only + - * / over whole numbers")


def _run(text, goal):
    """Return the value and the numbers used, or None where the text is no expression."""
    text = text.strip().replace("×", "*").replace("÷", "/")
    text = re.sub(rf"\s*=\s*{goal}$", "", text)
    if len(text) > 80 or not re.fullmatch(r"[0-9+\-*/() ]+", text):
        return None
    used = []
    try:
        value = _evaluate(ast.parse(text, mode="eval").body, used)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return value, sorted(used)


def reach_target(completions, numbers, target, **columns):
    """0.1 for an expression, 0.3 with each number used once, full marks on the target."""
    scores = []
    for text, given, goal in zip(completions, numbers, target, strict=True):
        result = _run(text, goal)
        if result is None:
            scores.append(0.0)
            continue
        value, used = result
        if used != sorted(int(number) for number in given.split(",")):
            scores.append(0.1)
        else:
            scores.append(1.0 if value == goal else 0.3)
    return scores
