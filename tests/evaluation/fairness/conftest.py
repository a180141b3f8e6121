"""Pairs of small runs for the fairness gate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import VARIED, make_run

from groupwise.evaluation.fairness import FairnessVerdict, check_fairness, read_facts

Judge = Callable[..., FairnessVerdict]


@pytest.fixture
def judge_pair(tmp_path: Path) -> Judge:
    """Hold the plain run against one of another beta with further changes."""

    def judge(
        changes: dict[str, Any] | None = None,
        *,
        factors: tuple[str, ...] = ("grpo.beta",),
        policies: tuple[str | None, str | None] = (None, None),
        **more: Any,
    ) -> FairnessVerdict:
        one = make_run(tmp_path / "one")
        two = make_run(
            tmp_path / "other" / "two", {**VARIED, **(changes or {})}, **{"answers": "two", **more}
        )
        runs = [
            read_facts(folder, policy=policy)
            for folder, policy in zip((one, two), policies, strict=True)
        ]
        return check_fairness(runs, factors=factors)

    return judge
