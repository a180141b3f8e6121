"""How long one screen takes to be labelled over HTTP, on the GPU of this machine.

    python benchmarks/screens_gpu.py --json benchmarks/results/screens_gpu.json
    python benchmarks/screens_gpu.py --tiny

A model of the sizes of Qwen2.5-VL-3B with random weights stands behind
``POST /v1/screens`` of a real server on loopback, as ``on_task --config qwen2.5-vl-3b`` asks it,
and is asked about drawn screens of 1280 x 720 pixels, one by one and by several askers at once.
Random weights never end an answer: each has as many tokens as may be, the slowest case. With
``--tiny`` the model is tiny and a CPU will do: that shows that the script runs and nothing else.
"""

import argparse
import base64
import io
import json
import random
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import torch
import uvicorn
from grpo_gpu import JOBS, TINY_JOBS, build_policy, find_device

from groupwise.core import describe_machine, load_config, write_json
from groupwise.run.predict import PolicyPredictor
from groupwise.run.recipe import find_config, find_recipe
from groupwise.serving import Opened, ServeSettings
from groupwise.serving.app import build_app
from groupwise.serving.bench import Screens
from groupwise.serving.server import make_server_config
from groupwise_drawn.desktops.activities import ACTIVITIES
from groupwise_drawn.desktops.sets import draw_desktop
from groupwise_drawn.desktops.tasks import write_task

SIZE, NUM_WARM_UP = (1280, 720), 3
AIM_MS = 100.0


class Shelf:
    """Has one version.

    Args:
        predictor: that answers.
    """

    def __init__(self, predictor: PolicyPredictor) -> None:
        self._predictor = predictor

    def open(self) -> Opened:
        """Return it."""
        return Opened(self._predictor, "random weights")

    def find_version(self) -> str:
        """Return its name."""
        return "random weights"


def write_base(folder: Path, *, is_tiny: bool, dtype: str) -> None:
    """Write the model and its processor as a folder that ``from_pretrained`` loads."""
    job = (TINY_JOBS if is_tiny else JOBS)["image-3b"]
    model, processor = build_policy(job, device=find_device(), dtype=getattr(torch, dtype))
    model.unload().save_pretrained(folder)
    processor.save_pretrained(folder)


def open_predictor(base: Path, dtype: str) -> PolicyPredictor:
    """Return what ``serve`` would ask."""
    recipe = find_recipe("on_task")
    config: Any = load_config(
        recipe.load_config_type(),
        find_config(recipe, "qwen2.5-vl-3b"),
        overrides=[
            f"model.base={base}",
            f"model.dtype={dtype}",
            "rewards.visual_verifier=0",
            "visual_verifier.is_baseline=false",
        ],
    )
    return PolicyPredictor(recipe.task(), config, base)


@contextmanager
def serve(predictor: PolicyPredictor, folder: Path) -> Iterator[str]:
    """Give the address of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        settings = ServeSettings(port=free.getsockname()[1])
    app = build_app(Shelf(predictor), settings, folder=folder, screens=Screens())
    server = uvicorn.Server(make_server_config(app, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{settings.port}"
    while True:
        with suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/readyz").status_code == 200:
                break
        time.sleep(0.05)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(timeout=30)


def draw_bodies(num: int) -> list[dict[str, str]]:
    """Return requests about drawn screens."""
    rng, bodies = random.Random(0), list[dict[str, str]]()
    for _ in range(num):
        content = io.BytesIO()
        draw_desktop(rng.choice(ACTIVITIES), rng=rng, clutter=0.2, size=SIZE).save(content, "PNG")
        task = write_task(rng.choice(ACTIVITIES), rng=rng, language="en")
        bodies.append({"picture": base64.b64encode(content.getvalue()).decode(), "task": task})
    return bodies


def ask(url: str, bodies: Sequence[dict[str, str]], at_once: int) -> dict[str, Any]:
    """Return percentiles of the time of a request, in milliseconds."""
    client = httpx2.Client(base_url=url, timeout=120)

    def time_one(body: dict[str, str]) -> float:
        start = time.perf_counter()
        client.post("/v1/screens", json=body).raise_for_status()
        return (time.perf_counter() - start) * 1000

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(time_one, bodies[: NUM_WARM_UP * at_once]))
        start = time.perf_counter()
        taken = list(pool.map(time_one, bodies))
        total_s = time.perf_counter() - start
    p50, p99 = np.percentile(taken, [50, 99])
    return {
        "at_once": at_once,
        "num_screens": len(taken),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "screens_per_s": len(taken) / total_s,
    }


def main() -> None:
    """Ask, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--screens", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        base, uploads = Path(name, "base"), Path(name, "uploads")
        uploads.mkdir()
        write_base(base, is_tiny=options.tiny, dtype=options.dtype)
        with serve(open_predictor(base, options.dtype), uploads) as url:
            bodies = draw_bodies(options.screens)
            rows = [ask(url, bodies, at_once) for at_once in (1, 8)]
    report = {"aim_ms": AIM_MS, "is_tiny": options.tiny, "dtype": options.dtype, "rows": rows}
    print(json.dumps(report, indent=2))
    if options.json:
        write_json(options.json, {**report, **describe_machine()})


if __name__ == "__main__":
    main()
