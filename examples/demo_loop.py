"""The whole loop on a small scale: serve, correct on the page, learn, promote, see it.

    python examples/demo_loop.py runs/demo-loop

A small run of on_task is trained on too little, and served. Drawn screens are judged, somebody says
on the page (a real Chromium, by keys) what is right, and rounds learn from it until a candidate has
a certificate, or three looks have shown none. The same command goes on where it was.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from playwright.sync_api import sync_playwright

from groupwise.core import read_jsonl
from groupwise_drawn.desktops.sets import write_desktops

ACTIVITIES = ("coding", "video")
SIZE = (224, 168)
RUN = (
    *("data.drawn.num_sessions=60", "data.drawn.screens_per_session=2", "data.warmup_share=0.3"),
    *("data.validation_share=0.15", "data.test_share=0.25", "model.max_pixels=32768"),
    *(f"data.drawn.width={SIZE[0]}", f"data.drawn.height={SIZE[1]}"),
    *("data.drawn.activities=[coding, video]", "sft.epochs=1", "sft.batch_size=8"),
    *("grpo.epochs=1", "grpo.prompts_per_step=4", "grpo.group_size=2"),
    *("evaluation.num_latency_items=2", "evaluation.num_heldout_items=4"),
)
LOOP = ("test_share=0.5", "asked_per_session=2", "look_every=1")
LABELS = ("on-task", "off-task")
SESSIONS, LOOKS = 30, 3


def main() -> None:
    """Go the whole way."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo-loop")
    run, loop, kept = folder / "run", folder / "loop", folder / "kept"
    os.environ.setdefault("GROUPWISE_PERSON_KEY", "a key of the demo alone")
    call("run", "on_task", "--config", "demo", *give(RUN), "--out", run)
    learn = ("learn", run, "--out", loop, "--feedback", kept, *give(LOOP))
    kept.mkdir(exist_ok=True)
    call(*learn, "--dry-run")
    with serve(loop, kept) as url:
        for look in range(LOOKS):
            truth = ask(url, folder / f"screens{look}", seed=look)
            num = correct(url, truth)
            print(f"{num} answers were spoken of on the page")
            call(*learn, "--now", "--serve", url)
            if json.loads((loop / "served.json").read_text())["run"].startswith("rounds/"):
                break
        told = httpx2.get(f"{url}/v1/model").json()["version"]
    print(f"the server serves {told}")
    for certificate in sorted(loop.glob("rounds/*/decide/certificate.json")):
        call("verify", certificate, "--feedback", kept)


def give(settings: tuple[str, ...]) -> list[str]:
    """Return settings as words of the command line."""
    return [word for one in settings for word in ("--set", one)]


def call(*words: object) -> None:
    """Run a command of Groupwise, which must end well."""
    print("$ groupwise", *words, flush=True)
    subprocess.run([sys.executable, "-m", "groupwise.cli", *map(str, words)], check=True)


@contextmanager
def serve(loop: Path, kept: Path) -> Generator[str]:
    """Serve the loop, and give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", loop, *give((f"port={port}", f"feedback.folder={kept}"))]
    print("$ groupwise", *words, flush=True)
    server = subprocess.Popen([sys.executable, "-m", "groupwise.cli", *map(str, words)])
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_until_ready(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Return when the server takes requests."""
    while server.poll() is None:
        try:
            if httpx2.get(f"{url}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.2)
    raise SystemExit("the server ended")


def ask(url: str, folder: Path, *, seed: int) -> dict[str, str]:
    """Ask about drawn screens; return what is right, by the answer's id."""
    write_desktops(
        folder,
        num_sessions=SESSIONS,
        screens_per_session=2,
        seed=1000 + seed,
        size=SIZE,
        clutter=0.05,
        activities=ACTIVITIES,
    )
    rows = read_jsonl(folder / "index.jsonl")
    truth: dict[str, str] = {}
    for place, row in enumerate(rows):
        # Every second screen has the task of another activity.
        other = next(one for one in rows[place % 2 :] if one["activity"] != row["activity"])
        is_on = place % 2 == 0
        asked = {"task": (row if is_on else other)["task"], "session": f"{seed} {row['session']}"}
        files = {"pictures": (folder / row["image"]).open("rb")}
        reply = httpx2.post(
            f"{url}/v1/predict", data={"row": json.dumps(asked)}, files=files, timeout=60
        )
        truth[reply.raise_for_status().json()["answer_id"]] = LABELS[0 if is_on else 1]
    return truth


def correct(url: str, truth: dict[str, str]) -> int:
    """Say on the page what is right, by keys, until nothing waits; return how often."""
    num = 0
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, locale="en-GB")
        page.goto(f"{url}/review/")
        page.fill("#name", "Ada")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/review/")
        while page.locator("[name=answer]").count():
            asked = page.locator("[name=answer]").first.get_attribute("value") or ""
            page.keyboard.press("fj"[LABELS.index(truth[asked])])
            page.locator(f"[name=answer][value='{asked}']").first.wait_for(state="detached")
            num += 1
        browser.close()
    return num


def find_chromium() -> str | None:
    """Return where a browser is that the machine brings; None: Playwright's own."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium")


if __name__ == "__main__":
    main()
