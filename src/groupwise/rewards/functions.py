"""Reward functions in a user's own file: found, loaded, digested, and blamed by row and line.

A file may import modules that stand beside it; they count as part of it.
"""

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.core import (
    ROW_FIELD,
    Completion,
    Example,
    GroupwiseError,
    RewardError,
    Score,
    describe_unknown,
    digest_json,
    parse_python,
)
from groupwise.rewards.adapters import ScoreRange, TrlReward
from groupwise.rewards.reward import RewardKind

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_SHAPES = "f(example, completion) or f(completions, **columns)"


def split_function(name: str) -> tuple[Path, str]:
    """Return the file and the function that ``folder/file.py:function`` names."""
    file, _, function = name.rpartition(":")
    return Path(file), function


def digest_functions(file: Path) -> str:
    """Return the digest of a file's code and of the modules beside it that it imports.

    Comments and layout do not count.

    Raises:
        RewardError: if one of them is missing or no Python.
    """
    trees = {path.name: ast.dump(_parse(path)) for path in _list_modules(file)}
    return digest_json(trees)


class FunctionReward:
    """A function of a user's file as a reward.

    Args:
        name: ``file.py:function``; the function takes an example and a completion and returns a
            number in [0, 1], a Score or None, or has TRL's shape: lists of all completions and
            columns, and returns a list of numbers or None.
        kind: what its value rests on.
        messages: whether a function of TRL's shape takes messages instead of texts.
        values: lowest and highest value that it returns, mapped to [0, 1].

    Raises:
        RewardError: if there is no such function, or it has another shape.
    """

    def __init__(
        self, name: str, *, kind: RewardKind, messages: bool, values: tuple[float, float]
    ) -> None:
        file, self.name = split_function(name)
        self._folder = file.parent.resolve()
        self.kind: RewardKind = kind
        self._range = ScoreRange(*values)
        self._function = _find_function(file, self.name)
        taken = _list_parameters(self._function, name)
        self._trl = None
        if "completions" in taken:
            self._trl = TrlReward(
                self._function,
                kind=kind,
                name=self.name,
                is_conversational=messages,
                values=self._range,
            )

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one completion."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair.

        Raises:
            RewardError: if the function raises, naming the row, the file and the line.
        """
        if self._trl is None:
            return [self._score(*pair) for pair in zip(examples, completions, strict=True)]
        try:
            return self._trl.score_batch(examples, completions)
        except Exception as error:
            raise self._blame(error, self._find_row(examples, completions)) from error

    def _score(self, example: Example, completion: Completion) -> Score:
        try:
            found = self._function(example, completion)
            return found if isinstance(found, Score) else self._range.read(self.name, found)
        except Exception as error:
            raise self._blame(error, _name_row(example)) from error

    def _find_row(self, examples: Sequence[Example], completions: Sequence[Completion]) -> str:
        """Return the first row on which the function fails alone, or how many failed together."""
        assert self._trl is not None
        for example, completion in zip(examples, completions, strict=True):
            try:
                self._trl.score_batch([example], [completion])
            except Exception:  # noqa: BLE001 (it is a user's code, and may raise anything)
                return _name_row(example)
        return f"{len(examples)} completions together, the first of {_name_row(examples[0])}"

    def _blame(self, error: Exception, row: str) -> RewardError:
        place = _find_place(error, self._folder)
        return RewardError(f"the reward {self.name} failed on {row}{place} ({_describe(error)})")


def _describe(error: Exception) -> str:
    is_told = isinstance(error, GroupwiseError)
    return str(error).rstrip(".") if is_told else f"{type(error).__name__}: {error}"


def _name_row(example: Example) -> str:
    return str(example.fields.get(ROW_FIELD) or f"example {example.id}")


def _find_place(error: BaseException, folder: Path) -> str:
    """Return the last place in the user's own files that an error came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_in(f.filename, folder)]
    return f" in {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""


def _is_in(file: str, folder: Path) -> bool:
    return bool(file) and Path(file).resolve().is_relative_to(folder)


def _list_parameters(function: Callable[..., Any], name: str) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    taken = [p.name for p in parameters]
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if "completions" not in taken and len(needed) != 2:
        raise RewardError(
            f"the reward {name} takes other arguments", got=", ".join(taken), expected=_SHAPES
        )
    return taken


def _find_function(file: Path, function: str) -> Callable[..., Any]:
    module = _load(file.resolve(), digest_functions(file))
    known = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
    if function not in known:
        raise RewardError(describe_unknown(f"function of {file}", function, list(known)))
    return known[function]


@lru_cache(maxsize=32)
def _load(file: Path, digest: str) -> ModuleType:
    """Import a file under a name of its own, and anew the modules beside it that it imports."""
    spec = importlib.util.spec_from_file_location(f"_rewards_{digest}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        with _importing_from(file.parent):
            spec.loader.exec_module(module)
    except Exception as error:
        place = _find_place(error, file.parent)
        raise RewardError(f"cannot import {file}{place} ({_describe(error)})") from error
    return module


@contextmanager
def _importing_from(folder: Path) -> Generator[None]:
    """Let modules be imported from a folder, and forget them: another task may have such names."""
    known, writes_nothing = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes_nothing
        for name in set(sys.modules) - known:
            if _is_in(getattr(sys.modules[name], "__file__", None) or "", folder):
                del sys.modules[name]


def _list_modules(file: Path) -> list[Path]:
    """Return a file and the modules beside it that it imports, directly or not."""
    found = dict[Path, None]()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting += [
                beside for name in _list_imports(_parse(path)) for beside in _find(file, name)
            ]
    return list(found)


def _list_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _find(file: Path, name: str) -> list[Path]:
    """Return the files of the module or package of that name beside a file."""
    module, package = file.with_name(f"{name}.py"), file.with_name(name)
    if (package / "__init__.py").is_file():
        return sorted(package.rglob("*.py"))
    return [module] if module.is_file() else []


def _parse(path: Path) -> ast.Module:
    try:
        return parse_python(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise RewardError(f"cannot read the rewards {path} ({error.strerror})") from error
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise RewardError(f"{path}{line} is no Python ({error})") from error
