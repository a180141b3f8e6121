"""What a request carries: a row and its pictures, as a form or as JSON."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import HTTPException
from fastapi import Request as HttpRequest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile

from groupwise.data.rows import read_moment
from groupwise.serving.arrivals import FORM
from groupwise.serving.settings import ServeSettings

M = TypeVar("M", bound=BaseModel)

Contents = Sequence[UploadFile | str]
"""Pictures as files of a form, or as base64."""
Part = tuple[str, UploadFile | str]
"""A name in a form, and what stands there."""

_ROW_FORM: dict[str, Any] = {
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
_SCREEN_FORM: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["picture", "task"],
    "properties": {
        "id": {"type": "string", "maxLength": 200},
        "task": {"type": "string", "minLength": 1},
        "session": {"type": "string", "maxLength": 200},
        "time": {"type": "string", "description": "In seconds, or as ISO 8601."},
        "picture": {"type": "string", "format": "binary"},
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


class ScreenBody(BaseModel):
    """A screen and what somebody is working on."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(default=None, max_length=200, description="Your name for it.")
    task: str = Field(min_length=1, description="What the person says they are working on.")
    session: str | None = Field(
        default=None, max_length=200, description="Of one sitting; feedback is split by it."
    )
    time: float | str | None = Field(
        default=None,
        description="When it was seen: seconds, or ISO 8601. With a session, it tells flips.",
    )
    picture: str = Field(description="As base64 or a data URL.")

    @field_validator("time", mode="before")
    @classmethod
    def _read_time(cls, value: Any) -> float | None:
        return read_moment(value)

    def make_row(self) -> PredictBody:
        """Return the row of the recipe's data."""
        row = {"task": self.task, "session": self.session, "time": self.time}
        known = {name: value for name, value in row.items() if value is not None}
        return PredictBody(id=self.id, row=known)


def write_schema(model: type[BaseModel], form: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what OpenAPI is to say of a body: JSON, and a form where there is one."""
    content: dict[str, Any] = {_JSON: {"schema": model.model_json_schema()}}
    if form is not None:
        content[FORM] = {"schema": form}
    return {"requestBody": {"required": True, "content": content}}


PREDICT_SCHEMA = write_schema(PredictBody, _ROW_FORM)
SCREEN_SCHEMA = write_schema(ScreenBody, _SCREEN_FORM)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the bodies of a route become rows.

    Attributes:
        read_json: returns row and pictures of a body of JSON.
        read_form: does so of the parts of a form.
    """

    read_json: Callable[[bytes], tuple[PredictBody, Contents]]
    read_form: Callable[[Sequence[Part]], tuple[PredictBody, Contents]]


@asynccontextmanager
async def read_body(
    request: HttpRequest, settings: ServeSettings, reading: Reading
) -> AsyncIterator[tuple[PredictBody, Contents]]:
    """Give what a request asks; files of a form are closed afterwards."""
    kind = _find_kind(request)
    if kind == _JSON:
        yield reading.read_json(await request.body())
    elif kind == FORM:
        _, parameters = parse_options_header(request.headers["content-type"])
        if parameters.get(b"charset", b"utf-8").lower() != b"utf-8":
            raise HTTPException(415, "a form is taken in UTF-8")
        num_files = 4 * settings.max_pictures  # each costs time, however small; a few are counted
        async with request.form(max_files=num_files, max_fields=_MAX_FIELDS) as form:
            yield reading.read_form(form.multi_items())
    else:
        text = f"the content type {kind[:80]!r} is not taken; send JSON or multipart/form-data"
        raise HTTPException(415, text)


async def read_json_body(request: HttpRequest, model: type[M]) -> M:
    """Return a body of JSON."""
    kind = _find_kind(request)
    if kind != _JSON:
        raise HTTPException(415, f"the content type {kind[:80]!r} is not taken; send JSON")
    return parse_json(model, await request.body())


def check_text(text: bytes, settings: ServeSettings) -> None:
    """Refuse a row that is too long."""
    if len(text) > settings.max_text_kib * 1024:
        limit = f"{settings.max_text_kib:g} KiB"
        raise HTTPException(413, f"the text of the request is larger than {limit}")


def _find_kind(request: HttpRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_json(model: type[M], content: bytes) -> M:
    """Return a body."""
    if sum(map(content.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise HTTPException(413, f"the request has more than {_MAX_VALUES} values")
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise HTTPException(422, _describe(error, whole="body")) from None


def _read_row_json(content: bytes) -> tuple[PredictBody, Contents]:
    body = parse_json(PredictBody, content)
    return body, body.pictures


def _read_row_form(items: Sequence[Part]) -> tuple[PredictBody, Contents]:
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


def _read_screen_json(content: bytes) -> tuple[PredictBody, Contents]:
    body = parse_json(ScreenBody, content)
    return body.make_row(), [body.picture]


def _read_screen_form(items: Sequence[Part]) -> tuple[PredictBody, Contents]:
    pictures = [v for name, v in items if name == "picture" and isinstance(v, UploadFile)]
    texts = {name: value for name, value in items if isinstance(value, str)}
    if len(pictures) != 1 or len(texts) + 1 < len(items) or "picture" in texts:
        text = "a form has a file called picture, a task, perhaps id, session and time, each once"
        raise HTTPException(422, text)
    try:
        return ScreenBody.model_validate({**texts, "picture": ""}).make_row(), pictures
    except ValidationError as error:
        raise HTTPException(422, _describe(error, whole="form")) from None


PREDICT = Reading(_read_row_json, _read_row_form)
SCREEN = Reading(_read_screen_json, _read_screen_form)


def _describe(error: ValidationError, *, whole: str) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    named = [(".".join(map(str, one["loc"])) or whole, one["msg"].lower()) for one in problems]
    told = [f"{name}: {message}" for name, message in named[:_NUM_TOLD]]
    more = [f"and {len(named) - _NUM_TOLD} more"] * (len(named) > _NUM_TOLD)
    return "; ".join(told + more)
