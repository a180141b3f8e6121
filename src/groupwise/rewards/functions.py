"""Reward functions in a user's own file: found, loaded, digested, and blamed by row and line.

A file may import modules that stand beside it. All that it reads as it is imported counts as part
of it: files that it imports or opens, and variables of the environment. An audit hook tells what is
opened, whichever way: by an import from any folder, ``importlib``, or ``open``. Files of Python, of
installed packages, of Groupwise and of the system do not count. Variables are found in the source
by their names; what cannot be known so is said.

Source: PEP 578 (audit hooks stay for the life of a process; this one looks at one thread alone
while it records).
"""

import ast
import importlib.util
import inspect
import math
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.util import source_from_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import groupwise
from groupwise.core import (
    ROW_FIELD,
    Completion,
    Example,
    GroupwiseError,
    RewardError,
    Score,
    describe_unknown,
    digest_file,
    digest_json,
    parse_python,
    read_once,
)
from groupwise.rewards.reward import (
    AnswerReward,
    Parsed,
    Parser,
    RewardKind,
    read_list,
)

_SHAPES = "f(example, answer), f(example, completion) or f(completions, **columns)"


def split_function(name: str) -> tuple[Path, str]:
    """Return the file and the function that ``folder/file.py:function`` names."""
    file, _, function = name.rpartition(":")
    return Path(file), function


def digest_functions(file: Path) -> str:
    """Return the digest of a file's code and of all that it reads as it is imported.

    That are modules of the user's own from any folder, other files, and variables of the
    environment that they name; comments and layout of code do not count, nor where the files are.
    The file is imported, once for each content.

    Raises:
        RewardError: if code is missing, is no Python or cannot be imported.
    """
    return _load(file.resolve()).digest


class _Loaded(NamedTuple):
    module: ModuleType
    files: frozenset[Path]  # the user's own that were read, itself among them
    digest: str  # of their contents, and of the variables that they name
    elsewhere: frozenset[str]  # what else it read that no digest knows, a clause each


class FunctionReward(AnswerReward):
    """A function of a user's file as a reward.

    Args:
        name: ``file.py:function``. The function takes an example and an ``answer`` (what the
            parser reads; it is not asked about a completion that is no answer, which earns 0) or an
            example and a completion, and returns a number in [0, 1], a Score or None; or it has
            TRL's shape: it takes lists of all completions and columns, and returns a list of
            numbers or None.
        kind: what its value rests on.
        messages: whether a function of TRL's shape takes messages instead of texts.
        values: lowest and highest value that it returns, mapped to [0, 1]; None and NaN stand for
            no score.
        parser: reads answers; needed by a function that takes an ``answer``.

    Attributes:
        unseen: what its values were found to depend on that its digest does not know, a clause
            each.

    Raises:
        RewardError: if there is no such function, it has another shape, or the range of its values
            is empty or not finite.
    """

    def __init__(
        self,
        name: str,
        *,
        kind: RewardKind,
        messages: bool,
        values: tuple[float, float],
        parser: Parser | None = None,
    ) -> None:
        file, self.name = split_function(name)
        self._folder = file.parent.resolve()
        self.kind: RewardKind = kind
        self._low, self._high = values
        if not (-math.inf < self._low < self._high < math.inf):
            raise RewardError("not a range", got=list(values), expected="low < high")
        self._loaded = _load(file.resolve())
        self.unseen = set(self._loaded.elsewhere)
        public = {n: v for n, v in vars(self._loaded.module).items() if not n.startswith("_")}
        known = {n: value for n, value in public.items() if callable(value)}
        if self.name not in known:
            raise RewardError(describe_unknown(f"function of {file}", self.name, list(known)))
        self._function: Callable[..., Any] = known[self.name]
        try:
            parameters = list(inspect.signature(self._function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        taken = [p.name for p in parameters]
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [p for p in parameters if p.default is p.empty and p.kind in by_place]
        self._takes_lists = not {"completions", "completion_ids"}.isdisjoint(taken)
        self.takes_tokens = "completion_ids" in taken
        if not self._takes_lists and len(needed) != 2:
            raise RewardError(
                f"the reward {name} takes other arguments", got=", ".join(taken), expected=_SHAPES
            )
        self.takes_answers = not self._takes_lists and needed[1].name == "answer"
        if self.takes_answers and parser is None:
            raise RewardError(
                f"the reward {name} takes an answer, and nothing says how answers are read",
                fix="give it a parser, or let it take an example and a completion",
            )
        super().__init__(cast("Parser", parser))
        self._takes_messages = messages

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> Sequence[Score]:
        """Return one score per pair.

        Raises:
            RewardError: if the function raises, naming the row, the file and the line.
        """
        if self.takes_answers:
            return super().score_batch(examples, completions)
        with self._record():
            if not self._takes_lists:
                return list(map(self._ask, examples, completions))
            try:
                return self._ask_at_once(examples, completions)
            except Exception as error:
                raise self._blame(error, self._find_row(examples, completions)) from error

    def _ask_at_once(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Call a function of TRL's shape with lists of all completions and columns."""
        names = dict.fromkeys(name for example in examples for name in example.fields)
        columns = {name: [example.fields.get(name) for example in examples] for name in names}
        prompts: list[object] = ["\n".join(m.text for m in example.prompt) for example in examples]
        said: list[object] = [completion.text for completion in completions]
        if self._takes_messages:
            turns = [example.prompt for example in examples]
            prompts = [[{"role": m.role, "content": m.text} for m in prompt] for prompt in turns]
            said = [[{"role": "assistant", "content": text}] for text in said]
        columns |= {"label": [example.label for example in examples], "prompts": prompts}
        ids = [list(completion.token_ids) for completion in completions]
        returned = self._function(**{**columns, "completions": said, "completion_ids": ids})
        values = read_list(returned)
        if values is None or len(values) != len(examples):
            raise RewardError(
                f"reward {self.name!r} did not return one value per completion",
                got=type(returned).__name__ if values is None else f"{len(values)} values",
                expected=f"a list of {len(examples)}",
            )
        return list(map(self._read_value, values))

    def _read_value(self, value: Any) -> Score:
        number: object = value.item() if hasattr(value, "item") else value  # of an array's numbers
        if number is None or number != number:
            return Score(None, f"{self.name} gave no value")
        if not isinstance(number, bool | int | float) or not self._low <= number <= self._high:
            raise RewardError(
                f"reward {self.name!r} returned a value outside its range",
                got=repr(value),
                expected=f"a number in [{self._low:g}, {self._high:g}] or None",
                fix="give it its range with values: [low, high]",
            )
        share = (number - self._low) / (self._high - self._low)
        return Score(min(1.0, max(0.0, share)), f"{self.name} gave {number:g}")

    def score_answers(
        self, examples: Sequence[Example], answers: Sequence[Parsed]
    ) -> Sequence[Score]:
        with self._record():
            return super().score_answers(examples, answers)

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        return self._ask(example, answer)

    def _ask(self, example: Example, said: Completion | Parsed) -> Score:
        try:
            found = self._function(example, said)
            return found if isinstance(found, Score) else self._read_value(found)
        except Exception as error:
            raise self._blame(error, _name_row(example)) from error

    @contextmanager
    def _record(self) -> Generator[None]:
        with record_reads() as reads:
            yield
        late = reads.files - self._loaded.files
        self.unseen |= reads.elsewhere | {f"the file {path.name}" for path in late}

    def _find_row(self, examples: Sequence[Example], completions: Sequence[Completion]) -> str:
        """Return the first row on which the function fails alone, or how many failed together."""
        for example, completion in zip(examples, completions, strict=True):
            try:
                self._ask_at_once([example], [completion])
            except Exception:  # noqa: BLE001 (it is a user's code, and may raise anything)
                return _name_row(example)
        return f"{len(examples)} completions together, the first of {_name_row(examples[0])}"

    def _blame(self, error: Exception, row: str) -> RewardError:
        place, fix = _find_place(error, self._folder), None
        if isinstance(error, AttributeError) and isinstance(error.obj, Parsed):
            fix = "its argument `answer` is what the parser read; name it completion for the text"
        return RewardError(f"the reward {self.name} failed on {row}{place}", fix=fix)


def _name_row(example: Example) -> str:
    return str(example.fields.get(ROW_FIELD) or f"example {example.id}")


def _find_place(error: Exception, folder: Path) -> str:
    """Return the last place in the user's own files that an error came through, and the error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_in(f.filename, folder)]
    place = f" in {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
    is_told = isinstance(error, GroupwiseError)
    told = str(error).rstrip(".") if is_told else f"{type(error).__name__}: {error}"
    return f"{place} ({told})"


def _is_in(file: str, folder: Path) -> bool:
    return bool(file) and Path(file).resolve().is_relative_to(folder)


_LOADED: dict[Path, _Loaded] = {}


def _load(file: Path) -> _Loaded:
    """Import a file, unless nothing that it read then has changed."""
    beside: dict[Path, ast.Module] = {}  # itself and the modules beside it that it imports
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in beside:
            beside[path] = _parse(path)
            for name in _list_imports(beside[path]):
                module, package = file.with_name(f"{name}.py"), file.with_name(name)
                is_package = (package / "__init__.py").is_file() or not module.is_file()
                waiting += sorted(package.rglob("*.py")) if is_package else [module]
    known = _LOADED.get(file)
    if (
        known is None
        or not beside.keys() <= known.files
        or known.digest != _digest(file, known.files)
    ):
        with record_reads() as reads:
            name = digest_json([str(file), *sorted(map(str, beside))])
            module = _import(file, beside[file], name)
        files = frozenset(beside) | reads.files
        trees = {path: _parse(path) for path in reads.files if path.suffix == ".py"} | beside
        # The user's own modules that were imported long before.
        loaded = [sys.modules.get(name) for tree in trees.values() for name in _list_imports(tree)]
        sources = {Path(getattr(module, "__file__", None) or "") for module in loaded}
        files |= {source for source in sources if source.name and is_own(source)}
        unnamed = {
            f"a variable of the environment whose name {path.name} line {line} computes"
            for path in files
            for line in (find_unnamed_variables(_parse(path)) if path.suffix == ".py" else ())
        }
        elsewhere = frozenset(reads.elsewhere | unnamed)
        known = _LOADED[file] = _Loaded(module, files, _digest(file, files, beside), elsewhere)
    return known


def _digest(
    file: Path, files: Iterable[Path], parsed: Mapping[Path, ast.Module] | None = None
) -> str:
    """Return the digest of what a file has read, by names that hold in any folder.

    What was ``parsed`` before it ran counts as it was then: a later load sees that it has changed.
    """
    there = (path for path in files if path.suffix == ".py" and path.is_file())
    trees = {path: parsed[path] if parsed and path in parsed else _parse(path) for path in there}
    told: list[list[str | None]] = []
    for path in files:
        is_beside = path.is_relative_to(file.parent)
        name = path.relative_to(file.parent).as_posix() if is_beside else path.name
        digest = digest_file(path) if path not in trees and path.is_file() else None
        told.append([name, ast.dump(trees[path]) if path in trees else digest])
    return digest_json([sorted(told, key=str), list_variables(trees.values())])


def _import(file: Path, tree: ast.Module, name: str) -> ModuleType:
    """Import a parsed file under a name of its own, and anew the modules that it imports beside it.

    These are forgotten again: another task may have modules of such names.
    """
    spec = importlib.util.spec_from_file_location(f"_rewards_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = file.parent
    known, writes_nothing = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        # What was digested is what runs, whatever is written into the file meanwhile.
        exec(compile(tree, str(file), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        raise RewardError(f"cannot import {file}{_find_place(error, folder)}") from error
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes_nothing
        for other in set(sys.modules) - known:
            source = getattr(sys.modules[other], "__file__", None)
            if source and (_is_in(source, folder) or is_own(Path(source))):
                del sys.modules[other]
    return module


def _list_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@lru_cache(maxsize=32)
def _parse_content(content: bytes, filename: str) -> ast.Module:
    return parse_python(content, filename=filename)


def _parse(path: Path) -> ast.Module:
    try:
        return _parse_content(read_once(path), str(path))
    except OSError as error:
        raise RewardError(f"cannot read the rewards {path} ({error.strerror})") from error
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise RewardError(f"{path}{line} is no Python ({error})") from error


_LOCAL = threading.local()
_ELSEWHERE = {
    "subprocess.Popen": "what another program says",
    "os.system": "what another program says",
    "socket.connect": "what another machine or process says",
}
# Who asks, not what is paid: a new key must not make a training start again.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


@dataclass(slots=True)
class Reads:
    """What code has read in one thread: own files that it did not write, and other things."""

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


@cache
def _install_hook() -> None:
    def note(event: str, given: tuple[Any, ...]) -> None:
        reads: Reads | None = getattr(_LOCAL, "reads", None)
        if reads is None:
            return
        if event in _ELSEWHERE:
            reads.elsewhere.add(_ELSEWHERE[event])
        elif event == "open" and not isinstance(given[0], int):
            place, mode, flags = given
            is_text = isinstance(mode, str)
            is_written = set("wax+") & set(mode) if is_text else flags & (os.O_WRONLY | os.O_RDWR)
            path = Path(os.path.abspath(os.fsdecode(place)))
            (reads.written if is_written else reads.files).add(path)
        elif event in ("import", "sqlite3.connect"):
            named = given[1] if event == "import" else given[0]
            if isinstance(named, str) and named not in ("", ":memory:"):
                reads.files.add(Path(os.path.abspath(named)))

    sys.addaudithook(note)


def _find_source(path: Path) -> Path:
    if path.suffix != ".pyc":
        return path
    try:
        return Path(source_from_cache(str(path)))
    except (ValueError, NotImplementedError):
        return path


def is_own(path: Path) -> bool:
    """Return whether a file is neither Python's, nor Groupwise's, a package's or the system's."""
    real = Path(os.path.realpath(path))
    if not {"site-packages", "dist-packages"}.isdisjoint(real.parts):
        return False
    if real.is_relative_to("/dev/shm"):  # anybody's files
        return True
    return not any(real.is_relative_to(folder) for folder in _list_foreign())


@cache
def _list_foreign() -> tuple[Path, ...]:
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    places += ["/proc", "/sys", "/dev", "/etc", "/usr"]
    own = Path(groupwise.__file__).resolve().parent
    return (*(Path(place).resolve() for place in places), *own.parent.glob(f"{own.name}*"))


def list_variables(trees: Collection[ast.AST]) -> dict[str, str | None]:
    """Return the values of the variables that code names, but of keys and passwords."""
    names = {name for tree in trees for _, name in _find_variables(tree) if name is not None}
    told = [name for name in names if not name.upper().endswith(_SECRET)]
    return {name: os.environ.get(name) for name in sorted(told)}


def find_unnamed_variables(tree: ast.AST) -> list[int]:
    """Return the lines of code that read the environment without a name that stands there."""
    return sorted({line for line, name in _find_variables(tree) if name is None})


def _find_variables(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """Yield line and name of what is read of the environment; None for a computed name."""

    def get_name(node: Any) -> str:
        return str(getattr(node, "attr", getattr(node, "id", "")))

    def is_environment(node: Any) -> bool:
        is_named = isinstance(node, ast.Name | ast.Attribute)
        return is_named and get_name(node) in ("environ", "environb")

    nodes: list[Any] = list(ast.walk(tree))
    named: set[int] = set()
    for node in nodes:
        key: Any = None
        holder: Any = None
        if isinstance(node, ast.Subscript) and is_environment(node.value):
            key, holder = node.slice, node.value
        elif isinstance(node, ast.Compare) and is_environment(node.comparators[0]):
            key, holder = node.left, node.comparators[0]
        elif isinstance(node, ast.Call) and node.args:
            held = node.func.value if isinstance(node.func, ast.Attribute) else None
            if get_name(node.func) == "getenv":
                key, holder = node.args[0], node.func
            elif is_environment(held):
                key, holder = node.args[0], held
        if holder is not None:
            named.add(id(holder))
            is_plain = isinstance(key, ast.Constant) and isinstance(key.value, str)
            yield holder.lineno, str(key.value) if is_plain else None
    for node in nodes:
        if is_environment(node) and id(node) not in named:
            yield node.lineno, None
