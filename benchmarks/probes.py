"""Probes as rivals: the joint baseline with and without features of published models.

    python benchmarks/probes.py BASE DATA --json benchmarks/results/probes.json

BASE is a folder or hub id of a text model, DATA a folder with mmlu, tile_groups and screenagent
(see ``GROUPWISE_DATA``). MiniLM and DINOv2-S have to be here (``groupwise models fetch``). Tasks:

- subjects: which of ten subjects a question of MMLU is of (of at most 250 characters); 300 labels,
  200 other questions;
- tiles: whether a group of photos of magnetic tiles passes, four folds over 80 groups;
- screens: which of 14 activities a screenshot shows, four folds of sessions.

Each seed draws what is learned from (screens: the folds are given, and seeds are of the trees). The
candidates are ranked by cross-validation on training rows; "without" is the best of those that were
there before, "with" the best of all. Both are then asked about what was held out.
"""

import argparse
import csv
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from agreement import revision

from groupwise.core import Example, Message, describe_machine, read_jsonl, read_picture, write_json
from groupwise.evaluation.baselines import Candidate, predict_joint, read_features
from groupwise.models.settings import ModelSettings
from groupwise.run.probing import Probes
from groupwise.run.steps import StepContext

NUM_SUBJECTS, NUM_QUESTIONS, NUM_LABELS, MAX_CHARACTERS = 10, 500, 300, 250
NUM_FOLDS = 4
Split = tuple[list[Example], list[Example]]


def main() -> None:
    """Measure the tasks and write the file."""
    options = parse_options()
    tasks: dict[str, tuple[list[Example], Callable[[list[Example], int], Iterator[Split]]]] = {
        "tiles": (read_tiles(options.data), divide_groups),
        "screens": (read_screens(options.data), divide_screens),
        "subjects": (read_questions(options.data), draw_labels),
    }
    found = {
        name: measure(name, examples, divide, options)
        for name, (examples, divide) in tasks.items()
        if name in options.tasks
    }
    report = {
        "git_revision": revision(),
        "command": "python benchmarks/probes.py BASE DATA",
        "base": Path(options.base).name,
        "seeds": options.seeds,
        "tasks": found,
        **describe_machine(),
    }
    write_json(options.json, report)


def read_questions(data: Path) -> list[Example]:
    """Return questions of ten subjects that are drawn once."""
    rows = [
        (path.stem.removesuffix("_test"), row["question"].strip())
        for path in sorted((data / "mmlu" / "test").glob("*.csv"))
        for row in csv.DictReader(path.open(encoding="utf-8"))
    ]
    subjects = set(random.Random(0).sample(sorted({name for name, _ in rows}), NUM_SUBJECTS))
    chosen = [
        (name, text) for name, text in rows if name in subjects and len(text) <= MAX_CHARACTERS
    ]
    random.Random(0).shuffle(chosen)
    return [
        Example(str(number), (Message("user", text),), name, str(number), {})
        for number, (name, text) in enumerate(chosen[:NUM_QUESTIONS])
    ]


def draw_labels(examples: list[Example], seed: int) -> Iterator[Split]:
    """Yield one split: what is learned from, and the rest."""
    rows = random.Random(seed).sample(examples, len(examples))
    yield rows[:NUM_LABELS], rows[NUM_LABELS:]


def read_tiles(data: Path) -> list[Example]:
    """Return groups of photos with whether they pass."""
    folder = data / "tile_groups"
    groups: dict[str, list[str]] = {}
    for row in csv.DictReader((folder / "photo_labels.csv").open(encoding="utf-8")):
        groups.setdefault(row["group_id"], []).append(row["photo"])
    return [
        Example(
            name,
            (Message("user", [*(read_picture(folder / one) for one in photos), "Does it pass?"]),),
            Path(photos[0]).parts[1],
            name,
            {},
        )
        for name, photos in sorted(groups.items())
    ]


def divide_groups(examples: list[Example], seed: int) -> Iterator[Split]:
    """Yield four folds."""
    rows = random.Random(seed).sample(examples, len(examples))
    for fold in range(NUM_FOLDS):
        held = rows[fold::NUM_FOLDS]
        yield [one for one in rows if one not in held], held


def read_screens(data: Path) -> list[Example]:
    """Return screenshots with their activity."""
    folder = data / "screenagent"
    return [
        Example(
            row["image"],
            (Message("user", [read_picture(folder / row["image"]), "What is done here?"]),),
            row["activity"],
            row["session"],
            {"fold": row["fold"]},
        )
        for row in read_jsonl(folder / "index.jsonl")
    ]


def divide_screens(examples: list[Example], seed: int) -> Iterator[Split]:
    """Yield the folds of the data, which keep sessions together."""
    del seed
    for fold in sorted({one.fields["fold"] for one in examples}):
        held = [one for one in examples if one.fields["fold"] == fold]
        yield [one for one in examples if one.fields["fold"] != fold], held


def measure(
    name: str,
    examples: list[Example],
    divide: Callable[[list[Example], int], Iterator[Split]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return the shares that are right, with and without features, and what won how often."""
    probes = open_probes(name, examples, options)
    features = probes(examples)
    ask = partial(rate_seed, examples, divide, features)
    with ProcessPoolExecutor(options.processes) as pool:
        by_seed = list(pool.map(ask, range(options.seeds)))
    rights = {how: [seed[how][0] for seed in by_seed] for how in by_seed[0]}
    winners = {how: sum((seed[how][1] for seed in by_seed), Counter[str]()) for how in rights}
    return {
        "num_examples": len(examples),
        "num_labels": len({one.label for one in examples}),
        "right": {how: float(np.mean(found)) for how, found in rights.items()},
        "right_by_seed": rights,
        "winners": {how: dict(found.most_common()) for how, found in winners.items()},
        "left_out": probes.left_out,
    }


def rate_seed(
    examples: list[Example],
    divide: Callable[[list[Example], int], Iterator[Split]],
    features: Mapping[str, Any],
    seed: int,
) -> dict[str, tuple[float, Counter[str]]]:
    """Return the share that is right, and what won how often, with and without features."""
    places = {example.id: number for number, example in enumerate(examples)}

    def embed(rows: Sequence[Example]) -> dict[str, Any]:
        chosen = [places[one.id] for one in rows]
        return {what: found[chosen] for what, found in features.items()}

    winners = {how: Counter[str]() for how in ("without", "with")}
    hits: dict[str, list[bool]] = {how: [] for how in winners}
    for train, test in divide(examples, seed):
        ranked: list[Candidate] = []
        predict_joint(train, (), split="train", seed=seed, embed=embed, record=ranked.extend)
        before = next(one for one in ranked if one.name not in features)
        sights, labels = read_features(train, embed=embed), np.asarray([one.label for one in train])
        shown = read_features(test, like=sights, embed=embed)
        for how, one in (("without", before), ("with", ranked[0])):
            winners[how][one.name] += 1
            said = np.unique(labels)[one.learn(sights, labels)(shown).argmax(1)]
            hits[how] += [told == held.label for told, held in zip(said, test, strict=True)]
        print(json.dumps({one.name: round(one.accuracy, 3) for one in ranked}), flush=True)
    print(seed, {how: round(float(np.mean(found)), 3) for how, found in hits.items()}, flush=True)
    return {how: (float(np.mean(found)), winners[how]) for how, found in hits.items()}


def open_probes(name: str, examples: list[Example], options: argparse.Namespace) -> Probes:
    """Return the features of a task; its pictures are not shown to the text model."""
    base = options.base if name == "subjects" else "tiny-qwen2.5-vl"
    config = SimpleNamespace(
        model=ModelSettings(base=base, max_pixels=28 * 28 * 64),
        evaluation=SimpleNamespace(batch_size=8),
    )
    folder: Path = options.out / name
    folder.mkdir(parents=True, exist_ok=True)
    context = StepContext(options.out, folder, name, is_resumed=True, say=print)
    return Probes(config, base, context, examples)


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base")
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["tiles", "screens", "subjects"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/probes"))
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
