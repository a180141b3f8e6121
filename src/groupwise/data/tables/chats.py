"""Prompts and targets: of a text, or of a chat whose turns may say where pictures stand."""

from collections.abc import Sequence
from typing import Any, cast

from groupwise.core import Message, Picture
from groupwise.data.tables.pictures import UnusableRowError
from groupwise.data.tables.settings import TableSettings
from groupwise.data.tables.sources import SourceRow
from groupwise.data.tables.templates import is_template
from groupwise.data.tables.values import as_mapping, clean_value, read_text, read_value

_NO_CHAT = "chat cannot be used"
_PLACES = "pictures and their places differ in number"
_ROLES = ("system", "user", "assistant")


def read_target(row: SourceRow, column: str) -> str | None:
    """Return what the warm-up teaches: a text, or the last turn of a chat; None if it is missing.

    Raises:
        UnusableRowError: if a chat does not end with the assistant's turn.
    """
    value = read_value(row, column)
    if not isinstance(value, list):
        return read_text(row, column)
    turns = cast("list[Any]", value)
    turn = as_mapping(turns[-1]) if turns else None
    if turn is None or turn.get("role") != "assistant":
        raise UnusableRowError(_NO_CHAT, f"{column} does not end with the assistant's turn")
    return str(turn.get("content") or "").strip() or None


def read_prompt(
    row: SourceRow, settings: TableSettings, pictures: Sequence[Picture]
) -> tuple[list[Message], Sequence[Picture]]:
    """Return the prompt, and the pictures that are to open it because no turn places them.

    Raises:
        UnusableRowError: if there is no text, or a chat is none.
    """
    columns = settings.columns
    value = clean_value(read_value(row, columns.prompt))
    if isinstance(value, list):
        turns = cast("list[Any]", value)[: -1 if columns.target == columns.prompt else None]
        messages, is_placing = _read_chat(turns, pictures)
    else:
        text = "" if value is None else str(value)
        if not text.strip():
            raise UnusableRowError("empty prompt", f"no {columns.prompt}")
        messages, is_placing = [Message("user", text)], False
    if settings.system and messages[0].role != "system":
        is_filled = is_template(settings.system)
        system = read_value(row, settings.system) if is_filled else settings.system
        messages.insert(0, Message("system", system))
    return messages, () if is_placing else pictures


def _read_chat(turns: Sequence[Any], pictures: Sequence[Picture]) -> tuple[list[Message], bool]:
    """Return the turns, and whether they say where the pictures stand."""
    left = list(pictures)
    messages = [_read_turn(turn, left) for turn in turns]
    is_placing = len(left) < len(pictures)
    if is_placing and left:
        num_places = len(pictures) - len(left)
        raise UnusableRowError(_PLACES, f"{len(pictures)} pictures for {num_places} places")
    if not messages or messages[-1].role != "user":
        raise UnusableRowError(_NO_CHAT, "it does not end with the user's turn")
    if not messages[-1].text.strip():
        raise UnusableRowError("empty prompt", "no words in the user's last turn")
    return messages, is_placing


def _read_turn(turn: Any, left: list[Picture]) -> Message:
    """Return a turn, with the next of the pictures that are left at each of its places."""
    said = as_mapping(turn) or {}
    role: Any = said.get("role")
    if role not in _ROLES:
        raise UnusableRowError(_NO_CHAT, f"a turn of {role!r}, not of {', '.join(_ROLES)}")
    content: Any = said.get("content")
    alone = [{"type": "text", "text": content}]
    parts = cast("list[Any]", content) if isinstance(content, list) else alone
    return Message(role, [_read_part(part, role, left) for part in parts])


def _read_part(part: Any, role: str, left: list[Picture]) -> str | Picture:
    given = as_mapping(part) or {}
    kind, text = given.get("type"), given.get("text")
    if kind == "text" and isinstance(text, str):
        return text
    if kind != "image" or role != "user":
        raise UnusableRowError(_NO_CHAT, f"content that is no text: {part!r:.60}")
    if not left:
        raise UnusableRowError(_PLACES, "more places than pictures")
    return left.pop(0)
