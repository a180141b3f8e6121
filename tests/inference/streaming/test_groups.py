"""Groups keep their own, whatever order outcomes come in, and few are in memory at a time."""

import gc
import itertools
import random
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import EchoBackend, expect, make_text_groups, read

from groupwise.core import Completion
from groupwise.inference.engine import Sampling
from groupwise.inference.streaming.groups import StreamLine, StreamProgress, generate_groups
from groupwise.inference.streaming.work import Failure, StreamSettings, WorkGroup

GREEDY = Sampling()


def run(backend, groups, order="given", **named):
    settings = StreamSettings(order=order)
    return generate_groups(backend, groups, sampling=GREEDY, settings=settings, **named)


class ShuffledBackend(EchoBackend):
    """Answers in any order."""

    def stream(self, items, *, sampling, settings):
        found = list(items)
        random.Random(self.batch).shuffle(found)
        yield from ((item.number, self.answer(item.example)) for item in found)


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(0, 99))
def test_every_group_has_its_own_in_the_given_order(sizes, seed):
    found = read(run(ShuffledBackend(batch=seed), make_text_groups(*sizes)))
    assert found == expect(*sizes)


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(0, 99))
def test_as_finished_no_group_is_lost_and_none_is_twice(sizes, seed):
    found = read(run(ShuffledBackend(batch=seed), make_text_groups(*sizes), order="finished"))
    assert sorted(found) == expect(*sizes)


def test_a_group_is_yielded_as_soon_as_it_is_finished():
    """The echo answers backwards in fours: g1 is finished before g0."""
    groups = make_text_groups(3, 1)
    assert [o.id for o in run(EchoBackend(batch=4), groups, order="finished")] == ["g1", "g0"]
    assert [o.id for o in run(EchoBackend(batch=4), groups)] == ["g0", "g1"]


@pytest.mark.parametrize("order", [pytest.param("given", marks=pytest.mark.slow), "finished"])
def test_groups_are_taken_one_after_another_and_let_go(order):
    references = []

    class Watched(WorkGroup):
        __slots__ = ("__weakref__",)

    def make():
        for number in itertools.count():
            group = Watched(f"g{number}", make_text_groups(2)[0].examples)
            references.append(weakref.ref(group))
            yield group

    backend = EchoBackend(batch=4)
    outcomes = run(backend, make(), order)
    for number, outcome in enumerate(itertools.islice(outcomes, 500)):
        assert outcome.completions
        assert max(backend.taken) <= 2 * number + 8
        if number % 100 == 0:
            gc.collect()
            assert sum(reference() is not None for reference in references) <= 4
    assert not backend.closed
    outcomes.close()
    assert backend.closed


def test_groups_of_one_id_are_kept_apart_and_some_are_empty():
    groups = [WorkGroup("same", g.examples) for g in make_text_groups(1, 2)]
    assert [len(o.completions) for o in run(EchoBackend(), groups)] == [1, 2]
    assert list(run(EchoBackend(), [])) == []
    assert read(run(EchoBackend(), make_text_groups(0, 0))) == expect(0, 0)


def test_a_failure_is_no_text_and_belongs_to_its_item():
    def answer(example):
        text = example.prompt[-1].text
        return Failure("picture", "torn") if text == "g0.1" else Completion(text)

    first, second = run(EchoBackend(answer), make_text_groups(3, 1))
    assert first.completions[1] == Failure("picture", "torn")
    assert [c.text for c in first.completions[::2]] == ["g0.0", "g0.2"]
    assert (first.failures, second.failures) == ((Failure("picture", "torn"),), ())


def test_what_the_groups_raise_is_raised():
    def make():
        yield from make_text_groups(1)
        raise OSError("gone")

    backend = EchoBackend()
    outcomes = run(backend, make())
    assert next(outcomes).id == "g0"
    with pytest.raises(OSError, match="gone"):
        next(outcomes)
    assert backend.closed


def test_progress_counts_items_groups_and_failures():
    seen = []
    answers = iter([Completion("a"), Failure("memory", ""), Completion("b")])
    backend = EchoBackend(lambda _: next(answers))
    list(run(backend, make_text_groups(2, 0, 1), report_progress=seen.append))
    counts = [(p.num_items, p.num_failures, p.num_groups, p.total_items) for p in seen]
    assert counts == [(1, 0, 0, 3), (2, 1, 1, 3), (3, 1, 3, 3)]
    seen.clear()
    list(run(EchoBackend(), iter(make_text_groups(1)), report_progress=seen.append))
    assert seen[0].total_items is None
    list(run(EchoBackend(), iter(make_text_groups(1)), report_progress=seen.append, num_items=9))
    assert seen[1].total_items == 9


def test_a_line_about_a_stream_has_its_rate_and_comes_at_its_end():
    progress = StreamProgress(30, 2, 10, 90, elapsed_s=15.0)
    assert progress.items_per_s == 2.0
    assert progress.describe() == "10 groups, 2 failed, 2.0/s"
    assert StreamProgress(0, 0, 0, 90, elapsed_s=0.0).describe() == "0 groups, 0.0/s"
    said = []
    line = StreamLine(said.append)
    for num_items in (1, 2, 3, 4):
        line(StreamProgress(num_items, 0, num_items, 4, elapsed_s=2.0))
    assert said == ["4 of 4 items, 4 groups, 2.0/s"]
