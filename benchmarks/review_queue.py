"""How many mistakes people find among the first answers that they are asked about, by order.

    GROUPWISE_DATA=DATA python benchmarks/review_queue.py --json results.json

A classifier of screenshots (extremely randomised trees on thumbnails) names the activity of each
picture of the screenagent set's folds 0 to 2; each fold is answered by a model of the other two, so
that no session is on both sides. The answers are queued by value, by value without clusters
(``doubt``), at random and oldest first. Differences are those of the mean over seeds, their 95 %
intervals are from drawing whole sessions.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.ensemble import ExtraTreesClassifier

from groupwise.core import derive_seed, describe_machine, digest_file, open_picture, write_json
from groupwise.feedback import Shown, order_for_people
from groupwise_recipes.on_task.screenshots import Screenshot, load_screenshots

FOLDS, FIRST, SIZE, TREES = (0, 1, 2), (20, 40, 80), (32, 24), 300
QUEUES = ("value", "doubt", "random", "oldest")
RANDOM_ORDERS = 10
Floats = NDArray[np.float64]


def shrink(screen: Screenshot) -> Floats:
    """Return the colours of a thumbnail."""
    small = open_picture(screen.picture).resize(SIZE, Image.Resampling.BOX)
    return np.asarray(small, dtype=float).ravel()


def answer(screens: Sequence[Screenshot], seed: int) -> list[Shown]:
    """Return the answers to all screens, each of a model that saw nothing of its fold."""
    thumbnails = np.array([shrink(screen) for screen in screens])
    names, folds = np.array([s.activity for s in screens]), np.array([s.fold for s in screens])
    found: list[Shown | None] = [None] * len(screens)
    for fold in FOLDS:
        model = ExtraTreesClassifier(TREES, random_state=derive_seed(seed, "trees", fold))
        model.fit(thumbnails[folds != fold], names[folds != fold])
        places = np.flatnonzero(folds == fold)
        for place, shares in zip(places, model.predict_proba(thumbnails[places]), strict=True):
            best = int(shares.argmax())
            found[place] = Shown(
                id=str(place),
                at_s=float(place),
                row={},
                session=screens[place].session,
                pictures=(),
                prediction=str(model.classes_[best]),
                confidence=float(shares[best]),
                version="trees",
            )
    return [one for one in found if one is not None]


def line_up(answers: Sequence[Shown], queue: str, seed: int) -> list[list[Shown]]:
    """Return the orders that a queue stands for: several where it is drawn, else one."""
    if queue == "doubt":
        return [order_for_people([replace(one, session="") for one in answers])]
    if queue != "random":
        return [order_for_people(answers, order="oldest" if queue == "oldest" else "value")]
    seeds = (derive_seed(seed, "order", number) for number in range(RANDOM_ORDERS))
    return [order_for_people(answers, order="random", seed=one) for one in seeds]


def count(answers: Sequence[Shown], names: Sequence[str], queue: str, seed: int) -> Floats:
    """Return mistakes found and sessions they are of, (2, len(FIRST)), the mean over the orders.

    Args:
        answers: whose ids are places in ``names``, then whatever tells copies apart.
        names: right answers.
        queue: one of ``QUEUES``.
        seed: of what is drawn.
    """
    sessions = {one.id: one.session for one in answers}
    found: list[Floats] = []
    for order in line_up(answers, queue, seed):
        wrong = [one.prediction != names[int(one.id.partition("/")[0])] for one in order]
        mistakes = [sum(wrong[:num]) for num in FIRST]
        firsts = [zip(order[:num], wrong[:num], strict=True) for num in FIRST]
        hit = [len({sessions[one.id] for one, is_wrong in first if is_wrong}) for first in firsts]
        found.append(np.array([mistakes, hit], dtype=float))
    return np.mean(found, axis=0)


def draw_sessions(answers: Sequence[Shown], drawn: Sequence[str]) -> list[Shown]:
    """Return the answers of drawn sessions, of which each copy is a session of its own."""
    held: dict[str, list[Shown]] = {}
    for one in answers:
        held.setdefault(one.session, []).append(one)
    return [
        replace(one, id=f"{one.id}/{copy}", session=f"{session}/{copy}")
        for copy, session in enumerate(drawn)
        for one in held[session]
    ]


def main() -> None:
    """Count, and write what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    root = Path(os.environ["GROUPWISE_DATA"]) / "screenagent"
    loaded = load_screenshots(root).screens
    screens = [one for one in loaded if one.fold in FOLDS and one.activity is not None]
    names = [str(one.activity) for one in screens]
    answers = [answer(screens, seed) for seed in range(given.seeds)]
    counts = {
        queue: np.array([count(one, names, queue, n) for n, one in enumerate(answers)])
        for queue in QUEUES
    }
    sessions, random = sorted({one.session for one in screens}), np.random.default_rng(0)
    resampled: list[dict[str, Floats]] = []
    for _ in range(given.resamples):
        drawn = list(random.choice(sessions, len(sessions)))
        copies = [draw_sessions(one, drawn) for one in answers]
        resampled.append(
            {q: np.mean([count(c, names, q, n) for n, c in enumerate(copies)], 0) for q in QUEUES}
        )
    command = f"python benchmarks/review_queue.py --seeds {given.seeds}"
    found: dict[str, Any] = {
        **describe_machine(),
        "command": f"{command} --resamples {given.resamples}",
        "data": {"index": digest_file(root / "index.jsonl"), "folds": list(FOLDS)},
        "answers": len(screens),
        "sessions": len(sessions),
        "seeds": given.seeds,
        "resamples": given.resamples,
        "accuracy": [np.mean([o.prediction == names[int(o.id)] for o in a]) for a in answers],
        "counts": [
            {
                "queue": queue,
                "first": num,
                "mistakes": counts[queue][:, 0, place].tolist(),
                "sessions": counts[queue][:, 1, place].tolist(),
            }
            for queue in QUEUES
            for place, num in enumerate(FIRST)
        ],
        "differences": [
            describe_difference(counts, resampled, rival, place)
            for rival in QUEUES[1:]
            for place in range(len(FIRST))
        ],
    }
    if given.json:
        write_json(given.json, found)


def describe_difference(
    counts: dict[str, Floats], resampled: Sequence[dict[str, Floats]], rival: str, place: int
) -> dict[str, Any]:
    """Return how many more are found by value than by a rival, with 95 % intervals."""
    told: dict[str, Any] = {"rival": rival, "first": FIRST[place]}
    for number, what in enumerate(("mistakes", "sessions")):
        gaps = [one["value"][number, place] - one[rival][number, place] for one in resampled]
        mean = (counts["value"] - counts[rival])[:, number, place].mean()
        low, high = np.quantile(gaps, (0.025, 0.975))
        told[what] = {"estimate": float(mean), "low": float(low), "high": float(high)}
    return told


if __name__ == "__main__":
    main()
