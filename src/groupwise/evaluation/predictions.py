"""Predictions, a row per item and policy: the source of every number in a report; and measures.

Rows are read and checked here, and matched item by item; nothing is averaged.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, with_config

from groupwise.core import (
    EvaluationError,
    Example,
    digest_json,
    parse_value,
    read_json,
    read_jsonl,
    write_jsonl,
)

T = TypeVar("T")
Floats = NDArray[np.float64]
exact = with_config(ConfigDict(extra="forbid"))  # marks a dataclass whose files have no other keys
MAX_TEXT = 400  # characters shown of a prompt's last turn, or of an answer as it was given
_MAX_SHOWN = 6_000
_SUM_TOLERANCE = 1e-3
_TIE = 1e-12
MARKS = "marks"
"""Field of predictions: what reports draw on the first picture and say beside it.

``reference`` and ``answer`` are lists of ``[left, top, right, bottom, name]``, in shares of the
picture's sides, and ``remark`` has a sentence by language; each may be missing.
"""
NEAR_DUPLICATE = "near_duplicate"
"""Field of items: ``yes`` where a picture looks like one of another split, ``no`` elsewhere."""
SEEN = "seen_in_training"
"""Field of items of other data: ``yes`` where training showed the same text or picture."""


def read_as(path: Path, shape: TypeAdapter[T], *, kind: type[Any] = list) -> T:
    """Return what a JSON file of a run holds (a ``kind``: list or dict), as ``shape`` has it.

    Raises:
        DataError: if the file cannot be read, is not JSON, or is of another kind.
        EvaluationError: if it has another shape.
    """
    return parse_as(read_json(path, kind), shape, path)


def parse_as(value: object, shape: TypeAdapter[T], path: Path) -> T:
    """Return what is made of a value that stands in a file; an EvaluationError names the file."""
    fix = "run the step that writes it again"
    return parse_value(value, shape, f"{path} is damaged", error=EvaluationError, fix=fix)


def parse_open(value: object, model: type[BaseModel], path: Path) -> dict[str, Any]:
    """Return a JSON object: keys that a model has are of its types, others stay as they are."""
    found = parse_as(value, TypeAdapter(model), path)
    return {name: part for name, part in found if name in found.model_fields_set}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one policy answered to one item.

    Raises:
        EvaluationError: if the row contradicts itself.
    """

    example_id: str
    cluster: str  # what statistics are clustered by (a session)
    split: str
    policy: str  # who answered, a name without ``/``
    label: str | None  # the truth; None where only measures of its own judge an answer
    predicted: str | None  # None: the answer was invalid, which is never a class
    reason: str = ""  # why the answer was invalid; empty for a valid one
    text: str = ""  # the answer as it was given
    probabilities: Mapping[str, float] | None = None  # by label, sum 1 (one left out has 0)
    latency_s: float | None = None  # None where not measured
    pictures: tuple[str, ...] = ()  # paths
    # Of the same, empty where not known; one outside the run is shown only with this digest.
    picture_digests: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # to show or slice by
    scores: Mapping[str, float] = field(default_factory=dict[str, float])  # own ones, in [0, 1]
    samples: tuple[bool, ...] = ()  # whether each of several sampled answers was right
    pair: str = ""  # id of the minimally contrastive pair the item is one half of

    def __post_init__(self) -> None:
        where = f"the prediction of {self.policy} for {self.example_id}"
        if not self.policy or "/" in self.policy:
            _refuse("a policy's name is wrong", repr(self.policy), "a name without '/'")
        if (self.predicted is None) != bool(self.reason):
            _refuse(
                f"{where} contradicts itself",
                f"predicted {self.predicted!r} with reason {self.reason!r}",
                "a reason for an invalid answer and none for a valid one",
            )
        if (shares := self.probabilities) is not None:
            is_sum = abs(sum(shares.values()) - 1) <= _SUM_TOLERANCE
            if not is_sum or not all(0 <= share <= 1 for share in shares.values()):
                sums = "values in [0, 1] that sum to 1"
                _refuse(f"{where} has wrong probabilities", dict(shares), sums)
        if self.latency_s is not None and not 0 <= self.latency_s < math.inf:
            _refuse(f"{where} has a wrong latency", f"{self.latency_s} s")
        for name, value in self.scores.items():
            if not name or is_builtin(name):
                taken = f"{where} has a score under a name that is taken"
                raise EvaluationError(taken, got=repr(name), fix="rename it")
            if not 0 <= value <= 1:
                _refuse(f"{where} has a wrong score", f"{name} = {value}", "a value in [0, 1]")
        if not {type(sample) for sample in self.samples} <= {bool}:
            _refuse(f"{where} has wrong samples", list(self.samples), "true or false each")

    @property
    def is_correct(self) -> bool:
        """Whether the answered label is the truth; an invalid answer is wrong."""
        return self.label is not None and self.predicted == self.label

    @property
    def confidence(self) -> float | None:
        """Probability of the answered label; None where invalid or not known."""
        if self.probabilities is None or self.predicted is None:
            return None
        return self.probabilities.get(self.predicted)


def _refuse(what: str, got: object, expected: str | None = None) -> NoReturn:
    raise EvaluationError(what, got=got, expected=expected)


_KEYS = {item.name for item in fields(Prediction)}
_LATER_KEYS = {"scores", "samples", "pair", "picture_digests"}


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Replace ``path`` by one JSON row per prediction."""
    write_jsonl(path, (asdict(prediction) for prediction in predictions))


def read_predictions(path: Path) -> list[Prediction]:
    """Return the predictions of a file.

    Raises:
        DataError: if the file is missing or a line is not a JSON object.
        EvaluationError: if a row has other keys than a Prediction or contradicts itself.
    """
    found: list[Prediction] = []
    for number, row in enumerate(read_jsonl(path), start=1):
        where = f"{path} row {number}"
        if not _KEYS - _LATER_KEYS <= set(row) <= _KEYS:
            keys = (f"the keys {sorted(row)}", f"the keys {sorted(_KEYS)}")
            _refuse(f"{where} is not a prediction", *keys)
        if not all(isinstance(name, str) for name in row["pictures"]):
            _refuse(f"{where} has pictures that are no paths", row["pictures"])
        for name in ("pictures", "samples", "picture_digests"):
            row[name] = tuple(row.get(name, ()))
        found.append(Prediction(**row))
    return found


def predict_each(
    policies: Iterable[str], ask: Callable[[str], Iterable[Prediction]], *, folder: Path
) -> list[Prediction]:
    """Return the predictions of policies, each asked once and kept in ``<policy>.jsonl``.

    So a step that is killed between two policies does not ask the first one again.
    """
    found: list[Prediction] = []
    for policy in policies:
        path = folder / f"{policy}.jsonl"
        if not path.exists():
            write_predictions(path, ask(policy))
        found += read_predictions(path)
    return found


def mark_items(
    predictions: Sequence[Prediction], ids: Collection[str], field: str
) -> tuple[list[Prediction], tuple[str, ...]]:
    """Return predictions whose ``field`` marks the items of these ids, and what to slice by."""
    if not ids:
        return list(predictions), ()
    marked = [
        replace(one, fields={**one.fields, field: "yes" if one.example_id in ids else "no"})
        for one in predictions
    ]
    return marked, (field,)


def group_by_policy(predictions: Iterable[Prediction]) -> dict[tuple[str, str], list[Prediction]]:
    """Return predictions by (split, policy), splits by name and policies as they come.

    Items are sorted by their id, so that the order of rows never changes a result.

    Raises:
        EvaluationError: if a policy answered one item of a split twice.
    """
    found: dict[tuple[str, str], dict[str, Prediction]] = {}
    for item in predictions:
        items = found.setdefault((item.split, item.policy), {})
        if item.example_id in items:
            raise EvaluationError(
                f"{item.policy} has two predictions for item {item.example_id} of {item.split}",
                fix="write each item once per policy and split",
            )
        items[item.example_id] = item
    keys = sorted(found, key=lambda key: key[0])
    return {key: [found[key][name] for name in sorted(found[key])] for key in keys}


def digest_items(predictions: Iterable[Prediction]) -> str:
    """Return the digest of a split: its sorted item ids with their labels."""
    return digest_json(sorted([item.example_id, item.label] for item in predictions))


def have_truths(predictions: Iterable[Prediction]) -> bool:
    """Return whether answers can be right or wrong: some item has a truth."""
    return any(item.label is not None for item in predictions)


def find_constant(items: Sequence[Prediction]) -> str | None:
    """Return the one valid answer that a policy gave to all of two or more items, or None."""
    answers = {item.predicted for item in items}
    return answers.pop() if len(items) > 1 and len(answers) == 1 else None


def check_labels(predictions: Iterable[Prediction], labels: Sequence[str]) -> None:
    """Refuse labels outside the set.

    Raises:
        EvaluationError: if labels repeat, or a truth, an answer or the probabilities' keys
            are not among them.
    """
    allowed = set(labels)
    if len(allowed) != len(labels) or len(labels) < 2:
        _refuse("wrong labels", list(labels), "two or more, each once")
    for item in predictions:
        where = f"for item {item.example_id}"
        given = {one for one in (item.label, item.predicted) if one is not None}
        shares, expected = set(item.probabilities or ()), [*labels]
        if not given <= allowed:
            what = f"{item.policy} has a label outside the set {where}"
            raise EvaluationError(what, got=sorted(given - allowed), expected=expected)
        if not shares <= allowed:
            what = f"{item.policy} has probabilities of other labels {where}"
            raise EvaluationError(what, got=sorted(shares), expected=expected)


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: its name as in ``POLICY/NAME``, its titles, and whether more of it is better."""

    name: str
    title: str
    title_zh: str
    is_higher_better: bool = True

    @property
    def sign(self) -> Literal[1, -1]:
        """What a difference is multiplied by to be a gain."""
        return 1 if self.is_higher_better else -1


ACCURACY = Measure("accuracy", "Accuracy", "准确率")
REWARD = Measure("reward", "Reward", "奖励")  # the weighted one, where answers have no reference
_KNOWN = {
    one.name: one
    for one in (
        ACCURACY,
        Measure("balanced_accuracy", "Balanced accuracy", "平衡准确率"),
        Measure("pair_accuracy", "Pair accuracy", "成对准确率"),
        Measure("invalid_rate", "Invalid answers", "无效回答率", is_higher_better=False),
        Measure("brier", "Brier score", "Brier 分数", is_higher_better=False),
        Measure("ece", "Calibration error", "校准误差", is_higher_better=False),
        Measure("latency_p50_s", "Median latency", "延迟中位数", is_higher_better=False),
        Measure("latency_p95_s", "95 % latency", "95 % 延迟", is_higher_better=False),
    )
}
_FAMILIES = {
    "accuracy[": ("Accuracy where {}", "{} 的准确率"),
    "pair_accuracy[": ("Pair accuracy where {}", "{} 的成对准确率"),
    "invalid_rate[": ("Invalid answers where {}", "{} 的无效回答率"),
    "precision:": ("Precision of {}", "{} 的精确率"),
    "recall:": ("Recall of {}", "{} 的召回率"),
    "f1:": ("F1 of {}", "{} 的 F1"),
    "pass@": ("pass@{}", "pass@{}"),
    "mean@": ("mean@{}", "mean@{}"),
}


def is_builtin(name: str) -> bool:
    """Whether a measure of Groupwise itself has this name."""
    return name in _KNOWN or name.startswith(tuple(_FAMILIES))


def choose_headline(names: Collection[str], own: Sequence[Measure]) -> Measure:
    """Return what heads a report: accuracy where it was measured, else the first own measure."""
    if ACCURACY.name in names:
        return ACCURACY
    return next((one for one in own if one.name in names), ACCURACY)


def find_measure(name: str, own: Iterable[Measure] = ()) -> Measure | None:
    """Return a measure by its name; None where nobody says which direction is better.

    Of the recipe's ``own`` measures the name is whole, or SCORE[FIELD=VALUE].
    """
    if name in _KNOWN:
        return _KNOWN[name]
    for family, (title, title_zh) in _FAMILIES.items():
        if name.startswith(family):
            part = name.removeprefix(family).removesuffix("]" if family.endswith("[") else "")
            is_higher_better = not family.startswith("invalid")
            return Measure(name, title.format(part), title_zh.format(part), is_higher_better)
    found = {one.name: one for one in own}
    whole, _, part = name.removesuffix("]").partition("[")
    one = found.get(name) or (found.get(whole) if part else None)
    if one is None or one.name == name:
        return one
    return replace(
        one, name=name, title=f"{one.title} where {part}", title_zh=f"{part} 的{one.title_zh}"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What one policy reached on each item of a split: the rows of one measure.

    Raises:
        EvaluationError: without items, if lengths differ, ids do not ascend or a value is not
            a finite number in [0, 1].
    """

    measure: str  # whose mean this is, such as ``accuracy`` or ``pass@4``
    split: str
    policy: str
    ids: tuple[str, ...]  # of the N items (of pairs for ``pair_accuracy``), ascending
    clusters: tuple[str, ...]
    values: Floats  # (N,) in [0, 1]
    is_binary: bool  # every value is 0 or 1
    split_digest: str  # of the whole split's item ids and labels
    labels: tuple[str | None, ...] = ()  # truths, None where there is none; of a pair, a JSON list
    answers: tuple[str | None, ...] = ()  # None for an invalid one; of a pair, a JSON list

    def __post_init__(self) -> None:
        where = f"{self.measure} of {self.policy} on {self.split}"
        if not self.ids:
            raise EvaluationError(f"there are no items for {where}")
        sizes = {len(self.ids), len(self.clusters), len(self.values)}
        sizes |= {len(part) for part in (self.labels, self.answers) if part}
        if len(sizes) > 1:
            _refuse(f"the parts of {where} differ in length", sorted(sizes))
        if any(one >= two for one, two in pairwise(self.ids)):
            raise EvaluationError(f"ids must ascend, each once, for {where}")
        wrong = np.flatnonzero(~((self.values >= 0) & (self.values <= 1)))
        if len(wrong):
            what = f"item {self.ids[wrong[0]]} has a wrong value for {where}"
            _refuse(what, float(self.values[wrong[0]]), "a finite number in [0, 1]")
        if self.is_binary and not np.isin(self.values, (0, 1)).all():
            raise EvaluationError(f"{where} is not binary", expected="values 0 and 1 only")

    @property
    def value(self) -> float:
        """The mean of the values."""
        return float(self.values.mean())

    def keep(self, ids: Collection[str]) -> "Items":
        """Return the items of these ids."""
        places = [place for place, one in enumerate(self.ids) if one in ids]

        def choose(part: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(part[place] for place in places) if part else ()

        return replace(
            self,
            values=self.values[places],
            ids=choose(self.ids),
            clusters=choose(self.clusters),
            labels=choose(self.labels),
            answers=choose(self.answers),
        )


def subtract_items(a: Items, b: Items) -> Floats:
    """Return ``b`` minus ``a`` by item, (N,) in [-1, 1], rounding aside; refuse unlike items."""
    if (a.measure, a.split) != (b.measure, b.split):
        given = f"{a.measure} on {a.split} and {b.measure} on {b.split}"
        _refuse("unlike things cannot be compared", given, "one measure on one split")
    both_labels = bool(a.labels and b.labels)
    if (a.ids, a.clusters) != (b.ids, b.clusters) or (both_labels and a.labels != b.labels):
        raise EvaluationError(
            f"{a.policy} and {b.policy} did not answer the same items of {a.split}",
            got=f"{len(a.ids)} and {len(b.ids)} items, {len({*a.ids} & {*b.ids})} in common",
            expected="the same ids, labels and clusters",
            fix="predict with both on the same items first",
        )
    gains = b.values - a.values
    return np.where(np.abs(gains) < _TIE, 0.0, gains)


@exact
@dataclass(frozen=True, slots=True)
class Prompts:
    """What was asked, cut to what a report shows."""

    item: str = ""  # the id of the item that ``shown`` is of
    shown: str = ""  # its prompt as the model sees it; empty where that is not known
    pictures: tuple[str, ...] = ()  # the names of its pictures
    turns: Mapping[str, str] = field(default_factory=dict[str, str])  # last turn by the item's id


def shorten(text: str, length: int) -> str:
    """Return a text of at most ``length`` characters, the last of them … where it was cut."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def collect_prompts(
    examples: Sequence[Example], render: Callable[[Example], str] = lambda _: ""
) -> Prompts:
    """Return what is asked of examples, the first as the model sees it by ``render``."""
    first = examples[0]
    return Prompts(
        item=first.id,
        shown=shorten(render(first), _MAX_SHOWN),
        pictures=tuple(picture.path.name for picture in first.pictures),
        turns={one.id: shorten(one.prompt[-1].text, MAX_TEXT) for one in examples},
    )


def read_prompts(path: Path) -> Prompts:
    """Return what was asked, as ``collect_prompts`` made it; errors as those of ``read_as``."""
    return read_as(path, TypeAdapter(Prompts), kind=dict)
