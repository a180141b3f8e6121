"""The HTTP application: groups in, verdicts out, and what operators need to watch it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Any
from uuid import uuid4

from fastapi import FastAPI, File, Form, HTTPException, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from groupwise import __version__
from groupwise.serving.batching import GroupBatcher
from groupwise.serving.groups import GroupPredictor, GroupRequest, GroupVerdict
from groupwise.serving.guards import GROUPS_PATH, Guard
from groupwise.serving.meters import Meters
from groupwise.serving.settings import ServeSettings
from groupwise.serving.uploads import Uploads


class Refusal(BaseModel):
    """Why there is no answer, in one sentence."""

    detail: str


_WHY = {
    400: "The form cannot be read.",
    401: "The token is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "Too many or too large pictures.",
    422: "A field is missing or wrong, or a picture cannot be decoded.",
    429: "Too many groups are waiting; try again after Retry-After seconds.",
    503: "The server is starting or stopping.",
    504: "No verdict in time.",
}
_REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"description": why, "model": Refusal} for status, why in _WHY.items()
}


class GroupAnswer(BaseModel):
    """The verdict of a group."""

    id: str
    task: str
    verdict: str | None = Field(description="A label of the task, or null: see failure.")
    reason: str
    confidence: float | None = Field(description="Probability of the verdict, in [0, 1].")
    needs_person: bool = Field(description="No verdict, or one of low confidence.")
    failure: str | None
    details: dict[str, Any]


class _State:
    """What the routes of one application share."""

    def __init__(self, predictor: GroupPredictor, settings: ServeSettings, folder: Path) -> None:
        self.predictor = predictor
        self.settings = settings
        self.meters = Meters()
        self.batcher = GroupBatcher(predictor, settings, self.meters)
        self.uploads = Uploads(folder, settings)
        self.is_ready = False

    @asynccontextmanager
    async def live(self, app: FastAPI) -> AsyncIterator[None]:
        self.batcher.start()
        self.is_ready = True
        yield
        self.is_ready = False
        await self.batcher.stop()
        self.uploads.close()


def build_app(predictor: GroupPredictor, settings: ServeSettings, *, folder: Path) -> FastAPI:
    """Return the application.

    Args:
        predictor: what judges.
        settings: the limits.
        folder: an existing folder for the pictures of running requests; nothing else is written.
    """
    state = _State(predictor, settings, folder)
    app = FastAPI(title="Groupwise", version=__version__, lifespan=state.live, redoc_url=None)
    app.add_middleware(Guard, settings=settings, meters=state.meters)
    app.add_exception_handler(RequestValidationError, _describe_wrong_fields)
    _add_health(app, state)
    _add_groups(app, state)
    return app


async def _describe_wrong_fields(request: Request, error: Exception) -> JSONResponse:
    problems: Sequence[Any] = error.errors() if isinstance(error, RequestValidationError) else ()
    named = (f"{problem['loc'][-1]}: {problem['msg'].lower()}" for problem in problems)
    return JSONResponse({"detail": "; ".join(named)}, 422)


def _add_health(app: FastAPI, state: _State) -> None:
    @app.get("/healthz", summary="The process lives")
    async def check_health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Groups are taken", responses={503: _REFUSED[503]})
    async def check_readiness() -> dict[str, str]:
        if not state.is_ready:
            raise HTTPException(503, "the server is not ready")
        return {"status": "ready"}

    refused: dict[int | str, dict[str, Any]] = {401: _REFUSED[401]}

    @app.get("/metrics", summary="Counters for Prometheus", responses=refused)
    async def read_metrics() -> Response:
        return Response(state.meters.render(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/model", summary="What answers, and the tasks it knows", responses=refused)
    async def describe_model() -> dict[str, Any]:
        return {"tasks": list(state.predictor.tasks), **state.predictor.describe()}


def _add_groups(app: FastAPI, state: _State) -> None:
    @app.post(GROUPS_PATH, summary="Judge a group of pictures", responses=_REFUSED)
    async def judge_group(
        request: Request,
        pictures: Annotated[list[UploadFile], File(description="In order.", min_length=1)],
        task: Annotated[str, Form(description="One of the tasks of /v1/model.")],
        id: Annotated[str | None, Form(description="Your name for it.", max_length=200)] = None,
    ) -> GroupAnswer:
        started = monotonic()
        if not state.is_ready:
            raise HTTPException(503, "the server is stopping")
        if task not in state.predictor.tasks:
            known = ", ".join(state.predictor.tasks)
            raise HTTPException(422, f"there is no task {task!r} (there are: {known})")
        async with state.uploads.store(pictures) as paths:
            group = GroupRequest(id or uuid4().hex, task, paths)
            verdict = await _wait(state, request, group)
        _count(state.meters, task, verdict, monotonic() - started)
        return _write_answer(task, verdict)


def _write_answer(task: str, verdict: GroupVerdict) -> GroupAnswer:
    return GroupAnswer(
        id=verdict.id,
        task=task,
        verdict=verdict.verdict,
        reason=verdict.reason,
        confidence=verdict.confidence,
        needs_person=verdict.needs_person,
        failure=verdict.failure,
        details=dict(verdict.details),
    )


async def _wait(state: _State, request: Request, group: GroupRequest) -> GroupVerdict:
    """Return the verdict, unless it takes too long or the asker goes away."""
    judged = asyncio.ensure_future(state.batcher.judge(group))
    gone = asyncio.ensure_future(_wait_for_end(request))
    limit_s = state.settings.answer_timeout_s
    try:
        await asyncio.wait({judged, gone}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if judged.done():
            return judged.result()
        if gone.done():
            raise HTTPException(499, "the asker has gone")
        raise HTTPException(504, f"no verdict within {limit_s:g} s")
    finally:
        judged.cancel()
        gone.cancel()


async def _wait_for_end(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _count(meters: Meters, task: str, verdict: GroupVerdict, duration_s: float) -> None:
    meters.seconds.observe(duration_s)
    meters.verdicts.labels(task, verdict.verdict or "none").inc()
    if verdict.needs_person:
        meters.for_people.labels(task).inc()
