"""What the step ``evaluate`` leaves: the conditions of its numbers, and looks at the test split.

A look is a measurement of the items of a test split. Whoever changes settings after one and looks
again chooses on the test split, and the best of several looks is better than it is by luck. So each
is a line in ``looks.jsonl``, of the run and of the folder that holds the runs, found again by the
digest of the items, whatever folders are called.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import Any

from pydantic import BaseModel, TypeAdapter

from groupwise.core import (
    Effect,
    Example,
    RunError,
    append_jsonl,
    digest_json,
    find_effect,
    flatten_settings,
    read_json,
    read_jsonl,
    read_manifest,
    take_lock,
)
from groupwise.evaluation.predictions import Measure, choose_headline, exact, parse_as, read_as
from groupwise.evaluation.report.phrases import Statement

CONDITIONS_FILE, LOOKS_FILE = "evaluate/conditions.json", "looks.jsonl"
MANY_CONFIGS = 4
"""Of so many configs that are equally good, the best is expected one standard error too high."""


class Conditions(BaseModel, extra="allow"):
    """What a run's numbers depend on beyond its manifest, written as it is evaluated.

    Digests of content decide: folders, paths and times never count. None: there is no such thing.
    """

    data: Mapping[str, Mapping[str, Any]] = {}  # by file: its digest and numbers of rows
    prompts: Mapping[str, str] = {}  # by split: digest of its items' messages
    template: str | None = None  # digest of the chat template
    tokenizer: str | None = None  # digest
    base_weights: str | None = None  # ``digest_weights`` of what training starts from
    decoding: Mapping[str, Any] = {}  # how evaluated answers are drawn
    parser: Mapping[str, Any] = {}  # its settings
    normalizer: str | None = None  # version of what makes answers alike before they are compared
    metrics: Mapping[str, int] = {}  # version by family
    is_nested_subset_of: Mapping[str, str] = {}  # by split: digest of what its items are drawn from
    measures: tuple[Measure, ...] = ()  # the recipe's own


def read_conditions(folder: Path) -> Conditions | None:
    """Return the conditions of a run, also of another version; None where it has none recorded."""
    path = folder / CONDITIONS_FILE
    return read_as(path, Conditions) if path.exists() else None


def read_measures(folder: Path) -> tuple[Measure, ...]:
    """Return the measures that the recipe of a run defines; none where they are not recorded."""
    return (read_conditions(folder) or Conditions()).measures


def read_headline(folder: Path) -> Measure:
    """Return the measure that heads the report of a run; without metrics it is accuracy.

    Damaged metrics are a DataError, conditions of another shape an EvaluationError.
    """
    path = folder / "evaluate" / "metrics.json"
    # Only names are read: a recipe of somebody else's may say less of each metric.
    found: list[dict[str, Any]] = read_json(path, list) if path.is_file() else []
    names = {str(one.get("name", "")).partition("/")[2] for one in found}
    return choose_headline(names, read_measures(folder))


@exact
@dataclass(frozen=True, slots=True)
class Look:
    """One measurement of a test split."""

    name: str  # a random one, so that a line in two files is one look
    time: str  # when it began
    run: str  # what the run's folder was called then
    config: str  # digest of the settings that count, without the seed, and of what they read
    seed: int
    items: str  # digest of the items' ids and labels, as that of a metric's split


def record_look(run: Path, items: Sequence[Example], *, is_continued: bool = False) -> None:
    """Write down, before anything is measured, that a run measures these items of the test split.

    ``run`` is a folder with a manifest: of a run, or of an evaluation on other data;
    ``is_continued``: an interrupted attempt has written it down already. What cannot be written is
    a RunError, a damaged manifest or file of looks a DataError.
    """
    manifest = read_manifest(run / "manifest.json")
    effects = TypeAdapter(dict[str, Effect]).validate_python(manifest.get("effects", {}))
    settings = {
        key: value
        for key, value in flatten_settings(manifest["config"])
        if key != "seed" and find_effect(effects, key).kind in ("counts", "budget")
    }
    weights = manifest.get("evaluated", {}).get("weights")
    look = Look(
        name=uuid.uuid4().hex,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        run=run.resolve().name,
        config=digest_json([settings, manifest.get("inputs", {}), weights]),
        seed=manifest["seed"],
        items=digest_json(sorted([one.id, str(one.label)] for one in items)),
    )
    for last in _read(run / LOOKS_FILE)[-1:] if is_continued else ():
        if (last.config, last.seed, last.items) == (look.config, look.seed, look.items):
            return
    for folder in (find_results_folder(run), run):
        try:
            with os.fdopen(take_lock(folder / ".looks.lock", busy=lambda: None)):
                append_jsonl(folder / LOOKS_FILE, asdict(look))
        except OSError as error:
            raise RunError(
                f"the look at the test split cannot be recorded in {folder} ({error.strerror})",
                fix="make that folder writable, or put the run into one that is",
            ) from error


def list_looks(run: Path, items: str) -> list[Look]:
    """Return the looks at the items with a digest, by a run and all that share its folder."""
    folder = find_results_folder(run)
    places = dict.fromkeys((folder, run, *sorted(folder.glob("[!.]*"))))
    found = {look.name: look for place in places for look in _read(place / LOOKS_FILE)}
    return [look for look in found.values() if look.items == items]


def find_results_folder(run: Path) -> Path:
    """Return the folder that holds a run: of a cell that of its sweep, never inside a run."""
    folder = run.resolve().parent
    if (folder.parent / "sweep.json").is_file():
        folder = folder.parent.parent
    while (folder / "manifest.json").is_file():
        folder = folder.parent
    return folder


def state_looks(run: Path, items: str) -> Iterator[Statement]:
    """Yield how often items were looked at: a warning where settings changed between many looks.

    Nothing is said of items that nobody has written down a look at; errors as ``list_looks``.
    """
    looks = list_looks(run, items)
    if not looks:
        return
    configs, seeds = {look.config for look in looks}, {look.seed for look in looks}
    values = {"num": len(looks), "folder": find_results_folder(run).name or "/"}
    # Blom's approximation of the largest of so many standard normal values.
    excess = NormalDist().inv_cdf((len(configs) - 0.375) / (len(configs) + 0.25))
    values |= {"configs": len(configs), "seeds": len(seeds), "excess": round(excess, 1)}
    told = ("looks_many", "warning") if len(configs) >= MANY_CONFIGS else ("looks", "info")
    yield Statement(told[0], values, told[1], LOOKS_FILE)


def state_most_looks(measured: Iterable[tuple[Path, str]]) -> list[Statement]:
    """Return what ``state_looks`` says of runs and their items; of several sets the most often."""
    asked = {(find_results_folder(run), items): run for run, items in measured}
    found = [one for (_, items), run in asked.items() for one in state_looks(run, items)]
    return sorted(found, key=lambda one: one.values["num"])[-1:]


def _read(path: Path) -> list[Look]:
    return parse_as(read_jsonl(path), list[Look], path) if path.is_file() else []
