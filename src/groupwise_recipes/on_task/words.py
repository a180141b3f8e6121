"""The words at the top of a screen, which stand in the prompt.

They are read in the picture as it comes, before it is stored smaller, and by one function for
training, for other labelled data and for what a server is sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.core import DataError, RunError, read_json, write_json
from groupwise.judges import ReplyCache
from groupwise_recipes.on_task.config import READABLE_PIXELS, OnTaskConfig, ScreenWordsSettings
from groupwise_recipes.on_task.ocr import TextReader, describe_ocr
from groupwise_recipes.on_task.screenshots import LoadedScreens, Screenshot
from groupwise_recipes.on_task.verifier import TITLE_SHARE

FILE = "words.json"
"""In the folder of the step that reads: what read the words."""
AddWords = Callable[[Screenshot], Screenshot]
"""Returns a screen with its words.

Raises:
    DataError: if they cannot be read, or the picture is too small for words.
"""


def describe_reader() -> Mapping[str, Any]:
    """Return what decides which words are read on a screen, beside settings, as JSON values."""
    return {**describe_ocr(), "top": TITLE_SHARE}


def open_words(settings: ScreenWordsSettings | None, folder: Path | None = None) -> AddWords:
    """Return what reads the words of screens; without settings it leaves them as they are."""
    if settings is None:
        return lambda screen: screen
    reader = _open_server_reader() if folder is None else _open_reader(settings, folder)
    return lambda screen: replace(screen, words=_read(reader, screen, settings.num_characters))


def add_words(loaded: LoadedScreens, config: OnTaskConfig, folder: Path) -> LoadedScreens:
    """Return the screens with their words; those without readable pictures are dropped."""
    if config.data.screen_words is None:
        return loaded
    add = open_words(config.data.screen_words, folder)
    known: dict[str, str | None] = {}
    screens: list[Screenshot] = []
    for screen in loaded.screens:
        try:
            if screen.picture.digest not in known:
                known[screen.picture.digest] = add(screen).words
            screens.append(replace(screen, words=known[screen.picture.digest]))
        except DataError as error:
            loaded.drops.add("its words cannot be read", f"{screen.picture.path} ({error})")
    if not screens:
        raise DataError("no screen has words that can be read", got=loaded.drops.counts)
    return replace(loaded, screens=tuple(screens))


def write_reader(config: OnTaskConfig, folder: Path) -> None:
    """Write down what read the words of a run, if its prompts have them."""
    if config.data.screen_words is not None:
        write_json(folder / FILE, describe_reader())


def check_reader(config: OnTaskConfig, folder: Path) -> None:
    """Refuse to ask new questions whose words would be read otherwise than those of a run."""
    if config.data.screen_words is None:
        return
    wanted, here = read_json(folder / FILE, dict), dict(describe_reader())
    names = [name for name in sorted({*wanted, *here}) if wanted.get(name) != here.get(name)]
    if names:
        raise RunError(
            "the words on screens would be read otherwise than in training",
            got=", ".join(f"{name} {here.get(name)}" for name in names),
            expected=", ".join(f"{name} {wanted.get(name)}" for name in names),
            fix="install what the run was made with",
        )


def shorten(text: str, num_characters: int) -> str:
    """Return a text in one line without double quotes, so that it cannot end a quotation."""
    return " ".join(text.replace('"', "'").split())[:num_characters].rstrip()


def _open_reader(settings: ScreenWordsSettings, folder: Path) -> TextReader:
    path = settings.cache or folder / "words.sqlite"
    return TextReader(ReplyCache(path, max_mib=256))


@cache
def _open_server_reader() -> TextReader:
    """Return a reader for all requests of this process: it takes seconds to load."""
    return TextReader()


def _read(reader: TextReader, screen: Screenshot, num_characters: int) -> str:
    if screen.width * screen.height < READABLE_PIXELS:
        raise DataError(
            "the screen is too small for its words to be read",
            got=f"{screen.width} x {screen.height} pixels",
            expected=f"{READABLE_PIXELS:,} pixels or more",
        )
    return shorten("\n".join(reader.read(screen.picture, top=TITLE_SHARE)), num_characters)
