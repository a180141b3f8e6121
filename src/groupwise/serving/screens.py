"""``/v1/screens``: a picture and a task, the policy's label, and a judge where it is not sure."""

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from pydantic import BaseModel, Field

from groupwise.serving.answering import Given, give_answer
from groupwise.serving.bench import Bench
from groupwise.serving.bodies import SCREEN, SCREEN_SCHEMA, read_body
from groupwise.serving.flips import FlipMemory, TimedVerdict
from groupwise.serving.state import State


class ScreenReply(BaseModel):
    """The label of a screen."""

    id: str
    label: str | None = Field(description="Null if there is none: see reason.")
    confidence: float | None = Field(description="Of who decided, in [0, 1].")
    decided_by: Literal["policy", "judge"] | None
    needs_person: bool = Field(description="No label, or one that is not to be trusted.")
    reason: str = Field(description="Why the policy gave no label.")
    judge: str | None = Field(description="Its verdict, or why it gave none; null: not asked.")
    version: str = Field(description="Of the policy that was asked.")
    flip: bool | None = Field(
        description="Unlike what was said of the session just before; null: no time or session."
    )
    flip_reason: str = Field(description="What it is unlike.")
    picture_digest: str = Field(description="Of the picture as received; feedback uses it, too.")
    answer_id: str | None = Field(description="For /v1/feedback; null if it was not kept.")


def add_screens(
    app: FastAPI, state: State, bench: Bench, refused: Mapping[int | str, dict[str, Any]]
) -> None:
    """Add the route."""
    flips = FlipMemory()

    @app.post(
        "/v1/screens",
        summary="Label a screen",
        responses=dict(refused),
        openapi_extra=SCREEN_SCHEMA,
    )
    async def label_screen(http: HttpRequest) -> ScreenReply:
        async with read_body(http, state.settings, SCREEN) as (body, contents):
            given = await give_answer(state, http, body, contents, bench)
        return _write_reply(given, *_find_flip(flips, body.row, given.decision.label))


def _find_flip(
    flips: FlipMemory, row: Mapping[str, Any], label: str | None
) -> tuple[bool | None, str]:
    """Return whether a label may be a flip, and why."""
    time_s, session = row.get("time"), row.get("session")
    if time_s is None or not session or label is None:
        return None, ""
    last = flips.add(session, TimedVerdict(time_s, row["task"], label))
    if last is None:
        return False, ""
    return True, f"{last.verdict} was said of this session {time_s - last.time_s:g} s before"


def _write_reply(given: Given, is_flip: bool | None, why: str) -> ScreenReply:
    decision = given.decision
    return ScreenReply(
        id=given.id,
        label=decision.label,
        confidence=decision.confidence,
        decided_by=decision.decided_by,
        needs_person=decision.needs_person,
        reason=given.answer.reason,
        judge=decision.judge,
        version=given.version,
        flip=is_flip,
        flip_reason=why,
        picture_digest=given.pictures[0],
        answer_id=given.answer_id,
    )
