"""Loads public sets as problems: every row is used, or dropped with a counted reason."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, DataError, Finding, derive_seed, report_places
from groupwise.data.drops import DropLog
from groupwise.data.near_texts import fold_text
from groupwise.data.problems.own import WHOLE
from groupwise.data.problems.problem import Problem
from groupwise.data.problems.rows import SetRow, read_files, read_hub
from groupwise.data.problems.sets import (
    FEW_SHOT_PART,
    TRAINING_PARTS,
    SetName,
    find_set,
)
from groupwise.data.splits import split_clusters
from groupwise.data.tables.values import UnusableRowError

_SPLIT_SHARES = {"train": 0.7, "test": 0.3}


class ProblemSource(Config):
    """One public set of a mix, or a file of a user's own.

    Attributes:
        name: of the set; ``own``: rows with ``id``, ``source``, ``problem_type``, ``problem`` and
            ``ground_truth``. Where nothing says which part they are of, 70 % of the clusters are
            for training, and the others for tests.
        path: a file or folder with it, as published or as ``groupwise data fetch`` writes it;
            relative to the configuration file.
        hub: instead of a path: id of a data set of the hub, or a folder with one. If neither is
            given, the set's own id.
        part: which part (``train``, ``test``) rows are of whose file and folder do not say.
        use: rows of which kind; parts for validation and test are never for training.
        ratio: of the training problems, relative to the other sets of a mix.
        split_test_part: where there is no part for training, take 70 % of the clusters (of MMLU,
            the subjects) of the others for it. Reports say so at the top, as a warning.
        max_problem_characters: longer problems are dropped.
        max_rows: for training, and for tests, each at most; which ones is drawn by the seed.
    """

    name: SetName | Literal["own"]
    path: str | None = None
    hub: str | None = None
    part: str = ""
    use: Literal["all", "train", "test"] = "all"
    ratio: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    split_test_part: bool = False
    max_problem_characters: int | None = Field(default=None, ge=1)
    max_rows: int | None = Field(default=None, ge=1)

    @field_validator("path")
    @classmethod
    def _place(cls, value: str | None, info: ValidationInfo) -> str | None:
        context = cast("dict[str, str]", info.context or {})
        return value and str(Path(context.get("folder", ""), Path(value).expanduser()))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path and self.hub:
            raise ValueError("give the set by either path or hub")
        if self.name == "own" and not (self.path or self.hub):
            raise ValueError("own problems need a path (own=FILE)")
        if not find_set(self.name).may_train and (self.use == "train" or self.split_test_part):
            raise ValueError(f"{self.name} is for tests only and may never train")
        return self


@dataclass(frozen=True, slots=True)
class LoadedProblems:
    """What came of a set's rows: ``num_rows`` is the number of all problems and drops.

    Attributes:
        source: where they are from.
        train: problems that may train, and be divided into training and validation.
        test: problems that may only be measured.
        drops: rows that are not used.
        num_rows: rows that were found.
        test_part_trained: names of published test parts that ``train`` is taken from.
    """

    source: ProblemSource
    train: tuple[Problem, ...]
    test: tuple[Problem, ...]
    drops: DropLog
    num_rows: int
    test_part_trained: tuple[str, ...] = ()


def load_problems(source: ProblemSource, *, seed: int = 0) -> LoadedProblems:
    """Load a public set.

    Rows that ask the same and agree are used once; where they disagree, none is used.

    Args:
        source: which set, and where it is.
        seed: of what ``max_rows`` and ``split_test_part`` take.

    Raises:
        DataError: if it cannot be read, the part of a row is not known, no row is left, or its
            test part would have to train and ``split_test_part`` does not say so.
    """
    drops = DropLog()
    rows = list(_read_rows(source, drops))
    num_rows = len(rows) + drops.total
    sides: dict[str, list[Problem]] = {"train": [], "test": [], WHOLE: []}
    parts: set[str] = set()
    ids: set[str] = set()
    for row, part in _find_parts(source, rows):
        side = part if part == WHOLE else "train" if _may_train(source.name, part) else "test"
        problem = _read_problem(source, row, part, drops)
        if problem is not None and problem.id in ids:
            drops.add("id of another row", f"{row.where} ({problem.id})")
        elif problem is not None:
            parts.add(part)
            ids.add(problem.id)
            sides[side].append(problem)
    sides = {side: _drop_repeated(problems, drops) for side, problems in sides.items()}
    sides = _divide_whole(sides, seed)
    if source.split_test_part:
        sides = _split_test_part(source, sides, seed)
    _refuse_missing(source, sides, drops)
    kept = {side: _limit(source, side, found, seed, drops) for side, found in sides.items()}
    trained = tuple(sorted(parts)) if source.split_test_part else ()
    return LoadedProblems(
        source, tuple(kept["train"]), tuple(kept["test"]), drops, num_rows, trained
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


def _read_rows(source: ProblemSource, drops: DropLog) -> Iterator[SetRow]:
    form = find_set(source.name)
    if source.path is not None:
        yield from read_files(Path(source.path), drops)
    else:
        for subset in (None,) if source.hub else form.subsets:
            yield from read_hub(source.hub or form.hub, subset)


def _find_parts(source: ProblemSource, rows: Sequence[SetRow]) -> Iterator[tuple[SetRow, str]]:
    form = find_set(source.name)
    for row in rows:
        try:
            part = form.find_part(row) or source.part or form.usual_part
        except (UnusableRowError, ValueError):  # its number is missing: it is no such row
            part = row.part or "test"
        if not part:
            raise DataError(
                f"nothing says which part of {source.name} {row.where} is of",
                expected="train, validation, dev or test in the name of its file or folder",
                fix="rename it, or set part",
            )
        yield row, part


def _may_train(name: SetName | Literal["own"], part: str) -> bool:
    return find_set(name).may_train and part in TRAINING_PARTS


def _read_problem(source: ProblemSource, row: SetRow, part: str, drops: DropLog) -> Problem | None:
    form = find_set(source.name)
    own = next((row.values[name] for name in form.id_columns if row.values.get(name)), None)
    name = own or row.name
    identity = f"{source.name}:{name}"
    try:
        if part == FEW_SHOT_PART:
            raise UnusableRowError("of the part for few-shot prompts", str(name))
        fields = form.read(row)
        cluster = f"{source.name}:{fields.pop('cluster', '') or name}"
        if source.max_problem_characters and len(fields["problem"]) > source.max_problem_characters:
            raise UnusableRowError("longer than max_problem_characters", str(name))
        kind = {"source": source.name, "problem_type": form.problem_type}
        return Problem.model_validate({**kind, **fields, "id": identity, "cluster": cluster})
    except UnusableRowError as error:
        drops.add(error.reason, f"{row.where} ({error.detail})")
    except ValidationError as error:
        drops.add("no usable problem", f"{row.where} ({error.errors()[0]['msg']})")
    return None


def _drop_repeated(problems: Sequence[Problem], drops: DropLog) -> list[Problem]:
    """Return the first of the problems that ask the same, and none of those that disagree."""
    alike: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        alike[fold_text(problem.problem)].append(problem)
    kept: list[Problem] = []
    for same in alike.values():
        # Code is right by its tests: two solutions of one problem do not contradict each other.
        agree = len({p.ground_truth for p in same if p.problem_type != "code"}) <= 1
        reason = "repeats another row" if agree else "same problem as another row, other answer"
        for problem in same[1:] if agree else same:
            drops.add(reason, f"{problem.id} ({same[0].id})")
        kept += same[:1] if agree else []
    return kept


def _divide_whole(sides: Mapping[str, list[Problem]], seed: int) -> dict[str, list[Problem]]:
    """Return the sides for training and tests, with what no part says of divided among them."""
    whole = sides[WHOLE]
    parts = {"train": [], "test": whole}
    if len({problem.cluster for problem in whole}) > 1:
        parts = split_clusters(
            whole,
            name_cluster=lambda problem: problem.cluster,
            name_kind=lambda problem: problem.source,
            shares=_SPLIT_SHARES,
            seed=seed,
        )
    return {side: [*sides[side], *parts[side]] for side in _SPLIT_SHARES}


def _split_test_part(
    source: ProblemSource, sides: dict[str, list[Problem]], seed: int
) -> dict[str, list[Problem]]:
    if sides["train"]:
        raise DataError(
            f"{source.name} has a part for training: its test part is not split",
            fix="leave split_test_part out",
        )
    return split_clusters(
        sides["test"],
        name_cluster=lambda problem: problem.cluster,
        name_kind=lambda problem: problem.source,
        shares=_SPLIT_SHARES,
        seed=seed,
    )


def _refuse_missing(source: ProblemSource, sides: dict[str, list[Problem]], drops: DropLog) -> None:
    if not any(sides.values()):
        raise DataError(f"no row of {source.name} can be used", got=drops.counts or "no rows")
    if source.use == "train" and not sides["train"]:
        raise DataError(
            f"{source.name} has no part for training here, and its other parts never train",
            fix=f"give its {' or '.join(TRAINING_PARTS)} part, or set split_test_part: true",
        )


def _limit(
    source: ProblemSource, side: str, problems: list[Problem], seed: int, drops: DropLog
) -> list[Problem]:
    """Return what ``use`` and ``max_rows`` leave of a side, in its order."""
    if source.use not in ("all", side):
        for problem in problems:
            drops.add("of a part that is not used", problem.id)
        return []
    return draw_problems(
        problems, source.max_rows, seed=seed, drops=drops, reason="more than max_rows"
    )


def draw_problems(
    problems: Sequence[Problem], most: int | None, *, seed: int, drops: DropLog, reason: str
) -> list[Problem]:
    """Return at most so many problems, drawn by the seed, in their order; the others are dropped.

    Args:
        problems: to draw from.
        most: at least 0; None: all.
        seed: of what is drawn.
        drops: where the others go.
        reason: that they go for.
    """
    if most is None or len(problems) <= most:
        return list(problems)
    drawn = sorted(problems, key=lambda one: derive_seed(seed, "problems", one.id))[:most]
    kept = {problem.id for problem in drawn}
    for problem in problems:
        if problem.id not in kept:
            drops.add(reason, problem.id)
    return [problem for problem in problems if problem.id in kept]
