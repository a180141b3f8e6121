"""A load on a served run: right answers, latencies and memory, beside calling it one by one.

    python benchmarks/serving.py RUN ROWS --requests 1000 --at-once 32 --json results.json

Starts ``groupwise serve RUN``, asks about the rows of a file or folder, many at once, with slow
askers, oversized bodies, broken pictures and askers who go away in between, and compares every
answer with that of ``groupwise predict``.
Ends with 1 if an answer is wrong or the server has broken.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil

from groupwise.core import describe_machine, write_json
from groupwise.run.predict import answer_requests, open_run

KINDS = ("slow", "oversized", "broken", "cancelled")
MAX_BODY_MIB = 8
SETTINGS = {"max_body_mib": MAX_BODY_MIB, "read_timeout_s": 3, "max_waiting": 64}


@dataclass
class Load:
    """What the askers saw."""

    seconds: list[float] = field(default_factory=list)
    total_s: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def main() -> None:
    """Run the load and print the table."""
    options = parse_options()
    run = open_run(options.run)
    requests, _ = run.task.list_requests(run.config, options.rows)
    asked = list(requests)[: options.different]
    start = time.perf_counter()
    expected = ask_offline(run, asked)
    alone_s = (time.perf_counter() - start) / len(asked)
    with start_server(options.run, **SETTINGS) as (url, process):
        before = read_memory(process)["now"]
        load = asyncio.run(ask_all(url, asked, expected, options))
        memory = {"before": before, **read_memory(process)}
        report = summarize(load, alone_s, options) | {"resident_mib": memory}
        healthy = httpx2.get(f"{url}/readyz", timeout=30).status_code == 200
    report |= {"wrong": load.wrong[:5], "num_wrong": len(load.wrong), "healthy": healthy}
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if options.json:
        write_json(options.json, {**report, **describe_machine()})
    sys.exit(0 if healthy and not load.wrong and report["num_5xx"] == 0 else 1)


def ask_offline(run: Any, requests: list[Any]) -> dict[str, Any]:
    """Return answer, reason and confidence of each request, asked one by one without a server."""
    predictor = run.open_predictor()
    answers = [answer_requests(predictor, [request])[0] for request in requests]
    found = [(answer.answer, answer.reason, answer.confidence) for answer in answers]
    return dict(zip([request.id for request in requests], found, strict=True))


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__, at_once=32)
    parser.add_argument("--odd", type=int, default=40, help="odd askers of each kind")
    return parser.parse_args()


def make_parser(description: str | None, *, at_once: int) -> argparse.ArgumentParser:
    """Return what reads the command line of a load on a run."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("run", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=at_once)
    parser.add_argument("--different", type=int, default=60, help="different rows to ask about")
    parser.add_argument("--json", type=Path)
    return parser


@contextmanager
def start_server(run: Path, **settings: float) -> Iterator[tuple[str, subprocess.Popen]]:
    """Serve a run on a free port of loopback; it is ended by its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings["port"] = port
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "groupwise.cli", "serve", str(run), *given]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            with suppress(httpx2.TransportError):
                if httpx2.get(f"{url}/readyz").status_code == 200:
                    break
            time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        process.wait(timeout=60)


async def ask_all(
    url: str, requests: list[Any], expected: dict[str, Any], options: argparse.Namespace
) -> Load:
    """Ask all, so many at once, ordinary and odd askers in a random order."""
    load, places = Load(), asyncio.Semaphore(options.at_once)
    rng = random.Random(0)
    kinds = ["ordinary"] * options.requests + [kind for kind in KINDS for _ in range(options.odd)]
    rng.shuffle(kinds)
    limits = httpx2.Limits(max_connections=2 * options.at_once)
    start = time.perf_counter()
    async with httpx2.AsyncClient(base_url=url, timeout=300, limits=limits) as client:

        async def ask(number: int, kind: str) -> None:
            async with places:
                request = requests[number % len(requests)]
                if kind == "ordinary":
                    await ask_well(client, request, expected[request.id], load)
                else:
                    await ask_oddly(client, kind, request, load)

        await asyncio.gather(*(ask(number, kind) for number, kind in enumerate(kinds)))
    load.total_s = time.perf_counter() - start
    return load


async def ask_well(client: httpx2.AsyncClient, request: Any, expected: Any, load: Load) -> None:
    """Ask until the request is taken, and compare its answer."""
    files = [("pictures", (path.name, path.read_bytes())) for path in request.pictures]
    while True:
        start = time.perf_counter()
        form = {"row": json.dumps(dict(request.row)), "id": request.id[:200]}
        answer = await client.post("/v1/predict", files=files, data=form)
        load.statuses[str(answer.status_code)] += 1
        if answer.status_code != 429:
            break
        await asyncio.sleep(0.2)
    load.seconds.append(time.perf_counter() - start)
    found = answer.json()
    given = (found.get("answer"), found.get("reason"))
    is_close = found.get("confidence") == expected[2] or (
        None not in (found.get("confidence"), expected[2])
        and abs(found["confidence"] - expected[2]) < 1e-4
    )
    if given != expected[:2] or not is_close:
        load.wrong.append(f"{request.id}: {found}, expected {expected}")


async def ask_oddly(client: httpx2.AsyncClient, kind: str, request: Any, load: Load) -> None:
    """Ask in one of the ways in which askers go wrong."""
    pictures = [path.read_bytes() for path in request.pictures]
    if kind == "slow":
        load.statuses[f"slow: {await ask_slowly(client.base_url)}"] += 1
        return
    if kind == "oversized":
        pictures.append(bytes((MAX_BODY_MIB + 1) * 2**20))
    elif kind == "broken":
        pictures[0] = pictures[0][: len(pictures[0]) // 2]
    files = [("pictures", (str(number), content)) for number, content in enumerate(pictures)]
    call = client.post("/v1/predict", files=files, data={"row": json.dumps(dict(request.row))})
    try:
        answer = await asyncio.wait_for(call, 0.05 if kind == "cancelled" else None)
        load.statuses[f"{kind}: {answer.status_code}"] += 1
    except TimeoutError:
        load.statuses[f"{kind}: gone"] += 1
    except httpx2.TransportError:
        load.statuses[f"{kind}: closed"] += 1


async def ask_slowly(url: httpx2.URL) -> str:
    """Send half a request and wait; return the status line's number."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = "POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n"
    writer.write(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode())
    line = (await reader.readline()).split()
    writer.close()
    return line[1].decode() if len(line) > 1 else "closed"


def summarize(load: Load, alone_s: float, options: argparse.Namespace) -> dict[str, Any]:
    """Return latencies, rates and counts."""
    return {
        **describe_load(load, options),
        "requests_per_s": round(len(load.seconds) / load.total_s, 2),
        "one_by_one_requests_per_s": round(1 / alone_s, 2),
        "num_5xx": count_5xx(load.statuses),
    }


def describe_load(load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Return latencies and statuses of the answers."""
    p50, p95, p99 = (round(float(one), 3) for one in np.percentile(load.seconds, [50, 95, 99]))
    return {
        "requests": len(load.seconds),
        "at_once": options.at_once,
        "p50_s": p50,
        "p95_s": p95,
        "p99_s": p99,
        "statuses": dict(sorted(load.statuses.items())),
    }


def count_5xx(statuses: Mapping[str, int]) -> int:
    """Return how many ended with a status of 500 or above, which stands last in each name."""
    return sum(number for name, number in statuses.items() if name.split()[-1].startswith("5"))


def read_memory(process: subprocess.Popen) -> dict[str, float]:
    """Return the server's resident memory, now and at its highest."""
    now = psutil.Process(process.pid).memory_info().rss / 2**20
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {"now": round(now), "peak": round(int(peak.split()[1]) / 1024)}


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
