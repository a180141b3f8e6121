"""Run folders and comparisons for the tests of the comparison report."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from compared_runs import log_training, make_answers
from run_folders import VARIED, make_run

from groupwise.evaluation import Prediction
from groupwise.evaluation.comparison import (
    Comparison,
    GridAxis,
    Question,
    Source,
    build_comparison,
    read_cells_file,
    read_sources,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
BETA = {"0.12": {}, "0.15": VARIED}


@pytest.fixture
def published() -> Comparison:
    return build_comparison(read_cells_file(FIXTURES / "published_beta_table.json"))


@pytest.fixture
def compare_two(tmp_path: Path) -> Callable[..., Comparison]:
    """Compare two runs of another beta: ``changes`` and ``answers`` of each may be given."""

    def compare(
        answers: Sequence[list[Prediction]],
        changes: Sequence[Mapping[str, object]] = ({}, VARIED),
        *,
        measure: str = "accuracy",
        factors: tuple[str, ...] = ("grpo.beta",),
    ) -> Comparison:
        sources: list[Source] = []
        names = ("first", "second", "third")
        for name, rows, change in zip(names, answers, changes, strict=False):
            folder = make_run(tmp_path / name, change, predictions=rows)
            log_training(folder, shift=float(len(sources)))
            sources.append(Source(name, (), folder))
        question = Question(measure=measure, factors=factors, title="two runs")
        return build_comparison(read_sources(sources, (), question))

    return compare


@pytest.fixture
def compare_grid(tmp_path: Path) -> Callable[..., Comparison]:
    """Compare two betas over sizes.

    ``states`` names cells that have not run, ``changes`` what else differs in the second beta;
    ``first`` shifts the items of each further size.
    """

    def compare(
        accuracies: Mapping[str, float],
        *,
        sizes: Sequence[int] = (120, 240),
        states: Mapping[tuple[str, int], str] | None = None,
        changes: Mapping[str, object] | None = None,
        first: int = 0,
    ) -> Comparison:
        sources: list[Source] = []
        for beta, accuracy in accuracies.items():
            for size in sizes:
                state = (states or {}).get((beta, size), "done")
                folder = tmp_path / f"{beta}-{size}"
                if state == "done":
                    start = first * sizes.index(size)
                    rows = make_answers(accuracy, name=beta, num_items=size, first=start)
                    more = (changes or {}) if beta == "0.15" else {}
                    make_run(folder, {**BETA[beta], **more}, predictions=rows)
                    log_training(folder, shift=size / 1000)
                error = "out of memory" if state == "failed" else ""
                sources.append(Source(beta, (str(size),), folder, None, state, error))
        axes = [GridAxis("evaluation.num_items", tuple(map(str, sizes)))]
        question = Question(factors=("grpo.beta",), title="a grid", system_axis="grpo.beta")
        return build_comparison(read_sources(sources, axes, question))

    return compare
