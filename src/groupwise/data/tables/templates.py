"""Jinja templates of the columns of a row, filled in a sandbox and never with missing values."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_OWN_NAMES = frozenset({"row", "_file"})


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
        FillError: if a value that it shows is missing, or it fails on the values.
    """
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
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(
        undefined=StrictUndefined,
        finalize=_refuse_missing,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _refuse_missing(value: Any) -> Any:
    if value is None:
        raise FillError("it shows a value that is missing")
    return value
