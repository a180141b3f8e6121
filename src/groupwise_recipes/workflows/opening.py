"""Opening what scores programs: executor, judge and rules, as the config says."""

import atexit
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.inference.opening import open_model
from groupwise.inference.settings import LimitSettings, ModelSource, ServerSettings
from groupwise.judges import GenerativeJudge, ReplyCache, load_prompt
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.config import (
    ExecutorSettings,
    ScoringSettings,
    WorkflowJudgeSettings,
)
from groupwise_recipes.workflows.deciding import Decider
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME, ExecutorStub
from groupwise_recipes.workflows.problem_loading import read_problems
from groupwise_recipes.workflows.problem_sets import Problem
from groupwise_recipes.workflows.problems import PROBLEMS
from groupwise_recipes.workflows.scoring import ProgramScorer

if TYPE_CHECKING:
    from groupwise.inference.model import Model

_CACHE = "executor.sqlite"
_CACHE_MIB = 1024.0
_AT_ONCE = 64


def open_scorer(config: ScoringSettings, run: Path) -> ProgramScorer:
    """Return what scores the programs of a run; replies are kept in the run folder.

    A stub is started once in a process, and ends with it.
    """
    executor = open_executor(config.executor, run)
    judge = None
    if config.judge is not None:
        own = config.judge.model
        responder = executor.responder if own is None else open_model(own)
        judge = open_judge(config.judge, responder, cache=executor.cache)
    return ProgramScorer(executor, Decider(config.reward.mode, judge, limits=Limits()))


def open_executor(settings: ExecutorSettings, run: Path) -> Executor:
    """Return what runs the programs of a run, as ``open_scorer`` does."""
    model = settings.model or _serve_stub(run)
    cache = ReplyCache(run / _CACHE, max_mib=_CACHE_MIB)
    return Executor(open_model(model), settings=settings.execution, cache=cache)


def open_judge(
    settings: WorkflowJudgeSettings, responder: "Model", *, cache: ReplyCache | None
) -> GenerativeJudge:
    """Return the judge with a model behind it."""
    return GenerativeJudge(
        responder,
        load_prompt("correct", language=settings.language),
        sampling=settings.sampling,
        name="answer judge",
        settings=settings.settings,
        cache=cache,
    )


@lru_cache(maxsize=8)
def _start_stub(problems: Path, changed_ns: int) -> ExecutorStub:
    """Start the stub of a run, once for each state of its file of problems."""
    del changed_ns
    stub = ExecutorStub(read_problems(problems))
    atexit.register(stub.__enter__().__exit__)
    return stub


def _find_stub(run: Path) -> ExecutorStub:
    problems = run / "prepare" / PROBLEMS
    return _start_stub(problems.resolve(), problems.stat().st_mtime_ns)


def teach_stub(run: Path, problems: Sequence[Problem]) -> None:
    """Let the stub of a run know other problems than the run's, as long as this process lives."""
    _find_stub(run).model.truths.learn(problems)


def _serve_stub(run: Path) -> ModelSource:
    stub = _find_stub(run)
    return ModelSource(
        server=ServerSettings(
            url=stub.url, model=STUB_NAME, limits=LimitSettings(max_concurrency=_AT_ONCE)
        )
    )
