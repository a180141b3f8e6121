"""Refusals: one sentence each, in the form that the route's askers know."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

CHAT = "/v1/chat/completions"
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def refuse(
    path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer that refuses a request.

    Args:
        path: of the route; chats are refused in OpenAI's form.
        status: of HTTP.
        sentence: why.
        headers: of the answer.
    """
    if path != CHAT:
        return JSONResponse({"detail": sentence}, status, headers=headers)
    status = 400 if status == 422 else status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    error: dict[str, Any] = {"message": sentence, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers=headers)
