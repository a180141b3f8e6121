"""Attacks on a served run beside honest requests: right answers, ``/healthz`` and memory.

    groupwise new TASK --kind pictures --tiny && groupwise run TASK/task.yaml --out RUN
    python benchmarks/attacks.py RUN TASK/ROWS --requests 1000 --at-once 16 --json results.json

Starts ``groupwise serve RUN`` without a token and with the limits that it has by itself. A process
attacks it all the time: heads and bodies that never end, bodies and heads in crumbs, pictures of
many pixels, passes or tiles, texts that are far too long. Another asks about the rows of a file or
folder, compares every answer with that of ``groupwise predict``, and asks ``/healthz`` ten times a
second, each time by a new connection. A server that does nothing and that nobody attacks is asked
at the same times: what both wait for is the machine, not the attacks. Ends with 1 if an answer is
wrong or refused for good, if anything ended as 5xx, or if ``/healthz`` took a second.
"""

import argparse
import asyncio
import base64
import io
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import httpx2
import numpy as np
from PIL import Image

from groupwise.core import describe_machine, write_json
from groupwise.run.predict import open_run
from serving import (
    Load,
    ask_offline,
    ask_well,
    count_5xx,
    describe_load,
    make_parser,
    read_memory,
    start_server,
)

FORM = "Content-Type: multipart/form-data; boundary=x"
HEALTH_S = 1.0
WARM_UP_S = 3.0
_FORK = get_context("fork")  # nothing is imported again


def main() -> None:
    """Attack and ask, and print what came of it."""
    options = make_parser(__doc__, at_once=16).parse_args()
    run = open_run(options.run)
    requests, _ = run.task.list_requests(run.config, options.rows)
    asked = list(requests)[: options.different]
    expected = ask_offline(run, asked)
    with start_server(options.run) as (url, process):
        before = read_memory(process)["now"]
        with attack(url) as outcomes, serve_nothing() as idle_url:
            time.sleep(WARM_UP_S)
            seconds: dict[str, list[float]] = {url: [], idle_url: []}
            load = asyncio.run(ask_all(url, asked, expected, seconds, options))
        memory = {"before": before, **read_memory(process)}
    report = summarize(load, outcomes, options) | {"resident_mib": memory}
    report |= {"health": sum_up(seconds[url]), "idle_server": sum_up(seconds[idle_url])}
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if options.json:
        write_json(options.json, {**report, **describe_machine()})
    is_held = (
        report["num_5xx"] == report["num_wrong"] == 0 and len(load.seconds) == options.requests
    )
    sys.exit(0 if is_held and report["health"]["max_s"] < HEALTH_S else 1)


async def ask_all(
    url: str,
    requests: list[Any],
    expected: dict[str, Any],
    seconds: dict[str, list[float]],
    options: argparse.Namespace,
) -> Load:
    """Ask all, so many at once, and whether the servers live; note how long that took."""
    load, places = Load(), asyncio.Semaphore(options.at_once)
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:

        async def ask(number: int) -> None:
            async with places:
                request = requests[number % len(requests)]
                try:
                    await ask_well(client, request, expected[request.id], load)
                except httpx2.TransportError as error:
                    load.statuses[type(error).__name__] += 1

        probers = [asyncio.create_task(probe(*pair)) for pair in seconds.items()]
        await asyncio.gather(*map(ask, range(options.requests)))
        for prober in probers:
            prober.cancel()
    return load


async def probe(url: str, seconds: list[float]) -> None:
    """Ask again and again whether the server lives; what fails took for ever."""
    while True:
        start = time.perf_counter()
        try:
            async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
                found = await client.get("/healthz")
            lives = found.status_code == 200
        except httpx2.TransportError:
            lives = False
        seconds.append(time.perf_counter() - start if lives else 60.0)
        await asyncio.sleep(0.1)


def sum_up(seconds: list[float]) -> dict[str, float]:
    """Return how often something was asked, and how long it took."""
    p50, p99, longest = (round(float(one), 3) for one in np.percentile(seconds, [50, 99, 100]))
    return {"probes": len(seconds), "p50_s": p50, "p99_s": p99, "max_s": longest}


def summarize(load: Load, outcomes: dict[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """Return latencies and counts."""
    return {
        **describe_load(load, options),
        "num_wrong": len(load.wrong),
        "wrong": load.wrong[:5],
        "attackers": {kind: number for kind, (number, _) in ATTACKS.items()},
        "attacks": dict(sorted(outcomes.items())),
        "num_5xx": count_5xx(load.statuses + Counter(outcomes)),
    }


@contextmanager
def attack(url: str) -> Iterator[dict[str, int]]:
    """Attack from a process of its own; what came of it is there at the end."""
    outcomes: dict[str, int] = {}
    stop, found = _FORK.Event(), _FORK.Queue()
    attacker = _FORK.Process(target=_attack, args=(url, stop, found))
    attacker.start()
    try:
        yield outcomes
        stop.set()
        outcomes |= found.get(timeout=120)
        attacker.join(timeout=60)
    finally:
        attacker.kill()


@contextmanager
def serve_nothing() -> Iterator[str]:
    """Answer everything at once, from a process of its own."""
    ports = _FORK.Queue()
    server = _FORK.Process(target=_serve_nothing, args=(ports,))
    server.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=120)}"
    finally:
        server.kill()


def _serve_nothing(ports: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"HTTP" in await reader.readline():
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def _attack(url: str, stop: Any, found: Any) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found.put(dict(asyncio.run(_attack_until(url, stop))))


async def _attack_until(url: str, stop: Any) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    address = httpx2.URL(url)
    tasks = [
        asyncio.create_task(_repeat(kind, (address.host, address.port), outcomes))
        for kind, (number, _) in ATTACKS.items()
        for _ in range(number)
    ]
    await asyncio.to_thread(stop.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return outcomes


async def _repeat(kind: str, address: tuple[str, int], outcomes: Counter[str]) -> None:
    _, send = ATTACKS[kind]
    while True:
        try:
            reader, writer = await asyncio.open_connection(*address)
            try:
                outcome = await send(reader, writer)
            finally:
                writer.close()
        except OSError:
            outcome = "closed"
        outcomes[f"{kind}: {outcome}"] += 1
        await asyncio.sleep(0.2)


async def _send_slowly(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    head: bytes,
    piece: bytes,
    pause_s: float,
) -> str:
    """Send a piece now and then until there is an answer, which is the number of its status."""
    writer.write(head)
    while True:
        writer.write(piece)
        await writer.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                return _read_status(await reader.readline())


async def _send_whole(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, make: Callable[[], bytes]
) -> str:
    writer.write(make())
    await writer.drain()
    return _read_status(await reader.readline())


def _read_status(line: bytes) -> str:
    return line.split()[1].decode() if line else "closed"


def _write_head(*fields: str) -> bytes:
    return "\r\n".join(["POST /v1/predict HTTP/1.1", "Host: x", *fields, "", ""]).encode()


def _write_request(kind: str, body: bytes) -> bytes:
    return _write_head(f"Content-Type: {kind}", f"Content-Length: {len(body)}") + body


@cache
def _write_long_text() -> bytes:
    body = json.dumps({"row": {"report": "a valve " * 2**19}}).encode()
    return _write_request("application/json", body)


@cache
def _write_pictures(number: int) -> bytes:
    """Return a request with so many pictures of 98 megapixels, a few kilobytes each."""
    stream = io.BytesIO()
    Image.new("1", (9900, 9900)).save(stream, "PNG")
    held = base64.b64encode(stream.getvalue()).decode()
    body = json.dumps({"row": {}, "pictures": [held] * number}).encode()
    return _write_request("application/json", body)


@cache
def _write_passes() -> bytes:
    """Return a request with a JPEG of a megabyte that passes 20,000 times over its pixels."""
    stream = io.BytesIO()
    Image.new("RGB", (4800, 4800)).save(stream, "JPEG", progressive=True)
    head, mark, last = stream.getvalue().rpartition(b"\xff\xda")
    scan = mark + last[:-2]
    whole = head + scan * max(2**20 // len(scan), 1_000) + last[-2:]
    body = json.dumps({"row": {}, "pictures": [base64.b64encode(whole).decode()]}).encode()
    return _write_request("application/json", body)


Send = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]]
_MANY_LINES = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:b\r\n" * 12_000 + b"\r\n"
ATTACKS: dict[str, tuple[int, Send]] = {
    "half heads": (
        400,
        partial(_send_slowly, head=b"GET / HTTP/1.1\r\n", piece=b"A: b\r\n", pause_s=1.0),
    ),
    "slow uploads": (
        64,
        partial(
            _send_slowly,
            head=_write_head(FORM, "Content-Length: 1000000") + b"--x\r\n",
            piece=b"A",
            pause_s=1.0,
        ),
    ),
    "bodies in crumbs": (
        4,
        partial(
            _send_slowly,
            head=_write_head(FORM, "Transfer-Encoding: chunked"),
            piece=b"1\r\nx\r\n" * 2_000,
            pause_s=0.1,
        ),
    ),
    "heads in crumbs": (4, partial(_send_whole, make=lambda: _MANY_LINES)),
    "long texts": (2, partial(_send_whole, make=_write_long_text)),
    "16 pictures of 98 megapixels": (2, partial(_send_whole, make=partial(_write_pictures, 16))),
    "a picture of 98 megapixels": (2, partial(_send_whole, make=partial(_write_pictures, 1))),
    "a picture of many passes": (2, partial(_send_whole, make=_write_passes)),
}
"""How many attack at once in each way, and how."""


if __name__ == "__main__":
    main()
