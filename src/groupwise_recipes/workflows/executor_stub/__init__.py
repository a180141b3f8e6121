"""A server that stands in for an executor: it knows the answers and errs by chance, reproducibly.

It is no model. It is for demos, tests and dry runs only, and a report says so.
"""

from groupwise_recipes.workflows.executor_stub.abilities import Abilities, Kind, find_kind
from groupwise_recipes.workflows.executor_stub.model import StubModel, StubReply
from groupwise_recipes.workflows.executor_stub.server import STUB_NAME, ExecutorStub

__all__ = [
    "STUB_NAME",
    "Abilities",
    "ExecutorStub",
    "Kind",
    "StubModel",
    "StubReply",
    "find_kind",
]
