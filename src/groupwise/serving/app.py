"""The HTTP application: rows in, answers out, and what operators need to watch it."""

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, Field

from groupwise import __version__
from groupwise.serving.answering import Given, give_answer
from groupwise.serving.bench import Bench, Screens
from groupwise.serving.bodies import (
    PREDICT,
    PREDICT_SCHEMA,
    read_body,
    read_json_body,
    write_schema,
)
from groupwise.serving.guards import REVIEW, Guard, refuse
from groupwise.serving.screens import add_screens
from groupwise.serving.settings import ServeSettings
from groupwise.serving.source import Source
from groupwise.serving.state import State

if TYPE_CHECKING:
    from groupwise.serving.feedback import Desk


class Refusal(BaseModel):
    """Why there is no answer, in one sentence."""

    detail: str


_WHY = {
    400: "The form cannot be read.",
    401: "The token is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request or its text is too large, or it has too many or too large pictures.",
    415: "Neither JSON nor a form.",
    422: "A field is missing or wrong, a picture cannot be decoded, or the prompt is too long.",
    429: "Too many requests are waiting; try again after Retry-After seconds.",
    500: "The predictor broke on this request.",
    503: "The server is starting or stopping.",
    504: "No answer in time.",
    507: "The disk for uploads is full.",
}
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"description": why, "model": Refusal} for status, why in _WHY.items()
}


class Reply(BaseModel):
    """The answer to a request."""

    id: str
    answer: str | None = Field(description="As the parser reads it, or null: see reason.")
    confidence: float | None = Field(description="Probability of the label, in [0, 1].")
    reason: str = Field(description="Why there is no answer, or the policy's reason for it.")
    text: str | None = Field(description="The policy's own words.")
    needs_person: bool = Field(description="No answer, or one that is not to be trusted.")
    details: dict[str, Any]
    model: str = Field(description="Version of the model, as predict writes it.")
    answer_id: str | None = Field(description="For /v1/feedback; null if it was not kept.")


class ReloadReply(BaseModel):
    """What is served now."""

    version: str
    is_new: bool = Field(description="False if it was served before: nothing changed.")


def build_app(
    source: Source,
    settings: ServeSettings,
    *,
    folder: Path,
    desk: "Desk | None" = None,
    screens: Screens | None = None,
) -> FastAPI:
    """Return the application."""
    state = State(source, settings, folder=folder, desk=desk)
    app = FastAPI(title="Groupwise", version=__version__, lifespan=state.live, redoc_url=None)
    app.add_middleware(Guard, settings=settings, meters=state.meters)
    app.add_exception_handler(OSError, _refuse_full_disk)
    _add_health(app, state)
    _add_versions(app, state)
    _add_predict(app, state)
    if screens is not None:
        bench = Bench(screens.judge, settings.screens, state.meters)
        add_screens(app, state, bench, REFUSED)
    if desk is not None:
        _add_feedback(app, state, desk)
        _add_review(app, state, desk)
    return app


async def _refuse_full_disk(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, OSError)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return refuse(507, "the server's disk is full", {"Connection": "close"})


def _add_health(app: FastAPI, state: State) -> None:
    @app.get("/healthz", summary="The process lives")
    async def check_health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Requests are taken", responses={503: REFUSED[503]})
    async def check_readiness() -> dict[str, str]:
        if not state.is_ready:
            raise HTTPException(503, "the server is not ready")
        return {"status": "ready"}

    refused: dict[int | str, dict[str, Any]] = {401: REFUSED[401]}

    @app.get("/metrics", summary="Counters for Prometheus", responses=refused)
    async def read_metrics() -> Response:
        return Response(state.meters.render(), media_type="text/plain; version=0.0.4")


def _add_versions(app: FastAPI, state: State) -> None:
    refused: dict[int | str, dict[str, Any]] = {status: REFUSED[status] for status in (401, 500)}
    refused[409] = {"description": "What is named cannot be served.", "model": Refusal}

    @app.get("/v1/model", summary="What answers", responses={401: REFUSED[401]})
    async def describe_model() -> dict[str, Any]:
        served = state.versions.current
        own, labels = served.predictor.describe(), list(served.predictor.labels)
        is_calibrated = own.get("temperature") is not None
        return {**own, "calibrated": is_calibrated, "version": served.name, "labels": labels}

    @app.post("/v1/reload", summary="Serve what served.json names now", responses=refused)
    async def reload() -> ReloadReply:
        is_new = await state.versions.reload()
        return ReloadReply(version=state.versions.current.name, is_new=is_new)


def _add_predict(app: FastAPI, state: State) -> None:
    @app.post(
        "/v1/predict", summary="Answer a row", responses=REFUSED, openapi_extra=PREDICT_SCHEMA
    )
    async def predict(http: HttpRequest) -> Reply:
        async with read_body(http, state.settings, PREDICT) as (body, contents):
            return _write_reply(await give_answer(state, http, body, contents))


def _add_feedback(app: FastAPI, state: State, desk: "Desk") -> None:
    from groupwise.serving.feedback import FeedbackBody, FeedbackReply, find_person

    own = state.settings.feedback
    header = None if own is None else own.review.name_header
    known = (401, 408, 413, 415, 422, 429, 503)
    responses: dict[int | str, dict[str, Any]] = {status: REFUSED[status] for status in known}
    responses[403] = {"description": "The proxy names somebody else.", "model": Refusal}
    responses[404] = {"description": "There is no such answer (any more).", "model": Refusal}

    @app.post(
        "/v1/feedback",
        summary="Say what the right answer is",
        responses=responses,
        openapi_extra=write_schema(FeedbackBody),
    )
    async def take_feedback(http: HttpRequest) -> FeedbackReply:
        body = await read_json_body(http, FeedbackBody)
        if body.user != find_person(http, header, body.user):
            raise HTTPException(403, "nobody speaks for another than the proxy names")
        with state.places.take():
            reply = await desk.take(body, state.versions.current.predictor.labels)
        state.meters.feedback.labels("new" if reply.is_new else "known").inc()
        if reply.is_new and reply.is_correction:
            state.meters.corrections.inc()
        return reply


def _add_review(app: FastAPI, state: State, desk: "Desk") -> None:
    from groupwise.serving.review import make_review

    labels = state.versions.current.predictor.labels  # no other version may have others
    app.mount(REVIEW, make_review(desk, labels, state.settings, state.meters))


def _write_reply(given: Given) -> Reply:
    answer = given.answer
    return Reply(
        id=given.id,
        answer=answer.answer,
        confidence=answer.confidence,
        reason=answer.reason,
        text=answer.text,
        needs_person=answer.needs_person,
        details=dict(answer.details),
        model=given.version,
        answer_id=given.answer_id,
    )
