"""Takes the pictures of the review page in the documentation, with drawn screens.

python docs/hooks/review_page.py docs/images

``CHROMIUM`` names the browser where it is not called ``chromium``.
"""

import io
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount

from groupwise.feedback import FeedbackStore, Shown
from groupwise.serving import ServeSettings
from groupwise.serving.feedback import Desk
from groupwise.serving.meters import Meters
from groupwise.serving.review import make_review
from groupwise_drawn.desktops.activities import ACTIVITIES
from groupwise_drawn.desktops.sets import draw_desktop
from groupwise_drawn.desktops.tasks import write_task

LABELS = ("on-task", "off-task")
SIZE = {"width": 1280, "height": 800}


def fill(store: FeedbackStore, language: str) -> None:
    """Keep twelve answers about drawn screens."""
    rng = random.Random(7)
    for number in range(12):
        seen, meant = rng.choice(ACTIVITIES), rng.choice(ACTIVITIES)
        content = io.BytesIO()
        draw_desktop(seen, rng=rng, clutter=0.2).save(content, "PNG")
        shown = Shown(
            id=f"answer{number}",
            at_s=float(number),
            row={"task": write_task(meant, rng=rng, language=language), "session": f"{number}"},
            session=f"{number}",
            pictures=(),
            prediction=rng.choice(LABELS),
            confidence=0.55 + number / 30,
            version="drawn, no model",
        )
        store.remember(shown, [content.getvalue()])


@contextmanager
def serve(folder: Path, language: str) -> Iterator[str]:
    """Give the address of the page."""
    store = FeedbackStore(folder)
    fill(store, language)
    desk = Desk(store, key=b"of a picture alone")
    review = make_review(desk, LABELS, ServeSettings(), Meters())
    app = Starlette(routes=[Mount("/review", review)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    [socket] = server.servers[0].sockets
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/review/"
    server.should_exit = True
    thread.join()
    desk.close()


def take(page: Page, url: str, path: Path) -> None:
    """Log in, answer five, and take a picture of what is asked next."""
    page.goto(url)
    page.fill("#name", "Ada")
    page.keyboard.press("Enter")
    page.wait_for_url(url)
    for key in "fjffj":
        asked = page.locator("[name=answer]").first.get_attribute("value")
        page.keyboard.press(key)
        page.locator(f"[name=answer][value='{asked}']").first.wait_for(state="detached")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=path)


def main() -> None:
    """Take one picture for each language."""
    folder = Path(sys.argv[1])
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for language, locale in (("en", "en-GB"), ("zh", "zh-CN")):
            with tempfile.TemporaryDirectory() as kept, serve(Path(kept), language) as url:
                page = browser.new_page(viewport=SIZE, locale=locale)  # pyright: ignore[reportArgumentType]
                take(page, url, folder / f"review-{language}.png")
        browser.close()


if __name__ == "__main__":
    main()
