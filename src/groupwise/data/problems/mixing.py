"""Mixes public sets by ratio into splits that share no problem, nor nearly the same one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from groupwise.core import (
    Config,
    DataError,
    Finding,
    Seed,
    derive_seed,
    read_jsonl,
    report_places,
    write_json,
    write_jsonl,
)
from groupwise.data.drops import DropLog
from groupwise.data.near_texts import find_near_texts
from groupwise.data.problems.loading import (
    LoadedProblems,
    ProblemSource,
    draw_problems,
    report_test_parts,
)
from groupwise.data.problems.problem import Problem
from groupwise.data.splits import split_clusters

SPLITS = ("train", "validation", "test")


class MixSettings(Config):
    """Which sets are mixed, and how much of each.

    Attributes:
        sources: the sets; their ratios are of the problems for training and validation.
        num_problems: for training and validation together; None: as many as the ratios allow.
        validation_share: of the clusters of each set that may train.
        max_test: problems of each set that are measured, at most.
        near_share: from which share of common runs of words on two problems are nearly the same.
        seed: of all that is drawn.
    """

    sources: tuple[ProblemSource, ...] = Field(min_length=1)
    num_problems: int | None = Field(default=None, ge=1)
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    max_test: int | None = Field(default=None, ge=1)
    near_share: float = Field(default=0.8, gt=0, le=1)
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class MixedProblems:
    """The splits of a mix: ``num_rows`` is the number of all problems and drops.

    Attributes:
        splits: train, validation and test.
        drops: rows that are not used, of all sets.
        num_rows: rows that were found in all sets.
        findings: what a reader of any result has to know of the data.
    """

    splits: dict[str, list[Problem]]
    drops: DropLog
    num_rows: int
    findings: list[Finding]

    def count(self) -> dict[str, dict[str, int]]:
        """Return the number of problems by split and set."""
        return {s: dict(Counter(p.source for p in found)) for s, found in self.splits.items()}


def mix_problems(loaded: Sequence[LoadedProblems], settings: MixSettings) -> MixedProblems:
    """Divide the problems of all sets into train, validation and test.

    What is in a test part is dropped from training if it is the same or nearly so, and so is what
    is in validation; clusters are in one split.

    Raises:
        DataError: if no set may train, a set's ratio leaves it no problem, or two sets have the
            same id.
    """
    _refuse_shared_ids(loaded)
    drops = DropLog()
    for drop in (drop for one in loaded for drop in one.drops.rows):
        drops.add(drop.reason, drop.where)
    measured = [problem for one in loaded for problem in one.test]
    pools = [_drop_near(one.train, measured, settings, drops, "test") for one in loaded]
    drawn = _draw_by_ratio([*zip(loaded, pools, strict=True)], settings, drops)
    parts = [_divide(pool, settings) for pool in drawn]
    validation = [problem for part in parts for problem in part["validation"]]
    train = [problem for part in parts for problem in part["train"]]
    train = _drop_near(train, validation, settings, drops, "validation")
    test = [
        problem
        for one in loaded
        for problem in draw_problems(
            one.test,
            settings.max_test,
            seed=settings.seed,
            drops=drops,
            reason="more than max_test",
        )
    ]
    splits = {"train": train, "validation": validation, "test": test}
    return MixedProblems(
        splits={name: _shuffle(found, settings.seed) for name, found in splits.items()},
        drops=drops,
        num_rows=sum(one.num_rows for one in loaded),
        findings=[*report_test_parts(loaded), *_find_untrained(train, test)],
    )


def write_mix(mixed: MixedProblems, folder: Path) -> None:
    """Write ``train.jsonl``, ``validation.jsonl``, ``test.jsonl`` and ``mix.json``, its report."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, problems in mixed.splits.items():
        write_jsonl(folder / f"{name}.jsonl", (p.model_dump(mode="json") for p in problems))
    report: dict[str, Any] = {
        "num_rows": mixed.num_rows,
        "problems": mixed.count(),
        "findings": [finding.to_json() for finding in mixed.findings],
        "drops": mixed.drops.to_json(),
    }
    write_json(folder / "mix.json", report)


def read_problems(path: Path) -> list[Problem]:
    """Return the problems of a JSONL file that ``write_mix`` wrote.

    Raises:
        DataError: if it cannot be read, or a row is no problem.
    """
    try:
        return [Problem.model_validate(row) for row in read_jsonl(path)]
    except ValidationError as error:
        raise DataError(
            f"{path} holds a row that is no problem ({error.errors()[0]['msg']})",
            fix="write it with groupwise data mix",
        ) from error


def _refuse_shared_ids(loaded: Sequence[LoadedProblems]) -> None:
    counts = Counter(name for one in loaded for name in {p.id for p in (*one.train, *one.test)})
    shared = [name for name, number in counts.items() if number > 1]
    if shared:
        raise DataError(
            "two sources have problems of the same id",
            got=", ".join(shared[:5]),
            fix="give their rows ids that differ",
        )


def _drop_near(
    problems: Sequence[Problem],
    kept: Sequence[Problem],
    settings: MixSettings,
    drops: DropLog,
    split: str,
) -> list[Problem]:
    near = find_near_texts(
        [problem.problem for problem in problems],
        [problem.problem for problem in kept],
        least=settings.near_share,
    )
    for index, other, share in near:
        reason = f"{'same' if share == 1 else 'nearly the same'} as a problem of {split}"
        drops.add(reason, f"{problems[index].id} ({kept[other].id}, {share:.0%})")
    dropped = {index for index, _, _ in near}
    return [problem for index, problem in enumerate(problems) if index not in dropped]


def _draw_by_ratio(
    pools: Sequence[tuple[LoadedProblems, list[Problem]]], settings: MixSettings, drops: DropLog
) -> list[list[Problem]]:
    """Return of each set that may train as many problems as its ratio says."""
    found = [(one.source, pool) for one, pool in pools if pool]
    if not found:
        raise DataError(
            "no problem may train",
            got=drops.counts or "no rows of a part for training",
            fix="give a set with a part for training",
        )
    weight = sum(source.ratio for source, _ in found)
    total = min(len(pool) * weight / source.ratio for source, pool in found)
    total = min(total, settings.num_problems or total)
    drawn: list[list[Problem]] = []
    for source, pool in found:
        number = int(total * source.ratio / weight + 1e-9)
        if number == 0:
            raise DataError(
                f"the ratio of {source.name} leaves it no problem",
                got=f"{source.ratio:g} of {weight:g}, {total:.0f} problems",
                fix="raise its ratio or num_problems",
            )
        drawn.append(
            draw_problems(pool, number, seed=settings.seed, drops=drops, reason="beyond its ratio")
        )
    return drawn


def _divide(problems: list[Problem], settings: MixSettings) -> dict[str, list[Problem]]:
    share = settings.validation_share
    return split_clusters(
        problems,
        name_cluster=lambda problem: problem.cluster,
        name_kind=lambda problem: problem.source,
        shares={"train": 1 - share, "validation": share},
        seed=settings.seed,
    )


def _shuffle(problems: list[Problem], seed: int) -> list[Problem]:
    return sorted(problems, key=lambda problem: derive_seed(seed, "mix", problem.id))


def _find_untrained(train: Sequence[Problem], test: Sequence[Problem]) -> list[Finding]:
    untrained = {p.problem_type for p in test} - {p.problem_type for p in train}
    return report_places(
        "warning",
        "type_is_only_measured",
        "{count} type(s) of problems are measured but never trained.",
        sorted(untrained),
    )
