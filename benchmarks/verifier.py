"""How often the visual verifier alone is right on real screenshots, and what reading them costs.

    python benchmarks/verifier.py accuracy --json benchmarks/results/verifier.json
    python benchmarks/verifier.py accuracy --test --json benchmarks/results/verifier.json
    python benchmarks/verifier.py costs --json benchmarks/results/verifier.json

It needs ``groupwise[ocr]`` and the screenagent set (``GROUPWISE_DATA``). Items are those of the
on_task config ``screenagent-tiny``: of folds 0 to 2, on which words and rules were chosen, and with
``--test`` of fold 3, too, where the file counts the looks. Beside it stand two rivals that do not
look at the screen. Seconds are of CPU time on one thread, since other work may share the machine.
"""

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from rapidocr import RapidOCR

from groupwise.core import (
    Example,
    Picture,
    describe_machine,
    load_config,
    open_picture,
    read_json,
    store_picture,
    write_json,
)
from groupwise.evaluation.baselines import predict_majority, predict_text_only
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.statistics import clustered_ratio
from groupwise.judges import ReplyCache
from groupwise.run.recipe import find_config, find_recipe
from groupwise.serving.flips import FLIP_WINDOW_S, flag_flips
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.ocr import TextReader, describe_ocr
from groupwise_recipes.on_task.prompt import make_pair_example
from groupwise_recipes.on_task.screens import cross_screens, split_screens
from groupwise_recipes.on_task.screenshots import Screenshot, load_screenshots
from groupwise_recipes.on_task.verified import predict_verified
from groupwise_recipes.on_task.verifier import TITLE_SHARE, VisualVerifier
from groupwise_recipes.on_task.vocabulary import TermFinder, load_vocabularies

NUM_TIMED, NUM_SCALED = 12, 24
PIXELS = (786_432, 393_216, 196_608, 98_304)
_TIME = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")


def load_screens(root: Path) -> tuple[dict[str, list[Screenshot]], OnTaskConfig]:
    """Return the screens of folds 0 to 2 and of fold 3, as the config splits them."""
    path = find_config(find_recipe("on_task"), "screenagent-tiny")
    config = load_config(OnTaskConfig, path, overrides=[f"data.root={root}"])
    splits = split_screens(load_screenshots(root), config.data, seed=config.seed)
    return {"chosen": [*splits["train"], *splits["validation"]], "test": splits["test"]}, config


def pair_screens(
    screens: Sequence[Screenshot], config: OnTaskConfig, *, split: str
) -> list[Example]:
    """Return the questions that a run asks about the screens of a split, each once."""
    pairs = cross_screens(screens, config, split=split)
    examples = [make_pair_example(pair, config) for pair in pairs]
    return list({example.id: example for example in examples}.values())


def measure(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return shares with their intervals by session; undecided is wrong in the last one."""
    clusters = [one.cluster for one in predictions]
    decided = [float(one.predicted is not None) for one in predictions]
    right = [float(one.is_correct) for one in predictions]
    every = [1.0] * len(predictions)
    shares = {
        "coverage": (decided, every),
        "accuracy_decided": (right, decided),
        "accuracy": (right, every),
    }
    found: dict[str, Any] = {"num_items": len(predictions), "num_sessions": len(set(clusters))}
    for name, (tops, bases) in shares.items():
        interval = clustered_ratio(tops, bases, clusters)
        found[name] = [sum(tops) / sum(bases), *(interval or (None, None)), round(sum(bases))]
    return found


def measure_activities(predictions: Sequence[Prediction]) -> dict[str, dict[str, int]]:
    """Return how many items of each kind of task were decided, and how many rightly."""
    found: dict[str, dict[str, int]] = {}
    for one in predictions:
        row = found.setdefault(one.fields["task_activity"], {"items": 0, "decided": 0, "right": 0})
        row["items"] += 1
        row["decided"] += one.predicted is not None
        row["right"] += one.is_correct
    return dict(sorted(found.items()))


def measure_flips(verifier: VisualVerifier, screens: Sequence[Screenshot]) -> dict[str, int]:
    """Return how many verdicts on screens with their own tasks are isolated flips.

    All of these screens are on-task, so a flagged verdict is rightly flagged if it says off-task.
    """
    sessions: dict[str, list[Screenshot]] = {}
    for screen in screens:
        sessions.setdefault(screen.session, []).append(screen)
    counts = {"num_screens": len(screens), "num_flagged": 0, "num_flagged_off_task": 0}
    for own in sessions.values():
        scores = [verifier.verify(one.picture, one.task).score for one in own]
        verdicts = [None if s is None else ("on-task" if s > 0.5 else "off-task") for s in scores]
        flags = flag_flips([read_time(one) for one in own], verdicts)
        flagged = [verdict for verdict, flag in zip(verdicts, flags, strict=True) if flag]
        counts["num_flagged"] += len(flagged)
        counts["num_flagged_off_task"] += flagged.count("off-task")
    return counts


def read_time(screen: Screenshot) -> float:
    """Return when a screen was taken, as its file is named."""
    found = _TIME.search(screen.picture.path.name)
    assert found is not None
    return datetime.strptime(found[0], "%Y-%m-%d_%H-%M-%S").timestamp()


def time_reading(pictures: Sequence[Picture]) -> dict[str, list[float]]:
    """Return median and extremes of CPU seconds a picture, with our settings and without."""
    threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    default = RapidOCR(params={"Global.log_level": "error", **threads})
    own = TextReader()

    def read_by_default(picture: Picture, share: float) -> None:
        shown = open_picture(picture)
        strip = shown.crop((0, 0, shown.width, round(shown.height * share)))
        default(np.ascontiguousarray(np.asarray(strip)[:, :, ::-1]))

    ways: Mapping[str, Callable[[Picture], object]] = {
        "strip": lambda picture: own.read(picture, top=TITLE_SHARE),
        "strip_default": lambda picture: read_by_default(picture, TITLE_SHARE),
        "whole": own.read,
        "whole_default": lambda picture: read_by_default(picture, 1.0),
    }
    for way in ways.values():
        way(pictures[0])  # loads the models
    return {name: _time(way, pictures) for name, way in ways.items()}


def _time(way: Callable[[Picture], object], pictures: Sequence[Picture]) -> list[float]:
    seconds: list[float] = []
    for picture in pictures:
        start_s = time.process_time()
        way(picture)
        seconds.append(time.process_time() - start_s)
    return [round(x, 2) for x in (statistics.median(seconds), min(seconds), max(seconds))]


def measure_sizes(pictures: Sequence[Picture], folder: Path) -> list[dict[str, int]]:
    """Return in how many scaled pictures the title strip has a word that tells something."""
    finder, reader = TermFinder(load_vocabularies(), "screens"), TextReader()
    rows: list[dict[str, int]] = []
    for max_pixels in PIXELS:
        num_telling = 0
        for picture in pictures:
            path = folder / f"{picture.digest}-{max_pixels}.png"
            scaled = store_picture(picture, path, max_pixels=max_pixels)
            lines = reader.read(scaled, top=TITLE_SHARE)
            path.unlink()
            num_telling += bool(finder.weigh("\n".join(lines)).numbers)
        rows.append({"pixels": max_pixels, "pictures": len(pictures), "telling": num_telling})
    return rows


def measure_accuracy(given: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Return what the verifier alone is worth; with ``--test`` on fold 3, too."""
    screens, config = load_screens(root)
    reader = TextReader(ReplyCache(given.cache))
    verifier = VisualVerifier(lambda picture, share: reader.read(picture, top=share))
    chosen = pair_screens(screens["chosen"], config, split="train")
    found = {"chosen": _measure_split(verifier, chosen, screens["chosen"], config)}
    if given.test:
        test = pair_screens(screens["test"], config, split="test")
        told = {"split": "test", "seed": config.seed}
        found["test"] = {
            **_measure_split(verifier, test, screens["test"], config),
            "majority": measure(predict_majority(chosen, test, **told)),
            "text_only": measure(predict_text_only(chosen, test, **told)),
        }
    return {"ocr": describe_ocr(), "flip_window_s": FLIP_WINDOW_S, **found}


def _measure_split(
    verifier: VisualVerifier,
    items: Sequence[Example],
    screens: Sequence[Screenshot],
    config: OnTaskConfig,
) -> dict[str, Any]:
    predicted = predict_verified(verifier, items, config.answer.labels)
    return {
        "visual_verifier": measure(predicted),
        "activities": measure_activities(predicted),
        "flips": measure_flips(verifier, screens),
    }


def measure_costs(given: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Return seconds, and what is still read in small pictures; of folds 0 to 2."""
    screens = [one for one in load_screenshots(root).screens if one.fold != 3]
    pictures = list({one.picture.digest: one.picture for one in screens}.values())
    drawn = random.Random(0).sample(pictures, NUM_SCALED)
    with tempfile.TemporaryDirectory() as folder:
        sizes = measure_sizes(drawn, Path(folder))
    return {
        "num_timed": NUM_TIMED,
        "seconds": time_reading(drawn[:NUM_TIMED]),
        "sizes": sizes,
    }


def main() -> None:
    """Measure, print and write; what the file has of the other part stays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["accuracy", "costs"])
    parser.add_argument("--cache", type=Path, default=Path("words.sqlite"))
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    root = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "screenagent"
    found = (measure_accuracy if given.part == "accuracy" else measure_costs)(given, root)
    print(json.dumps(found, indent=1), flush=True)
    if given.json:
        before = read_json(given.json, dict) if given.json.is_file() else {}
        looks = before.get("looks", 0) + ("test" in found)
        command = f"python benchmarks/verifier.py {given.part}{' --test' if given.test else ''}"
        origin = {**describe_machine(), "command": command}
        places = {**before.get("parts", {}), given.part: origin}
        write_json(given.json, {**before, **origin, **found, "looks": looks, "parts": places})


if __name__ == "__main__":
    main()
