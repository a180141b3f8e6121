"""The application behind ``/review``: people log in, are asked, and say what is right."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from fastapi import HTTPException
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from groupwise.core import DataError
from groupwise.feedback import name_person
from groupwise.serving.feedback import Desk, find_person
from groupwise.serving.guards import REVIEW
from groupwise.serving.guesses import RETRY_AFTER, Guesses, find_address
from groupwise.serving.meters import Meters
from groupwise.serving.review.choices import list_choices
from groupwise.serving.review.forms import get_text, read_form
from groupwise.serving.review.headers import SafeHeaders
from groupwise.serving.review.hosts import KnownHosts
from groupwise.serving.review.languages import (
    LANGUAGE,
    choose_language,
    find_chosen,
    load_words,
)
from groupwise.serving.review.pages import load_static, render
from groupwise.serving.review.pictures import read_for_browser
from groupwise.serving.review.visitors import Seal, Visitor, is_token, make_visitor
from groupwise.serving.review.waiting import WaitingAnswers
from groupwise.serving.settings import ReviewSettings, ServeSettings

SESSION, ENTRANCE = "groupwise_review", "groupwise_entrance"
"""Names of the cookies: of who has logged in, and of who is about to."""
_HOUR_S, _YEAR_S = 3600, 365 * 86_400


class LoginNeededError(Exception):
    """Nobody is logged in, or not any more."""


def make_review(
    desk: Desk, labels: Sequence[str], settings: ServeSettings, meters: Meters
) -> ASGIApp:
    """Return the application, to be mounted at ``/review``.

    Args:
        desk: keeps the answers, and what is said.
        labels: every answer there is; empty if answers are open.
        settings: the server's.
        meters: count what is said.
    """
    review = _Review(desk, labels, settings, meters)
    routes = [
        Route("/", review.show),
        Route("/login", review.show_login),
        Route("/login", review.log_in, methods=["POST"]),
        Route("/logout", review.log_out, methods=["POST"]),
        Route("/say", review.say, methods=["POST"]),
        Route("/undo", review.undo, methods=["POST"]),
        Route("/skip", review.skip, methods=["POST"]),
        Route("/pictures/{name}", review.send_picture),
        Route("/static/{name}", _send_static),
    ]
    handlers = {HTTPException: _refuse, LoginNeededError: _send_to_login}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)  # pyright: ignore[reportArgumentType]
    if settings.token is None:
        app = KnownHosts(app, [settings.host])
    return SafeHeaders(app)


class _Review:
    def __init__(
        self, desk: Desk, labels: Sequence[str], settings: ServeSettings, meters: Meters
    ) -> None:
        own = ReviewSettings() if settings.feedback is None else settings.feedback.review
        self._desk = desk
        self._labels = labels
        self._meters = meters
        self._token = settings.token
        self._session_s = own.session_h * _HOUR_S
        self._seal = Seal(desk.key, settings.token)
        self._waiting = WaitingAnswers(desk.store, own)
        self._one_picture = asyncio.Lock()
        self._guesses = Guesses()
        self._name_header = own.name_header

    async def show(self, http: Request) -> Response:
        """Ask whoever is logged in."""
        visitor = self._require(http)
        return _remember_language(http, await self._ask(http, visitor, "page"))

    async def show_login(self, http: Request) -> Response:
        """Show the form for the name."""
        return _remember_language(http, self._render_login(http))

    async def log_in(self, http: Request) -> Response:
        """Begin a session."""
        form = await self._read_form(http, ENTRANCE)
        address = find_address(http.scope)
        if self._guesses.are_too_many(address):
            raise HTTPException(429, "too_many_guesses", RETRY_AFTER)
        if not is_token(form.get("token", ""), self._token):
            self._guesses.note(address)
            return self._render_login(http, status=401, problem="wrong_token")
        name = self._find_name(http, form.get("name", "").strip())
        if not 0 < len(name) <= 200:
            return self._render_login(http, status=422, problem="no_name")
        visitor = make_visitor(name, time.time() + self._session_s)
        response = _redirect("./")
        _set_cookie(http, response, SESSION, self._seal.write(SESSION, visitor))
        response.delete_cookie(ENTRANCE, REVIEW, httponly=True, samesite="strict")
        return response

    async def log_out(self, http: Request) -> Response:
        """End a session in this browser."""
        await self._read_form(http, SESSION)
        response = _redirect("login")
        response.delete_cookie(SESSION, REVIEW, httponly=True, samesite="strict")
        return response

    async def say(self, http: Request) -> Response:
        """Take what a person says, and ask them the next."""
        visitor = self._require(http)
        form = await self._read_form(http, SESSION)
        answer = get_text(form, "answer", 64)
        label = await self._find_label(form, answer)
        person = self._name(visitor)
        try:
            is_new = await self._desk.run(lambda: self._waiting.say(person, answer, label))
        except DataError:
            return await self._ask_next(http, visitor, "gone")
        self._meters.feedback.labels("new" if is_new else "known").inc()
        return await self._ask_next(http, visitor, "said" if is_new else "said_before", label=label)

    async def undo(self, http: Request) -> Response:
        """Take back what a person said last, and ask them again."""
        visitor = self._require(http)
        await self._read_form(http, SESSION)
        is_undone = await self._desk.run(lambda: self._waiting.undo(self._name(visitor)))
        if is_undone:
            self._meters.feedback.labels("new").inc()
        return await self._ask_next(http, visitor, "undone" if is_undone else "not_undone")

    async def skip(self, http: Request) -> Response:
        """Ask a person something else."""
        visitor = self._require(http)
        answer = get_text(await self._read_form(http, SESSION), "answer", 64)
        await self._desk.run(lambda: self._waiting.skip(self._name(visitor), answer))
        return await self._ask_next(http, visitor, "skipped")

    async def send_picture(self, http: Request) -> Response:
        """Send a picture of an answer that is kept."""
        self._require(http)
        name = http.path_params["name"]
        store = self._desk.store
        is_shown = await self._desk.run(lambda: store.is_shown(name))
        path = store.pictures.find(name) if is_shown else None
        if path is None:
            raise HTTPException(404, "no_picture")
        try:
            async with self._one_picture:  # each may be large
                content, kind = await run_in_threadpool(read_for_browser, path)
        except (DataError, FileNotFoundError) as error:
            raise HTTPException(404, "no_picture") from error
        return Response(content, media_type=kind)

    def _find_visitor(self, http: Request, cookie: str) -> Visitor | None:
        """Return who a cookie speaks of.

        Nobody is a session without a name, nor one of another person than the proxy knows.
        """
        visitor = self._seal.read(cookie, http.cookies.get(cookie, ""), time.time())
        if visitor is None or cookie != SESSION:
            return visitor
        is_own = visitor.name == self._find_name(http, visitor.name)
        return visitor if is_own and visitor.name.strip() else None

    def _find_name(self, http: Request, given: str) -> str:
        """Return who somebody is: as the proxy says where it is to, else as they say."""
        return find_person(http, self._name_header, given)

    def _require(self, http: Request) -> Visitor:
        visitor = self._find_visitor(http, SESSION)
        if visitor is None:
            raise LoginNeededError
        return visitor

    def _name(self, visitor: Visitor) -> str:
        return name_person(visitor.name, self._desk.key)

    async def _read_form(self, http: Request, cookie: str) -> Mapping[str, str]:
        """Return a form of the session in a cookie, and of no other."""
        form = await read_form(http)
        visitor = self._find_visitor(http, cookie)
        if visitor is None or not self._seal.is_form_token(form.get("form", ""), cookie, visitor):
            raise HTTPException(403, "other_session")
        return form

    async def _find_label(self, form: Mapping[str, str], answer: str) -> str:
        if not self._labels and "is_right" in form:
            shown = await self._desk.run(lambda: self._desk.store.find(answer))
            if shown is None or shown.prediction is None:
                raise HTTPException(422, "no_label")
            return shown.prediction
        label = get_text(form, "label", 1000).replace("\r\n", "\n")  # as forms write a new line
        if self._labels and label not in self._labels:
            raise HTTPException(422, "no_label")
        return label

    async def _ask_next(
        self, http: Request, visitor: Visitor, told: str, **values: str
    ) -> Response:
        """Answer a form: with the next question, or where nothing is scripted with its page."""
        if "hx-request" not in http.headers:
            return _redirect("./")
        notice = load_words(choose_language(http)).say(told, **values)
        return await self._ask(http, visitor, "question", notice=notice)

    async def _ask(
        self, http: Request, visitor: Visitor, template: str, *, notice: str = ""
    ) -> Response:
        turn = await self._desk.run(lambda: self._waiting.ask(self._name(visitor)))
        return render(
            template,
            choose_language(http),
            turn=turn,
            choices=list_choices(self._labels),
            visitor=visitor,
            form_token=self._seal.write_form_token(SESSION, visitor),
            notice=notice,
        )

    def _render_login(self, http: Request, *, status: int = 200, problem: str = "") -> Response:
        visitor = make_visitor("", time.time() + _HOUR_S)
        response = render(
            "login",
            choose_language(http),
            status=status,
            needs_token=self._token is not None,
            problem=problem,
            form_token=self._seal.write_form_token(ENTRANCE, visitor),
        )
        _set_cookie(http, response, ENTRANCE, self._seal.write(ENTRANCE, visitor))
        return response


async def _send_static(http: Request) -> Response:
    found = load_static().get(http.path_params["name"])
    if found is None:
        raise HTTPException(404, "there is no such file")
    return Response(found[0], media_type=found[1])


async def _refuse(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = load_words(choose_language(http)).title("refusals", str(error.detail))
    return PlainTextResponse(sentence, error.status_code, error.headers)


async def _send_to_login(http: Request, error: Exception) -> Response:
    if "hx-request" in http.headers:
        return Response(status_code=401, headers={"HX-Redirect": "login"})
    if http.method == "GET" and "pictures" not in http.url.path:
        return _redirect("login")
    sentence = load_words(choose_language(http)).title("refusals", "log_in_first")
    return PlainTextResponse(sentence, 401)


def _redirect(place: str) -> Response:
    """Return where the browser goes next with a GET, relative to this page."""
    return Response(status_code=303, headers={"Location": place})


def _remember_language(http: Request, response: Response) -> Response:
    chosen = find_chosen(http)
    if chosen is not None:
        _set_cookie(http, response, LANGUAGE, chosen, max_age=_YEAR_S)
    return response


def _is_over_tls(http: Request) -> bool:
    """Say whether a browser came over TLS: by the connection, a proxy's word or the browser's own.

    Whoever says so without being a proxy keeps a cookie of their own from plain connections.
    """
    said = http.headers.get("x-forwarded-proto", ""), http.headers.get("origin", "")
    return http.url.scheme == "https" or said[0] == "https" or said[1].startswith("https://")


def _set_cookie(
    http: Request, response: Response, name: str, value: str, *, max_age: int | None = None
) -> None:
    """Set a cookie that no script reads and no other site sends; over TLS it stays there."""
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path=REVIEW,
        secure=_is_over_tls(http),
        httponly=True,
        samesite="strict",
    )
