"""A server of screens whose version is swapped twice under load, while people correct it.

    groupwise run on_task --config demo --out RUN
    python benchmarks/serving_swaps.py RUN --screens 1000 --at-once 32 --json results.json

Makes a loop folder that serves one policy of the run after the other, starts ``groupwise serve`` on
it, and asks about the screens of the test split, many at once, while corrections come in and the
loop names another policy. Every answer is compared with what the version that it names says
without a server. Then the store is read: each correction that was acknowledged must be there once.
Ends with 1 if an answer is wrong or unnamed, the server has broken, or a correction is lost or
doubled.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from groupwise.cli.loop import PERSON_KEY_VARIABLE
from groupwise.core import Example, describe_machine, digest_file, write_json
from groupwise.data.examples import read_examples
from groupwise.feedback import FeedbackStore
from groupwise.run.predict import (
    FinishedRun,
    Served,
    answer_requests,
    name_version,
    open_run,
    write_served,
)
from groupwise.serving import Request
from serving import count_5xx, read_memory, start_server

POLICIES = ("sft", "grpo", "sft_control")
"""Served one after the other."""
NUM_PEOPLE = 20
OTHER = {"on-task": "off-task", "off-task": "on-task"}


@dataclass
class Seen:
    """What the askers saw.

    Attributes:
        answers: of screens, with the number of the screen.
        seconds: that each took, and whether a swap was under way.
        statuses: of all requests.
        corrections: acknowledged: answer, person, label.
        late: corrections of a version that was not served any more.
        swaps_s: how long each reload took.
    """

    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    seconds: list[tuple[float, bool]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    corrections: list[tuple[str, str, str]] = field(default_factory=list)
    late: int = 0
    swaps_s: list[float] = field(default_factory=list)


class Load:
    """Asks, corrects and swaps.

    Args:
        client: of the server.
        screens: that are asked about.
        versions: what is served, in turn.
        loop: the loop folder.
        options: of the command line.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        screens: list[Example],
        versions: list[Served],
        loop: Path,
        options: argparse.Namespace,
    ) -> None:
        self.client, self.screens, self.options = client, screens, options
        self.versions, self.loop, self.served = versions, loop, versions[0].version
        self.seen, self.is_swapping = Seen(), False

    async def run(self) -> Seen:
        """Ask about all screens, with the swaps at equal distances, and wait for everything."""
        places = asyncio.Semaphore(self.options.at_once)
        waiting: list[asyncio.Task[None]] = []

        num, num_corrections = self.options.screens, self.options.corrections

        async def ask(number: int) -> None:
            async with places:
                answer = await self.ask(number)
            if answer and number * num_corrections // num < (number + 1) * num_corrections // num:
                waiting.append(asyncio.create_task(self.correct(number, answer)))

        asked = [asyncio.create_task(ask(number)) for number in range(num)]
        for place, served in enumerate(self.versions[1:], start=1):
            while len(self.seen.answers) < num * place // len(self.versions):
                await asyncio.sleep(0.01)
            await self.swap(served)
        await asyncio.gather(*asked)
        await asyncio.gather(*waiting)
        return self.seen

    async def ask(self, number: int) -> dict[str, Any] | None:
        """Ask about a screen; None if there was no answer."""
        example = self.screens[number % len(self.screens)]
        content = example.pictures[0].path.read_bytes()
        data = {"task": str(example.fields["task"]), "session": example.cluster}
        start, was_swapping = time.perf_counter(), self.is_swapping
        reply = await self.client.post(
            "/v1/screens", files=[("picture", ("screen", content))], data=data
        )
        is_during = was_swapping or self.is_swapping
        self.seen.statuses[f"screens: {reply.status_code}"] += 1
        if reply.status_code != 200:
            return None
        self.seen.seconds.append((time.perf_counter() - start, is_during))
        self.seen.answers.append((number % len(self.screens), reply.json()))
        return reply.json()

    async def correct(self, number: int, answer: dict[str, Any]) -> None:
        """Say something else than an answer, once or twice, a while after it."""
        await asyncio.sleep(0.02 * (number % 100))
        label = OTHER.get(answer["label"], "on-task")
        person = f"person {number % NUM_PEOPLE}"
        body = {"answer_id": answer["answer_id"], "user": person, "label": label}
        for _ in range(1 + number % 2):
            reply = await self.client.post("/v1/feedback", json=body)
            self.seen.statuses[f"feedback: {reply.status_code}"] += 1
        if reply.status_code == 200:
            self.seen.corrections.append((answer["answer_id"], person, label))
            self.seen.late += answer["version"] != self.served

    async def swap(self, served: Served) -> None:
        """Let the loop name another version, and the server look there."""
        write_served(self.loop, served)
        self.is_swapping, start = True, time.perf_counter()
        reply = await self.client.post("/v1/reload")
        self.seen.swaps_s.append(time.perf_counter() - start)
        self.is_swapping = False
        self.seen.statuses[f"reload: {reply.status_code}"] += 1
        assert reply.json() == {"version": served.version, "is_new": True}, reply.text
        self.served = served.version


def main() -> None:
    """Run the load and print what came of it."""
    options = parse_options()
    run = open_run(options.run.absolute())
    screens = read_examples(run.folder / "prepare" / "test.jsonl")[: options.different]
    versions, expected = ask_alone(run, screens)
    os.environ[PERSON_KEY_VARIABLE] = "a secret of the benchmark"
    with tempfile.TemporaryDirectory() as name:
        loop, kept = Path(name) / "loop", Path(name) / "kept"
        write_served(loop, versions[0])
        settings = {"feedback.folder": kept, "max_waiting": 64}
        with start_server(loop, **settings) as (url, process):
            before = read_memory(process)["now"]
            start = time.perf_counter()
            seen = asyncio.run(load_server(url, screens, versions, loop, options))
            total_s = time.perf_counter() - start
            memory = {"before": before, **read_memory(process)}
        report = summarize(seen, options) | check_answers(seen, screens, expected)
        report |= check_store(kept, seen) | {"resident_mib": memory}
        report["screens_per_s"] = round(len(seen.answers) / total_s, 2)
    report["alone"] = compare_versions(expected)
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if options.json:
        write_json(options.json, {**report, **describe_machine()})
    sys.exit(0 if is_held(report, options) else 1)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--screens", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--corrections", type=int, default=300)
    parser.add_argument("--different", type=int, default=60, help="different screens")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def ask_alone(
    run: FinishedRun, screens: list[Example]
) -> tuple[list[Served], dict[str, list[tuple[Any, ...]]]]:
    """Return what is to be served, and label, confidence and reason of each screen by version."""
    asked = [
        Request(str(n), {"task": one.fields["task"]}, (one.pictures[0].path,))
        for n, one in enumerate(screens)
    ]
    versions: list[Served] = []
    expected: dict[str, list[tuple[Any, ...]]] = {}
    for policy in POLICIES:
        predictor = run.open_predictor(policy)
        versions.append(Served(run.folder, policy, name_version(predictor)))
        answers = [answer_requests(predictor, [one])[0] for one in asked]
        expected[versions[-1].version] = [(a.answer, a.confidence, a.reason) for a in answers]
    return versions, expected


async def load_server(
    url: str,
    screens: list[Example],
    versions: list[Served],
    loop: Path,
    options: argparse.Namespace,
) -> Seen:
    """Put the load on a server."""
    limits = httpx2.Limits(max_connections=4 * options.at_once)
    async with httpx2.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
        return await Load(client, screens, versions, loop, options).run()


def summarize(seen: Seen, options: argparse.Namespace) -> dict[str, Any]:
    """Return latencies and counts."""

    def list_percentiles(seconds: list[float]) -> dict[str, float | int]:
        p50, p95, p99 = (round(float(one), 3) for one in np.percentile(seconds, [50, 95, 99]))
        return {"answers": len(seconds), "p50_s": p50, "p95_s": p95, "p99_s": p99}

    during = [one for one, is_during in seen.seconds if is_during]
    return {
        "screens": options.screens,
        "at_once": options.at_once,
        "latency": list_percentiles([one for one, _ in seen.seconds]),
        "latency_during_swaps": list_percentiles(during) if during else None,
        "reloads_s": [round(one, 2) for one in seen.swaps_s],
        "statuses": dict(sorted(seen.statuses.items())),
        "num_5xx": count_5xx(seen.statuses),
    }


def check_answers(
    seen: Seen, screens: list[Example], expected: dict[str, list[tuple[Any, ...]]]
) -> dict[str, Any]:
    """Compare every answer with what its version says alone, and its digest with its picture."""
    digests = [digest_file(one.pictures[0].path) for one in screens]
    wrong: list[str] = []
    for number, answer in seen.answers:
        known = expected.get(answer["version"], [None] * len(screens))[number]
        given = (answer["label"], answer["confidence"], answer["reason"])
        is_named = answer["picture_digest"] == digests[number] and answer["answer_id"]
        if known is None or not is_named or not is_alike(given, known):
            wrong.append(f"screen {number}: {answer}, expected {known}")
    by_version = Counter(answer["version"] for _, answer in seen.answers)
    by_policy = dict(zip(POLICIES, (by_version[one] for one in expected), strict=True))
    return {"answers_by_policy": by_policy, "num_wrong": len(wrong), "wrong": wrong[:5]}


def is_alike(given: tuple[Any, ...], known: tuple[Any, ...]) -> bool:
    """Whether label and reason are the same, and the confidence but for rounding in batches."""
    if (given[0], given[2]) != (known[0], known[2]):
        return False
    if None in (given[1], known[1]):
        return given[1] is known[1]
    return abs(given[1] - known[1]) < 1e-4


def compare_versions(expected: dict[str, list[tuple[Any, ...]]]) -> dict[str, Any]:
    """Return how often two versions that follow each other can be told apart, and say a label."""
    rows = list(expected.values())
    pairs = list(pairwise(rows))
    return {
        "labelled": [sum(one[0] is not None for one in row) for row in rows],
        "told_apart": [
            sum(not is_alike(one, two) for one, two in zip(*pair, strict=True)) for pair in pairs
        ],
        "different_screens": len(rows[0]),
    }


def check_store(kept: Path, seen: Seen) -> dict[str, Any]:
    """Look for each acknowledged correction in the store, and for words that nobody said."""
    with sqlite3.connect(kept / "feedback.db") as connection:
        num_words = connection.execute("SELECT count(*) FROM words").fetchone()[0]
    store = FeedbackStore(kept)
    items = {item.shown.id: item for item in store.list_items()}
    num_answers = store.count_answers()
    store.close()
    versions = {answer["answer_id"]: answer["version"] for _, answer in seen.answers}
    found = [
        name
        for name, _, label in seen.corrections
        if name in items
        and items[name].label == label
        and len(items[name].labels) == 1
        and items[name].shown.version == versions[name]
    ]
    return {
        "corrections": len(seen.corrections),
        "corrections_after_their_version": seen.late,
        "corrections_found": len(found),
        "words_in_store": num_words,
        "answers_in_store": num_answers,
    }


def is_held(report: dict[str, Any], options: argparse.Namespace) -> bool:
    """Whether nothing was wrong, broken, lost or doubled."""
    counts = [report[name] for name in ("corrections", "corrections_found", "words_in_store")]
    answered = sum(report["answers_by_policy"].values())
    return (
        report["num_wrong"] == report["num_5xx"] == 0
        and answered == report["answers_in_store"] == options.screens
        and counts == [options.corrections] * 3
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
