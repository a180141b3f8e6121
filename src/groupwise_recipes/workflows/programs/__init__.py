"""Programs that a policy writes: found in its reply, checked before they run.

A program that passes ``check_program`` calls only operators that exist, as they are declared, and
never reads a variable that has no value. It is not what keeps a program in: that is the sandbox.
"""

from groupwise_recipes.workflows.programs.check import check_program
from groupwise_recipes.workflows.programs.reasons import (
    REASONS,
    REPAIRS,
    Checked,
    Refusal,
    Repair,
)
from groupwise_recipes.workflows.programs.rules import describe_rules
from groupwise_recipes.workflows.programs.shape import describe_shape

__all__ = [
    "REASONS",
    "REPAIRS",
    "Checked",
    "Refusal",
    "Repair",
    "check_program",
    "describe_rules",
    "describe_shape",
]
