"""Settings of the server: where it listens and what it takes."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from groupwise.core import Config


class AskedSettings(Config):
    """Which answers people are asked about so that a candidate can be tested on them.

    Attributes:
        seed: of the loop.
        test_share: of the sessions that test.
        per_session: answers of each.
    """

    seed: int
    test_share: float = Field(gt=0, lt=1)
    per_session: int = Field(ge=1)


class ReviewSettings(Config):
    """The page on which people say what the right answers are.

    Attributes:
        order: in which they are asked: ``value``, or ``random`` or ``oldest``.
        lease_s: how long an answer that one person is asked about is kept from others.
        session_h: how long somebody stays logged in.
        name_header: header in which the proxy names who asks; nobody then names themselves, here
            or in /v1/feedback. The proxy has to drop it from what it is sent. None: people say who
            they are, and whoever has the token may speak for anybody.
        asked: answers that are asked about in turn with the others; a loop folder that is served
            brings its own.
    """

    order: Literal["value", "random", "oldest"] = "value"
    lease_s: float = Field(default=300, gt=0, le=604_800)
    session_h: float = Field(default=12, gt=0, le=8_784)
    name_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,100}$")
    asked: AskedSettings | None = None


class FeedbackSettings(Config):
    """Where answers and what people say of them are kept.

    Attributes:
        folder: of the pictures and, without a URL, of the SQLite file.
        url: of a PostgreSQL database, as SQLAlchemy writes it.
        max_items: answers that are kept; the oldest that nobody spoke of go first.
        review: the page for people at /review.
    """

    folder: Path
    url: str | None = None
    max_items: int = Field(default=10_000, ge=1)
    review: ReviewSettings = Field(default_factory=ReviewSettings)


class ScreensSettings(Config):
    """When a judge is asked about a screen.

    Attributes:
        ask_judge_below: confidence of the policy below which it is asked; 0: never.
        judge: YAML with the settings of a judge, as the section ``judge`` of the recipe's config;
            None: the run's own.
        judge_timeout_s: longest time for its verdict, waiting included.
        max_judge_at_once: questions to it at a time.
    """

    ask_judge_below: float = Field(default=0.8, ge=0, le=1)
    judge: Path | None = None
    judge_timeout_s: float = Field(default=2, gt=0, le=3600)
    max_judge_at_once: int = Field(default=4, ge=1, le=65_536)


class ServeSettings(Config):
    """Limits and addresses of the server.

    Attributes:
        host: address to listen on.
        port: 0 takes a free one.
        token: what askers must send as ``Authorization: Bearer TOKEN``; None: nothing.
        max_pictures: pictures of a request.
        max_picture_mib: of one picture file.
        max_megapixels: of one picture; larger ones are refused before they are decoded.
        max_request_megapixels: of all pictures of one request.
        max_held_megapixels: of the pictures of all requests that are being answered; a further
            request with pictures is told to come later (429).
        max_body_mib: of a whole request.
        max_json_mib: of a request in JSON, which is held in memory.
        max_text_kib: of a row without its pictures: it is cut into tokens before it is known to be
            too long for the policy.
        max_held_mib: of all requests that are arriving, waiting or being answered; over it, the
            largest that is still arriving is told to come later (429).
        max_connections: open at once, and never more than half of the files that the process may
            open. For one more, the one that has kept the server waiting longest is given up.
        max_waiting: whole requests that wait or are answered; more are told to come later (429).
        max_batch: questions asked together.
        batch_wait_ms: how long the first of a batch waits for others.
        head_timeout_s: longest time until a new or idle connection has sent a whole head.
        read_timeout_s: longest pause while a request arrives.
        upload_timeout_s: longest time for a whole request to arrive.
        answer_timeout_s: longest time for an answer, waiting included.
        stop_timeout_s: how long running requests may go on after the order to stop.
        feedback: where answers are kept for /v1/feedback; None: they are not.
        screens: when a judge is asked about a screen.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    token: str | None = Field(default=None, min_length=8)
    max_pictures: int = Field(default=64, ge=1)
    max_picture_mib: float = Field(default=25, gt=0)
    max_megapixels: float = Field(default=100, gt=0)
    max_request_megapixels: float = Field(default=256, gt=0)
    max_held_megapixels: float = Field(default=1024, gt=0)
    max_body_mib: float = Field(default=256, gt=0)
    max_json_mib: float = Field(default=64, gt=0)
    max_text_kib: float = Field(default=128, gt=0)
    max_held_mib: float = Field(default=1024, gt=0)
    max_connections: int = Field(default=1000, ge=2)
    max_waiting: int = Field(default=64, ge=1)
    max_batch: int = Field(default=8, ge=1, le=65_536)
    batch_wait_ms: float = Field(default=5, ge=0, le=60_000)
    head_timeout_s: int = Field(default=10, ge=1, le=604_800)
    read_timeout_s: float = Field(default=10, gt=0, le=604_800)
    upload_timeout_s: float = Field(default=60, gt=0, le=604_800)
    answer_timeout_s: float = Field(default=120, gt=0, le=604_800)
    stop_timeout_s: float = Field(default=30, gt=0, le=604_800)
    feedback: FeedbackSettings | None = None
    screens: ScreensSettings = ScreensSettings()

    @property
    def max_picture_bytes(self) -> int:
        """``max_picture_mib`` in bytes."""
        return int(self.max_picture_mib * 2**20)
