"""What is the same in several runs: their items, and what should have differed and does not.

Equal answers or weights mean that nothing was trained, or that nothing is compared.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import yaml

from groupwise.core import EvaluationError
from groupwise.evaluation.facts import RunFacts
from groupwise.evaluation.predictions import Language, RunPolicy

RelationKind = Literal["exact", "nested", "overlapping", "disjoint"]
Cell = tuple[Mapping[str, str], Hashable]
"""Coordinates by axis, and the digest of the cell's predictions or its value (None: not run)."""
_ADAPTER = "adapter_model.safetensors"


@cache
def load_reasons() -> Mapping[str, Mapping[str, str]]:
    """Return the gate's sentences by name and language."""
    return yaml.safe_load(Path(__file__).with_name("fairness.yaml").read_text(encoding="utf-8"))


def explain(reason: str, words: Mapping[str, str], language: Language = "en") -> str:
    """Return the sentence of a reason; in Chinese ``cause_zh`` takes the place of ``cause``."""
    if language == "zh":
        words = {**words, **{name.removesuffix("_zh"): words[name] for name in sorted(words)}}
    return load_reasons()[reason][language].format(**words)


@dataclass(frozen=True, slots=True)
class ItemRelation:
    """How the items of two runs relate, and how alike their answers to the shared ones are."""

    a: str  # names of the runs
    b: str
    split: str
    kind: RelationKind  # ``exact``: the same ids; ``nested``: one set lies in the other
    num_a: int
    num_b: int
    num_shared: int
    relabelled: tuple[str, ...]  # ids of the shared items whose labels differ, ascending
    num_same_text: int  # shared items with the same text
    num_same_answer: int  # shared items with the same label given (or both invalid)


@dataclass(frozen=True, slots=True)
class Sameness:
    """One thing that is suspiciously the same.

    Its ``level`` is ``error``: nothing was trained, so the runs cannot be compared; ``warning``:
    what is compared made no difference; ``info``: nothing is compared that could make one.
    """

    level: Literal["error", "warning", "info"]
    name: str  # fixed name of the kind, for programs
    runs: tuple[str, ...]  # names
    words: Mapping[str, str]  # what stands in the sentence's places

    def explain(self, language: Language = "en") -> str:
        """Return the sentence in a language."""
        return explain(self.name, self.words, language)


def relate_items(runs: Sequence[RunFacts], *, split: str) -> tuple[ItemRelation, ...]:
    """Return the relation of every two runs in their order; refuse runs without such items."""
    for run in runs:
        if not run.answers.get(split):
            expected = f"one of {', '.join(sorted(run.answers)) or 'none'}"
            raise EvaluationError(
                f"{run.name} has no items in the split {split!r}", expected=expected
            )
    found: list[ItemRelation] = []
    for a, b in combinations(runs, 2):
        of_a, of_b = a.answers[split], b.answers[split]
        both = [(of_a[item], of_b[item]) for item in sorted(of_a.keys() & of_b.keys())]
        kind: RelationKind = "overlapping" if both else "disjoint"
        if len(both) == min(len(of_a), len(of_b)):
            kind = "exact" if len(of_a) == len(of_b) else "nested"
        found.append(
            ItemRelation(
                a=a.name,
                b=b.name,
                split=split,
                kind=kind,
                num_a=len(of_a),
                num_b=len(of_b),
                num_shared=len(both),
                relabelled=tuple(one.example_id for one, two in both if one.label != two.label),
                num_same_text=sum(one.text == two.text for one, two in both),
                num_same_answer=sum(one.predicted == two.predicted for one, two in both),
            )
        )
    return tuple(found)


def find_same_answers(
    relation: ItemRelation, runs: Sequence[RunFacts], *, do_differ: bool
) -> Iterator[Sameness]:
    """Yield a remark on two runs that answered all shared items alike."""
    names = (relation.a, relation.b)
    words = {"runs": " and ".join(names), "runs_zh": " 与 ".join(names)}
    words["count"] = str(relation.num_shared)
    has_same_text = relation.num_same_text == relation.num_shared
    if not relation.num_shared or relation.num_same_answer < relation.num_shared:
        return
    if do_differ:
        name = "same_predictions" if has_same_text else "same_answers"
        yield Sameness("warning", name, names, words)
    elif has_same_text:
        by_name = {run.name: _find_weights(run, (run.scope.chain or (None,))[-1]) for run in runs}
        is_same = _are_same_weights(*(by_name[name] for name in names))
        kinds = {True: "identical", False: "identical_other_weights", None: "identical_answers"}
        yield Sameness("info", kinds[is_same], names, words)


def find_untrained(run: RunFacts) -> Iterator[Sameness]:
    """Yield the steps behind a run's policy that trained nothing, where weights can be compared."""
    for before, policy in pairwise((None, *run.scope.chain)):
        if policy is None or policy.step is None:
            continue
        name = None
        source, own = _find_weights(run, before), _find_weights(run, policy)
        if (own / _ADAPTER).is_file() and not (source / _ADAPTER).is_file():
            with ExitStack() as stack:  # LoRA starts its B matrices at zero
                tensors = _open([own / _ADAPTER], stack)
                factors = [key for key in tensors if "lora_B" in key]
                if factors and not any(tensors[key].get_tensor(key).any() for key in factors):
                    name = "unmoved_adapter"
        elif _are_same_weights(own, source):
            name = "unmoved_weights"
        if run.facts.get(f"trainable/{policy.step}.num_trainable") == 0:
            name = "nothing_trainable"
        if name is not None:
            yield Sameness("error", name, (run.name,), {"key": policy.step, "runs": run.name})


def _find_weights(run: RunFacts, policy: RunPolicy | None) -> Path:
    """Return the folder of a policy's weights; one that is not there if the run has none."""
    return run.folder / ((policy and policy.weights) or "no weights")


def _are_same_weights(one: Path, two: Path) -> bool | None:
    """Return whether two policy folders hold the same weights, None where one holds none."""
    files = [
        [folder / _ADAPTER]
        if (folder / _ADAPTER).is_file()
        else sorted(folder.glob("*.safetensors"))
        for folder in (one, two)
    ]
    if not all(files):
        return None
    with ExitStack() as stack:
        of_one, of_two = (_open(paths, stack) for paths in files)
        if set(of_one) != set(of_two):
            return False
        pairs = ((of_one[name].get_tensor(name), of_two[name].get_tensor(name)) for name in of_one)
        return all(a.shape == b.shape and bool((a == b.to(a.dtype)).all()) for a, b in pairs)


def _open(files: Sequence[Path], stack: ExitStack) -> dict[str, Any]:
    """Return the open file that holds each tensor, by the tensor's name."""
    import safetensors

    found: dict[str, Any] = {}
    for path in files:
        try:
            opened: Any = stack.enter_context(safetensors.safe_open(str(path), framework="pt"))
        except (OSError, safetensors.SafetensorError) as error:
            raise EvaluationError(
                f"the weights {path} are damaged ({error})", fix="run the step that trains again"
            ) from error
        found |= dict.fromkeys(opened.keys(), opened)
    return found


def has_epochs(axis: str) -> bool:
    """Whether the values of an axis are epochs, by its key."""
    return any(word in axis.lower() for word in ("epoch", "checkpoint"))


def summarize_same(cells: Sequence[Cell]) -> tuple[Sameness, ...]:
    """Return for each axis which of its values gave the same in all cells that can be paired.

    Two values of an axis are held together in all pairs of cells that share their other
    coordinates and were both run. A single pair of equal numbers may be chance and says nothing;
    a single pair of equal digests (texts) does.
    """
    found: list[Sameness] = []
    for axis in sorted({axis for coordinates, _ in cells for axis in coordinates}):
        by_value: dict[str, dict[Hashable, Hashable]] = {}
        for coordinates, result in cells:
            if result is not None and axis in coordinates:
                rest = tuple(sorted((k, v) for k, v in coordinates.items() if k != axis))
                by_value.setdefault(coordinates[axis], {})[rest] = result
        pairs: dict[tuple[str, str], int] = {}
        for one, two in combinations(by_value, 2):
            shared = [
                (by_value[one][r], by_value[two][r]) for r in by_value[one] if r in by_value[two]
            ]
            is_chance = len(shared) == 1 and not isinstance(shared[0][0], str)
            if shared and not is_chance and all(a == b for a, b in shared):
                pairs[one, two] = len(shared)
        groups: list[list[str]] = []  # values that are joined by pairs
        for pair in pairs:
            joined = [group for group in groups if set(pair) & set(group)]
            merged = dict.fromkeys([value for group in joined for value in group] + list(pair))
            groups = [*(group for group in groups if group not in joined), list(merged)]
        for group in groups:
            count = min(num for pair, num in pairs.items() if set(pair) <= set(group))
            words = {"key": axis, "cause": ", ".join(group), "count": str(count)}
            name = "same_epochs" if has_epochs(axis) else "same_axis"
            found.append(Sameness("warning", name, (), words))
    return tuple(found)
