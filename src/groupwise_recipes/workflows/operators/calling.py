"""From an operator's function to what a program may call and what the policy's prompt says."""

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from groupwise.core import ConfigError
from groupwise_recipes.workflows.operators.results import OperatorError
from groupwise_recipes.workflows.operators.session import Session
from groupwise_recipes.workflows.operators.standard import OperatorFunction

_LENIENT = ConfigDict(coerce_numbers_to_str=True)


@dataclass(frozen=True)
class Operator:
    """A function that programs may call.

    Attributes:
        name: as programs call it.
        function: the coroutine function; a first parameter that is a ``Session`` is ours to fill.
    """

    name: str
    function: OperatorFunction

    def __post_init__(self) -> None:
        """Refuse a function that cannot be an operator."""
        signature = self.signature
        parameters = [p.annotation for p in signature.parameters.values()]
        is_whole = inspect.Parameter.empty not in (*parameters, signature.return_annotation)
        is_known = inspect.iscoroutinefunction(self.function) and bool(self.summary)
        if not (is_known and is_whole and self.name.isidentifier()):
            raise ConfigError(
                f"the operator {self.name!r} cannot be used",
                expected="an async function with a docstring and annotations of all parameters "
                "and of what it returns",
            )

    @cached_property
    def signature(self) -> inspect.Signature:
        """Parameters as programs give them, and what is returned."""
        whole = inspect.signature(self.function, eval_str=True)
        parameters = list(whole.parameters.values())
        return whole.replace(parameters=parameters[1:]) if self.takes_session else whole

    @cached_property
    def takes_session(self) -> bool:
        """Whether the first parameter is a session."""
        parameters = inspect.signature(self.function, eval_str=True).parameters.values()
        first = next(iter(parameters), None)
        return first is not None and first.annotation is Session

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @cached_property
    def _readers(self) -> Mapping[str, TypeAdapter[Any]]:
        parameters = self.signature.parameters.values()
        return {p.name: _make_reader(p.annotation) for p in parameters}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name; numbers are taken for text where text belongs."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise OperatorError(f"{self.name}: {error}") from error
        bound.apply_defaults()
        try:
            return {n: self._readers[n].validate_python(v) for n, v in bound.arguments.items()}
        except ValidationError as error:
            what = "; ".join(detail["msg"] for detail in error.errors())
            raise OperatorError(f"{self.name}: {what}") from error

    async def call(self, session: Session, arguments: Mapping[str, Any]) -> Any:
        """Return what the function returns, as a JSON value."""
        given = (session,) if self.takes_session else ()
        value = await self.function(*given, **arguments)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        return json.loads(json.dumps(value, allow_nan=False))


def _make_reader(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=_LENIENT)
    except Exception:  # noqa: BLE001 (pydantic refuses a config where a type has its own)
        return TypeAdapter(annotation)


def make_operators(functions: Mapping[str, OperatorFunction]) -> dict[str, Operator]:
    """Return the operators by name."""
    return {name: Operator(name, function) for name, function in functions.items()}


def signatures(functions: Mapping[str, OperatorFunction]) -> dict[str, inspect.Signature]:
    """Return how programs call each operator."""
    return {name: operator.signature for name, operator in make_operators(functions).items()}


def describe_operators(functions: Mapping[str, OperatorFunction]) -> str:
    """Return one line for each operator, for the policy's prompt: its call, fields and summary."""
    return "\n".join(_describe(operator) for operator in make_operators(functions).values())


def _describe(operator: Operator) -> str:
    signature = operator.signature
    parameters = ", ".join(str(p) for p in signature.parameters.values())
    kind = signature.return_annotation
    if dataclasses.is_dataclass(kind):
        returned = ", ".join(f".{f.name}: {_name(f.type)}" for f in dataclasses.fields(kind))
    else:
        returned = _name(kind)
    return f"{operator.name}({parameters}) -> {returned}  # {operator.summary}"


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else inspect.formatannotation(kind)
