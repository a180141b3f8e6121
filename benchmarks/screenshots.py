"""Nested cross-validation by session on the real screenshots: policies against the joint baseline.

    python benchmarks/screenshots.py rivals --work DIR --json benchmarks/results/screenshots.json
    python benchmarks/screenshots.py train --work DIR
    python benchmarks/screenshots.py measure --work DIR --json benchmarks/results/screenshots.json
    python benchmarks/screenshots.py test --work DIR --json benchmarks/results/screenshots.json

It needs ``groupwise[ocr]`` and the screenagent set (``GROUPWISE_DATA``). Each of folds 0 to 2 is
held out in turn; of two candidates, without and with the words of the screen in the prompt, the one
is chosen whose GRPO policy is right more often on validation sessions of the other two folds; a
tie goes to the one without. ``rivals`` measures what needs no policy, ``measure`` that and the
policies. ``test`` trains what was chosen most often on folds 0 to 2 and looks at fold 3, which the
file counts. Trainings are runs of the command line, much shorter than the configs say unless
``--full`` is given: an interrupted one goes on. The joint baseline stands there twice: as it is,
and told the words, too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.core import (
    Example,
    Picture,
    describe_machine,
    digest_json,
    load_config,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.baselines import predict_joint, predict_majority, predict_text_only
from groupwise.evaluation.metrics import compare_pairs
from groupwise.evaluation.predictions import Prediction, read_predictions, write_predictions
from groupwise.evaluation.statistics import clustered_ratio
from groupwise.judges import ReplyCache
from groupwise.models.identity import digest_base
from groupwise.run.asking import make_ask, open_policy
from groupwise.run.predict import FinishedRun, open_run
from groupwise.run.recipe import find_config, find_recipe
from groupwise.serving import Request
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.ocr import TextReader, describe_ocr
from groupwise_recipes.on_task.screens import prepare_screens
from groupwise_recipes.on_task.screenshots import load_screenshots
from groupwise_recipes.on_task.task import TASK
from groupwise_recipes.on_task.verified import predict_verified
from groupwise_recipes.on_task.verifier import VisualVerifier

ROOT = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "screenagent"
RESULTS = Path(__file__).parent / "results"
CANDIDATES = {"plain": "screenagent-tiny", "words": "screenagent-words"}
FOLDS, TEST_FOLD = (0, 1, 2), 3
USUAL = ("data.validation_share=0.2", "evaluation.num_latency_items=1")
REAL_ALONE = ("data.drawn.num_sessions=0", "data.drawn.join_real=false")
SHORTER = (*REAL_ALONE, "sft.pairs_per_screen=2", "sft.epochs=6")
EARLIER = {"screenagent.json": ("on_task-0", "looks"), "verifier.json": ("looks",)}
"""Where looks at fold 3 were counted before."""
POLICIES = ("sft", "grpo")
PAIRS = (
    ("joint", "chosen"),
    ("joint_words", "chosen"),
    ("visual_verifier", "chosen"),
    ("joint", "plain_grpo"),
    ("joint", "words_grpo"),
    ("joint_words", "words_grpo"),
    ("plain_grpo", "words_grpo"),
    ("words_sft", "words_grpo"),
    ("joint", "joint_words"),
    ("joint", "visual_verifier"),
)
NUM_SERVED = 20


def find_run(work: Path, candidate: str, fold: int, seed: int) -> Path:
    """Return the folder of the run that holds out a fold."""
    return work / f"{candidate}-{fold}-{seed}"


def list_settings(
    given: argparse.Namespace, candidate: str, fold: int, shorter: Sequence[str]
) -> list[str]:
    """Return what a candidate sets beside its config, to hold out a fold."""
    settings = [
        f"data.root={ROOT}",
        f"data.train_folds={[one for one in FOLDS if one != fold]}",
        f"data.test_folds=[{fold}]",
        f"seed={given.seed}",
        *USUAL,
        *shorter,
    ]
    if candidate == "words":
        settings.append(f"data.screen_words.cache={given.cache.absolute()}")
    return settings


def load_real(given: argparse.Namespace, fold: int) -> OnTaskConfig:
    """Return a config of the real screenshots alone that holds out a fold, with their words."""
    path = find_config(find_recipe("on_task"), CANDIDATES["words"])
    settings = list_settings(given, "words", fold, REAL_ALONE)
    return load_config(OnTaskConfig, path, overrides=settings)


def train(given: argparse.Namespace, candidate: str, fold: int) -> None:
    """Run a candidate on the other of folds 0 to 2."""
    run = find_run(given.work, candidate, fold, given.seed)
    command = [sys.executable, "-m", "groupwise.cli", "run", "on_task"]
    command += ["--config", CANDIDATES[candidate], "--until", "grpo", "--out", str(run)]
    for setting in list_settings(given, candidate, fold, () if given.full else SHORTER):
        command += ["--set", setting]
    subprocess.run([*command, "--resume"] if run.exists() else command, check=True)


def ask(run: FinishedRun, policy: str, split: str) -> list[Prediction]:
    """Return a policy's greedy answers to a split; what these weights were asked before is read."""
    found = run.find_policy(policy)
    examples = read_examples(run.folder / "prepare" / f"{split}.jsonl")
    asked = digest_json([digest_base(found), [example.id for example in examples]])
    path = run.folder / f"asked-{asked[:16]}.jsonl"
    if not path.is_file():
        answer = make_ask(open_policy(run.config, found), run.config)
        texts = answer(examples)
        rows = [{"id": e.id, "text": text} for e, text in zip(examples, texts, strict=True)]
        write_jsonl(path, rows)
    texts = {row["id"]: row["text"] for row in read_jsonl(path)}
    parser = run.task.parser(run.config)
    return [_predict(example, texts[example.id], parser, policy) for example in examples]


def _predict(example: Example, text: str, parser: Any, policy: str) -> Prediction:
    found = parser.parse(text)
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=policy,
        label=str(example.label),
        predicted=found.label,
        text=text,
        reason=found.reason,
        pictures=tuple(str(picture.path) for picture in example.pictures),
        fields=dict(example.fields),
    )


def name_alike(found: Sequence[Prediction], names: Mapping[str, str]) -> list[Prediction]:
    """Return the predictions of named policies under other names, their items known by content.

    Prompts of the two candidates differ, and so do the ids of their items. What is the same is the
    picture that was given, by whose digest the stored one is named, and the task.
    """
    return [
        replace(
            one,
            policy=names[one.policy],
            example_id=digest_json([Path(one.pictures[0]).stem, one.fields["task"]]),
            fields={},
        )
        for one in found
        if one.policy in names
    ]


def share_right(found: Sequence[Prediction]) -> float:
    """Return the share of items that are right."""
    return sum(one.is_correct for one in found) / len(found)


def answer_without_policies(given: argparse.Namespace, fold: int) -> list[Prediction]:
    """Return what the rivals say of a fold that was held out; what was said before is read."""
    folder = given.work / f"rivals-{fold}-{given.seed}"
    path = folder / "predictions.jsonl"
    if not path.is_file():
        config = load_real(given, fold)
        prepare_screens(config, folder)
        train, test = (read_examples(folder / f"{name}.jsonl") for name in ("train", "test"))
        told: dict[str, Any] = {"split": "test", "seed": given.seed}
        found = predict_majority(train, test, **told) + predict_text_only(train, test, **told)
        for name, read in (("joint", None), ("joint_words", TASK.read)):
            joint = predict_joint(train, test, suggest=TASK.joint_candidates, read=read, **told)
            found += [replace(one, policy=name) for one in joint]
        write_predictions(path, [*found, *verify(test, config, given.cache)])
    found = read_predictions(path)
    return name_alike(found, {one.policy: one.policy for one in found})


def verify(test: Sequence[Example], config: OnTaskConfig, words: Path) -> list[Prediction]:
    """Return what the verifier alone says, reading the pictures as they were given."""
    reader = TextReader(ReplyCache(words))
    verifier = VisualVerifier(lambda picture, share: reader.read(picture, top=share))
    given = find_given()
    shown = [one.with_pictures([given[one.pictures[0].path.stem]]) for one in test]
    answered = predict_verified(verifier, shown, config.answer.labels)
    stored = {one.id: tuple(str(picture.path) for picture in one.pictures) for one in test}
    return [replace(one, pictures=stored[one.example_id]) for one in answered]


@cache
def find_given() -> dict[str, Picture]:
    """Return the pictures as they were given, by the names under which they are stored."""
    return {one.picture.digest: one.picture for one in load_screenshots(ROOT).screens}


def measure_fold(
    given: argparse.Namespace, fold: int, candidates: Sequence[str]
) -> tuple[list[Prediction], dict[str, Any]]:
    """Return the predictions on a fold that was held out, and what was chosen without it."""
    runs = {name: open_run(find_run(given.work, name, fold, given.seed)) for name in candidates}
    inner = {name: share_right(ask(run, "grpo", "validation")) for name, run in runs.items()}
    chosen = max(inner, key=lambda name: inner[name])
    found = answer_without_policies(given, fold)
    for name, run in runs.items():
        for policy in POLICIES:
            found += name_alike(ask(run, policy, "test"), {policy: f"{name}_{policy}"})
    best = [replace(one, policy="chosen") for one in found if one.policy == f"{chosen}_grpo"]
    told = {"fold": fold, "chosen": chosen, "validation_accuracy": inner}
    told["num_validation_items"] = len(ask(runs[chosen], "grpo", "validation"))
    return found + best, told


def sum_up(found: Sequence[Prediction]) -> dict[str, Any]:
    """Return accuracies with intervals by session, and paired differences."""
    by_policy: dict[str, list[Prediction]] = {}
    for one in found:
        by_policy.setdefault(one.policy, []).append(one)
    pairs = [pair for pair in PAIRS if {*pair} <= by_policy.keys()]
    items = by_policy["joint"]
    return {
        "num_items": len(items),
        "num_sessions": len({one.cluster for one in items}),
        "items": digest_json(sorted([one.example_id, one.label] for one in items)),
        "accuracy": {name: _measure(rows) for name, rows in by_policy.items()},
        "above": {
            f"{one.policy_b} - {one.policy_a}": [
                *(one.difference, one.low, one.high, one.p_value_clustered, one.p_value_holm)
            ]
            for one in compare_pairs(found, pairs, split="test")
        },
    }


def _measure(rows: Sequence[Prediction]) -> list[float | None]:
    right = [float(one.is_correct) for one in rows]
    interval = clustered_ratio(right, [1.0] * len(rows), [one.cluster for one in rows])
    return [share_right(rows), *(interval or (None, None)), len(rows)]


def serve(run: FinishedRun) -> dict[str, Any]:
    """Return how many questions and answers of a server are those of the test, and CPU seconds."""
    test = read_examples(run.folder / "prepare" / "test.jsonl")[:NUM_SERVED]
    predictor, pictures = run.open_predictor("grpo"), find_given()
    questions: list[Example] = []
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for example in [test[0], *test]:  # the first one loads what reads
            given = pictures[example.pictures[0].path.stem].path
            request = Request(example.id, {"task": example.fields["task"]}, (given,))
            start_s = time.process_time()
            questions.append(predictor.make_question(request, Path(folder)))
            seconds.append(time.process_time() - start_s)
        del questions[0], seconds[0]
        texts = [answer.text for answer in predictor.answer(questions)]
    before = {one.example_id: one.text for one in ask(run, "grpo", "test")}
    return {
        "num_served": len(test),
        "same_questions": sum(a.prompt == b.prompt for a, b in zip(questions, test, strict=True)),
        "same_answers": sum(a == before[b.id] for a, b in zip(texts, test, strict=True)),
        "cpu_seconds": [
            round(x, 3) for x in (statistics.median(seconds), min(seconds), max(seconds))
        ],
    }


def measure_rivals(given: argparse.Namespace) -> dict[str, Any]:
    """Return what is found without a policy on folds 0 to 2, each held out once."""
    found = [one for fold in FOLDS for one in answer_without_policies(given, fold)]
    return {"rivals": sum_up(found)}


def measure_folds(given: argparse.Namespace) -> dict[str, Any]:
    """Return what was found on folds 0 to 2, each held out once."""
    found: list[Prediction] = []
    folds: list[dict[str, Any]] = []
    for fold in FOLDS:
        predictions, told = measure_fold(given, fold, given.candidates)
        found += predictions
        folds.append(told | {"accuracy": sum_up(predictions)["accuracy"]})
    return {
        "shorter": () if given.full else SHORTER,
        "candidates": {name: CANDIDATES[name] for name in given.candidates},
        "ocr": describe_ocr(),
        "folds": folds,
        "pooled": sum_up(found),
        "serving": {
            name: serve(open_run(find_run(given.work, name, FOLDS[0], given.seed)))
            for name in given.candidates
        },
    }


def look_at_test(given: argparse.Namespace, before: Mapping[str, Any]) -> dict[str, Any]:
    """Train what was chosen most often and return what it is worth on fold 3, a look counted."""
    counts = Counter(one["chosen"] for one in before["folds"])
    chosen = max(given.candidates, key=lambda name: counts[name])
    train(given, chosen, TEST_FOLD)
    predictions, told = measure_fold(given, TEST_FOLD, [chosen])
    return {"test": told | sum_up(predictions), "looks": before.get("looks", 0) + 1}


def count_earlier_looks() -> dict[str, int]:
    """Return the looks at fold 3 that other files of results have counted."""
    found: dict[str, int] = {}
    for name, path in EARLIER.items():
        value: Any = read_json(RESULTS / name, dict)
        for key in path:
            value = value[key]
        found[name] = value
    return found


def main() -> None:
    """Train, or measure and write; what the file has of the other part stays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["rivals", "train", "measure", "test"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("words.sqlite"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--full", action="store_true", help="train as long as the configs say")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.part == "train":
        for fold in FOLDS:
            for name in given.candidates:
                train(given, name, fold)
        return
    before = read_json(given.json, dict) if given.json and given.json.is_file() else {}
    if given.part == "rivals":
        found = measure_rivals(given)
    else:
        found = measure_folds(given) if given.part == "measure" else look_at_test(given, before)
    if given.json:
        command = f"python benchmarks/screenshots.py {given.part} --seed {given.seed}"
        command += f" --candidates {' '.join(given.candidates)}{' --full' * given.full}"
        origin = {**describe_machine(), "command": command, "seed": given.seed}
        looks = {"looks": 0, "looks_before": count_earlier_looks()}
        write_json(given.json, {**looks, **before, **origin, **found})


if __name__ == "__main__":
    main()
