"""The one way from a row and its pictures to an answer that is kept and counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from uuid import uuid4

from fastapi import Request as HttpRequest
from pydantic_core import to_json

from groupwise.core import digest_file
from groupwise.serving.bench import Bench, Decision, take_answer
from groupwise.serving.bodies import Contents, PredictBody, check_text
from groupwise.serving.predictor import Answer, Request
from groupwise.serving.state import State


@dataclass(frozen=True, slots=True)
class Given:
    """An answer with all that is told of it.

    Attributes:
        id: of the request.
        answer: of the policy.
        decision: what is answered.
        version: that answered.
        pictures: digest of each picture as it was received, where somebody decides on it.
        answer_id: under which it is kept; None: it is not.
    """

    id: str
    answer: Answer
    decision: Decision
    version: str
    pictures: tuple[str, ...]
    answer_id: str | None


async def give_answer(
    state: State,
    http: HttpRequest,
    body: PredictBody,
    contents: Contents,
    bench: Bench | None = None,
) -> Given:
    """Return the answer to a row by the version that is served as its question is made."""
    started = monotonic()
    check_text(to_json(body.row), state.settings)
    with state.places.take():
        async with state.uploads.store(contents) as paths:
            request = Request(body.id or uuid4().hex, body.row, paths.files)
            with state.versions.use() as version:
                question, answer = await state.ask(
                    http,
                    version,
                    paths,
                    lambda: version.predictor.make_question(request, paths.folder),
                )
            decision, pictures = take_answer(answer), ()
            if bench is not None:
                decision = await bench.decide(answer, question, str(body.row["task"]))
                pictures = await paths.run(_digest_each, paths.files)
            name = None
            if state.desk is not None:
                name = await state.desk.remember(request, answer, decision, version.name)
                state.meters.kept.labels("no" if name is None else "yes").inc()
    state.meters.seconds.observe(monotonic() - started)
    _count(state, decision)
    return Given(request.id, answer, decision, version.name, pictures, name)


def _digest_each(paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(map(digest_file, paths))


def _count(state: State, decision: Decision) -> None:
    meters, label = state.meters, decision.label
    known = label if label in state.versions.current.predictor.labels else "open"
    meters.answers.labels("none" if label is None else known).inc()
    if decision.needs_person:
        meters.for_people.inc()
