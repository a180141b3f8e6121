"""Run folders and comparisons for the tests of the comparison report."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest
from compared_runs import PUBLISHED, make_answers, make_grid
from run_folders import VARIED, make_run

from groupwise.evaluation.compare import Comparison, compare_results
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.result_table import Question, Result, read_runs

THIRD = {**VARIED, "manifest.json:config/grpo/beta": 0.2, "grpo/resolved.json:beta": 0.2}


@pytest.fixture
def published() -> Comparison:
    """The published grid of two β, of which a quarter has run, and both epochs are alike."""
    axes = {"epoch": ("1", "2"), "size": ("100", "200", "400", "800"), "shots": tuple("1234")}
    values = {
        (beta, *place): shares[int(place[2]) - 1] if place[1] == "200" else None
        for beta, shares in PUBLISHED.items()
        for place in product(*axes.values())
    }
    return compare_results(make_grid(axes, values))


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., Comparison]:
    """Compare runs of other betas: ``changes`` and ``answers`` of each may be given."""

    def build(
        answers: Sequence[list[Prediction]],
        changes: Sequence[Mapping[str, object]] = ({}, VARIED, THIRD),
        *,
        measure: str = "accuracy",
        factors: tuple[str, ...] = ("grpo.beta",),
        names: Sequence[str] = ("first", "second", "third"),
    ) -> Comparison:
        sources: list[Result] = []
        for name, rows, change in zip(names, answers, changes, strict=False):
            folder = make_run(tmp_path / f"{name}-{measure}", change, predictions=rows)
            sources.append(Result(name, folder=str(folder)))
        question = Question(measure=measure, factors=factors, title="some runs")
        return compare_results(read_runs(sources, question))

    return build


@pytest.fixture
def compare_grid(tmp_path: Path) -> Callable[..., Comparison]:
    """Compare two betas over sizes.

    ``states`` names cells that have not run, ``changes`` what else differs in the second beta;
    ``first`` shifts the items of each further size.
    """

    def build(
        accuracies: Mapping[str, float],
        *,
        sizes: Sequence[int] = (120, 240),
        states: Mapping[tuple[str, int], str] | None = None,
        changes: Mapping[str, object] | None = None,
        first: int = 0,
    ) -> Comparison:
        sources: list[Result] = []
        for beta, accuracy in accuracies.items():
            for size in sizes:
                state = (states or {}).get((beta, size), "done")
                folder = tmp_path / f"{beta}-{size}"
                if state == "done":
                    start = first * sizes.index(size)
                    rows = make_answers(accuracy, name=beta, num_items=size, first=start)
                    more = {**VARIED, **(changes or {})} if beta == "0.15" else {}
                    make_run(folder, more, predictions=rows)
                error = "out of memory" if state == "failed" else ""
                named = {"folder": str(folder), "state": state, "error": error}
                sources.append(Result(beta, (str(size),), **named))
        axes = {"evaluation.num_items": tuple(map(str, sizes))}
        question = Question(factors=("grpo.beta",), title="a grid", system_axis="grpo.beta")
        return compare_results(read_runs(sources, question, axes))

    return build
