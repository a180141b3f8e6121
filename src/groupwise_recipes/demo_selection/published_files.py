"""The published form of recorded candidates: one JSON object with an entry for each query.

``{query_id: {query: {query_id, question_id, image_id, question, gt_answers_raw, gt_answers_norm},
candidate_pool_ids, pointer_candidates: [{pointer, pointer_global, …}]}, _meta}``. ``pointer`` holds
positions in the pool, ``pointer_global`` train ids. One of the two published files has no
``candidate_pool_ids``; there ``pointer`` may hold train ids, and ``pointer_pos`` the positions.
Other keys are not read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, TypeAdapter

from groupwise.core import DataError, parse_value, read_json, write_json
from groupwise.data.examples import DropLog
from groupwise.rewards import normalize_vqa_answer
from groupwise_recipes.demo_selection.candidates import (
    Candidate,
    RecordedQuery,
    Recording,
    drop_repeated,
)
from groupwise_recipes.demo_selection.conditions import Conditions, ItemId

_META = "_meta"
_CONDITIONS = "groupwise_conditions"


class _Pointer(BaseModel):
    pointer: list[ItemId]
    pointer_global: list[ItemId] | None = None
    pointer_pos: list[int] | None = None
    gen_method: str
    temperature: FiniteFloat | None = None
    logprob_score: FiniteFloat | None = None
    vqa_pred_answer: str | None = None
    vqa_correct: bool | None = None
    vqa_acc_score: FiniteFloat | None = None
    vqa_eval_mode: str | None = None
    eval_failed: bool = False


class _Query(BaseModel):
    query_id: ItemId
    question_id: ItemId
    image_id: ItemId | None = None
    question: str
    gt_answers_raw: list[str]


class _Entry(BaseModel):
    query: _Query
    candidate_pool_ids: list[ItemId] | None = None
    pointer_candidates: list[_Pointer]


_ENTRY = TypeAdapter(_Entry)
_SHAPE = TypeAdapter(Conditions)
_NOTES = TypeAdapter(dict[str, Any])


@dataclass(frozen=True)
class ImportedCandidates:
    """What came out of a published file: lists of the recording + drops are ``num_lists``."""

    recording: Recording
    drops: DropLog
    num_lists: int


def read_published(
    path: Path,
    *,
    conditions: Conditions | None = None,
    pools: Mapping[str, Sequence[ItemId]] | None = None,
) -> ImportedCandidates:
    """Read a file of either published form; lists that appear twice are dropped and counted.

    A list whose evaluation failed (``eval_failed``, or the mode ``error``) has no accuracy,
    whatever number stands there.
    """
    values = read_json(path, dict)
    notes = parse_value(values.pop(_META, {}), _NOTES, f"{path} {_META} is not as expected")
    drops, queries, num_lists = DropLog(), list[RecordedQuery](), 0
    for name, value in values.items():
        where = f"{path} query {name}"
        entry = parse_value(value, _ENTRY, f"{where} is not as expected")
        if str(entry.query.query_id) != name:
            raise DataError(f"{where} has another query_id", got=entry.query.query_id)
        num_lists += len(entry.pointer_candidates)
        queries.append(_read_entry(entry, name, where, given=(pools or {}).get(name), drops=drops))
    told = parse_value(notes.pop(_CONDITIONS, {}), _SHAPE, f"{path} {_META} is not as expected")
    recording = Recording(tuple(queries), conditions or told, notes)
    return ImportedCandidates(recording, drops, num_lists)


def write_published(recording: Recording, path: Path, *, with_pools: bool = True) -> None:
    """Write the published form, with ``candidate_pool_ids`` or without.

    Without them ``pointer`` and ``pointer_global`` both hold train ids.
    """
    meta = {**recording.notes, _CONDITIONS: asdict(recording.conditions)}
    entries = {
        query.query_id: _write_entry(recording, query, with_pools=with_pools)
        for query in recording.queries
    }
    write_json(path, {**entries, _META: meta})


def _read_entry(
    entry: _Entry, name: str, where: str, *, given: Sequence[ItemId] | None, drops: DropLog
) -> RecordedQuery:
    pool = entry.candidate_pool_ids
    if pool is not None and given is not None and pool != list(given):
        raise DataError(f"{where} was recorded with another pool than the one given")
    read: list[Candidate] = []
    for number, pointer in enumerate(entry.pointer_candidates):
        known = _choose_pool(pointer, pool, given)
        read.append(_read_pointer(pointer, _find_ids(pointer, known, f"{where} list {number}")))
    pool = pool or given
    _check_positions(entry, read, where)
    query = entry.query
    return RecordedQuery(
        query_id=name,
        question_id=query.question_id,
        image_id=query.image_id,
        question=query.question,
        answers=tuple(query.gt_answers_raw),
        pool=None if pool is None else tuple(pool),
        candidates=tuple(drop_repeated(read, drops, where=where)),
    )


def _choose_pool(
    pointer: _Pointer, pool: Sequence[ItemId] | None, given: Sequence[ItemId] | None
) -> Sequence[ItemId] | None:
    """Return the pool that positions are in; none where a file without pools has train ids."""
    positions, told = _split(pointer)
    return pool or (None if told == positions else given)


def _read_pointer(pointer: _Pointer, ids: tuple[ItemId, ...]) -> Candidate:
    has_failed = pointer.eval_failed or pointer.vqa_eval_mode == "error"
    return Candidate(
        ids=ids,
        method=pointer.gen_method,
        temperature=pointer.temperature,
        log_prob=pointer.logprob_score,
        answer=None if has_failed else pointer.vqa_pred_answer,
        accuracy=None if has_failed else pointer.vqa_acc_score,
        correct=None if has_failed else pointer.vqa_correct,
        scored_by=None if has_failed else pointer.vqa_eval_mode,
    )


def _find_ids(pointer: _Pointer, pool: Sequence[ItemId] | None, where: str) -> tuple[ItemId, ...]:
    """Return the train ids of a list, by whatever says them; all that does must agree."""
    positions, told = _split(pointer)
    if told is not None and len(told) != len(positions):
        raise DataError(f"{where} has pointers of different lengths", got=f"{positions} and {told}")
    if pool is None:
        if told is None:
            raise DataError(
                f"{where} has positions in a pool that is not there",
                got=f"the pointer {positions}, no pointer_global and no candidate_pool_ids",
                fix="give pools",
            )
        return tuple(told)
    found = tuple(_look_up(position, pool, where) for position in positions)
    if told is not None and found != tuple(told):
        raise DataError(
            f"{where}: its pool disagrees with pointer_global",
            got=told,
            expected=f"{list(found)}, which its pointer {positions} picks",
        )
    return found


def _split(pointer: _Pointer) -> tuple[list[ItemId], list[ItemId] | None]:
    """Return what may be positions, and the train ids if they are told."""
    if pointer.pointer_pos is None:
        return pointer.pointer, pointer.pointer_global
    told = pointer.pointer if pointer.pointer_global is None else pointer.pointer_global
    return list(pointer.pointer_pos), told


def _look_up(position: ItemId, pool: Sequence[ItemId], where: str) -> ItemId:
    if not isinstance(position, int) or not 0 <= position < len(pool):
        raise DataError(
            f"{where} points outside of the pool",
            got=repr(position),
            expected=f"a position from 0 to {len(pool) - 1}",
        )
    return pool[position]


def _check_positions(entry: _Entry, read: Sequence[Candidate], where: str) -> None:
    """Refuse lists that put two items at one position of a pool that was not recorded."""
    named: dict[ItemId, ItemId] = {}
    for pointer, candidate in zip(entry.pointer_candidates, read, strict=True):
        positions, _ = _split(pointer)
        if tuple(positions) == candidate.ids:
            continue
        for position, item in zip(positions, candidate.ids, strict=True):
            if named.setdefault(position, item) != item:
                raise DataError(
                    f"{where}: its lists disagree on position {position} of the pool",
                    got=f"{named[position]} and {item}",
                )


def _write_entry(recording: Recording, query: RecordedQuery, *, with_pools: bool) -> dict[str, Any]:
    pool = {"candidate_pool_ids": list(query.pool or ())} if with_pools else {}
    return {
        "query": {
            "query_id": query.query_id,
            "question_id": query.question_id,
            "image_id": query.image_id,
            "question": query.question,
            "gt_answers_raw": list(query.answers),
            "gt_answers_norm": [normalize_vqa_answer(text) for text in query.answers],
        },
        **pool,
        "pointer_candidates": [
            {
                "pointer": list(query.find_positions(one) if with_pools else one.ids),
                "pointer_global": list(one.ids),
                **_write_result(recording, one),
            }
            for one in query.candidates
        ],
    }


def _write_result(recording: Recording, one: Candidate) -> dict[str, Any]:
    values = recording.read_values(one)
    return {
        "gen_method": one.method,
        "temperature": one.temperature,
        "logprob_score": one.log_prob,
        "vqa_pred_answer": one.answer,
        "vqa_correct": None if values is None else int(values[0]),
        "vqa_acc_score": None if values is None else values[1],
        "vqa_eval_mode": "error" if values is None else one.scored_by,
        "eval_failed": values is None,
    }
