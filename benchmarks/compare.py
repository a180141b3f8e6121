"""Seconds to compare two runs of 10 000 items with 10 000 draws, against scipy on the items.

    python benchmarks/compare.py --json results.json

"compare" is everything between two files of predictions and the result: reading them, the items
of a measure, the interval, both tests, effect size, power and the list of items that differ.
"scipy" is ``scipy.stats.bootstrap`` of the mean difference of the same items with the same
number of draws, percentiles and no more, as one would write it first; it takes no clusters.
Both are medians of one process; "cpu" is the processor's time, which other work on the machine
does not change much, and "ratio" is compare over scipy in that time.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from groupwise.core import describe_machine, write_json
from groupwise.evaluation.metrics import compare_items, read_items
from groupwise.evaluation.predictions import Prediction, read_predictions, write_predictions

NUM_ITEMS = 10_000
NUM_DRAWS = 10_000
MEASURES = ("accuracy", "similarity")
KEYS = ("compare_s", "compare_cpu_s", "scipy_s", "scipy_cpu_s")
NAMES = ("compare", "cpu", "scipy", "cpu")


def write_run(path: Path, *, num_clusters: int, accuracy: float) -> None:
    """Write predictions of a policy that is right with a chance by cluster and item."""
    dice = random.Random(f"{num_clusters} {accuracy}")
    chances = [min(1.0, max(0.0, dice.gauss(accuracy, 0.1))) for _ in range(num_clusters)]
    rows: list[Prediction] = []
    for number in range(NUM_ITEMS):
        cluster = number % num_clusters
        is_right = dice.random() < chances[cluster]
        rows.append(
            Prediction(
                example_id=f"item-{number:06}",
                cluster=f"cluster-{cluster:06}",
                split="test",
                policy="grpo",
                label="yes",
                predicted="yes" if is_right else "no",
                scores={"similarity": (is_right + dice.random()) / 2},
            )
        )
    write_predictions(path, rows)


def compare(a: Path, b: Path, measure: str) -> float:
    """Return the difference of two files of predictions, after all that a comparison takes."""
    one, two = (
        read_items(read_predictions(path), policy="grpo", split="test", measure=measure)
        for path in (a, b)
    )
    return compare_items(one, two, num_resamples=NUM_DRAWS).difference


def run_scipy(a: Path, b: Path, measure: str) -> Callable[[], Any]:
    """Return a bootstrap of the items' differences, which are read before."""
    one, two = (
        read_items(read_predictions(path), policy="grpo", split="test", measure=measure)
        for path in (a, b)
    )
    gains = two.values - one.values
    return lambda: bootstrap((gains,), np.mean, n_resamples=NUM_DRAWS, method="percentile", rng=0)


def measure_s(work: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Return the median seconds of one call by the clock, and of the processor."""
    by_clock: list[float] = []
    by_processor: list[float] = []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        work()
        by_clock.append(time.perf_counter() - start)
        by_processor.append(time.process_time() - start_cpu)
    return statistics.median(by_clock), statistics.median(by_processor)


def run_case(folder: Path, num_clusters: int, measure: str, repeats: int) -> dict[str, Any]:
    """Return the seconds of both for one number of clusters and one measure."""
    a, b = folder / f"a-{num_clusters}.jsonl", folder / f"b-{num_clusters}.jsonl"
    if not a.exists():
        write_run(a, num_clusters=num_clusters, accuracy=0.7)
        write_run(b, num_clusters=num_clusters, accuracy=0.72)
    compare_s, compare_cpu_s = measure_s(lambda: compare(a, b, measure), repeats)
    scipy_s, scipy_cpu_s = measure_s(run_scipy(a, b, measure), repeats)
    return {
        "num_items": NUM_ITEMS,
        "num_clusters": num_clusters,
        "measure": measure,
        "num_draws": NUM_DRAWS,
        "compare_s": round(compare_s, 3),
        "scipy_s": round(scipy_s, 3),
        "compare_cpu_s": round(compare_cpu_s, 3),
        "scipy_cpu_s": round(scipy_cpu_s, 3),
        "ratio": round(compare_cpu_s / scipy_cpu_s, 2),
    }


def main() -> None:
    """Run every case, print a table and write the results if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'measure':12}{'clusters':>8}", *(f"{name:>11}" for name in NAMES), "  ratio")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for num_clusters in (10_000, 2_000):
            for measure in MEASURES:
                row = run_case(Path(folder), num_clusters, measure, arguments.repeats)
                rows.append(row)
                cells = (f"{row[name]:9.2f} s" for name in KEYS)
                print(f"{measure:12}{num_clusters:8}", *cells, f"{row['ratio']:7.2f}", flush=True)
    if arguments.json:
        write_json(arguments.json, {"machine": describe_machine(), "rows": rows})


if __name__ == "__main__":
    main()
