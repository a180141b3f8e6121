"""Problems of mathematics, code and question answering: loaded from public sets, and mixed.

Every row is used, or dropped with a counted reason; the splits of a mix share no problem, and none
that is nearly the same.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from groupwise.core import (
    Config,
    DataError,
    Finding,
    Seed,
    derive_seed,
    read_json,
    read_jsonl,
    report_places,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import DropLog
from groupwise.data.files import ENDINGS, SUFFIXES, list_rows, open_dataset, read_table_rows
from groupwise.data.problem_sets import (
    FEW_SHOT_PART,
    PUBLISHED_SETS,
    TRAINING_PARTS,
    WHOLE,
    Problem,
    SetName,
    SetRow,
)
from groupwise.data.rows import UnusableRowError, clean_value
from groupwise.data.splits import find_near_texts, fold_text, split_clusters

SET_NAMES: tuple[SetName, ...] = get_args(SetName)
_SPLIT_SHARES = {"train": 0.7, "test": 0.3}
_PART = re.compile(
    r"(?<![a-z])(auxiliary_train|train|test|validation|valid|val|dev|prompt)(?![a-z])",
    re.IGNORECASE,
)
_LETTERS = "ABCDEFGHIJ"


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
        may_train = PUBLISHED_SETS[self.name].may_train
        if not may_train and (self.use == "train" or self.split_test_part):
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
            side = "train" if form.may_train and part in TRAINING_PARTS else "test"
            sides[WHOLE if part == WHOLE else side].append(problem)
    sides = {side: _drop_repeated(problems, drops) for side, problems in sides.items()}
    whole = sides.pop(WHOLE)
    if len({problem.cluster for problem in whole}) > 1:
        divided = _divide(whole, _SPLIT_SHARES, seed)
    else:
        divided = {"train": [], "test": whole}
    sides = {side: [*problems, *divided[side]] for side, problems in sides.items()}
    if source.split_test_part:
        if sides["train"]:
            raise DataError(
                f"{source.name} has a part for training: its test part is not split",
                fix="leave split_test_part out",
            )
        sides = _divide(sides["test"], _SPLIT_SHARES, seed)
    if not any(sides.values()):
        raise DataError(f"no row of {source.name} can be used", got=drops.counts or "no rows")
    if source.use == "train" and not sides["train"]:
        raise DataError(
            f"{source.name} has no part for training here, and its other parts never train",
            fix=f"give its {' or '.join(TRAINING_PARTS)} part, or set split_test_part: true",
        )
    for side in sides:
        if source.use in ("all", side):
            sides[side] = _draw(sides[side], source.max_rows, seed, drops, "more than max_rows")
        else:
            for problem in sides[side]:
                drops.add("of a part that is not used", problem.id)
            sides[side] = []
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
    form = PUBLISHED_SETS[source.name]
    own = next((row.values[name] for name in form.id_columns if row.values.get(name)), None)
    name = own or row.name
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


def _divide(
    problems: Sequence[Problem], shares: Mapping[str, float], seed: int
) -> dict[str, list[Problem]]:
    return split_clusters(
        problems,
        name_cluster=lambda problem: problem.cluster,
        name_kind=lambda problem: problem.source,
        shares=shares,
        seed=seed,
    )


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
        for number, (values, where) in enumerate(_read_table(table, drops), start=1):
            yield SetRow(values, where, part, group, f"{place.partition('.')[0]}/{number}")


def _read_table(path: Path, drops: DropLog) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the rows of any table, of MMLU's without a header, and of SQuAD's articles."""
    kind = path.suffix.lower()
    if kind == ".csv":
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
        first = lines[0] if lines else []
        if len(first) >= 3 and first[-1].strip() in _LETTERS[: len(first) - 2]:
            for number, line in enumerate(lines, start=1):  # the letter is last
                row = {"question": line[0], "choices": line[1:-1], "answer": line[-1]}
                yield row, f"{path.name} row {number}"
            return
    if kind == ".json":
        with path.open(encoding="utf-8-sig") as file:
            is_object = file.read(64).lstrip().startswith("{")
        if is_object:  # a list of rows is a table
            for number, row in enumerate(_flatten_articles(read_json(path, dict)), start=1):
                yield row, f"{path.parent.name}/{path.name} row {number}"
            return
    for row in read_table_rows(path, drops):
        yield clean_value(row.values), row.where


def _flatten_articles(values: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the questions of SQuAD's articles in the hub's flat form; another object is a row."""
    if "data" not in values:
        yield values
        return
    for article in values["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                texts = [answer["text"] for answer in question.get("answers", [])]
                yield {
                    "id": question["id"],
                    "title": article["title"],
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": {"text": texts},
                }


def fetch_problems(name: SetName, folder: Path) -> Iterator[tuple[Path, int]]:
    """Write each part of a set as a JSONL file of its rows; yield the file and its rows' number.

    Args:
        name: of the set.
        folder: the files are in ``folder/<name>``, and in ``<subset>`` there if it has several.

    Raises:
        DataError: if the hub cannot be reached, or has no such set.
    """
    form = PUBLISHED_SETS[name]
    for subset in form.subsets:
        place = folder / name / (subset or "" if len(form.subsets) > 1 else "")
        try:
            parts = open_dataset(form.hub, subset=subset)
        except DataError as error:
            reason = " ".join(str(error.__cause__).split())
            raise DataError(
                f"cannot fetch {name} from the hub ({reason})",
                fix=f"go online, or put its published files into {place}",
            ) from error
        place.mkdir(parents=True, exist_ok=True)
        for part, rows in parts.items():
            path, values = place / f"{part}.jsonl", list_rows(rows)
            write_jsonl(path, map(clean_value, values))
            yield path, len(values)


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
    counts = Counter(name for one in loaded for name in {p.id for p in (*one.train, *one.test)})
    shared = [name for name, number in counts.items() if number > 1]
    if shared:
        raise DataError(
            "two sources have problems of the same id",
            got=", ".join(shared[:5]),
            fix="give their rows ids that differ",
        )
    seed, share = settings.seed, settings.validation_share
    drops = DropLog([drop for one in loaded for drop in one.drops.rows])
    measured = [problem for one in loaded for problem in one.test]
    pools = [_drop_near(one.train, measured, settings, drops, "test") for one in loaded]
    drawn = _draw_by_ratio([*zip(loaded, pools, strict=True)], settings, drops)
    parts = [_divide(pool, {"train": 1 - share, "validation": share}, seed) for pool in drawn]
    validation = [problem for part in parts for problem in part["validation"]]
    train = [problem for part in parts for problem in part["train"]]
    train = _drop_near(train, validation, settings, drops, "validation")
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
        drawn.append(_draw(pool, number, settings.seed, drops, "beyond its ratio"))
    return drawn


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
