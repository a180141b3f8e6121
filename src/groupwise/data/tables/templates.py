"""Jinja templates of the columns of a row, filled in a sandbox and never with missing values."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_OWN_NAMES = frozenset({"row", "_file"})
# No prompt wants more, and loops in loops would never end.
_MAX_TURNS = 10_000
_TURNS: ContextVar[Iterator[int]] = ContextVar("turns that are left")
_COUNT = "_count_turns"


class FillError(Exception):
    """A template that a row cannot fill, with the reason."""


def is_template(text: str) -> bool:
    """Say whether a text is a template rather than the name of a column."""
    return "{{" in text or "{%" in text


def check_template(text: str) -> str:
    """Return why a text is not a template, or an empty text."""
    from jinja2 import TemplateSyntaxError

    try:
        _open_environment().parse(text)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    return ""


def find_place_problem(
    text: str, *, needed: Collection[str] = (), more: Collection[str] = ()
) -> str:
    """Return why a text is no template with these places, or an empty text.

    Args:
        text: of the template.
        needed: places that it must have.
        more: places that it may have.
    """
    problem = check_template(text)
    if problem:
        return problem
    found = list_columns(text) if is_template(text) else frozenset[str]()
    missing, unknown = sorted({*needed} - found), sorted(found - {*needed, *more})
    if missing:
        return f"the template lacks {{{{ {missing[0]} }}}}"
    known = ", ".join(sorted({*needed, *more}))
    return f"nothing fills {{{{ {unknown[0]} }}}}; there are {known}" if unknown else ""


def list_columns(text: str) -> frozenset[str]:
    """Return the columns that a name or a template needs."""
    from jinja2 import meta

    if not is_template(text):
        return frozenset({text})
    environment = _open_environment()
    names = meta.find_undeclared_variables(environment.parse(text))
    known = cast("dict[str, Any]", environment.globals)  # pyright: ignore[reportUnknownMemberType]
    return frozenset(names - _OWN_NAMES - known.keys())


def fill_template(text: str, values: Mapping[str, Any], *, file: str) -> str:
    """Return a template filled with a row's values.

    Empty texts are as missing as nulls: what may be missing is written ``{% if hint %}`` or
    ``{{ hint or "" }}``.

    Raises:
        FillError: if a value that it shows is missing, it fails on the values, or its loops take
            more than 10,000 turns.
    """
    _TURNS.set(iter(range(_MAX_TURNS)))
    given = {name: None if _is_blank(value) else value for name, value in values.items()}
    try:
        return _compile(text).render({"row": given, "_file": file, **given})
    except Exception as error:
        raise FillError(str(error)) from error


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


@cache
def _compile(text: str) -> Any:
    return _open_environment().from_string(text)


@cache
def _open_environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined, nodes
    from jinja2.sandbox import SandboxedEnvironment

    class Bounded(SandboxedEnvironment):
        """Counts the turns of all loops."""

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            tree = super()._parse(source, name, filename)
            for loop in tree.find_all(nodes.For):
                loop.iter = nodes.Filter(loop.iter, _COUNT, [], [], None, None, lineno=loop.lineno)
            return tree

    found = Bounded(
        undefined=StrictUndefined,
        finalize=_refuse_missing,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cast("dict[str, Any]", found.filters)[_COUNT] = _count_turns  # pyright: ignore
    return found


def _count_turns(items: Iterable[Any]) -> Iterator[Any]:
    """Yield what a loop goes through, as long as there are turns left for this row."""
    turns = _TURNS.get()
    for item in items:
        if next(turns, None) is None:
            raise FillError(
                f"its loops take more than {_MAX_TURNS:,} turns; write what it repeats as text or "
                "in a column"
            )
        yield item


def _refuse_missing(value: Any) -> Any:
    if value is None:
        raise FillError("it shows a value that is missing")
    return value
