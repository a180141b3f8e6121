"""What a round learns from one person's corrections, and what it costs everybody else.

    groupwise run on_task --config demo --set data.drawn.num_sessions=7600 \
        --set data.warmup_share=0.67 --set data.validation_share=0.018 \
        --set data.test_share=0.146 --out BASE
    python benchmarks/learning.py --run BASE --work FOLDER --json benchmarks/results/learning.json

A person who looks after a channel says so in every task, and for them screens of social networks
are work, whatever the rest of the task says: one activity changes side. Everybody else's screens
stay as they are. The served run has never seen such a task. Rounds go the library's own way:
answers and labels into the store, ``Learner``, certificate. ``reviewed``: the person goes through
the queue of the review page, says of every answer what is right, and stops at so many corrections.
``random``: as many labels, of answers drawn at random. ``corrections``: only what was wrong, what
teaches most first, and none of the answers that were right.
"""

import argparse
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    derive_seed,
    describe_machine,
    load_config,
    read_json,
    read_jsonl,
    write_json,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.baselines import predict_joint
from groupwise.evaluation.metrics import compare_pairs
from groupwise.evaluation.predictions import read_predictions
from groupwise.feedback import (
    FeedbackItem,
    FeedbackStore,
    GivenLabel,
    Shown,
    Sides,
    order_by_priority,
    order_for_people,
)
from groupwise.learning.certificate import CANDIDATE, SERVED, read_certificate
from groupwise.learning.loop import begin_loop
from groupwise.learning.rounds import Learner
from groupwise.learning.settings import LoopSettings
from groupwise.run.predict import answer_requests, open_run
from groupwise.run.steps import StepProgress
from groupwise.serving import Request
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_drawn.desktops.tasks import write_task
from groupwise_recipes.on_task.task import TASK

ACTIVITIES = ("coding", "spreadsheet", "video", "game", "social")
SIDE, SESSIONS, SCREENS, HELD_OUT = "social", 480, 2, 240
WORDS = {"en": "For the channel I look after: {}", "zh": "为我负责的账号：{}"}
ON, OFF = "on-task", "off-task"


@dataclass(frozen=True)
class Asked:
    """A person's screen and what is right for them.

    Attributes:
        request: that the served version is asked.
        session: of the screen.
        label: that the person says.
    """

    request: Request
    session: str
    label: str


def draw_profile(folder: Path, seed: int) -> list[Asked]:
    """Draw the person's screens; a little more than a quarter are of social networks."""
    found: list[Asked] = []
    for name, activities, num in (
        ("all", ACTIVITIES, SESSIONS * 3 // 4),
        ("social", (SIDE, "spreadsheet"), SESSIONS // 4),
    ):
        root = folder / f"drawn-{name}"
        write_desktops(
            root,
            num_sessions=num,
            screens_per_session=SCREENS,
            seed=derive_seed(seed, "profile", name),
            size=(448, 336),
            clutter=0.05,
            activities=activities,
        )
        for number, row in enumerate(read_jsonl(root / "index.jsonl")):
            rng = random.Random(derive_seed(seed, "tasks", name, number))
            others = [one for one in ACTIVITIES if one != row["activity"]]
            activity = row["activity"] if rng.random() < 0.5 else rng.choice(others)
            task = write_task(activity, rng=rng, language=row["language"])
            is_on = activity == row["activity"] or row["activity"] == SIDE
            words = {"task": WORDS[row["language"]].format(task[0].lower() + task[1:])}
            request = Request(f"{name}-{number}", words, (root / row["image"],))
            session = f"{name} {row['session']}"
            found.append(Asked(request, session, ON if is_on else OFF))
    return found


def answer(run: Path, asked: Sequence[Asked]) -> list[Shown]:
    """Return what the served version says."""
    predictor = open_run(run).open_predictor()
    answers = [
        one
        for start in range(0, len(asked), 64)
        for one in answer_requests(predictor, [a.request for a in asked[start : start + 64]])
    ]
    return [
        Shown(
            id=one.request.id,
            at_s=float(place),
            row=one.request.row,
            session=one.session,
            pictures=(),
            prediction=found.answer,
            confidence=found.confidence,
            version="served",
        )
        for place, (one, found) in enumerate(zip(asked, answers, strict=True))
    ]


def choose(
    pairs: Sequence[tuple[Asked, Shown]], num: int, how: str, seed: int
) -> list[tuple[Asked, Shown]]:
    """Return what the person labels in the sessions that teach, for so many corrections."""
    known = {shown.id: (one, shown) for one, shown in pairs}
    if how == "corrections":
        items = [
            FeedbackItem(shown, (GivenLabel("p", one.label, shown.at_s),)) for one, shown in pairs
        ]
        wrong = order_by_priority([item for item in items if item.is_correction])
        return [known[item.shown.id] for item in wrong[:num]]
    reviewed: list[tuple[Asked, Shown]] = []
    num_wrong = 0
    for shown in order_for_people([shown for _, shown in pairs]):
        if num_wrong == num:
            break
        reviewed.append(known[shown.id])
        num_wrong += known[shown.id][0].label != shown.prediction
    if how == "reviewed":
        return reviewed
    drawn = sorted(known, key=lambda name: derive_seed(seed, "random", name))
    return [known[name] for name in drawn[: len(reviewed)]]


def learn(arguments: Any, seed: int, num: int, how: str) -> dict[str, Any]:
    """Do a round and return what came of it."""
    run, work = arguments.run.resolve(), arguments.work / f"{how}-{num}-{seed}"
    shutil.rmtree(work, ignore_errors=True)
    known = {"seed": seed, "test_share": 0.5, "asked_per_session": SCREENS}
    settings = load_config(LoopSettings, known, overrides=arguments.set)
    sides = Sides(seed, settings.test_share)
    asked = draw_profile(work / "profile", seed)
    pairs = list(zip(asked, answer(run, asked), strict=True))
    teaching = [p for p in pairs if sides.find(p[0].session) == "teaches"]
    testing = [p for p in pairs if sides.find(p[0].session) == "tests"][:HELD_OUT]
    chosen = choose(teaching, num, how, seed)
    num_wrong = sum(one.label != shown.prediction for one, shown in chosen)
    assert how == "random" or num_wrong == num, f"only {num_wrong} of {num} corrections"
    store = FeedbackStore(work / "kept")
    for one, shown in [*chosen, *testing]:
        store.remember(shown, [one.request.pictures[0].read_bytes()])
        store.say(shown.id, "a person", one.label)
    loop = begin_loop(work / "loop", run, settings)
    with loop.lock():
        Learner(loop, store, report_progress=report).advance("train")
    store.close()
    labels = {"num_labels": len(chosen), "num_corrections": num_wrong}
    return {"seed": seed, "num": num, "how": how, **labels, **measure(loop.rounds[0])}


def report(progress: StepProgress) -> None:
    """Print how far a round is."""
    print(progress.describe(), file=sys.stderr)


def measure(folder: Path) -> dict[str, Any]:
    """Return gains with 95 % intervals by sessions, and the verdict.

    ``joint`` is the joint baseline, fitted to the very rows that the round was taught.
    """
    certificate = read_certificate(folder / "decide" / "certificate.json")
    row: dict[str, Any] = {"verdict": certificate.promotion.verdict}
    train = read_examples(folder / "prepare" / "train.jsonl")
    for name, step, file in (
        ("new", "decide", "decide/asked.jsonl"),
        ("old", "evaluate", "prepare/test.jsonl"),
    ):
        answers = read_predictions(folder / step / "predictions.jsonl")
        test = read_examples(folder / file)
        answers += predict_joint(train, test, split="test", seed=0, suggest=TASK.joint_candidates)
        found, joint = compare_pairs(answers, [(SERVED, CANDIDATE), ("joint", CANDIDATE)])
        row[name] = {
            "n": found.n,
            "sessions": found.num_clusters,
            "served": found.value_a,
            "candidate": found.value_b,
            "gain": found.difference,
            "low": found.low,
            "high": found.high,
            "joint": joint.value_a,
            "above_joint": [joint.difference, joint.low, joint.high],
        }
    return row


def find_round(work: Path, row: Mapping[str, Any]) -> Path:
    """Return the folder of the round that a row tells of."""
    return work / f"{row['how']}-{row['num']}-{row['seed']}" / "loop" / "rounds" / "001"


def list_cells(seeds: Sequence[int], nums: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Yield seed, number of labels and how they are chosen: first what the claim rests on."""
    nums = sorted(nums, key=lambda num: (num != 40, num))
    for num, how in [(40, "reviewed"), (40, "random"), (40, "corrections")]:
        yield from ((seed, num, how) for seed in seeds if num in nums)
    yield from ((seed, num, "reviewed") for num in nums if num != 40 for seed in seeds)


def main() -> None:
    """Do the rounds that a result file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--corrections", type=int, nargs="+", default=[10, 20, 40, 80])
    parser.add_argument("--set", action="append", default=[], help="of the loop: KEY=VALUE")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    told = read_json(arguments.json, dict) if arguments.json.is_file() else {}
    rows: list[dict[str, Any]] = told.get("rows", [])
    done = {(row["seed"], row["num"], row["how"]) for row in rows}
    for seed, num, how in list_cells(arguments.seeds, arguments.corrections):
        if (seed, num, how) not in done:
            row = learn(arguments, seed, num, how)
            print(row)
            rows.append(row)
            told |= {**describe_machine(), "settings": arguments.set, "rows": rows}
            write_json(arguments.json, told)


if __name__ == "__main__":
    main()
