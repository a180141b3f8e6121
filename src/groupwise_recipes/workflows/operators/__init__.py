"""Operators: what a workflow may call. One function each, answered by a model.

A user's own operator is an async function with a docstring and annotations; it returns a dataclass
or a JSON value. If its first parameter is a ``Session``, it can ask the model and run programs.
"""

from groupwise_recipes.workflows.operators.calling import (
    Operator,
    describe_operators,
    make_operators,
    signatures,
)
from groupwise_recipes.workflows.operators.prompts import TEMPLATES, Fields, read_request, render
from groupwise_recipes.workflows.operators.results import OperatorError, read_reply
from groupwise_recipes.workflows.operators.session import (
    PublicProblem,
    RunProgram,
    Session,
    publish,
)
from groupwise_recipes.workflows.operators.standard import OPERATORS, OperatorFunction

__all__ = [
    "OPERATORS",
    "TEMPLATES",
    "Fields",
    "Operator",
    "OperatorError",
    "OperatorFunction",
    "PublicProblem",
    "RunProgram",
    "Session",
    "describe_operators",
    "make_operators",
    "publish",
    "read_reply",
    "read_request",
    "render",
    "signatures",
]
