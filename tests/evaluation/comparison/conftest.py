"""Run folders and comparisons for the tests of the comparison report."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from run_folders import LABELS, VARIED, make_run

from groupwise.core import digest_json, write_jsonl
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


def make_answers(
    accuracy: float,
    *,
    name: str = "",
    num_items: int = 240,
    policies: Sequence[str] = ("majority", "sft", "grpo"),
    first: int = 0,
) -> list[Prediction]:
    """Answers of policies; the majority always says the first label, the others are right by chance."""
    rows: list[Prediction] = []
    for policy in policies:
        for number in range(first, first + num_items):
            label = LABELS[number % 2]
            is_right = random.Random(f"{name} {policy} {number}").random() < accuracy
            given = LABELS[0] if policy == "majority" else (label if is_right else _other(label))
            rows.append(
                Prediction(
                    example_id=digest_json(f"item {number}"),
                    group=f"session {number // 4}",
                    split="test",
                    policy=policy,
                    label=label,
                    predicted=given,
                    text=f"I say {given}",
                    fields={"task": f"任务 {number}"},
                )
            )
    return rows


def _other(label: str) -> str:
    return LABELS[1 - LABELS.index(label)]


def log_training(folder: Path, *, shift: float = 0.0) -> None:
    """Write a GRPO log of two epochs."""
    rows = [
        {"step": n, "epoch": n / 5, "loss": 1 / n + shift, "reward": n / 10, "kl": None}
        for n in range(1, 11)
    ]
    write_jsonl(folder / "grpo" / "metrics.jsonl", rows)


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
        varying: tuple[str, ...] = ("grpo.beta",),
        policies: Sequence[str | None] = (None, None),
    ) -> Comparison:
        sources: list[Source] = []
        names = ("first", "second", "third")
        for name, rows, change, policy in zip(names, answers, changes, policies, strict=False):
            folder = make_run(tmp_path / name, change, predictions=rows)
            log_training(folder, shift=float(len(sources)))
            sources.append(Source(name, (), folder, policy))
        question = Question(measure=measure, varying=varying, title="two runs")
        return build_comparison(read_sources(sources, (), question))

    return compare


@pytest.fixture
def compare_grid(tmp_path: Path) -> Callable[..., Comparison]:
    """Compare two betas over sizes; ``states`` names cells that have not run."""

    def compare(
        accuracies: Mapping[str, float],
        *,
        sizes: Sequence[int] = (120, 240),
        states: Mapping[tuple[str, int], str] | None = None,
    ) -> Comparison:
        sources: list[Source] = []
        for beta, accuracy in accuracies.items():
            for size in sizes:
                state = (states or {}).get((beta, size), "done")
                folder = tmp_path / f"{beta}-{size}"
                if state == "done":
                    rows = make_answers(accuracy, name=beta, num_items=size)
                    make_run(folder, BETA[beta], predictions=rows)
                    log_training(folder, shift=size / 1000)
                error = "out of memory" if state == "failed" else ""
                sources.append(Source(beta, (str(size),), folder, None, state, error))
        axes = [GridAxis("evaluation.num_items", tuple(map(str, sizes)))]
        question = Question(
            varying=("grpo.beta",), title="a grid", contender_axis="grpo.beta"
        )
        return build_comparison(read_sources(sources, axes, question))

    return compare
