"""Chat messages of an example, in the form that chat templates and processors take."""

from collections.abc import Callable
from typing import Any

from groupwise.core import Example, Picture


def _leave_place(_: Picture) -> dict[str, Any]:
    """Return the part that a processor fills with the next picture."""
    return {"type": "image"}


def build_messages(
    example: Example, *, show: Callable[[Picture], dict[str, Any]] = _leave_place
) -> list[dict[str, Any]]:
    """Return the prompt as chat messages, its pictures where they stand among the words.

    With pictures the content of every user turn is a list of parts; every other content is a
    plain string.

    Args:
        example: its prompt.
        show: returns the part that shows a picture.
    """
    has_pictures = bool(example.pictures)

    def write(part: str | Picture) -> dict[str, Any]:
        return {"type": "text", "text": part} if isinstance(part, str) else show(part)

    return [
        {
            "role": turn.role,
            "content": list(map(write, turn.parts))
            if has_pictures and turn.role == "user"
            else turn.text,
        }
        for turn in example.prompt
    ]
