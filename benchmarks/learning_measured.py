"""What more can be measured of rounds that ``learning.py`` has done and whose folders are there.

    python benchmarks/learning_measured.py stages --run BASE --work FOLDER --json FILE
    python benchmarks/learning_measured.py shares 0 0.3 0.5 0.7 1 --work FOLDER --json FILE

``stages`` asks the policies of the origin what the rounds were tested on. ``shares`` tries
``round.trained_share`` in rounds that were done with ``--set round.trained_share=1``. In the
committed file ``unaveraged`` has the rows of such rounds, with ``round.sft`` at GRPO's rate.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from groupwise.core import read_json, read_jsonl, write_json
from groupwise.data.examples import read_examples
from groupwise.evaluation.predictions import Prediction, read_predictions
from groupwise.learning.certificate import CANDIDATE, SERVED
from groupwise.learning.rows import ORIGIN
from groupwise.models.export import average_policy
from groupwise.run.asking import ask_policy, make_ask, open_policy
from groupwise.run.predict import FinishedRun, open_run
from groupwise.run.steps import StepContext
from learning import SIDE, find_round


def try_shares(folder: Path, shares: Sequence[float]) -> Iterator[dict[str, float]]:
    """Yield how often candidates between served and trained weights are right.

    Args:
        folder: of a round with ``trained_share`` 1.
        shares: of the way.
    """
    run = open_run(folder)
    config = run.config
    assert config.trained_share == 1, f"{folder} keeps no trained weights"
    splits = {
        "new": read_examples(folder / "decide" / "asked.jsonl"),
        "old": read_examples(folder / "prepare" / "test.jsonl"),
    }
    for share in shares:
        policy = average_policy(Path(run.find_policy(CANDIDATE)), config.model.base, share)
        row = {"trained_share": share, "sft_learning_rate": config.sft.learning_rate}
        for name, examples in splits.items():
            texts = make_ask(policy, config)(examples)
            said = run.task.read_answers(config, folder, examples, texts)
            right = [a.label == str(b.label) for a, b in zip(said, examples, strict=True)]
            row[name] = sum(right) / len(right)
        yield row


def measure_stages(
    run: Path, work: Path, rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what each stage is right of on the very same answers, as means over seeds.

    ``changed`` are answers about the activity that is on the other side for this person, ``kept``
    the rest of theirs. ``fewer_errors`` is the share of the served version's errors on ``new`` that
    a round has less, for each seed.
    """
    reviewed = [row for row in rows if row["how"] == "reviewed"]
    origin = open_run(run)
    found: dict[str, list[dict[str, float]]] = {}
    for row in sorted(reviewed, key=lambda row: (row["num"], row["seed"])):
        folder = find_round(work, row)
        old = read_predictions(folder / "evaluate" / "predictions.jsonl")
        new = read_predictions(folder / "decide" / "predictions.jsonl")
        measured = measure_slices(folder, [one for one in new if one.policy == CANDIDATE])
        measured["old"] = share_right([one for one in old if one.policy == CANDIDATE])
        served = share_right([one for one in new if one.policy == SERVED])
        measured["fewer_errors"] = 1 - (1 - measured["new"]) / (1 - served)
        found.setdefault(f"round of {row['num']}", []).append(measured)
        if row["num"] == 40:
            for name, one in ask_before(origin, folder):
                found.setdefault(name, []).append(one)
    return [
        {
            "stage": stage,
            "seeds": len(measured),
            **{name: fmean(one[name] for one in measured) for name in measured[0]},
            "each": [one.get("fewer_errors") for one in measured],
        }
        for stage, measured in found.items()
    ]


def ask_before(origin: FinishedRun, folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what the policies of the origin are right of, of the answers that a round is tested on.

    Args:
        origin: the run that the loop began with.
        folder: of the round.
    """
    asked = read_examples(folder / "decide" / "asked.jsonl")
    old = read_predictions(origin.folder / "evaluate" / "predictions.jsonl")
    context = StepContext(
        run=origin.folder,
        folder=folder,
        name="decide",
        is_resumed=True,
        uses=(),
        config=origin.config,
    )
    for name in ("prompt", "sft", "grpo"):
        policy = open_policy(origin.config, origin.find_policy(name))
        new = ask_policy(origin.task, policy, asked, context, name=name)
        of_others = share_right([one for one in old if one.policy == name])
        yield name, {**measure_slices(folder, new), "old": of_others}


def measure_slices(folder: Path, found: Sequence[Prediction]) -> dict[str, float]:
    """Return the share that is right of all, of the changed activity, and of the rest."""
    profile = folder.parents[2] / "profile"
    activities = {
        f"{name}-{number}": row["activity"]
        for name in ("all", "social")
        for number, row in enumerate(read_jsonl(profile / f"drawn-{name}" / "index.jsonl"))
    }
    sides = [activities[one.fields[ORIGIN]] == SIDE for one in found]
    pairs = list(zip(found, sides, strict=True))
    return {
        "new": share_right(found),
        "changed": share_right([one for one, is_changed in pairs if is_changed]),
        "kept": share_right([one for one, is_changed in pairs if not is_changed]),
    }


def share_right(found: Sequence[Prediction]) -> float:
    """Return the share of answers that are right."""
    return fmean(one.is_correct for one in found)


def main() -> None:
    """Measure, and write what was found beside what the file has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    stages, shares = (parts.add_parser(name) for name in ("stages", "shares"))
    stages.add_argument("--run", type=Path, required=True)
    shares.add_argument("shares", nargs="+", type=float)
    for part in (stages, shares):
        part.add_argument("--work", type=Path, required=True)
        part.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    told = read_json(given.json, dict)
    if given.part == "stages":
        told["stages"] = measure_stages(given.run, given.work, told["rows"])
    else:
        folders = [find_round(given.work, row) for row in told["rows"]]
        told["shares"] = [x for one in folders for x in try_shares(one, given.shares)]
    write_json(given.json, told)


if __name__ == "__main__":
    main()
