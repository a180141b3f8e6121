"""Problems of mathematics, code and question answering from public sets and from users' own files.

Every row is used, or dropped with a counted reason.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, DataError, read_jsonl
from groupwise.data.examples import DropLog
from groupwise.data.files import ENDINGS, SUFFIXES, list_rows, open_dataset, read_table_rows
from groupwise.data.rows import UnusableRowError, clean_value
from groupwise.data.splits import fold_text, split_clusters
from groupwise_recipes.workflows.problem_sets import (
    FEW_SHOT_PART,
    PUBLISHED_SETS,
    TRAINING_PARTS,
    WHOLE,
    Problem,
    SetName,
    SetRow,
)

_SPLIT_SHARES = {"train": 0.7, "test": 0.3}
_PART = re.compile(
    r"(?<![a-z])(auxiliary_train|train|test|validation|valid|val|dev|prompt)(?![a-z])",
    re.IGNORECASE,
)


class ProblemSource(Config):
    """One public set of a mix, or a file of a user's own.

    Attributes:
        name: of the set; ``own``: rows with ``id``, ``source``, ``problem_type``, ``problem`` and
            ``ground_truth``. Where nothing says which part they are of, 70 % of the clusters are
            for training, and the others for tests.
        path: a file or folder with it, as published or as ``fetch`` writes it; relative to the
            configuration file.
        hub: instead of a path: id of a data set of the hub, or a folder with one. If neither is
            given, the set's own id.
        part: which part (``train``, ``test``) rows are of whose file and folder do not say; parts
            for validation and test are never for training.
        ratio: of the training problems, relative to the other sets of a mix.
        split_test_part: where there is no part for training, take 70 % of the clusters (of MMLU,
            the subjects) of the others for it. Reports say so at the top, as a warning.
        max_problem_characters: longer problems are dropped.
    """

    name: SetName | Literal["own"]
    path: str | None = None
    hub: str | None = None
    part: str = ""
    ratio: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    split_test_part: bool = False
    max_problem_characters: int | None = Field(default=None, ge=1)

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
        if self.name == "humaneval" and self.split_test_part:
            raise ValueError("humaneval is for tests only and may never train")
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
        seed: of what trains where no part says so.

    Raises:
        DataError: if it cannot be read, the part of a row is not known, no row is left, or it has
            a part for training and ``split_test_part`` asks for another one.
    """
    form, drops = PUBLISHED_SETS[source.name], DropLog()
    if source.path is not None:
        rows = list(_read_files(Path(source.path), drops))
    else:
        subsets = (None,) if source.hub else form.subsets
        rows = [row for one in subsets for row in _read_hub(source.hub or form.hub, one)]
    num_rows = len(rows) + drops.total
    sides: dict[str, list[Problem]] = {"train": [], "test": [], WHOLE: []}
    parts, ids = set[str](), set[str]()
    for row in rows:
        part = _find_row_part(source, row)
        problem = _read_problem(source, row, part, drops)
        if problem is not None and problem.id in ids:
            drops.add("id of another row", f"{row.where} ({problem.id})")
        elif problem is not None:
            parts.add(part)
            ids.add(problem.id)
            side = WHOLE if part == WHOLE else "train" if part in TRAINING_PARTS else "test"
            sides[side].append(problem)
    sides = {side: _drop_repeated(problems, drops) for side, problems in sides.items()}
    whole = sides.pop(WHOLE)
    if len({problem.cluster for problem in whole}) > 1:
        divided = divide(whole, _SPLIT_SHARES, seed)
    else:
        divided = {"train": [], "test": whole}
    sides = {side: [*problems, *divided[side]] for side, problems in sides.items()}
    if source.split_test_part:
        if sides["train"]:
            raise DataError(
                f"{source.name} has a part for training: its test part is not split",
                fix="leave split_test_part out",
            )
        sides = divide(sides["test"], _SPLIT_SHARES, seed)
    if not any(sides.values()):
        raise DataError(f"no row of {source.name} can be used", got=drops.counts or "no rows")
    trained = tuple(sorted(parts)) if source.split_test_part else ()
    return LoadedProblems(
        source, tuple(sides["train"]), tuple(sides["test"]), drops, num_rows, trained
    )


def _find_row_part(source: ProblemSource, row: SetRow) -> str:
    form = PUBLISHED_SETS[source.name]
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
    return part


def _read_problem(source: ProblemSource, row: SetRow, part: str, drops: DropLog) -> Problem | None:
    form, values = PUBLISHED_SETS[source.name], row.values
    ids = ("id",) if source.name == "own" else ("id", "_id", "task_id")  # yours may be of a kind
    name = next((values[one] for one in ids if values.get(one)), row.name)
    try:
        if part == FEW_SHOT_PART:
            raise UnusableRowError("of the part for few-shot prompts", str(name))
        fields = form.read(row)
        cluster = f"{source.name}:{fields.pop('cluster', '') or name}"
        if source.max_problem_characters and len(fields["problem"]) > source.max_problem_characters:
            raise UnusableRowError("longer than max_problem_characters", str(name))
        kind = {"source": source.name, "problem_type": form.problem_type}
        known = {"id": f"{source.name}:{name}", "cluster": cluster}
        return Problem.model_validate({**kind, **fields, **known})
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


def divide(
    problems: Sequence[Problem], shares: Mapping[str, float], seed: int
) -> dict[str, list[Problem]]:
    """Return the problems by split; clusters are whole, and sets evenly in each."""
    return split_clusters(
        problems,
        name_cluster=lambda problem: problem.cluster,
        name_kind=lambda problem: problem.source,
        shares=shares,
        seed=seed,
    )


def _read_hub(name: str, subset: str | None) -> Iterator[SetRow]:
    """Yield the rows of a data set of the hub, or of a folder with one."""
    for part, rows in open_dataset(name, subset=subset).items():
        for number, values in enumerate(list_rows(rows), start=1):
            place = "/".join(filter(None, (subset, part, str(number))))
            yield SetRow(clean_value(values), f"{name} {part} row {number}", part, "", place)


def _read_files(path: Path, drops: DropLog) -> Iterator[SetRow]:
    """Yield the rows of a file, or of all tables in a folder and the folders in it.

    The part of a file is what the nearest name tells: its own, else that of a folder around it.
    Folders that lie outside what was given have other names for other reasons, but for one that is
    called nothing else.
    """
    found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    tables = [p for p in found if p.name.lower().endswith(ENDINGS)]
    if not tables:
        raise DataError(
            f"there is no table at {path}", expected=f"files with {', '.join(SUFFIXES)}"
        )
    for table in tables:
        outer = path.parent.name if table == path else path.name
        names = (table.name, *reversed(table.relative_to(path).parts[:-1]))
        match = next(filter(None, [*map(_PART.search, names), _PART.fullmatch(outer)]), None)
        part = match[1].lower() if match else ""
        place = (table.relative_to(path) if table != path else Path(table.name)).as_posix()
        group = re.sub(rf"_?{part}$", "", table.name.partition(".")[0]) if part else table.stem
        for number, row in enumerate(read_table_rows(table, drops), start=1):
            name = f"{place.partition('.')[0]}/{number}"
            yield SetRow(clean_value(row.values), row.where, part, group, name)


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
            fix="write it with python -m groupwise_recipes.workflows.problem_mixes mix",
        ) from error
