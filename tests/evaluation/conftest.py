"""Predictions by the handful and a realistic run folder, for the tests of evaluation."""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from made_once import make_once
from PIL import Image, ImageDraw
from run_folders import POLICIES

from groupwise.core import append_jsonl, digest_file, write_json, write_jsonl
from groupwise.evaluation.metrics import compare_pairs, compute_metrics, write_metrics
from groupwise.evaluation.predictions import Prediction, write_policies, write_predictions

LABELS = ("on-task", "off-task")
TASKS = (
    ("Write the quarterly budget in a spreadsheet and check the totals", "en"),
    ("整理第三季度的预算表，核对每一行的合计", "zh"),
    ("Fix the failing unit test in the parser and push the branch", "en"),
    ("阅读论文并做笔记，准备周五的组会汇报", "zh"),
    ("Answer customer mails about delayed orders", "en"),
)
ACCURACIES = {
    "majority": 0.5,
    "text_only": 0.52,
    "picture_only": 0.5,
    "prompt": 0.58,
    "sft": 0.86,
    "sft_control": 0.89,
    "grpo": 0.95,
}


def _make_prediction(
    label: str = "on-task", predicted: str | None = "on-task", **named: Any
) -> Prediction:
    values: dict[str, Any] = {
        "example_id": "item",
        "cluster": "session",
        "split": "test",
        "policy": "grpo",
        "label": label,
        "predicted": predicted,
        "reason": "" if predicted else "no label",
        "text": predicted or "",
    }
    return Prediction(**{**values, **named})


def _make_table(rows: Sequence[tuple[str, str | None]], **named: Any) -> list[Prediction]:
    """Predictions from (truth, answer) rows; every item is a cluster of its own by default."""
    return [
        _make_prediction(truth, answer, example_id=f"i{n:04}", **{"cluster": f"g{n}", **named})
        for n, (truth, answer) in enumerate(rows)
    ]


@pytest.fixture
def make_prediction() -> Callable[..., Prediction]:
    return _make_prediction


@pytest.fixture
def make_table() -> Callable[..., list[Prediction]]:
    return _make_table


@pytest.fixture(scope="session")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run as the pipeline leaves it; tests must not change it."""
    return make_once("full_run", tmp_path_factory, lambda to: build_run(to / "demo")) / "demo"


def build_run(folder: Path, *, num_clusters: int = 40, num_steps: int = 120) -> Path:
    """Write every file a report reads, with plausible numbers from fixed seeds."""
    predictions = predict_all(folder, num_clusters)
    write_predictions(folder / "evaluate/predictions.jsonl", predictions)
    metrics = compute_metrics(predictions, labels=LABELS, slices=("difficulty", "language"))
    write_metrics(folder / "evaluate/metrics.json", metrics)
    pairs = [("prompt", "grpo"), ("sft", "grpo"), ("sft_control", "grpo"), ("prompt", "sft")]
    write_metrics(folder / "evaluate/comparisons.json", compare_pairs(predictions, pairs))
    write_policies(folder, POLICIES)
    write_training(folder, num_steps)
    write_json(folder / "audit/audit.json", AUDIT)
    write_json(folder / "manifest.json", MANIFEST)
    return folder


def predict_all(folder: Path, num_clusters: int) -> list[Prediction]:
    pictures = [draw_screen(folder / f"prepare/pictures/{n}.png", n) for n in range(num_clusters)]
    found: list[Prediction] = []
    for policy, accuracy in ACCURACIES.items():
        for item in range(num_clusters * 8):
            cluster = item // 8
            found.append(predict_item(policy, accuracy, item, pictures[cluster]))
    return found


def predict_item(policy: str, accuracy: float, item: int, picture: Path) -> Prediction:
    dice = random.Random(f"{policy} {item}")
    truth, other = LABELS if item % 2 else LABELS[::-1]
    is_hard = item % 5 == 0
    task, language = TASKS[item % len(TASKS)]
    is_right = dice.random() < accuracy - (0.12 if is_hard and accuracy > 0.6 else 0)
    answer: str | None = truth if is_right else other
    if policy == "majority":
        answer = "on-task"
    if policy == "prompt" and dice.random() < 0.09:
        answer = None
    sure = 0.5 + 0.5 * dice.betavariate(6, 2) if is_right else 0.5 + 0.5 * dice.betavariate(2, 2)
    leading = answer or truth
    text = answer or dice.choice(["", "on-task or off-task", "I am not sure."])
    return Prediction(
        example_id=f"{item:08x}" * 4,
        cluster=f"session-{item // 8:03}",
        split="test",
        policy=policy,
        label=truth,
        predicted=answer,
        reason="" if answer else "no single label",
        text=f"Screen: spreadsheet. Task: budget. {text}" if policy == "grpo" else text,
        probabilities={name: sure if name == leading else 1 - sure for name in LABELS},
        latency_s=None if policy in ("majority", "text_only") else dice.lognormvariate(-3, 0.3),
        pictures=(str(picture),),
        picture_digests=(digest_file(picture),),
        fields={
            "task": task,
            "language": language,
            "difficulty": "hard" if is_hard else "easy",
        },
    )


def draw_screen(path: Path, number: int) -> Path:
    """Draw something that looks like a window on a desktop."""
    dice = random.Random(number)
    screen = Image.new("RGB", (960, 600), (38 + number % 60, 60, 96))
    pen = ImageDraw.Draw(screen)
    pen.rectangle((60, 40, 900, 540), fill="white")
    pen.rectangle((60, 40, 900, 74), fill=(225, 228, 233))
    pen.text((76, 50), f"Budget {number}.xlsx - Spreadsheet", fill="black")
    for row in range(12):
        for column in range(6):
            left, top = 80 + column * 134, 100 + row * 35
            pen.rectangle((left, top, left + 134, top + 35), outline=(210, 214, 220))
            pen.text((left + 8, top + 10), str(dice.randint(10, 9999)), fill=(60, 60, 60))
    path.parent.mkdir(parents=True, exist_ok=True)
    screen.save(path)
    return path


def write_training(folder: Path, num_steps: int) -> None:
    dice = random.Random(7)
    for name, end in (("sft", 0.22), ("sft_control", 0.16)):
        rows = [
            {
                "step": step,
                "epoch": step / 40,
                "loss": end + 2.2 * math.exp(-step / 25) + dice.gauss(0, 0.04) * (1 + end),
                "learning_rate": 1e-4 * (1 - step / num_steps),
                "grad_norm": 1 + dice.random(),
                "tokens_per_s": 900 + dice.gauss(0, 40),
            }
            for step in range(1, num_steps + 1)
        ]
        write_jsonl(folder / name / "metrics.jsonl", rows)
    for step in range(1, num_steps + 1):
        append_jsonl_fast(folder / "grpo/metrics.jsonl", grpo_row(step, num_steps, dice))
        if step % 20 == 0:
            share = 0.84 + 0.11 * step / num_steps
            row = {"step": step, "heldout/accuracy": share, "heldout/n": 120}
            append_jsonl(folder / "grpo/metrics.jsonl", row)
    check = {"num_tokens": 212, "max_log_ratio": 3.1e-6, "max_kl": 4.4e-12}
    write_json(folder / "grpo/on_policy.json", check)


def append_jsonl_fast(path: Path, row: dict[str, Any]) -> None:
    """Append without flushing to the disk, which is slow and not what is tested here."""
    import json

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


def grpo_row(step: int, num_steps: int, dice: random.Random) -> dict[str, Any]:
    done = step / num_steps
    match = min(1.0, max(0.0, 0.8 + 0.15 * done + dice.gauss(0, 0.05)))
    form = min(1.0, max(0.0, 0.9 + 0.1 * done + dice.gauss(0, 0.02)))
    return {
        "step": step,
        "epoch": step / 40,
        "loss": dice.gauss(0, 0.02),
        "reward": 0.8 * match + 0.2 * form,
        "reward_std": 0.3 - 0.2 * done + dice.gauss(0, 0.02),
        "reward/label_match": match,
        "reward/label_match_std": 0.3,
        "reward/answer_format": form,
        "reward/answer_format_std": 0.1,
        "dead_groups": min(1.0, 0.45 + 0.4 * done + dice.gauss(0, 0.05)),
        "invalid": max(0.0, 0.1 * (1 - done) + dice.gauss(0, 0.01)),
        "kl": 0.06 * done + abs(dice.gauss(0, 0.006)),
        "entropy": 0.5 - 0.35 * done + dice.gauss(0, 0.03),
        "completion_length": 12 + dice.gauss(0, 0.4),
        "tokens_per_s": 420 + dice.gauss(0, 25),
        "learning_rate": 2e-5 * (1 - done),
        "grad_norm": 0.6 + 0.3 * dice.random(),
        "truncated": max(0.0, dice.gauss(0.02, 0.01)),
        "unscored": 0.0,
    }


AUDIT: dict[str, Any] = {
    "findings": [
        {
            "level": "warning",
            "name": "near_duplicate_pictures",
            "message": "3 pictures of test look nearly like one of train.",
            "count": 3,
            "where": ["session-003", "session-011", "session-020"],
        },
        {
            "level": "info",
            "name": "rows_dropped",
            "message": "2 of 962 rows were not used: 2 unreadable picture.",
            "count": 2,
            "where": ["line 7", "line 80"],
        },
    ],
    "splits": {
        name: {
            "num_examples": num,
            "num_clusters": num // 8,
            "num_pictures": num // 8,
            "labels": {"off-task": num // 2, "on-task": num // 2},
            "cluster_sizes": [8, 8, 8],
            "tokens": {"min": 210, "median": 236, "p90": 251, "p99": 264, "max": 270},
        }
        for name, num in (("train", 640), ("test", 320))
    },
    "num_rows": 962,
    "drops": {"total": 2, "counts": {"unreadable picture": 2}, "rows": []},
}
MANIFEST: dict[str, Any] = {
    "recipe": "on_task",
    "config": {
        "seed": 0,
        "data": {"root": None, "num_sessions": 120, "train_folds": [0, 1, 2]},
        "grpo": {"beta": 0.02, "group_size": 5, "learning_rate": 2e-5},
    },
    "config_digest": "6f1d2a90b4c85e37aa10cc43ef9b0d51",
    "inputs": {"screens": "17c3f0aa9be2d4c6b1e58f7720d9a34e"},
    "seed": 0,
    "started_at": "2026-03-02T09:14:07+00:00",
    "packages": {"groupwise": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0"},
    "python": "3.11.9",
    "git_revision": "3f9a1c0de5b7428896f0aa41c2b7d9e8f0123456",
    "hardware": {
        "machine": "x86_64",
        "system": "Linux",
        "num_cpus": 2,
        "memory_mib": 15990,
        "accelerators": [],
    },
    "command": ["groupwise", "run", "on_task", "--config", "demo"],
}
