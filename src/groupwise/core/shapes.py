"""JSON values, read as what they should be."""

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from groupwise.core.errors import DataError, GroupwiseError

T = TypeVar("T")


def parse_value(
    value: object,
    shape: TypeAdapter[T],
    problem: str,
    *,
    error: type[GroupwiseError] = DataError,
    fix: str | None = None,
) -> T:
    """Return what is made of a JSON value.

    Args:
        value: from a file.
        shape: what is made of it.
        problem: what to say if it has another shape, such as ``FILE is damaged``; where in it the
            first fault is and what it is are added.
        error: is raised then.
        fix: what to do then.

    Raises:
        GroupwiseError: of the kind of ``error``, if the value has another shape.
    """
    try:
        return shape.validate_python(value)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise error(problem, got=f"{place}: {first['msg']}", fix=fix) from fault
