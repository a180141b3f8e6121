"""Work scenarios: what a person at a picture could be working on, worded from its caption.

A caption that tells one kind of work, by on_task's vocabulary, gets a task of that kind; another
one gets a task about what it says. Every task is put to its own picture and to one other, so that
nothing in a task's words says which of the two it is. Captions are data: they are quoted, and
nothing in them is followed.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from groupwise.core import DataError, derive_seed
from groupwise.data.examples import DropLog
from groupwise_drawn.desktops.tasks import write_task
from groupwise_recipes.on_task.pairs import Pair, make_pairs
from groupwise_recipes.on_task.screenshots import Screenshot, read_screen
from groupwise_recipes.on_task.vocabulary import TermFinder, load_vocabularies

MAX_CHARACTERS = 400
"""Of a caption; longer ones are dropped."""
TEMPLATES = {
    "en": (
        "Find a picture of this: {}",
        "Write a short text about this: {}",
        "Prepare a slide about this: {}",
        "Look up what is known about this: {}",
    ),
    "zh": (
        "找一张这样的图片：{}",
        "写一段短文，内容是：{}",
        "做一张幻灯片，内容是：{}",
        "查一查：{}",
    ),
}
SOURCE = "template"
_SURROGATE = re.compile("[\ud800-\udfff\0]")


def keep_captions(rows: Sequence[Mapping[str, Any]], drops: DropLog) -> list[dict[str, Any]]:
    """Return the rows with captions that can be used, white space made single spaces."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        caption = " ".join((row["caption"] or "").split())
        problem = _find_problem(caption)
        if problem:
            drops.add(problem, row["file"])
        else:
            kept.append({**row, "caption": caption})
    return kept


def make_scenarios(
    rows: Sequence[Mapping[str, Any]], folder: Path, *, seed: int
) -> list[dict[str, Any]]:
    """Return for each captioned picture a row with its own task and one with another's."""
    screens = [_imagine(row, folder, seed) for row in rows]
    try:
        pairs = make_pairs(screens, seed=derive_seed(seed, "pairs"))
    except DataError as error:
        raise DataError(
            f"the captions are too much alike to make other tasks of ({error})",
            fix="give pictures of more folders, or of other work",
        ) from error
    by_digest = {row["digest"]: row for row in rows}
    return [_to_row(pair, by_digest[pair.screen.picture.digest]) for pair in pairs]


def find_activity(caption: str) -> str | None:
    """Return the one kind of work that a caption tells, or None if it tells none or several."""
    weighed = _open_finder().weigh(caption)
    return next(iter(weighed.numbers)) if len(weighed.numbers) == 1 else None


@lru_cache(maxsize=1)
def _open_finder() -> TermFinder:
    return TermFinder(load_vocabularies(), "tasks")


def _find_problem(caption: str) -> str | None:
    if not caption:
        return "no caption"
    if _SURROGATE.search(caption):
        return "caption is not Unicode"
    return "caption is too long" if len(caption) > MAX_CHARACTERS else None


def _imagine(row: Mapping[str, Any], folder: Path, seed: int) -> Screenshot:
    """Return the picture as the screen of a person whose task fits it."""
    caption = row["caption"]
    screen = read_screen({"task": caption}, folder / row["image"])
    activity = find_activity(caption)
    rng = random.Random(derive_seed(seed, "task", row["digest"]))
    if activity is None:
        task = rng.choice(TEMPLATES[screen.language]).format(caption)
    else:
        task = write_task(activity, rng=rng, language=screen.language)
    return replace(screen, task=task, activity=activity, session=row["session"])


def _to_row(pair: Pair, row: Mapping[str, Any]) -> dict[str, Any]:
    fits = pair.label == "on-task"
    return {
        **row,
        "task": pair.task,
        "scenario": {
            "source": SOURCE,
            "written_for": "this picture" if fits else "another picture",
            "activity": pair.task_activity,
            "session": pair.task_session,
        },
    }
