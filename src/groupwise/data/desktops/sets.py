"""Writes sets of drawn desktops: pictures in session folders and an index of them.

Every session is drawn from a seed of its own, so a small set is the beginning of a larger one of
the same seed. Making on-task and off-task pairs of the rows is left to the loader.
"""

import hashlib
import json
import os
import random
import tempfile
from pathlib import Path

from PIL import Image

from groupwise.core import DataError

from .activities import ACTIVITIES, check_activity
from .scene import Screen, compose_screen
from .tasks import write_task
from .theme import pick_theme

__all__ = ["draw_desktop", "write_desktops"]

MIN_SIZE = (160, 120)
JPEG_QUALITY = 90


def check_drawing(size: tuple[int, int], clutter: float) -> None:
    """Refuse sizes below ``MIN_SIZE`` and clutter outside [0, 1].

    Raises:
        DataError: One of them is out of its range.
    """
    if size[0] < MIN_SIZE[0] or size[1] < MIN_SIZE[1]:
        raise DataError(f"desktop size {size} is too small, expected at least {MIN_SIZE} pixels")
    if not 0.0 <= clutter <= 1.0:
        raise DataError(f"clutter {clutter} is out of range, expected a number from 0 to 1")


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

    Raises:
        DataError: Unknown activity, too small a size or clutter out of range.
    """
    check_activity(activity)
    check_drawing(size, clutter)
    theme = pick_theme(rng)
    return compose_screen(activity, theme=theme, rng=rng, size=size, clutter=clutter).image


def derive_seed(seed: int, *parts: int | str) -> int:
    """A 64-bit seed that depends on every part and on nothing else."""
    text = json.dumps([seed, *parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def pick_activity(seed: int, session: int) -> str:
    """The activity of a session: each block of 14 sessions holds every activity once."""
    block, place = divmod(session, len(ACTIVITIES))
    order = random.Random(derive_seed(seed, "activities", block)).sample(
        ACTIVITIES, len(ACTIVITIES)
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


def save_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_set(num_sessions: int, screens_per_session: int, languages: tuple[str, ...]) -> None:
    """Refuse counts below one and sets without a language.

    Raises:
        DataError: One of them is out of its range.
    """
    counts = {"num_sessions": num_sessions, "screens_per_session": screens_per_session}
    for name, count in counts.items():
        if count < 1:
            raise DataError(f"{name} is {count}, expected at least 1")
    if not languages:
        raise DataError("languages is empty, expected at least one of: en, zh")


def write_desktops(
    folder: Path,
    *,
    num_sessions: int,
    screens_per_session: int,
    seed: int,
    size: tuple[int, int] = (640, 480),
    clutter: float = 0.5,
    languages: tuple[str, ...] = ("en", "zh"),
) -> Path:
    """Draw a set of sessions into a folder and return the path of its ``index.jsonl``.

    A row has image, session, task, language, activity, width, height and difficulty. Activities
    and languages are balanced over sessions. The index is written last and whole, so a folder
    with an index is complete; drawing again with the same arguments gives the same bytes.

    Args:
        folder: Made if it is missing; pictures go to ``images/<session>/<k>.jpg``.
        num_sessions: At least 1. N sessions are the first N of any larger set of the same seed.
        screens_per_session: At least 1.
        seed: Decides everything together with the session's number.
        size: Width and height in pixels, at least 160x120.
        clutter: In [0, 1], see ``draw_desktop``.
        languages: Of the task descriptions, taken in turn.

    Raises:
        DataError: An argument is out of its range or a language is unknown.
    """
    check_drawing(size, clutter)
    check_set(num_sessions, screens_per_session, languages)
    rows: list[dict[str, str | int]] = []
    for index in range(num_sessions):
        session, session_seed = f"session_{index:05d}", derive_seed(seed, "session", index)
        activity = pick_activity(seed, index)
        # Blocks of 14 hold every activity, so turning by block and place mixes both.
        language = languages[(index + index // len(ACTIVITIES)) % len(languages)]
        task = write_task(
            activity, rng=random.Random(derive_seed(session_seed, "task")), language=language
        )
        screens = draw_session(
            activity, seed=session_seed, num_screens=screens_per_session, size=size, clutter=clutter
        )
        for number, screen in enumerate(screens):
            image = f"images/{session}/{number}.jpg"
            save_picture(folder / image, screen.image)
            rows.append(
                {
                    "image": image,
                    "session": session,
                    "task": task,
                    "language": language,
                    "activity": activity,
                    "width": size[0],
                    "height": size[1],
                    "difficulty": screen.difficulty,
                }
            )
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    save_atomically(folder / "index.jsonl", text.encode())
    return folder / "index.jsonl"


def save_picture(path: Path, image: Image.Image) -> None:
    """Write a picture as JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=JPEG_QUALITY)
