"""Mixes of problems, whose splits share none, and none that is nearly the same.

python -m groupwise_recipes.workflows.problem_mixes fetch NAME --out DIR
python -m groupwise_recipes.workflows.problem_mixes mix --config FILE --out DIR
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import click
from pydantic import Field
from rich.console import Console
from rich.table import Table

from groupwise.cli.main import main
from groupwise.cli.options import PATH, option, settings
from groupwise.core import (
    Config,
    ConfigError,
    DataError,
    Finding,
    Seed,
    derive_seed,
    describe_unknown,
    load_config,
    report_places,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import DropLog
from groupwise.data.files import list_rows, open_dataset
from groupwise.data.rows import clean_value
from groupwise.data.splits import find_near_texts
from groupwise_recipes.workflows.problem_loading import (
    LoadedProblems,
    ProblemSource,
    divide,
    load_problems,
)
from groupwise_recipes.workflows.problem_sets import (
    PUBLISHED_SETS,
    TRAINING_PARTS,
    Problem,
    SetName,
)

VALIDATION_SHARE = 0.1
"""Of the clusters of each set that may train."""
NEAR_SHARE = 0.8
"""From which share of common runs of words on two problems are nearly the same."""
_SET_NAMES: tuple[SetName, ...] = get_args(SetName)


class MixSettings(Config):
    """Which sets are mixed, and how much of each.

    Attributes:
        sources: the sets; their ratios are of the problems for training and validation.
        num_problems: for training and validation together; None: as many as the ratios allow.
        max_test: problems of each set that are measured, at most.
        seed: of all that is drawn.
    """

    sources: tuple[ProblemSource, ...] = Field(min_length=1)
    num_problems: int | None = Field(default=None, ge=1)
    max_test: int | None = Field(default=None, ge=1)
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
    counts = Counter(name for one in loaded for name in {p.id for p in (*one.train, *one.test)})
    shared = [name for name, number in counts.items() if number > 1]
    if shared:
        raise DataError(
            "two sources have problems of the same id",
            got=", ".join(shared[:5]),
            fix="give their rows ids that differ",
        )
    seed = settings.seed
    drops = DropLog([drop for one in loaded for drop in one.drops.rows])
    measured = [problem for one in loaded for problem in one.test]
    pools = [_drop_near(one.train, measured, drops, "test") for one in loaded]
    drawn = _draw_by_ratio([*zip(loaded, pools, strict=True)], settings, drops)
    shares = {"train": 1 - VALIDATION_SHARE, "validation": VALIDATION_SHARE}
    parts = [divide(pool, shares, seed) for pool in drawn]
    validation = [problem for part in parts for problem in part["validation"]]
    train = [problem for part in parts for problem in part["train"]]
    train = _drop_near(train, validation, drops, "validation")
    limit, reason = settings.max_test, "more than max_test"
    test = [p for one in loaded for p in _draw(one.test, limit, seed, drops, reason)]
    untrained = {p.problem_type for p in test} - {p.problem_type for p in train}
    message = "{count} type(s) of problems are measured but never trained."
    findings = report_places("warning", "type_is_only_measured", message, sorted(untrained))
    splits = {"train": train, "validation": validation, "test": test}
    return MixedProblems(
        splits={
            name: sorted(found, key=lambda problem: derive_seed(seed, "mix", problem.id))
            for name, found in splits.items()
        },
        drops=drops,
        num_rows=sum(one.num_rows for one in loaded),
        findings=[*report_test_parts(loaded), *findings],
    )


def report_test_parts(loaded: Iterable[LoadedProblems]) -> list[Finding]:
    """Return a warning for the top of any report if published test parts train, or nothing."""
    places = [
        f"{one.source.name} ({len(one.train):,} of its {' and '.join(one.test_part_trained)} part)"
        for one in loaded
        if one.test_part_trained
    ]
    return report_places(
        "warning",
        "trains_on_test_part",
        "Problems for training come from the published test part of {count} set(s): no number "
        "here can be compared with results on it.",
        places,
    )


def _drop_near(
    problems: Sequence[Problem], kept: Sequence[Problem], drops: DropLog, split: str
) -> list[Problem]:
    near = find_near_texts(
        [problem.problem for problem in problems],
        [problem.problem for problem in kept],
        least=NEAR_SHARE,
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
            fix=f"give a set with a {' or '.join(TRAINING_PARTS)} part, or set split_test_part",
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
        drawn.append(_draw(pool, number, settings.seed, drops, "beyond its ratio"))
    return drawn


def _draw(
    problems: Sequence[Problem], most: int | None, seed: int, drops: DropLog, reason: str
) -> list[Problem]:
    """Return at most so many problems, drawn by the seed, in their order; the others are dropped.

    ``most`` is None where all are wanted; ``reason`` is what the others are dropped for.
    """
    if most is None or len(problems) <= most:
        return list(problems)
    drawn = sorted(problems, key=lambda one: derive_seed(seed, "problems", one.id))[:most]
    kept = {problem.id for problem in drawn}
    for problem in problems:
        if problem.id not in kept:
            drops.add(reason, problem.id)
    return [problem for problem in problems if problem.id in kept]


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


@click.group()
def problem_mixes() -> None:
    """Fetch and mix public problems."""


@problem_mixes.command()
@click.argument("name", metavar="NAME|all")
@option("--out", metavar="DIR", type=PATH, required=True, help="Folder that is written.")
def fetch(name: str, out: Path) -> None:
    """Download a public set from the hub, a JSONL file per part, in DIR/NAME/SUBSET."""
    if name not in (*_SET_NAMES, "all"):
        raise ConfigError(describe_unknown("set", name, (*_SET_NAMES, "all")))
    for chosen in _SET_NAMES if name == "all" else (cast("SetName", name),):
        form = PUBLISHED_SETS[chosen]
        for subset in form.subsets:
            place = out / chosen / (subset or "" if len(form.subsets) > 1 else "")
            try:
                parts = open_dataset(form.hub, subset=subset)
            except DataError as error:
                reason = " ".join(str(error.__cause__).split())
                raise DataError(
                    f"cannot fetch {chosen} from the hub ({reason})",
                    fix=f"go online, or put its published files into {place}",
                ) from error
            place.mkdir(parents=True, exist_ok=True)
            for part, rows in parts.items():
                path, values = place / f"{part}.jsonl", list_rows(rows)
                write_jsonl(path, map(clean_value, values))
                click.echo(f"{path}: {len(values):,} rows")


@problem_mixes.command()
@option("--config", metavar="FILE", type=PATH, help="YAML of a mix.")
@option(
    "--source",
    metavar="NAME[=PATH]",
    multiple=True,
    help="A set and its folder; without one, the hub. own=FILE: your own.",
)
@option("--out", metavar="DIR", type=PATH, required=True, help="Folder that is written.")
@settings
def mix(config: Path | None, source: Sequence[str], out: Path, settings: Sequence[str]) -> None:
    """Mix public sets into train, validation and test without leaks, and say what was dropped."""
    if (config is None) == (not source):
        raise ConfigError("say what is mixed by either --config or --source")
    pairs = [one.partition("=") for one in source]
    values = {"sources": [{"name": name, "path": path or None} for name, _, path in pairs]}
    chosen: MixSettings = load_config(MixSettings, config or values, overrides=list(settings))
    mixed = mix_problems([load_problems(one, seed=chosen.seed) for one in chosen.sources], chosen)
    write_mix(mixed, out)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for finding in mixed.findings:
        console.print(f"{finding.level} {finding.name}: {finding.message}")
        console.print(f"  {', '.join(finding.where)}")
    counts = mixed.count()
    table = Table("set", *counts, box=None)
    for name in sorted({name for found in counts.values() for name in found}):
        table.add_row(name, *(f"{found.get(name, 0):,}" for found in counts.values()))
    console.print(table)
    for reason, number in mixed.drops.counts.items():
        console.print(f"dropped {number:,}: {reason}")
    used = sum(map(len, mixed.splits.values()))
    console.print(f"{mixed.num_rows:,} rows: {used:,} used, {mixed.drops.total:,} dropped")
    click.echo(f"written: {out}")


if __name__ == "__main__":
    main(problem_mixes)
