"""Recording candidates: lists are drawn for each query, a frozen answerer tries them.

A recording that was stopped goes on where it was: lists follow from the selector, the settings and
the seed, and what is on disk is not asked again.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field

from groupwise.core import Config, Example, RunError, derive_seed, write_json
from groupwise.data.examples import DropLog
from groupwise.inference.stream import ReportStream
from groupwise_recipes.demo_selection.asking import Answerer, List, Result
from groupwise_recipes.demo_selection.candidate_files import CandidateFile, read_candidates
from groupwise_recipes.demo_selection.candidates import (
    Candidate,
    RecordedQuery,
    Recording,
    drop_repeated,
)
from groupwise_recipes.demo_selection.choosing import Likeness, PooledQueries, rank_pools
from groupwise_recipes.demo_selection.items import read_question
from groupwise_recipes.demo_selection.selector import PointerSelector

_LIKENESSES: tuple[Likeness, ...] = ("text", "picture", "both")
TEMPERATURES, NUM_SAMPLES, NUM_RANDOM = (1.0, 1.3), 2, 2
NUM_OTHER_LISTS = NUM_SAMPLES * len(TEMPERATURES) + len(_LIKENESSES) + NUM_RANDOM
"""Lists of a query beside those of the beam search, before repeated ones are dropped."""


class RecordingSettings(Config):
    """Which lists are tried for each query; all have one length.

    Attributes:
        num_shots: demonstrations of a list.
        num_beams: lists of a beam search by the selector, beside two samples of it at each of the
            temperatures 1.0 and 1.3, the nearest by text, by picture and by both, and two at
            random.
        correct_above: an answer is correct if its VQA accuracy is greater.
    """

    retired: ClassVar = {
        "temperatures": ([*TEMPERATURES],),
        "num_samples": (NUM_SAMPLES,),
        "has_nearest": (True,),
        "num_random": (NUM_RANDOM,),
    }
    num_shots: int = Field(default=2, ge=1, le=64)
    num_beams: int = Field(default=5, ge=1, le=4096)
    correct_above: float = Field(default=0.0, ge=0, lt=1)


@dataclass(frozen=True)
class DrawnLists:
    """Lists to try, without results.

    Attributes:
        candidates: of each query, by its id, no two alike.
        drops: lists that were drawn before for the same query.
    """

    candidates: dict[str, list[Candidate]]
    drops: DropLog


def draw_lists(
    selector: PointerSelector, asked: PooledQueries, settings: RecordingSettings, *, seed: int
) -> DrawnLists:
    """Draw the lists of each query; which they are does not depend on the other queries."""
    selector = copy.deepcopy(selector).cpu().eval()
    drops, found = DropLog(), dict[str, list[Candidate]]()
    nearest = {by: rank_pools(asked, by=by)[:, : settings.num_shots] for by in _LIKENESSES}
    for rows, query, pool in asked.split(1):
        one = asked.queries[rows.start].id
        generator = torch.Generator().manual_seed(derive_seed(seed, "recorded lists", one))
        drawing = _Drawing(selector, query, pool, asked.name_pool(one), settings, generator)
        lists = [*drawing.search(), *drawing.sample()]
        positions = torch.stack([ranked[rows.start] for ranked in nearest.values()])
        lists += drawing.name(positions, "retrieval")
        lists += drawing.draw()
        found[one] = drop_repeated(lists, drops, where=f"query {one}")
    return DrawnLists(found, drops)


@dataclass(frozen=True)
class _Drawing:
    """The lists of one query."""

    selector: PointerSelector
    query: torch.Tensor
    pool: torch.Tensor
    ids: List
    settings: RecordingSettings
    generator: torch.Generator

    def search(self) -> list[Candidate]:
        lists, totals = self.selector.search(
            self.query,
            self.pool,
            num_shots=self.settings.num_shots,
            num_beams=self.settings.num_beams,
        )
        return self.name(lists[0], "beam", log_probs=totals[0].tolist())

    def sample(self) -> list[Candidate]:
        found: list[Candidate] = []
        for temperature in TEMPERATURES:
            lists = self.selector.sample(
                self.query,
                self.pool,
                num_shots=self.settings.num_shots,
                num_lists=NUM_SAMPLES,
                temperature=temperature,
                generator=self.generator,
            )
            with torch.no_grad():
                log_probs = self.selector.log_probs(self.query, self.pool, lists)[0].tolist()
            named = self.name(lists[0], "sample", log_probs=log_probs)
            found += [replace(one, temperature=temperature) for one in named]
        return found

    def draw(self) -> list[Candidate]:
        shape = (NUM_RANDOM, len(self.ids))
        orders = torch.rand(shape, generator=self.generator).argsort(-1)
        return self.name(orders[:, : self.settings.num_shots], "random")

    def name(
        self, positions: torch.Tensor, method: str, *, log_probs: Sequence[float] | None = None
    ) -> list[Candidate]:
        """Return the lists of positions in the pool, shape [G, S]."""
        scores = log_probs if log_probs is not None else [None] * len(positions)
        named = [tuple(self.ids[place] for place in row) for row in positions.tolist()]
        return [
            Candidate(ids, method, log_prob=score) for ids, score in zip(named, scores, strict=True)
        ]


def record_candidates(
    path: Path,
    answerer: Answerer,
    asked: PooledQueries,
    drawn: DrawnLists,
    *,
    correct_above: float = 0.0,
    report_progress: ReportStream | None = None,
) -> Recording:
    """Try the lists of all queries, those first that are not on disk yet, and return the recording.

    A list whose evaluation failed has no accuracy and is not asked again. Lists that were drawn
    twice are counted in ``<name of the file>-drops.json``.
    """
    conditions = answerer.describe(sampler=asked.pools.digest, correct_above=correct_above)
    write_json(path.with_name(f"{path.stem}-drops.json"), drawn.drops.to_json())
    with CandidateFile(path, conditions) as rows:
        if rows.finished:
            _check_same(read_candidates(path), drawn, asked, path)
        todo = [query for query in asked.queries if query.id not in rows.finished]
        found = answerer.ask(_list_asked(todo, drawn), report_progress=report_progress)
        for query, results in zip(todo, found, strict=True):
            lists = drawn.candidates[query.id]
            scored = zip(lists, results.values(), strict=True)
            tried = [_add_result(one, result, correct_above) for one, result in scored]
            rows.append(_write(query, asked, tried))
    return read_candidates(path)


def _list_asked(
    queries: Sequence[Example], drawn: DrawnLists
) -> Iterator[tuple[Example, list[List]]]:
    for query in queries:
        yield query, [tuple(map(str, one.ids)) for one in drawn.candidates[query.id]]


def _add_result(candidate: Candidate, result: Result, above: float) -> Candidate:
    if result.accuracy is None:
        return candidate
    return replace(
        candidate,
        answer=result.answer,
        accuracy=result.accuracy,
        correct=result.accuracy > above,
        scored_by="VqaAccuracy",
    )


def _write(query: Example, asked: PooledQueries, tried: Sequence[Candidate]) -> RecordedQuery:
    return RecordedQuery(
        query_id=query.id,
        question_id=query.fields["question_id"],
        image_id=query.fields.get("image_id"),
        question=read_question(query),
        answers=tuple(query.fields["answers"]),
        pool=asked.name_pool(query.id),
        candidates=tuple(tried),
    )


def _check_same(recording: Recording, drawn: DrawnLists, asked: PooledQueries, path: Path) -> None:
    """Refuse to go on with lists of another selector, seed or set of queries."""
    for query in recording.queries:
        now = drawn.candidates.get(query.query_id)
        if (
            now is None
            or query.pool != asked.name_pool(query.query_id)
            or ([one.ids for one in query.candidates] != [one.ids for one in now])
        ):
            raise RunError(
                f"{path} was begun with other lists",
                got=f"others of query {query.query_id}",
                expected="the same queries, selector, settings and seed",
                fix="record into a new file",
            )
