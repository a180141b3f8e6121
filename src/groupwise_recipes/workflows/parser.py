"""What says whether a text is an answer: a program that passes the checks."""

from groupwise.core import Example
from groupwise.rewards import OpenParser, Parsed, Reward
from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program


class WorkflowParser(OpenParser):
    """Programs: a text is an answer if its program passes the checks."""

    kind: str = "workflow"

    def make_reward(self) -> Reward:
        """Return nothing: what a program is worth takes an executor."""
        raise NotImplementedError("a program is worth what its answer is")

    def _read(self, text: str, example: Example | None) -> Parsed:

        del example
        checked = check_program(text, signatures(OPERATORS))
        if checked.refusal is not None:
            return Parsed(None, f"{checked.refusal.reason}: {checked.refusal.message}")
        return Parsed(checked.source)
