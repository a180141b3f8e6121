"""Chat messages of an example, in the form that chat templates and processors take."""

from collections.abc import Sequence
from typing import Any

from groupwise.core import Example


def build_messages(example: Example, *, pictures: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Return the prompt as chat messages; ``pictures`` stand before the first user turn's text.

    Without pictures every content is a plain string.
    """
    messages: list[dict[str, Any]] = []
    waiting = list(pictures)
    for message in example.prompt:
        content: Any = message.text
        if waiting and message.role == "user":
            parts = [{"type": "image", "image": picture} for picture in waiting]
            content = [*parts, {"type": "text", "text": message.text}]
            waiting = []
        messages.append({"role": message.role, "content": content})
    return messages
