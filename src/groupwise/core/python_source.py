"""Python source as a tree, also where several threads parse at once."""

import ast
import threading
from typing import Any, Literal, overload

_LOCK = threading.Lock()
_TRIES = 8


@overload
def parse_python(source: str | bytes, *, filename: str = ...) -> ast.Module: ...
@overload
def parse_python(source: str | bytes, *, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(
    source: str | bytes, *, filename: str = "<unknown>", mode: Literal["exec", "eval"] = "exec"
) -> Any:
    """Return the tree of a module or of an expression, as ``ast.parse`` does.

    CPython counts how deep it is in a tree once for all threads. If another thread parses while
    the garbage collector lets it run, ``ast.parse`` raises a SystemError about a source that is in
    order (https://github.com/python/cpython/issues/106905). So one thread parses at a time, and
    what met a parse from elsewhere is parsed again.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _LOCK:
        for _ in range(_TRIES - 1):
            try:
                return ast.parse(source, filename, mode)
            except SystemError:
                continue
        return ast.parse(source, filename, mode)
