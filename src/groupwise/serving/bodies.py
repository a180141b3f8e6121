"""What a request carries: a row and its pictures, as a form or as JSON."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from fastapi import HTTPException
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile

from groupwise.serving.arrivals import FORM
from groupwise.serving.settings import ServeSettings

M = TypeVar("M", bound=BaseModel)

Contents = Sequence[UploadFile | str]
"""Pictures as files of a form, or as base64."""

_FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "maxLength": 200},
        "row": {"type": "string", "description": "A JSON object: values by column."},
        "pictures": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "In order.",
        },
    },
}
_JSON = "application/json"
_MAX_VALUES = 20_000
_MAX_FIELDS = 10
_NUM_TOLD = 10
_ROW = TypeAdapter(dict[str, Any])


class PredictBody(BaseModel):
    """A row to be answered."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(default=None, max_length=200, description="Your name for it.")
    row: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Values by column of the recipe's data, without label and pictures.",
    )
    pictures: list[str] = Field(
        default_factory=list[str], description="In order, as base64 or data URLs."
    )


def write_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI is to say of a body of JSON alone; it names no shared parts."""
    whole = model.model_json_schema()
    schema = _inline(whole, whole.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema}}}}


def _inline(value: Any, parts: dict[str, Any]) -> Any:
    """Return a schema with its parts where they are named; none of them names itself."""
    if isinstance(value, list):
        return [_inline(one, parts) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    held = cast("dict[str, Any]", value)
    if "$ref" in held:
        return _inline(parts[held["$ref"].rpartition("/")[2]], parts)
    return {k: _inline(v, parts) for k, v in held.items() if k != "discriminator"}


BODY_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {"schema": PredictBody.model_json_schema()},
            FORM: {"schema": _FORM_SCHEMA},
        },
    }
}


@asynccontextmanager
async def read_body(
    request: HttpRequest, settings: ServeSettings
) -> AsyncIterator[tuple[PredictBody, Contents]]:
    """Give what a request asks; files of a form are closed afterwards.

    Raises:
        HTTPException: 400 for a broken form, 415 for another content type, 422 for wrong fields.
    """
    kind = _find_kind(request)
    if kind == _JSON:
        body = parse_json(PredictBody, await request.body())
        yield body, body.pictures
    elif kind == FORM:
        _, parameters = parse_options_header(request.headers["content-type"])
        if parameters.get(b"charset", b"utf-8").lower() != b"utf-8":
            raise HTTPException(415, "a form is taken in UTF-8")
        num_files = 4 * settings.max_pictures  # each costs time, however small; a few are counted
        async with request.form(max_files=num_files, max_fields=_MAX_FIELDS) as form:
            yield _read_form(form.multi_items())
    else:
        text = f"the content type {kind[:80]!r} is not taken; send JSON or multipart/form-data"
        raise HTTPException(415, text)


async def read_json_body(request: HttpRequest, model: type[M]) -> M:
    """Return a body of JSON.

    Raises:
        HTTPException: 415 for another content type, 422 for wrong fields.
    """
    kind = _find_kind(request)
    if kind != _JSON:
        raise HTTPException(415, f"the content type {kind[:80]!r} is not taken; send JSON")
    return parse_json(model, await request.body())


def check_text(text: bytes, settings: ServeSettings) -> None:
    """Refuse a row or a conversation that is too long.

    Raises:
        HTTPException: 413.
    """
    if len(text) > settings.max_text_kib * 1024:
        limit = f"{settings.max_text_kib:g} KiB"
        raise HTTPException(413, f"the text of the request is larger than {limit}")


def _find_kind(request: HttpRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_json(model: type[M], content: bytes) -> M:
    """Return a body.

    Raises:
        HTTPException: 413 for so many values that reading them would stop others; 422, naming the
            fields that are wrong.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise HTTPException(413, f"the request has more than {_MAX_VALUES} values")
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise HTTPException(422, _describe(error, whole="body")) from None


def _read_form(items: Sequence[tuple[str, UploadFile | str]]) -> tuple[PredictBody, Contents]:
    pictures = [v for name, v in items if name == "pictures" and isinstance(v, UploadFile)]
    texts = [(name, value) for name, value in items if isinstance(value, str)]
    given = dict(texts)
    if len(given) + len(pictures) < len(items) or given.keys() - {"id", "row"}:
        raise HTTPException(422, "a form has id and row once each, and files called pictures")
    try:
        row = _ROW.validate_json(given.get("row") or "{}")
        return PredictBody(id=given.get("id"), row=row), pictures
    except ValidationError as error:
        raise HTTPException(422, _describe(error, whole="row")) from None


def _describe(error: ValidationError, *, whole: str) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    named = [(".".join(map(str, one["loc"])) or whole, one["msg"].lower()) for one in problems]
    told = [f"{name}: {message}" for name, message in named[:_NUM_TOLD]]
    more = [f"and {len(named) - _NUM_TOLD} more"] * (len(named) > _NUM_TOLD)
    return "; ".join(told + more)
