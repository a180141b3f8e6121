"""Writes sets of drawn desktops: pictures in session folders and an index of them.

Every session is drawn from a seed of its own, so a small set is the beginning of a larger one of
the same seed. Making on-task and off-task pairs of the rows is left to the loader.
"""

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from groupwise.core import DataError, derive_seed, write_jsonl
from groupwise_drawn.desktops.activities import ACTIVITIES, check_activity
from groupwise_drawn.desktops.scene import Screen, compose_screen
from groupwise_drawn.desktops.tasks import check_language, write_task
from groupwise_drawn.desktops.theme import pick_theme

__all__ = ["draw_desktop", "write_desktops"]

MIN_SIZE = (160, 120)
JPEG_QUALITY = 90
INDEX_NAME = "index.jsonl"
SCREENS_PER_PROCESS = 250
"""A process takes about a second to start; it pays from so many screens on."""
_SESSIONS_AT_ONCE = 20

Row = dict[str, str | int]


@dataclass(frozen=True)
class DesktopSet:
    """What ``write_session`` needs besides the session's number; see ``write_desktops``."""

    folder: Path
    screens_per_session: int
    seed: int
    size: tuple[int, int]
    clutter: float
    languages: tuple[str, ...]
    activities: tuple[str, ...]


def check_drawing(size: tuple[int, int], clutter: float) -> None:
    """Refuse sizes below ``MIN_SIZE`` and clutter outside [0, 1]."""
    if size[0] < MIN_SIZE[0] or size[1] < MIN_SIZE[1]:
        raise DataError(
            "desktop size is too small",
            got=f"{size[0]}x{size[1]}",
            expected=f"at least {MIN_SIZE[0]}x{MIN_SIZE[1]} pixels",
            fix="ask for a larger size",
        )
    if not 0.0 <= clutter <= 1.0:
        raise DataError(
            "clutter is out of range",
            got=clutter,
            expected="a number from 0 to 1",
            fix="choose one in that range",
        )


def draw_desktop(
    activity: str,
    *,
    rng: random.Random,
    size: tuple[int, int] = (1024, 768),
    clutter: float = 0.5,
) -> Image.Image:
    """Draw an RGB screenshot whose foremost window is of the activity.

    Args:
        activity: One of ``ACTIVITIES``.
        rng: Decides everything; the same state gives the same picture.
        size: Width and height in pixels, at least 160x120.
        clutter: In [0, 1]: how many other windows and popups there are, and how alike windows of
            different activities look.
    """
    check_activity(activity)
    check_drawing(size, clutter)
    theme = pick_theme(rng)
    return compose_screen(activity, theme=theme, rng=rng, size=size, clutter=clutter).image


def pick_activity(seed: int, session: int, activities: tuple[str, ...] = ACTIVITIES) -> str:
    """The activity of a session: each block of as many sessions holds every activity once."""
    block, place = divmod(session, len(activities))
    order = random.Random(derive_seed(seed, "activities", block)).sample(
        activities, len(activities)
    )
    return order[place]


def draw_session(
    activity: str, *, seed: int, num_screens: int, size: tuple[int, int], clutter: float
) -> list[Screen]:
    """Draw the screens of one session: one theme, content of their own."""
    theme = pick_theme(random.Random(derive_seed(seed, "theme")))
    return [
        compose_screen(
            activity,
            theme=theme,
            rng=random.Random(derive_seed(seed, "screen", index)),
            size=size,
            clutter=clutter,
        )
        for index in range(num_screens)
    ]


def check_set(num_sessions: int, screens_per_session: int, languages: tuple[str, ...]) -> None:
    """Refuse counts below one and sets without a language."""
    counts = {"num_sessions": num_sessions, "screens_per_session": screens_per_session}
    for name, count in counts.items():
        if count < 1:
            raise DataError(
                f"{name} is too small", got=count, expected="at least 1", fix="ask for more"
            )
    if not languages:
        raise DataError("no task language", expected="en, zh or both", fix="name at least one")
    for language in languages:
        check_language(language)


def write_desktops(
    folder: Path,
    *,
    num_sessions: int,
    screens_per_session: int,
    seed: int,
    size: tuple[int, int] = (640, 480),
    clutter: float = 0.5,
    languages: tuple[str, ...] = ("en", "zh"),
    activities: tuple[str, ...] = ACTIVITIES,
) -> Path:
    """Draw a set of sessions into a folder and return the path of its ``index.jsonl``.

    A row has image, session, task, language, activity, width, height and difficulty. Activities
    and languages are balanced over sessions. Large sets are drawn by several new processes, so a
    script that asks for one has ``if __name__ == "__main__"``. The index is written last and
    whole, so a folder with an index is complete; drawing again with the same arguments gives the
    same bytes.

    Args:
        folder: Made if it is missing; pictures go to ``images/<session>/<k>.jpg``.
        num_sessions: At least 1. N sessions are the first N of any larger set of the same seed.
        screens_per_session: At least 1.
        seed: Decides everything together with the session's number.
        size: Width and height in pixels, at least 160x120.
        clutter: In [0, 1], see ``draw_desktop``.
        languages: Of the task descriptions, taken in turn.
        activities: What the foremost windows show; at least one.
    """
    check_drawing(size, clutter)
    for activity in activities:
        check_activity(activity)
    check_set(num_sessions, screens_per_session, languages)
    (folder / INDEX_NAME).unlink(missing_ok=True)  # it may list pictures that change now
    wanted = DesktopSet(folder, screens_per_session, seed, size, clutter, languages, activities)
    rows: list[Row] = []
    num_processes = count_processes(num_sessions * screens_per_session)
    if num_processes == 1:
        for index in range(num_sessions):
            rows += write_session(index, wanted)
    else:
        with start_processes(num_processes) as pool:
            write = partial(write_session, wanted=wanted)
            for found in pool.map(write, range(num_sessions), chunksize=_SESSIONS_AT_ONCE):
                rows += found
    write_jsonl(folder / INDEX_NAME, rows)
    return folder / INDEX_NAME


def count_processes(num_screens: int) -> int:
    """The number of processes that draw so many screens: at most one for each core."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(num_cores or 1, num_screens // SCREENS_PER_PROCESS))


@contextmanager
def start_processes(num_processes: int) -> Generator[ProcessPoolExecutor]:
    """Give a pool of new processes; after an error or Ctrl-C what is left is not begun."""
    pool = ProcessPoolExecutor(
        num_processes,
        # Forked ones would inherit the threads and locks of libraries that are loaded here.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=follow_parent,
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def follow_parent() -> None:
    """Leave Ctrl-C to the process that started this one, and end when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def write_session(index: int, wanted: DesktopSet) -> list[Row]:
    """Draw and write the screens of one session; returns their rows of the index."""
    session, seed = f"session_{index:05d}", derive_seed(wanted.seed, "session", index)
    activity = pick_activity(wanted.seed, index, wanted.activities)
    # A block of sessions holds every activity once: each meets the languages in turn.
    turn = index // len(wanted.activities) + wanted.activities.index(activity)
    language = wanted.languages[turn % len(wanted.languages)]
    task = write_task(activity, rng=random.Random(derive_seed(seed, "task")), language=language)
    facts = {"session": session, "task": task, "language": language, "activity": activity}
    screens = draw_session(
        activity,
        seed=seed,
        num_screens=wanted.screens_per_session,
        size=wanted.size,
        clutter=wanted.clutter,
    )
    return [save_screen(wanted.folder, screen, facts, k) for k, screen in enumerate(screens)]


def save_screen(folder: Path, screen: Screen, facts: dict[str, str], number: int) -> Row:
    """Write one picture of a session as JPEG; returns its row of the index."""
    name = f"images/{facts['session']}/{number}.jpg"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    screen.image.save(path, quality=JPEG_QUALITY)
    width, height = screen.image.size
    return {
        "image": name,
        **facts,
        "width": width,
        "height": height,
        "difficulty": screen.difficulty,
    }
