"""What a workflow program may use of Python: builtins, modules, kinds of statements."""

import ast
import importlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType, ModuleType

PARAMETERS = ("problem", "entry_point", "tests")

FUNCTIONS = frozenset(
    (
        *("abs", "all", "any", "bool", "chr", "dict", "divmod", "enumerate", "filter", "float"),
        *("frozenset", "getattr", "hasattr", "int", "isinstance", "iter", "len", "list", "map"),
        *("max", "min", "next", "ord", "pow", "print", "range", "repr", "reversed", "round"),
        *("set", "slice", "sorted", "str", "sum", "tuple", "zip"),
    )
)
EXCEPTIONS = frozenset(
    (
        *("ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError"),
        *("KeyError", "LookupError", "OverflowError", "RuntimeError", "StopIteration"),
        *("SyntaxError", "TimeoutError", "TypeError", "ValueError", "ZeroDivisionError"),
    )
)
# What every run defines before the program; operators use both.
PRELUDE = ("OperatorError", "Result")
BUILTINS = FUNCTIONS | EXCEPTIONS | {"OperatorError"}

# Where a set of names is given, the others of the module could reach what the rules keep out.
MODULES: Mapping[str, frozenset[str] | None] = MappingProxyType(
    {
        "asyncio": frozenset({"gather"}),
        "collections": None,
        "contextlib": frozenset({"nullcontext", "suppress"}),
        "decimal": None,
        "fractions": None,
        "itertools": None,
        "json": None,
        "math": None,
        "re": None,
        "statistics": None,
        "string": frozenset(
            (
                *("ascii_letters", "ascii_lowercase", "ascii_uppercase", "capwords", "digits"),
                *("punctuation", "whitespace"),
            )
        ),
        "typing": frozenset(
            ("Any", "Dict", "List", "Literal", "Optional", "Sequence", "Set", "Tuple", "Union")
        ),
    }
)

_STATEMENTS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Return, ast.Delete, ast.Assign, ast.AugAssign),
    *(ast.AnnAssign, ast.For, ast.While, ast.If, ast.With, ast.Match, ast.Raise, ast.Try),
    *(ast.Assert, ast.Import, ast.ImportFrom, ast.Expr, ast.Pass, ast.Break, ast.Continue),
)
_EXPRESSIONS = (
    *(ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Await, ast.Compare, ast.Call),
    *(ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred),
    *(ast.Name, ast.List, ast.Tuple, ast.Slice),
)
# Frames, coroutines and tracebacks lead to the variables themselves.
_PRIVATE_PREFIXES = ("_", "ag_", "co_", "cr_", "f_", "gi_", "tb_")


def is_allowed(node: ast.AST) -> bool:
    """Return whether a program may have a node of this kind."""
    if isinstance(node, ast.stmt):
        return isinstance(node, _STATEMENTS)
    return not isinstance(node, ast.expr) or isinstance(node, _EXPRESSIONS)


def is_private(attribute: str) -> bool:
    """Return whether an attribute is none that a program reads."""
    return attribute.startswith(_PRIVATE_PREFIXES)


@cache
def list_module_names(module: str) -> frozenset[str]:
    """Return what a program may use of a module in ``MODULES``."""
    found = importlib.import_module(module)
    public = {
        name
        for name in dir(found)
        if not is_private(name) and not isinstance(getattr(found, name), ModuleType)
    }
    allowed = MODULES[module]
    return frozenset(public if allowed is None else allowed)


def describe(node: ast.AST) -> str:
    """Return what a node is called in a message."""
    return _NAMES.get(type(node).__name__, type(node).__name__)


_NAMES = {
    "AsyncFor": "`async for`",
    "AsyncWith": "`async with`",
    "ClassDef": "a class",
    "Global": "`global`",
    "Nonlocal": "`nonlocal`",
    "TryStar": "`except*`",
    "Yield": "`yield`",
    "YieldFrom": "`yield from`",
}
