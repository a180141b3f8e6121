"""Calls of operators: their arguments, and that each is awaited, once."""

import ast
import inspect
from collections.abc import Mapping, Set
from typing import Any

from groupwise_recipes.workflows.programs.nodes import Placed, get_line, walk
from groupwise_recipes.workflows.programs.reasons import RefusedError

Operators = Mapping[str, inspect.Signature]

_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD
_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_SEVERAL = (ast.ListComp, ast.GeneratorExp, ast.List, ast.Tuple)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str, int, float),  # numbers are written as text
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "list": (list, tuple),
    "dict": (dict,),
}


def check_calls(tree: ast.Module, operators: Operators) -> None:
    """Refuse calls that an operator does not take, and those that are not awaited once."""
    own = [n for n, _ in walk(tree) if isinstance(n, ast.AsyncFunctionDef)]
    awaited = {*operators, *(function.name for function in own)}
    for node, around in walk(tree):
        if isinstance(node, ast.Name) and node.id in awaited:
            call = _check_call(node, around)
            signatures = [_get_signature(f) for f in own if f.name == node.id]
            for signature in signatures or [operators[node.id]]:
                _check_arguments(node.id, call, signature)
        elif isinstance(node, ast.Await) and not _is_call_of(awaited, node.value):
            _check_gather(node, awaited)
        elif _is_gather(node) and not isinstance(around[1], ast.Await):
            line = get_line(Placed(node, around))
            raise RefusedError("not_awaited", line, "`await asyncio.gather(...)` is missing")


def _check_call(node: ast.Name, around: tuple[ast.AST, ...]) -> ast.Call:
    call, *outside = around
    if not isinstance(call, ast.Call) or call.func is not node:
        message = f"`{node.id}` has to be called: `await {node.id}(...)`"
        raise RefusedError("operator_as_value", node.lineno, message)
    if not _is_awaited(call, tuple(outside)):
        raise RefusedError("not_awaited", node.lineno, f"`await {node.id}(...)` is missing")
    return call


def _get_signature(function: ast.AsyncFunctionDef) -> inspect.Signature:
    """Return the parameters of a program's own function, of no type."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    needed = len(plain) - len(given.defaults)
    parameters = [
        _make_parameter(
            _POSITIONAL if place < len(given.posonlyargs) else _PLAIN, one, place >= needed
        )
        for place, one in enumerate(plain)
    ]
    if given.vararg:
        parameters.append(_make_parameter(inspect.Parameter.VAR_POSITIONAL, given.vararg))
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        parameters.append(_make_parameter(inspect.Parameter.KEYWORD_ONLY, one, default is not None))
    if given.kwarg:
        parameters.append(_make_parameter(inspect.Parameter.VAR_KEYWORD, given.kwarg))
    return inspect.Signature(parameters)


def _make_parameter(kind: Any, argument: ast.arg, has_default: bool = False) -> inspect.Parameter:
    default = None if has_default else inspect.Parameter.empty
    return inspect.Parameter(argument.arg, kind, default=default)


def _is_awaited(call: ast.Call, around: tuple[ast.AST, ...]) -> bool:
    """Return whether a call is awaited, alone or as one of those that are gathered."""
    if isinstance(around[0], _SEVERAL) and isinstance(around[1], ast.Starred):
        is_element = getattr(around[0], "elt", call) is call
        around = around[2:] if is_element else around
    if isinstance(around[0], ast.Call) and _is_gather(around[0].func):
        around = around[1:]
    return isinstance(around[0], ast.Await)


def _is_gather(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return (node.value.id, node.attr) == ("asyncio", "gather")


def _is_call_of(awaited: Set[str], node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in awaited


def _check_gather(node: ast.Await, awaited: Set[str]) -> None:
    call = node.value
    if not isinstance(call, ast.Call) or not _is_gather(call.func):
        message = f"`{_shorten(call)}` is no call of an operator or async function"
        raise RefusedError("awaits_other", node.lineno, message)
    gathered = [one for argument in call.args for one in _list_gathered(argument)]
    names = [keyword.arg for keyword in call.keywords]
    if not all(_is_call_of(awaited, one) for one in gathered):
        message = "`asyncio.gather` takes calls of operators: `*[operator(...) for ...]`"
        raise RefusedError("awaits_other", node.lineno, message)
    if set(names) - {"return_exceptions"}:
        raise RefusedError("arguments", node.lineno, "`asyncio.gather` takes no such argument")


def _list_gathered(argument: ast.expr) -> list[ast.expr]:
    if not isinstance(argument, ast.Starred):
        return [argument]
    several = argument.value
    if isinstance(several, ast.ListComp | ast.GeneratorExp):
        return [several.elt]
    return several.elts if isinstance(several, ast.List | ast.Tuple) else [several]


def _check_arguments(name: str, call: ast.Call, signature: inspect.Signature) -> None:
    stars = any(isinstance(argument, ast.Starred) for argument in call.args)
    if stars or any(keyword.arg is None for keyword in call.keywords):
        raise RefusedError("arguments", call.lineno, f"`{name}` is called with `*` or `**`")
    named = {keyword.arg or "": keyword.value for keyword in call.keywords}
    try:
        bound = signature.bind(*call.args, **named)
    except TypeError as error:
        raise RefusedError("arguments", call.lineno, f"{name}{signature}: {error}") from None
    for argument, value in bound.arguments.items():
        _check_type(name, signature.parameters[argument], value)


def _check_type(name: str, parameter: inspect.Parameter, value: object) -> None:
    """A literal of another type than declared is a mistake; of other values nothing is known."""
    annotation = parameter.annotation
    declared = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    given = _get_literal_type(value)
    allowed = _TYPES.get(declared)
    if given is None or allowed is None or given in allowed:
        return
    assert isinstance(value, ast.expr)
    message = f"{name}: {parameter.name} is {declared}, got `{_shorten(value)}`"
    raise RefusedError("arguments", value.lineno, message)


def _get_literal_type(value: object) -> type | None:
    if isinstance(value, ast.Constant) and value.value is not None:
        return type(value.value)
    displays = {ast.JoinedStr: str, ast.List: list, ast.ListComp: list, ast.Tuple: tuple}
    return {**displays, ast.Dict: dict, ast.DictComp: dict}.get(type(value))


def _shorten(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
