"""What askers say of answers: every answer is kept under an id, and people's labels with it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import uuid4

from fastapi import HTTPException
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError

from groupwise.core import DataError
from groupwise.feedback import FeedbackStore, Shown, name_person
from groupwise.serving.bench import Decision
from groupwise.serving.predictor import Answer, Request

T = TypeVar("T")


class FeedbackBody(BaseModel):
    """What a person says of an answer."""

    model_config = ConfigDict(extra="forbid")

    answer_id: str = Field(max_length=64)
    user: str = Field(
        max_length=200, pattern=r"\S", description="Not blank; kept as a keyed digest alone."
    )
    label: str | None = Field(
        max_length=1000, description="The right answer, or null to take back what was said."
    )


class FeedbackReply(BaseModel):
    """What is known of the answer now."""

    answer_id: str
    is_new: bool = Field(description="False if it is what this person said last.")
    label: str | None = Field(description="What all people say; null where they disagree.")
    num_people: int
    is_correction: bool = Field(description="They say something else than the policy did.")


def find_person(http: HttpRequest, name_header: str | None, given: str) -> str:
    """Return who somebody is.

    Returns:
        What the header says where there is to be one, empty if it says nothing, else ``given``.
    """
    return given if name_header is None else http.headers.get(name_header, "").strip()


class Desk:
    """Keeps answers and takes what people say of them, beside the event loop.

    Attributes:
        store: where both are kept.
        key: of the digests under which people are kept.

    Args:
        store, key: as above.
    """

    def __init__(self, store: FeedbackStore, *, key: bytes) -> None:
        self.store = store
        self.key = key
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feedback")

    def close(self) -> None:
        """Finish what is being written."""
        self._thread.shutdown()
        self.store.close()

    async def remember(
        self, request: Request, answer: Answer, decision: Decision, version: str
    ) -> str | None:
        """Keep an answer with the version that gave it, and return its id.

        Returns:
            None if the store cannot be written.
        """
        shown = Shown(
            id=uuid4().hex,
            at_s=time.time(),
            row=request.row,
            session=str(request.row.get("session", ""))[:200],
            pictures=(),
            prediction=answer.answer,
            confidence=answer.confidence,
            version=version,
            decided_by=decision.decided_by,
            judge_label=decision.judge_label,
            judge_probability=decision.judge_probability,
        )

        def keep() -> None:
            self.store.remember(shown, (path.read_bytes() for path in request.pictures))

        try:
            await self.run(keep)
        except (HTTPException, OSError):  # whoever asked gets the answer all the same
            return None
        return shown.id

    async def take(self, body: FeedbackBody, labels: Sequence[str]) -> FeedbackReply:
        """Record what a person says.

        Args:
            body: what they say.
            labels: every answer there is; empty if answers are open.

        Raises:
            HTTPException: 404 for an answer that is not kept, 422 for what is no label.
        """
        if body.label is not None and labels and body.label not in labels:
            raise HTTPException(422, f"a label is one of {', '.join(labels)}")

        def say() -> FeedbackReply:
            person = name_person(body.user, self.key)
            is_new = self.store.say(body.answer_id, person, body.label)
            item = self.store.read(body.answer_id)
            return FeedbackReply(
                answer_id=body.answer_id,
                is_new=is_new,
                label=None if item is None else item.label,
                num_people=0 if item is None else len(item.labels),
                is_correction=item is not None and item.is_correction,
            )

        try:
            return await self.run(say)
        except DataError as error:
            raise HTTPException(404, str(error)) from error

    async def run(self, work: Callable[[], T]) -> T:
        """Return what becomes of work with the store, after all that was handed in before.

        Raises:
            HTTPException: 503 if the store cannot be written.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except SQLAlchemyError as error:
            text = "the feedback store cannot be written; nothing was recorded"
            raise HTTPException(503, text, {"Retry-After": "1"}) from error
