"""What a user's code reads: files that it imports or opens, and variables of the environment.

An audit hook tells what is opened, whichever way: by an import from any folder, ``importlib``, or
``open``. Files of Python, of installed packages, of Groupwise and of the system do not count.
Variables are found in the source by their names; what cannot be known so is said.

Source: PEP 578 (audit hooks stay for the life of a process; this one looks at one thread alone
while it records).
"""

import ast
import os
import sys
import sysconfig
import threading
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

import groupwise

_LOCAL = threading.local()
_OF_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr")
_IN_MEMORY = "/dev/shm"
_INSTALLED = ("site-packages", "dist-packages")
_WRITES = os.O_WRONLY | os.O_RDWR
_ELSEWHERE = {
    "subprocess.Popen": "what another program says",
    "os.system": "what another program says",
    "socket.connect": "what another machine or process says",
}
# Who asks, not what is paid: a new key must not make a training start again.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


@dataclass(slots=True)
class Reads:
    """What code has read in one thread.

    Attributes:
        files: the user's own that were opened to be read, and not written.
        written: files that it wrote.
        elsewhere: other things that it asked, a clause each.
    """

    files: set[Path] = field(default_factory=set[Path])
    written: set[Path] = field(default_factory=set[Path])
    elsewhere: set[str] = field(default_factory=set[str])


@contextmanager
def record_reads() -> Generator[Reads]:
    """Record what this thread reads inside the block."""
    _install_hook()
    outer: Reads | None = getattr(_LOCAL, "reads", None)
    reads = _LOCAL.reads = Reads()
    try:
        yield reads
    finally:
        _LOCAL.reads = outer
        opened = {_find_source(path) for path in reads.files - reads.written}
        reads.files = {path for path in opened if is_own(path) and path.is_file()}


def is_own(path: Path) -> bool:
    """Return whether a file is neither Python's, nor Groupwise's, a package's or the system's."""
    real = Path(os.path.realpath(path))
    if any(part in _INSTALLED for part in real.parts):
        return False
    if real.is_relative_to(_IN_MEMORY):  # anybody's files
        return True
    return not any(real.is_relative_to(folder) for folder in _list_foreign())


def list_variables(trees: Collection[ast.AST]) -> dict[str, str | None]:
    """Return the values of the variables that code names, but of keys and passwords."""
    names = {name for tree in trees for _, name in _find_variables(tree) if name is not None}
    told = [name for name in names if not name.upper().endswith(_SECRET)]
    return {name: os.environ.get(name) for name in sorted(told)}


def find_unnamed_variables(tree: ast.AST) -> list[int]:
    """Return the lines of code that read the environment without a name that stands there."""
    return sorted({line for line, name in _find_variables(tree) if name is None})


def _find_variables(tree: Any) -> Iterator[tuple[int, str | None]]:
    """Yield line and name of what is read of the environment; None for a computed name."""
    named: set[int] = set()
    for node in ast.walk(tree):
        key, holder = _find_key(node)
        if holder is not None:
            named.add(id(holder))
            is_plain = isinstance(key, ast.Constant) and isinstance(key.value, str)
            yield holder.lineno, str(key.value) if is_plain else None
    rest: list[Any] = list(ast.walk(tree))
    for node in rest:
        if _is_environment(node) and id(node) not in named:
            yield node.lineno, None


def _find_key(node: ast.AST) -> tuple[Any, Any]:
    """Return the key and the node that is asked for it; None twice for other code."""
    if isinstance(node, ast.Subscript) and _is_environment(node.value):
        return node.slice, node.value
    if isinstance(node, ast.Compare) and _is_environment(node.comparators[0]):
        return node.left, node.comparators[0]
    if not isinstance(node, ast.Call) or not node.args:
        return None, None
    if _get_name(node.func) == "getenv":
        return node.args[0], node.func
    held = node.func.value if isinstance(node.func, ast.Attribute) else None
    return (node.args[0], held) if held is not None and _is_environment(held) else (None, None)


def _is_environment(node: Any) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and _get_name(node) in ("environ", "environb")


def _get_name(node: Any) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


@cache
def _list_foreign() -> tuple[Path, ...]:
    places = [*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")), *_OF_SYSTEM]
    own = Path(groupwise.__file__).resolve().parent
    return (*(Path(place).resolve() for place in places), *own.parent.glob(f"{own.name}*"))


def _find_source(path: Path) -> Path:
    if path.suffix != ".pyc":
        return path
    try:
        return Path(source_from_cache(str(path)))
    except (ValueError, NotImplementedError):
        return path


@cache
def _install_hook() -> None:
    sys.addaudithook(_note)


def _note(event: str, given: tuple[Any, ...]) -> None:
    reads: Reads | None = getattr(_LOCAL, "reads", None)
    if reads is None:
        return
    if event in _ELSEWHERE:
        reads.elsewhere.add(_ELSEWHERE[event])
    elif event == "open" and not isinstance(given[0], int):
        place, mode, flags = given
        is_written = set("wax+") & set(mode) if isinstance(mode, str) else flags & _WRITES
        path = Path(os.path.abspath(os.fsdecode(place)))
        (reads.written if is_written else reads.files).add(path)
    elif event in ("import", "sqlite3.connect"):
        named = given[1] if event == "import" else given[0]
        if isinstance(named, str) and named not in ("", ":memory:"):
            reads.files.add(Path(os.path.abspath(named)))
