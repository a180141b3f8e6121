"""Screens without files, drawn pictures, and the real set where there is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from groupwise.core import Picture, digest_json
from groupwise_recipes.on_task.screenshots import Screenshot


@pytest.fixture(scope="session")
def make_screen() -> Callable[..., Screenshot]:
    """Return a maker of screens whose pictures are names only."""

    def make(name: str = "a.png", **fields: Any) -> Screenshot:
        given = {
            "session": "s",
            "task": "Write a letter",
            "activity": "document",
            "label": None,
            "fold": None,
            "language": "en",
            "difficulty": None,
            "source": "captured",
            "width": 64,
            "height": 48,
            **fields,
        }
        return Screenshot(picture=Picture(Path(name), digest_json(name)), **given)

    return make


@pytest.fixture(scope="session")
def draw_picture() -> Callable[..., Path]:
    """Return a drawer of small pictures that differ by ``number``."""

    def draw(path: Path, *, number: int = 0, mode: str = "RGB", **options: Any) -> Path:
        image = Image.new("RGB", (64, 48), "white")
        pen = ImageDraw.Draw(image)
        for cell in range(48):
            grey = (cell * 37 + number * 91 + cell * cell * (number + 1)) % 256
            left, top = cell % 8 * 8, cell // 8 * 8
            pen.rectangle((left, top, left + 7, top + 7), fill=(grey, 255 - grey, grey // 2))
        path.parent.mkdir(parents=True, exist_ok=True)
        image.convert(mode).save(path, **options)
        return path

    return draw
