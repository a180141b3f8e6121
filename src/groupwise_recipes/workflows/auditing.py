"""The audit of the reward: programs that return a text, without any executor."""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from groupwise.core import Example
from groupwise.data.examples import read_examples
from groupwise.inference.model import LabelShares, Reply, RequestError, Sampling
from groupwise.rewards import RewardCase, RewardSet
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.deciding import Decider
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.outcome import Outcome
from groupwise_recipes.workflows.parser import WorkflowParser
from groupwise_recipes.workflows.problem_sets import Problem
from groupwise_recipes.workflows.rewards import make_success
from groupwise_recipes.workflows.scoring import ProgramScorer, read_problem


class _Absent:
    """A model that is not there."""

    @property
    def identity(self) -> Mapping[str, str | None]:
        """That there is none."""
        return {"model": None}

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Refuse."""
        raise RequestError("refused", "no model is asked here")

    async def label_shares(self, example: Example, *, labels: object) -> LabelShares:
        """Refuse."""
        raise RequestError("refused", "no model is asked here")


class _Constants(Executor):
    """Programs that only return a text need no sandbox to say which; the others have one."""

    def run_all(self, pairs: Sequence[tuple[str, Problem]]) -> list[Outcome]:
        """Return the outcomes in order."""
        known = {pair: _read_constant(pair[0]) for pair in pairs}
        others = [pair for pair, value in known.items() if value is None]
        run = dict(zip(others, super().run_all(others), strict=True))
        return [run[pair] if pair in run else Outcome(known[pair]) for pair in pairs]


class ConstantPrograms(WorkflowParser):
    """Programs that return a text whatever is asked: they need no executor.

    Of the reference it is the right answer, which earns all; every other text earns less.
    """

    def measure(self, example: Example, text: str) -> float | None:
        """Return what a program's answer is worth by the rules; None if it is refused."""
        return open_offline().score_all([(read_problem(example), text)])[0].worth_if_accepted

    def _normalize(self, target: str) -> str:
        return write_constant(target)


def write_constant(answer: str) -> str:
    """Return the program that returns a text."""
    return f"async def workflow(problem):\n    return {answer!r}"


def _read_constant(source: str) -> str | None:
    """Return the text of a program that ``write_constant`` wrote, else None."""
    body = source.partition("\n    return ")[2]
    try:
        value = ast.literal_eval(body)
    except (SyntaxError, ValueError):
        return None
    is_constant = isinstance(value, str) and value.strip() and write_constant(value) == source
    return value if is_constant else None


def make_case(config: WorkflowsConfig, folder: Path) -> RewardCase:
    """Return the reward and the training problems, with no executor and no judge.

    What a judge is worth is said by ``groupwise judge``, and by how often rules agree with it.
    """
    settings = config.reward.model_copy(update={"mode": "rules_first"})
    return RewardCase(
        rewards=RewardSet({"success": (make_success(settings, open_offline()), 1.0)}),
        examples=read_examples(folder / "train.jsonl"),
        parser=ConstantPrograms(),
    )


@cache
def open_offline() -> ProgramScorer:
    """Return what scores programs that ask no model, by rules alone; the same every time."""
    return ProgramScorer(_Constants(_Absent()), Decider(limits=Limits()))
