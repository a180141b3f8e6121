"""What a finished run is asked: a program for a new problem, its answer, and each step to it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.core import ConfigError, DataError, Example, dump_config, load_config
from groupwise.inference.model import Usage
from groupwise.run.predict import PolicyPredictor
from groupwise.run.task import Task
from groupwise.serving import Answer, Request
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.executor_stub import STUB_NAME
from groupwise_recipes.workflows.opening import open_executor
from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.outcome import Outcome
from groupwise_recipes.workflows.problem_sets import Problem, letter_options
from groupwise_recipes.workflows.programs import Checked, check_program
from groupwise_recipes.workflows.scoring import read_problem

_STUB = f"made up by {STUB_NAME}, which is no model"
_COLUMNS = ("problem", "problem_type", "entry_point", "setup", "public_tests", "options")
# A new problem has no reference: nothing decides about its answer.
_UNKNOWN: Mapping[str, Any] = {"source": "asked", "ground_truth": "unknown"}


class WorkflowPredictor(PolicyPredictor):
    """Writes a program for each problem and runs it with the executor of the run.

    Args:
        task: of the recipe.
        config: of the run.
        policy: folder of a policy.
        run: the run folder, whose cache of replies is used.

    Raises:
        SandboxError: if no program can be run on this machine.
    """

    def __init__(
        self, task: Task[Any], config: WorkflowsConfig, policy: str | Path, *, run: Path
    ) -> None:
        super().__init__(task, config, policy)
        self._executor = open_executor(config.executor, run)
        self._settings = config.executor
        self._signatures = signatures(OPERATORS)

    def describe(self) -> Mapping[str, Any]:
        """Return the weights, how they are asked, and the executor with its settings."""
        return {
            **super().describe(),
            "executor": dict(self._executor.responder.identity),
            "stub": self._settings.stub,
            "execution": dump_config(self._settings.execution),
        }

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return what the program for each problem returned, with its trace.

        One that the executor let down has no text: it is to be asked again.
        """
        texts = self._ask(questions)
        checked = [check_program(text, self._signatures) for text in texts]
        runs = [n for n, one in enumerate(checked) if one.refusal is None]
        pairs = [(checked[n].source, read_problem(questions[n])) for n in runs]
        outcomes = dict(zip(runs, self._executor.run_all(pairs), strict=True))
        return [
            self._write(text, checked[n], outcomes.get(n, Outcome(None, "policy")))
            for n, text in enumerate(texts)
        ]

    def _write(self, text: str, checked: Checked, outcome: Outcome) -> Answer:
        is_stub = self._settings.stub
        reason = _explain(checked, outcome) or (_STUB if is_stub else "")
        return Answer(
            None if outcome.fault == "executor" else text,
            outcome.value,
            reason,
            needs_person=outcome.value is None,
            details={
                "executor": _STUB if is_stub else self._executor.responder.identity["model"],
                "program": checked.source or text,
                "refusal": checked.refusal and asdict(checked.refusal),
                "repairs": [asdict(one) for one in checked.repairs],
                "calls": [asdict(call) for call in outcome.trace],
                "usage": asdict(sum(outcome.usage.values(), Usage())),
            },
        )


def _explain(checked: Checked, outcome: Outcome) -> str:
    """Return why there is no answer; empty if there is one."""
    if checked.refusal is not None:
        refusal = checked.refusal
        return f"refused ({refusal.reason}, line {refusal.line}): {refusal.message}"
    if outcome.fault is None:
        return ""
    what = "the program failed" if outcome.fault == "policy" else "the executor failed"
    return f"{what} ({outcome.reason}): {outcome.message}"


def read_asked(request: Request) -> Problem:
    """Return the problem of a row, without what decides.

    Columns: ``problem``; if wanted ``problem_type``, ``options`` (a list; they are put below the
    problem unless they stand there), and of code ``entry_point``, ``setup`` and ``public_tests``
    (a list).
    """
    row = {name: request.row[name] for name in _COLUMNS if request.row.get(name) is not None}
    text = row.get("problem")
    if not isinstance(text, str) or not text.strip():
        raise DataError("a row needs a problem", got=repr(text))
    is_code = "entry_point" in row
    row.setdefault("problem_type", "code" if is_code else "qa" if row.get("options") else "math")
    hidden = {"hidden_tests": ("raise AssertionError('unknown')",)} if is_code else {}
    named = {"id": request.id, "cluster": request.id}
    try:
        problem = load_config(Problem, {**_UNKNOWN, **named, **hidden, **row})
    except ConfigError as error:
        why = str(error).rpartition("config: ")[2].strip()
        raise DataError(f"the row is no problem ({why})") from error
    options = problem.options
    if not options or letter_options("", options) in problem.problem:
        return problem
    return problem.model_copy(update={"problem": letter_options(problem.problem, options)})
