"""Predictions, a row per item and policy: the source of every number in a report.

With them stand the policies that answered, the measures of answers, and the values of one measure
by item. Rows are read and checked here, and matched item by item; nothing is averaged.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_origin

from pydantic import ConfigDict, TypeAdapter, with_config

from groupwise.core import (
    EvaluationError,
    digest_json,
    parse_value,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)

if TYPE_CHECKING:  # what only reads a config does not wait for it
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
PolicyKind = Literal["baseline", "bound", "prompted", "trained", "unknown"]
Language = Literal["en", "zh"]
POLICIES_FILE = "evaluate/policies.json"
METRIC_VERSIONS: Mapping[str, int] = {
    "accuracy": 2,
    "balanced_accuracy": 4,
    "brier": 4,
    "comparison": 4,
    "ece": 3,
    "f1": 4,
    "invalid_rate": 2,
    "pair_accuracy": 3,
    "precision": 2,
    "recall": 2,
    "scores": 4,
    "slices": 2,
}
"""Version of each family of metrics; it rises with any change of a value or an interval."""
MAX_TEXT = 400  # characters shown of a prompt's last turn, or of an answer as it was given
MARKS = "marks"
"""Field of predictions: what reports draw on the first picture and say beside it.

``reference`` and ``answer`` are lists of ``[left, top, right, bottom, name]``, in shares of the
picture's sides, and ``remark`` has a sentence by language; each may be missing.
"""
NEAR_DUPLICATE = "near_duplicate"
"""Field of items: ``yes`` where a picture looks like one of another split, ``no`` elsewhere."""
SEEN = "seen_in_training"
"""Field of items of other data: ``yes`` where training showed the same text or picture."""
exact = with_config(ConfigDict(extra="forbid"))  # marks a dataclass whose files have no other keys


def read_as(path: Path, shape: type[T]) -> T:
    """Return what a JSON file of a run holds, a list or an object; errors name the file."""
    kind = list if get_origin(shape) in (list, tuple) else dict
    return parse_as(read_json(path, kind), shape, path)


def parse_as(value: object, shape: type[T], path: Path) -> T:
    """Return what is made of a value that stands in a file; an EvaluationError names the file."""
    fix, told = "run the step that writes it again", f"{path} is damaged"
    return parse_value(value, TypeAdapter(shape), told, error=EvaluationError, fix=fix)


def _require(
    is_right: bool, what: str, got: object = None, expected: object = None, fix: str | None = None
) -> None:
    if not is_right:
        raise EvaluationError(what, got=got, expected=expected, fix=fix)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one policy answered to one item; one that contradicts itself is an EvaluationError."""

    example_id: str
    cluster: str  # what statistics are clustered by (a session)
    split: str
    policy: str  # who answered, a name without ``/``
    label: str | None  # the truth; None where only measures of its own judge an answer
    predicted: str | None  # None: the answer was invalid, which is never a class
    reason: str = ""  # why the answer was invalid; empty for a valid one
    text: str = ""  # the answer as it was given
    probabilities: Mapping[str, float] | None = None  # by label, sum 1 (one left out has 0)
    latency_s: float | None = None  # for who opens the file; None where not measured
    pictures: tuple[str, ...] = ()  # paths
    # Of the same, empty where not known; one outside the run is shown only with this digest.
    picture_digests: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # to show or slice by
    scores: Mapping[str, float] = field(default_factory=dict[str, float])  # own ones, in [0, 1]
    samples: tuple[bool, ...] = ()  # of earlier versions; files have it, nothing reads it
    pair: str = ""  # id of the minimally contrastive pair the item is one half of

    def __post_init__(self) -> None:
        where = f"the prediction of {self.policy} for {self.example_id}"
        is_name = bool(self.policy) and "/" not in self.policy
        _require(is_name, "a policy's name is wrong", repr(self.policy), "a name without '/'")
        got = f"predicted {self.predicted!r} with reason {self.reason!r}"
        expected = "a reason for an invalid answer and none for a valid one"
        is_sound = (self.predicted is None) == bool(self.reason)
        _require(is_sound, f"{where} contradicts itself", got, expected)
        if (shares := self.probabilities) is not None:
            is_sum = abs(sum(shares.values()) - 1) <= 1e-3
            is_sum = is_sum and all(0 <= share <= 1 for share in shares.values())
            expected = "values in [0, 1] that sum to 1"
            _require(is_sum, f"{where} has wrong probabilities", dict(shares), expected)
        for name, value in self.scores.items():
            is_free, got = bool(name) and find_measure(name) is None, f"{name} = {value}"
            what = f"{where} has a score under a name that is taken"
            _require(is_free, what, repr(name), fix="rename it")
            _require(0 <= value <= 1, f"{where} has a wrong score", got, "a value in [0, 1]")

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


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Replace ``path`` by one JSON row per prediction."""
    write_jsonl(path, (asdict(prediction) for prediction in predictions))


def read_predictions(path: Path) -> list[Prediction]:
    """Return the predictions of a file.

    A line that is no JSON object is a DataError, a row that is no Prediction an EvaluationError.
    """
    rows, keys = read_jsonl(path), {item.name for item in fields(Prediction)}
    for number, row in enumerate(rows, start=1):
        what, got = f"{path} row {number} is not a prediction", f"the keys {sorted(row)}"
        _require(row.keys() == keys, what, got, f"the keys {sorted(keys)}")
    return parse_as(rows, list[Prediction], path)


def mark_items(
    predictions: Sequence[Prediction], marks: Mapping[str, Collection[str]]
) -> tuple[list[Prediction], tuple[str, ...]]:
    """Return predictions with a field by mark that says ``yes`` for its ids, and what to slice by.

    A mark without ids is left out.
    """
    known = {name: ids for name, ids in marks.items() if ids}
    found: list[Prediction] = []
    for one in predictions:
        said = {name: "yes" if one.example_id in ids else "no" for name, ids in known.items()}
        found.append(replace(one, fields={**one.fields, **said}))
    return found, tuple(known)


def group_by_policy(predictions: Iterable[Prediction]) -> dict[tuple[str, str], list[Prediction]]:
    """Return predictions by (split, policy), splits by name and policies as they come.

    Items are sorted by their id, so that the order of rows never changes a result. An item that a
    policy answered twice in a split is an EvaluationError.
    """
    found: dict[tuple[str, str], dict[str, Prediction]] = {}
    for one in predictions:
        items = found.setdefault((one.split, one.policy), {})
        what = f"{one.policy} has two predictions for item {one.example_id} of {one.split}"
        fix = "write each item once per policy and split"
        _require(one.example_id not in items, what, fix=fix)
        items[one.example_id] = one
    keys = sorted(found, key=lambda key: key[0])
    return {key: [found[key][name] for name in sorted(found[key])] for key in keys}


def digest_items(predictions: Iterable[Prediction]) -> str:
    """Return the digest of a split: its sorted item ids with their labels."""
    return digest_json(sorted([item.example_id, item.label] for item in predictions))


def find_constant(items: Sequence[Prediction]) -> str | None:
    """Return the one valid answer that a policy gave to all of two or more items, or None."""
    answers = {item.predicted for item in items}
    return answers.pop() if len(items) > 1 and len(answers) == 1 else None


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
_KNOWN = (
    ACCURACY,
    Measure("balanced_accuracy", "Balanced accuracy", "平衡准确率"),
    Measure("pair_accuracy", "Pair accuracy", "成对准确率"),
    Measure("invalid_rate", "Invalid answers", "无效回答率", is_higher_better=False),
    Measure("brier", "Brier score", "Brier 分数", is_higher_better=False),
    Measure("ece", "Calibration error", "校准误差", is_higher_better=False),
)
_FAMILIES = {
    "precision:": ("Precision of {}", "{} 的精确率"),
    "recall:": ("Recall of {}", "{} 的召回率"),
    "f1:": ("F1 of {}", "{} 的 F1"),
}


def choose_headline(names: Collection[str], own: Sequence[Measure]) -> Measure:
    """Return what heads a report: accuracy where it was measured, else the first own measure."""
    return next((one for one in (ACCURACY, *own) if one.name in names), ACCURACY)


def find_measure(name: str, own: Iterable[Measure] = ()) -> Measure | None:
    """Return a measure by its name; None where nobody says which direction is better.

    The name of one of Groupwise or of the recipe's ``own`` is whole, or MEASURE[FIELD=VALUE].
    """
    whole, bracket, part = name.removesuffix("]").partition("[")
    if (one := {one.name: one for one in (*own, *_KNOWN)}.get(whole)) is not None:
        titles = {"title": f"{one.title} where {part}", "title_zh": f"{part} 的{one.title_zh}"}
        return replace(one, name=name, **titles) if bracket else one
    family, colon, label = name.partition(":")
    if (titles := _FAMILIES.get(family + colon)) is None:
        return None
    return Measure(name, titles[0].format(label), titles[1].format(label))


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The values of one measure by item, of a policy on a split.

    No items, unlike lengths, ids that do not ascend, or other values are an EvaluationError.
    """

    measure: str  # whose mean this is, such as ``accuracy``
    split: str
    policy: str
    ids: tuple[str, ...]  # of the N items (of pairs for ``pair_accuracy``), ascending
    clusters: tuple[str, ...]
    values: "NDArray[np.float64]"  # (N,) in [0, 1]
    split_digest: str = ""  # of the whole split's item ids and labels
    labels: tuple[str | None, ...] = ()  # truths, None where there is none; of a pair, a JSON list
    answers: tuple[str | None, ...] = ()  # None for an invalid one; of a pair, a JSON list

    def __post_init__(self) -> None:
        where = f"{self.measure} of {self.policy} on {self.split}"
        _require(bool(self.ids), f"there are no items for {where}")
        sizes = {len(self.ids), len(self.clusters), len(self.values)}
        sizes |= {len(part) for part in (self.labels, self.answers) if part}
        _require(len(sizes) == 1, f"the parts of {where} differ in length", sorted(sizes))
        do_ascend = all(one < two for one, two in pairwise(self.ids))
        _require(do_ascend, f"ids must ascend, each once, for {where}")
        for place in (~((self.values >= 0) & (self.values <= 1))).nonzero()[0]:
            what = f"item {self.ids[place]} has a wrong value for {where}"
            _require(False, what, float(self.values[place]), "a finite number in [0, 1]")

    @property
    def is_binary(self) -> bool:
        """Whether every value is 0 or 1."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    @property
    def value(self) -> float:
        """The mean of the values."""
        return float(self.values.mean())

    def keep(self, ids: Collection[str]) -> "Items":
        """Return the items of these ids."""
        kept = [one in ids for one in self.ids]
        names = ("ids", "clusters", "labels", "answers")
        parts = {name: tuple(compress(getattr(self, name), kept)) for name in names}
        return replace(self, values=self.values[kept], **parts)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """One policy of a run, as data: reports, comparisons and the fairness gate know no name.

    ``kind`` is ``baseline``: no language model answers; ``bound``: it has seen the answers, so it
    is nothing to be compared with; ``prompted``: the model before any training; ``trained``: what a
    training step made of it; ``unknown``: the run does not say.
    """

    name: str  # as in predictions
    title: str
    title_zh: str
    note: str = ""  # what it is, in a few words
    note_zh: str = ""
    kind: PolicyKind
    step: str | None = None  # that trained it; None where nothing was trained
    trained_from: str | None = None  # the policy that training started from; None: the base
    trained_on: tuple[str, ...] = ()  # splits that its step reads
    blind_to: tuple[Literal["picture", "text", "everything"], ...] = ()  # parts of a task
    weights: str | None = None  # folder in the run folder; None where it has none of its own
    inapplicable: tuple[str, ...] = ()  # measures of what is not its task
    # ``num_steps`` (of the optimizer), ``num_samples`` and ``num_tokens`` of its step.
    budget: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a run, in the order of reports; a name that is not among them is unknown."""

    listed: tuple[RunPolicy, ...] = ()

    def find(self, name: str) -> RunPolicy:
        """Return a policy by its name, or the first that a step of that name makes."""
        unknown = RunPolicy(name=name, title=name, title_zh=name, kind="unknown")
        known = {one.step: one for one in self.listed[::-1]}
        return (known | {one.name: one for one in self.listed}).get(name, unknown)

    def title(self, name: str, language: Language = "en") -> str:
        """Return what a policy is called, or what a training step makes; otherwise the name."""
        found = self.find(name)
        return found.title_zh if language == "zh" else found.title

    def rank(self, name: str) -> int:
        """Return the place of a policy, or of what a step trains; unknown names come last."""
        found = self.find(name)
        return self.listed.index(found) if found in self.listed else len(self.listed)

    def sort(self, names: Iterable[str]) -> list[str]:
        """Return names in the order of reports; unknown ones follow in the order they came in."""
        return sorted(dict.fromkeys(names), key=self.rank)

    def choose_last(self, names: Iterable[str]) -> str:
        """Return the last name that is known, or the last of all."""
        ordered = self.sort(names)
        return next((x for x in ordered[::-1] if self.find(x).kind != "unknown"), ordered[-1])

    def is_baseline(self, name: str) -> bool:
        """Whether something other than the model answers."""
        return self.find(name).kind == "baseline"

    def list_ancestors(self, name: str) -> tuple[RunPolicy, ...]:
        """Return a policy behind all those that it was trained from, the first one first."""
        found, earlier = self.find(name), Policies(self.listed[: self.rank(name)])
        before = earlier.list_ancestors(found.trained_from) if found.trained_from else ()
        return (*before, found)


def write_policies(run: Path, policies: Sequence[RunPolicy]) -> None:
    """Write what policies a run has, in the order of reports, each with its training's budget.

    Another order, in which one stands before what it was trained from, is an EvaluationError.
    """
    for place, one in enumerate(policies):
        seen = [None, *(before.name for before in policies[:place])]
        got = f"{one.name} (trained from {one.trained_from}) behind {seen}"
        expected = "each policy once and behind the one it was trained from"
        is_right = one.name not in seen and one.trained_from in seen
        _require(is_right, "policies stand in a wrong order", got, expected)
    budgets = {one.name: run / one.step / "budget.json" for one in policies if one.step}
    read = {name: read_json(path, dict) for name, path in budgets.items() if path.is_file()}
    counted = [replace(one, budget=read.get(one.name, one.budget)) for one in policies]
    write_json(run / POLICIES_FILE, [asdict(one) for one in counted])


def read_policies(run: Path) -> Policies:
    """Return the policies of a run; of one that did not write them nothing is known."""
    path = run / POLICIES_FILE
    return Policies(read_as(path, tuple[RunPolicy, ...])) if path.is_file() else Policies()
