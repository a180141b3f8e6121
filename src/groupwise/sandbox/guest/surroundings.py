"""What tests change around a program: streams, patched functions, the environment, seeds.

In one process it would be the program's too. So the checker looks, before it asks for something,
for what the tests have changed, and the program's process does the same to itself. What comes back
is text that was printed, and the environment; nothing else of a program reaches the tests so.
"""

from __future__ import annotations

import builtins
import os
import re
import sys

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_STREAMS = ("stdout", "stderr")
# Functions that look into objects: into those of the program, there.
_LOOKING = {
    "dataclasses": "asdict astuple fields replace is_dataclass",
    "copy": "copy deepcopy",
    "typing": "get_type_hints",
    "asyncio": "iscoroutinefunction",
    "inspect": "signature isfunction isclass ismethod iscoroutinefunction isasyncgenfunction"
    " isgeneratorfunction isgenerator isabstract getdoc getfullargspec isroutine isbuiltin",
}
_NOT_PATCHED = frozenset(("stdout", "stderr", "stdin", "argv", "environ", "modules", "path"))
_NOT_IMPORTED = frozenset(
    ("__main__", "this", "antigravity", "test", "idlelib", "turtle", "unittest")
)


class Surroundings:
    """The checker's side: what the tests have changed since the program was told.

    Args:
        source: the tests, which say what there is to look for.
        program: the program.
    """

    def __init__(self, source: str, program: Any) -> None:
        self.streams = {name: getattr(sys, name) for name in _STREAMS}
        self.told: dict[str, Any] = {"capture": [], "argv": list(sys.argv)}
        self.told["folder"] = os.getcwd()
        self.told["depth"] = sys.getrecursionlimit()
        self.stdin = sys.stdin
        self.program = program
        self.is_seeded = False
        self.sees_environment = "environ" in source or "getenv" in source
        self.sees_decimal = "getcontext" in source or "setcontext" in source
        words = set(re.findall(r"\w+", source))
        names = (words & sys.stdlib_module_names) - _NOT_IMPORTED
        for module in names & _LOOKING.keys():
            for name in _LOOKING[module].split():
                _look_there(__import__(module), name, program)
        if "random" in names and words & {"seed", "setstate"}:
            for name in ("seed", "setstate"):
                self._notice(__import__("random"), name)
        self.modules: dict[Any, dict[str, Any]] = {}
        if words & {"patch", "builtins", "setattr", "mock"}:
            named = set(re.findall(r"""(?:import |from |["'])\s*(\w+)""", source)) & names
            modules = [builtins, *(__import__(name) for name in sorted(named))]
            self.modules = {module: dict(vars(module)) for module in modules}
        self.patched: dict[tuple[str, str], Any] = {}

    def _notice(self, module: Any, name: str) -> None:
        original = getattr(module, name)

        def seed(*args: Any, **kwargs: Any) -> Any:
            self.is_seeded = True
            return original(*args, **kwargs)

        setattr(module, name, seed)

    def list_changes(self) -> dict[str, Any]:
        """Return what the program is to be told."""
        now: dict[str, Any] = {
            "capture": [name for name in _STREAMS if getattr(sys, name) is not self.streams[name]],
            "argv": sys.argv,
            "folder": os.getcwd(),
            "depth": sys.getrecursionlimit(),
        }
        if self.sees_environment:
            now["environment"] = dict(os.environ)
        if self.sees_decimal and "decimal" in sys.modules:
            context = sys.modules["decimal"].getcontext()
            now["decimal"] = [context.prec, context.rounding]
        changes = {name: value for name, value in now.items() if value != self.told.get(name)}
        self.told.update({name: _copy(value) for name, value in changes.items()})
        if self.is_seeded:
            self.is_seeded = False
            changes["random"] = sys.modules["random"].getstate()
        if sys.stdin is not self.stdin:
            self.stdin = sys.stdin
            changes["stdin"] = [sys.stdin.readline, sys.stdin.read]
        if self.modules and (patches := self._list_patches()):
            changes["patches"] = patches
        return changes

    def _list_patches(self) -> list[Any]:
        patches = []
        for module, before in self.modules.items():
            for name, original in before.items():
                place, new = (module.__name__, name), vars(module).get(name)
                if new is self.patched.get(place, original) or name in _NOT_PATCHED:
                    continue
                if isinstance(original, type) and new is not original:
                    raise self.program.refuse(f"another {module.__name__}.{name}")
                patches.append([*place, new is original, None if new is original else new])
                self.patched[place] = new
        return patches

    def hear(self, printed: Any, environment: Any) -> None:
        """Take what the program has printed, and its environment."""
        for name, text in printed:
            if name in _STREAMS and type(text) is str:
                getattr(sys, name).write(text)
        if self.sees_environment and isinstance(environment, dict):
            os.environ.clear()
            os.environ.update(environment)
            self.told["environment"] = dict(os.environ)


def _look_there(module: Any, name: str, program: Any) -> None:
    from groupwise.sandbox.guest.proxy import Mirror

    original = getattr(module, name)

    def look(*args: Any, **kwargs: Any) -> Any:
        if args and (isinstance(type(args[0]), Mirror) or type(args[0]) is Mirror):
            return program.ask("library", [module.__name__, name], *args, **kwargs)
        return original(*args, **kwargs)

    setattr(module, name, look)


def _copy(value: Any) -> Any:
    return type(value)(value) if isinstance(value, list | dict) else value


class Around:
    """The program's side: it does to itself what it is told."""

    def __init__(self) -> None:
        self.captured: dict[str, Any] = {}
        self.originals: dict[tuple[str, str], Any] = {}
        self.environment: dict[str, str] | None = None

    def change(self, changes: dict[str, Any]) -> None:
        """Do what the tests have done."""
        for name, value in changes.items():
            getattr(self, f"_set_{name}")(value)

    def report(self) -> dict[str, Any]:
        """Return what was printed since, if the tests read it, and a changed environment."""
        report: dict[str, Any] = {}
        if self.captured:
            report["printed"] = [[name, held.getvalue()] for name, held in self.captured.items()]
            for held in self.captured.values():
                held.seek(0)
                held.truncate()
        if self.environment is not None and self.environment != dict(os.environ):
            self.environment = report["environment"] = dict(os.environ)
        return report

    def _set_capture(self, names: list[str]) -> None:
        import io

        for name in _STREAMS:
            if name in names and name not in self.captured:
                self.captured[name] = io.StringIO()
                setattr(sys, name, self.captured[name])
            elif name not in names and self.captured.pop(name, None):
                setattr(sys, name, getattr(sys, f"__{name}__"))

    def _set_argv(self, value: list[str]) -> None:
        sys.argv[:] = value

    def _set_folder(self, value: str) -> None:
        os.chdir(value)

    def _set_depth(self, value: int) -> None:
        sys.setrecursionlimit(value)

    def _set_environment(self, value: dict[str, str]) -> None:
        os.environ.clear()
        os.environ.update(value)
        self.environment = value

    def _set_decimal(self, value: list[Any]) -> None:
        import decimal

        context = decimal.getcontext()
        context.prec, context.rounding = value

    def _set_random(self, value: Any) -> None:
        import random

        random.setstate(value)

    def _set_stdin(self, functions: list[Callable[..., Any]]) -> None:
        sys.stdin = _Input(*functions)

    def _set_patches(self, patches: list[Any]) -> None:
        for module, name, is_original, value in patches:
            __import__(module)
            held = sys.modules[module]
            self.originals.setdefault((module, name), getattr(held, name))
            setattr(held, name, self.originals[module, name] if is_original else value)


class _Input:
    """The input that the tests give."""

    def __init__(self, readline: Callable[..., str], read: Callable[..., str]) -> None:
        self.readline = readline
        self.read = read

    def __iter__(self) -> Any:
        return iter(self.readline, "")

    def readlines(self) -> list[str]:
        return list(self)

    def flush(self) -> None:
        """Do nothing."""
