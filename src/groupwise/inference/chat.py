"""Chat completions of the OpenAI API: prompts with pictures as data URLs, and replies from bytes.

Whatever is not clearly a completion is ``malformed``; nothing is filled in.
"""

import base64
import io
import json
import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeGuard, cast

from groupwise.core import (
    DataError,
    Example,
    Picture,
    digest_bytes,
    open_lazily,
    open_picture,
    shows_as_it_is,
    shrink_picture,
)
from groupwise.inference.responder import Reply, RequestCause, RequestError, TokenChance, Usage
from groupwise.models.encoding import break_tokens_for_others
from groupwise.models.prompts import build_messages

_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


def build_chat_messages(
    example: Example, *, lead: str = "", max_pixels: int | None = None, tokenizer: Any = None
) -> list[dict[str, Any]]:
    """Return the prompt as messages; a lead is the beginning of the assistant's turn.

    The server writes the prompt itself: what spells a control token in words is broken, of the
    served model's ``tokenizer`` (None: as families spell them). Pictures are scaled down to
    ``max_pixels`` (None: sent as they are).

    Raises:
        DataError: if a picture cannot be read or is no longer the one that the example names.
    """
    write = partial(break_tokens_for_others, processor=tokenizer)
    messages = build_messages(example, show=partial(_show_as_url, max_pixels), write=write)
    if lead:
        messages.append({"role": "assistant", "content": write(lead)})
    return messages


def encode_picture(picture: Picture, *, max_pixels: int | None = None) -> str:
    """Return a picture as a data URL: its own bytes where every server reads them as we do.

    A picture that has to be turned upright, converted (see ``convert_picture``) or scaled down to
    ``max_pixels`` becomes a PNG.
    """
    content = read_picture_bytes(picture)
    with open_lazily(picture.path, content) as opened:
        media_type = _TYPES.get(opened.format or "")
        limit = max_pixels or opened.width * opened.height
        is_plain = shows_as_it_is(opened) and opened.width * opened.height <= limit
    if media_type is None or not is_plain:
        stream = io.BytesIO()
        shrink_picture(open_picture(picture), limit).save(stream, format="PNG", compress_level=1)
        content, media_type = stream.getvalue(), "image/png"
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def read_picture_bytes(picture: Picture) -> bytes:
    """Return the bytes of a picture file.

    Raises:
        DataError: if it cannot be read, or its bytes are not those of its digest.
    """
    try:
        content = picture.path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read picture {picture.path} ({error.strerror})") from error
    if digest_bytes(content) != picture.digest:
        raise DataError(
            f"the picture {picture.path} has changed since it was read",
            fix="read the data again",
        )
    return content


def _show_as_url(max_pixels: int | None, picture: Picture) -> dict[str, Any]:
    url = encode_picture(picture, max_pixels=max_pixels)
    return {"type": "image_url", "image_url": {"url": url}}


_SHOWN = 200


def read_replies(body: bytes, *, num_choices: int = 1) -> list[Reply]:
    """Return the replies of a chat completion; the usage of all of them is with the first."""
    value = _read_object(body)
    choices = _as_list(value.get("choices"))
    if len(choices) != num_choices:
        raise _refuse(f"{len(choices)} choices instead of {num_choices}")
    usage = _read_usage(value.get("usage"))
    return [
        _read_choice(_as_object(choice, "a choice"), usage if number == 0 else Usage())
        for number, choice in enumerate(choices)
    ]


def describe_status(
    status: int, body: bytes, retry_after: str | None, *, extras: Collection[str] = ()
) -> RequestError:
    """Return the error that a status other than 200 stands for."""
    what = f"the server answered with status {status}: {_find_message(body)}"
    wait_s = parse_retry_after(retry_after) if status == 429 or status >= 500 else None
    usage = Usage(num_calls=1)
    cause = _name_status(status)
    fix = None
    if extras and cause == "refused":
        fix = f"if it knows none of that, take it out of the server's extras: {', '.join(extras)}"
    error = RequestError(cause, what, retry_after_s=wait_s, usage=usage, fix=fix)
    error.status = status
    return error


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header names, as a number or as a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _name_status(status: int) -> RequestCause:
    if status == 429:
        return "rate_limit"
    if status == 408:
        return "timeout"
    return "server_error" if status >= 500 else "refused"


def _find_message(body: bytes) -> str:
    """Return the message of an error's body, or the beginning of the body."""
    try:
        error = _read_object(body).get("error")
        message = _as_object(error, "an error").get("message")
    except RequestError:
        message = None
    text = message if isinstance(message, str) else body.decode("utf-8", "replace")
    return " ".join(text.split())[:_SHOWN] or "no message"


def _read_choice(choice: Mapping[str, Any], usage: Usage) -> Reply:
    message = _as_object(choice.get("message"), "a message")
    text, reason = message.get("content"), choice.get("finish_reason")
    if text is not None and not _is_text(text):
        raise _refuse("a content that is no text", usage)
    if not _is_text(reason):
        raise _refuse("no finish reason", usage)
    return Reply(text, reason, _read_first_tokens(choice.get("logprobs")), usage)


def _read_first_tokens(value: Any) -> tuple[TokenChance, ...]:
    if value is None:
        return ()
    tokens = _as_list(_as_object(value, "log-probabilities").get("content"))
    if not tokens:
        return ()
    first = _as_object(tokens[0], "a token")
    listed = [_as_object(token, "a token") for token in _as_list(first.get("top_logprobs"))]
    found = [_read_token(token) for token in listed]
    return tuple(sorted(found, key=lambda token: -token.log_prob))


def _read_token(token: Mapping[str, Any]) -> TokenChance:
    text, log_prob = token.get("token"), token.get("logprob")
    if not _is_text(text) or not isinstance(log_prob, int | float) or not log_prob <= 1e-3:
        raise _refuse("a token without its log-probability")
    return TokenChance(_read_spelling(token.get("bytes"), text), float(log_prob))


def _read_spelling(values: Any, text: str) -> bytes:
    try:
        return bytes(values) if isinstance(values, list) else text.encode()
    except (TypeError, ValueError) as error:
        raise _refuse("a token whose bytes are none") from error


def _read_usage(value: Any) -> Usage:
    counts = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    details: Any = counts.get("completion_tokens_details")
    return Usage(
        1,
        _read_count(counts, "prompt_tokens"),
        _read_count(counts, "completion_tokens"),
        reasoning_tokens=_read_count(details, "reasoning_tokens"),
    )


def _read_count(counts: Any, name: str) -> int:
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) and count >= 0 else 0


def _read_object(body: bytes) -> Mapping[str, Any]:
    try:
        return _as_object(json.loads(body), "an object")
    except (ValueError, RecursionError) as error:
        raise _refuse("no JSON") from error


def _as_object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(f"something else than {what}")
    return cast("Mapping[str, Any]", value)


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_text(value: Any) -> TypeGuard[str]:
    """Say whether a value is text that can be written as UTF-8 (JSON allows half characters)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(what: str, usage: Usage | None = None) -> RequestError:
    return RequestError(
        "malformed",
        f"the server's reply is not a chat completion ({what})",
        usage=usage or Usage(num_calls=1),
    )
