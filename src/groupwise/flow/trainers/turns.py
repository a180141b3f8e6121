"""Prompts as text with tags for pictures, and the pictures beside them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.core import Example, Message, Picture, open_lazily, open_picture, shows_as_it_is
from groupwise.core.jsonl import replace_file
from groupwise.inference import read_picture_bytes
from groupwise.models import break_tokens_for_others

PICTURE_TAG = "<image>"
"""What stands for a picture in the words of verl and of swift."""
_PICTURES = "pictures"


def write_turns(example: Example) -> list[dict[str, str]]:
    """Return the turns of a prompt, each picture as its tag; no words spell control tokens."""

    def write(part: str | Picture) -> str:
        return break_tokens_for_others(part) if isinstance(part, str) else PICTURE_TAG

    return [
        {"role": turn.role, "content": "".join(map(write, turn.parts))} for turn in example.prompt
    ]


def find_tag(example: Example, tags: Sequence[str]) -> str | None:
    """Return a tag that stands in a prompt's own words and would be read as something else."""
    words = [part for turn in example.prompt for part in turn.parts if isinstance(part, str)]
    return next((tag for tag in tags if any(tag in text for text in words)), None)


def copy_pictures(example: Example, folder: Path) -> Example:
    """Return an example whose pictures are copies below ``folder``, byte by byte.

    Raises:
        DataError: if one cannot be read, or has changed since the run.
    """

    def copy(part: str | Picture) -> str | Picture:
        if isinstance(part, str):
            return part
        path = folder / _PICTURES / f"{part.digest}{part.path.suffix.lower()}"
        if not path.exists():
            replace_file(path, [read_picture_bytes(part)])
        return Picture(path, part.digest)

    prompt = tuple(Message(turn.role, map(copy, turn.parts)) for turn in example.prompt)
    return replace(example, prompt=prompt)


def show_picture(picture: Picture, folder: Path) -> str:
    """Return the path, from ``folder``, of a picture that every library reads as the run does.

    That is the copy itself, or a PNG where it has to be turned upright or converted.

    Raises:
        DataError: if it cannot be decoded.
    """
    with open_lazily(picture.path) as opened:
        is_plain = shows_as_it_is(opened)
    path = picture.path if is_plain else picture.path.with_name(f"{picture.digest}.upright.png")
    if not path.exists():
        open_picture(picture).save(path, format="PNG", compress_level=1)
    return path.relative_to(folder).as_posix()
