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
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from groupwise.core import (
    derive_seed,
    describe_machine,
    load_config,
    read_json,
    read_jsonl,
    write_json,
)
from groupwise.data import read_examples
from groupwise.evaluation import Prediction, compare_pairs, predict_joint, read_predictions
from groupwise.feedback import (
    FeedbackItem,
    FeedbackStore,
    GivenLabel,
    Shown,
    Sides,
    order_by_priority,
    order_for_people,
)
from groupwise.flow import (
    FinishedRun,
    answer_requests,
    ask_policy,
    make_ask,
    open_policy,
    open_run,
)
from groupwise.learning import Learner, LoopSettings, begin_loop, read_certificate
from groupwise.learning.certificate import CANDIDATE, SERVED
from groupwise.learning.decision import ask_all
from groupwise.learning.rival_results import compare_rivals
from groupwise.learning.rows import ORIGIN
from groupwise.learning.settings import Rival
from groupwise.models import average_policy
from groupwise.pipeline import StepContext, StepProgress
from groupwise.serving import Request
from groupwise_drawn.desktops import write_desktops, write_task
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
        answers += predict_joint(train, test, split="test", seed=0, concepts=TASK.concepts)
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
    if certificate.rivals:
        row["rivals"] = [asdict(one) for one in certificate.rivals]
    return row


def ask_again(folder: Path, rivals: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """Return how rivals compare in a round that was done, all asked again beside each other.

    Args:
        folder: of the round.
        rivals: names.
        out: takes the answers; the round's folder stays as it is.
    """
    run = open_run(folder)
    out.mkdir(parents=True, exist_ok=True)
    context = StepContext(
        run=folder,
        folder=out,
        name="decide",
        is_resumed=True,
        uses=("prepare", "grpo"),
        config=run.config.model_copy(update={"rivals": tuple(rivals)}),
    )
    answers = ask_all(run.task, context, read_examples(folder / "decide" / "asked.jsonl"))
    return [asdict(one) for one in compare_rivals(answers, CANDIDATE)]


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


def measure_stages(arguments: Any, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each stage is right of on the very same answers, as means over seeds.

    ``changed`` are answers about the activity that is on the other side for this person, ``kept``
    the rest of theirs. ``fewer_errors`` is the share of the served version's errors on ``new`` that
    a round has less, for each seed.
    """
    reviewed = [row for row in rows if row["how"] == "reviewed"]
    origin = open_run(arguments.run)
    found: dict[str, list[dict[str, float]]] = {}
    for row in sorted(reviewed, key=lambda row: (row["num"], row["seed"])):
        folder = find_round(arguments.work, row)
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


def list_cells(seeds: Sequence[int], nums: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Yield seed, number of labels and how they are chosen: first what the claim rests on."""
    nums = sorted(nums, key=lambda num: (num != 40, num))
    for num, how in [(40, "reviewed"), (40, "random"), (40, "corrections")]:
        yield from ((seed, num, how) for seed in seeds if num in nums)
    yield from ((seed, num, "reviewed") for num in nums if num != 40 for seed in seeds)


def find_round(work: Path, row: Mapping[str, Any]) -> Path:
    """Return the folder of the round that a row tells of."""
    return work / f"{row['how']}-{row['num']}-{row['seed']}" / "loop" / "rounds" / "001"


def add_rivals(arguments: Any) -> None:
    """Measure the rounds that a result file has again, and ask rivals in them."""
    told = read_json(arguments.json, dict)
    for row in told["rows"]:
        folder = find_round(arguments.work, row)
        row |= measure(folder)
        row["rivals"] = ask_again(folder, arguments.again, folder.parents[2] / "rivals")
        print(row)
        write_json(arguments.json, told)


def main() -> None:
    """Do the rounds that a result file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--corrections", type=int, nargs="+", default=[10, 20, 40, 80])
    parser.add_argument("--set", action="append", default=[], help="of the loop: KEY=VALUE")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument(
        "--again",
        nargs="+",
        choices=get_args(Rival),
        help="only ask these rivals, in the rounds of --json whose folders are in --work",
    )
    parser.add_argument(
        "--shares",
        nargs="+",
        type=float,
        help="only try these as round.trained_share, in the rounds of --json, whose own is 1",
    )
    parser.add_argument("--stages", action="store_true", help="only measure the stages")
    arguments = parser.parse_args()
    if arguments.again:
        add_rivals(arguments)
        return
    if arguments.shares or arguments.stages:
        told = read_json(arguments.json, dict)
        if arguments.stages:
            told["stages"] = measure_stages(arguments, told["rows"])
        else:
            folders = [find_round(arguments.work, row) for row in told["rows"]]
            told["shares"] = [x for one in folders for x in try_shares(one, arguments.shares)]
        write_json(arguments.json, told)
        return
    rows: list[dict[str, Any]] = []
    if arguments.json.is_file():
        rows = read_json(arguments.json, dict)["rows"]
    done = {(row["seed"], row["num"], row["how"]) for row in rows}
    for seed, num, how in list_cells(arguments.seeds, arguments.corrections):
        if (seed, num, how) not in done:
            row = learn(arguments, seed, num, how)
            print(row)
            rows.append(row)
            told = {**describe_machine(), "settings": arguments.set, "rows": rows}
            write_json(arguments.json, told)


if __name__ == "__main__":
    main()
