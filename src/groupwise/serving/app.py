"""The HTTP application: rows in, answers out, and what operators need to watch it."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from fastapi import FastAPI, HTTPException, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, Field
from pydantic_core import to_json

from groupwise import __version__
from groupwise.core import GroupwiseError
from groupwise.serving.batching import Batcher
from groupwise.serving.bodies import (
    BODY_SCHEMA,
    check_text,
    read_body,
    read_json_body,
    write_schema,
)
from groupwise.serving.chat import (
    MODEL,
    ApiRefusal,
    ChatBody,
    ChatReply,
    ServedModel,
    ServedModels,
    write_chat_reply,
)
from groupwise.serving.guards import CHAT, REVIEW, Guard, Places, refuse
from groupwise.serving.meters import Meters
from groupwise.serving.predictor import Answer, Predictor, Request
from groupwise.serving.settings import ServeSettings
from groupwise.serving.uploads import Stored, Uploads

if TYPE_CHECKING:
    from groupwise.serving.feedback import Desk

Q = TypeVar("Q")
A = TypeVar("A")
CHAT_SCHEMA = write_schema(ChatBody)


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
_WHY_NO_CHAT = {
    **{status: why for status, why in _WHY.items() if status != 422},
    400: "A field is wrong or not taken, a picture cannot be decoded, or the prompt is too long.",
    404: "There is no such model.",
    415: "No JSON.",
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


class State:
    """What the routes of one application share."""

    def __init__(
        self,
        predictor: Predictor,
        settings: ServeSettings,
        *,
        version: str,
        folder: Path,
        desk: "Desk | None",
    ) -> None:
        self.predictor = predictor
        self.settings = settings
        self.version = version
        self.meters = Meters()
        self.places = Places(settings, self.meters)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="predictor")
        self.rows = Batcher(predictor.answer, self.thread, settings, self.meters)
        self.chats = Batcher(predictor.chat, self.thread, settings, self.meters)
        self.uploads = Uploads(folder, settings)
        self.desk = desk
        self.is_ready = False

    @asynccontextmanager
    async def live(self, app: FastAPI) -> AsyncIterator[None]:
        """Take requests until the application ends."""
        self.rows.start()
        self.chats.start()
        self.is_ready = True
        yield
        self.is_ready = False
        await self.rows.stop()
        await self.chats.stop()
        self.thread.shutdown(wait=True)
        self.uploads.close()
        if self.desk is not None:
            self.desk.close()

    async def ask(
        self,
        http: HttpRequest,
        batcher: Batcher[Q, A],
        stored: Stored,
        make_question: Callable[[], Q],
    ) -> A:
        """Return the answer to a question, unless it takes too long or the asker goes away.

        Raises:
            HTTPException: 422 for what cannot be asked, 500, 503 and 504.
        """
        if not self.is_ready:
            raise HTTPException(503, "the server is stopping")
        try:
            question = await stored.run(make_question)
            return await self._wait(http, batcher.answer(question))
        except GroupwiseError as error:
            raise HTTPException(422, str(error)) from error

    async def _wait(self, http: HttpRequest, answer: Coroutine[Any, Any, A]) -> A:
        answered = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(_wait_for_end(http))
        limit_s = self.settings.answer_timeout_s
        try:
            both = {answered, gone}
            await asyncio.wait(both, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return _read_result(answered)
            if gone.done():
                raise HTTPException(499, "the asker has gone")
            raise HTTPException(504, f"no answer within {limit_s:g} s")
        finally:
            answered.cancel()
            gone.cancel()


def build_app(
    predictor: Predictor,
    settings: ServeSettings,
    *,
    version: str,
    folder: Path,
    desk: "Desk | None" = None,
) -> FastAPI:
    """Return the application.

    Args:
        predictor: what answers.
        settings: the limits.
        version: of the model, told with every answer.
        folder: an existing folder for the pictures of running requests; nothing else is written.
        desk: takes feedback; it is closed when the application ends.
    """
    state = State(predictor, settings, version=version, folder=folder, desk=desk)
    app = FastAPI(title="Groupwise", version=__version__, lifespan=state.live, redoc_url=None)
    app.add_middleware(Guard, settings=settings, meters=state.meters)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(OSError, _refuse_full_disk)
    _add_health(app, state)
    _add_predict(app, state)
    _add_chat(app, state)
    if desk is not None:
        _add_feedback(app, state, desk)
        _add_review(app, state, desk)
    return app


async def _refuse(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refuse(http.url.path, error.status_code, str(error.detail), error.headers)


async def _refuse_full_disk(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, OSError)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return refuse(http.url.path, 507, "the server's disk is full", {"Connection": "close"})


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

    @app.get("/v1/model", summary="What answers", responses=refused)
    async def describe_model() -> dict[str, Any]:
        own = state.predictor.describe()
        return {**own, "version": state.version, "labels": list(state.predictor.labels)}


def _add_predict(app: FastAPI, state: State) -> None:
    @app.post("/v1/predict", summary="Answer a row", responses=REFUSED, openapi_extra=BODY_SCHEMA)
    async def predict(http: HttpRequest) -> Reply:
        started = monotonic()
        async with read_body(http, state.settings) as (body, contents):
            check_text(to_json(body.row), state.settings)
            with state.places.take():
                async with state.uploads.store(contents) as paths:
                    request = Request(body.id or uuid4().hex, body.row, paths.files)
                    answer = await state.ask(
                        http,
                        state.rows,
                        paths,
                        lambda: state.predictor.make_question(request, paths.folder),
                    )
                    name = None
                    if state.desk is not None:
                        name = await state.desk.remember(request, answer, paths.files)
                        state.meters.kept.labels("no" if name is None else "yes").inc()
        _count(state, answer, monotonic() - started)
        return _write_reply(request.id, answer, state.version, answer_id=name)


def _add_chat(app: FastAPI, state: State) -> None:
    started_s = int(time())
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": why, "model": ApiRefusal} for status, why in _WHY_NO_CHAT.items()
    }

    @app.get("/v1/models", summary="What may be named", responses={401: REFUSED[401]})
    async def list_models() -> ServedModels:
        return ServedModels(
            data=[ServedModel(id=name, created=started_s) for name in (MODEL, state.version)]
        )

    @app.post(CHAT, summary="Continue a chat", responses=responses, openapi_extra=CHAT_SCHEMA)
    async def chat(http: HttpRequest) -> ChatReply:
        started = monotonic()
        body = await read_json_body(http, ChatBody)
        body.check(MODEL, state.version)
        check_text(body.join_texts().encode(), state.settings)
        with state.places.take():
            async with state.uploads.store(body.list_pictures()) as paths:
                answer = await state.ask(
                    http, state.chats, paths, lambda: body.make_question(paths.files)
                )
        state.meters.seconds.observe(monotonic() - started)
        state.meters.answers.labels("open").inc()
        return write_chat_reply(answer, name=uuid4().hex, version=state.version, at_s=int(time()))


def _add_feedback(app: FastAPI, state: State, desk: "Desk") -> None:
    from groupwise.serving.feedback import FeedbackBody, FeedbackReply

    known = (401, 408, 413, 415, 422, 429, 503)
    responses: dict[int | str, dict[str, Any]] = {status: REFUSED[status] for status in known}
    responses[404] = {"description": "There is no such answer (any more).", "model": Refusal}

    @app.post(
        "/v1/feedback",
        summary="Say what the right answer is",
        responses=responses,
        openapi_extra=write_schema(FeedbackBody),
    )
    async def take_feedback(http: HttpRequest) -> FeedbackReply:
        body = await read_json_body(http, FeedbackBody)
        with state.places.take():
            reply = await desk.take(body)
        state.meters.feedback.labels("new" if reply.is_new else "known").inc()
        return reply


def _add_review(app: FastAPI, state: State, desk: "Desk") -> None:
    from groupwise.serving.review import make_review

    app.mount(REVIEW, make_review(desk, state.settings, state.meters))


def _write_reply(name: str, answer: Answer, version: str, *, answer_id: str | None) -> Reply:
    return Reply(
        id=name,
        answer=answer.answer,
        confidence=answer.confidence,
        reason=answer.reason,
        text=answer.text,
        needs_person=answer.needs_person,
        details=dict(answer.details),
        model=version,
        answer_id=answer_id,
    )


def _read_result(answered: asyncio.Future[A]) -> A:
    error = answered.exception()
    if error is None or isinstance(error, GroupwiseError):
        return answered.result()
    raise HTTPException(500, f"the predictor broke on it ({type(error).__name__})") from error


async def _wait_for_end(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _count(state: State, answer: Answer, duration_s: float) -> None:
    meters, labels = state.meters, state.predictor.labels
    known = answer.answer if answer.answer in labels else "open"
    meters.seconds.observe(duration_s)
    meters.answers.labels("none" if answer.answer is None else known).inc()
    if answer.needs_person:
        meters.for_people.inc()
