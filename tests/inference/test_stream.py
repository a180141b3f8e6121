"""Groups keep their own, whatever order outcomes come in, and few are in memory at a time.

Behind a server: many requests at once, pictures within the limit, failures kept to their item.
"""

import asyncio
import base64
import gc
import io
import itertools
import random
import weakref
from types import SimpleNamespace

import pytest
from faulty_server import MODEL, Fault
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from streams import EchoBackend, ask, draw, expect, make_text_groups, read

from groupwise.core import (
    Completion,
    Message,
    ModelError,
    ProgressLine,
    make_example,
    read_picture,
)
from groupwise.inference.model import Reply
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import (
    LimitSettings,
    RetrySettings,
    Sampling,
    ServerSettings,
    StreamSettings,
)
from groupwise.inference.stream import Failure, generate_groups

GREEDY = Sampling()


def run(stream, groups, **named):
    return generate_groups(stream, groups, sampling=GREEDY, **named)


class ShuffledBackend(EchoBackend):
    """Answers in any order."""

    def stream(self, examples, *, sampling, settings):
        found = list(enumerate(examples))
        random.Random(self.batch).shuffle(found)
        yield from ((number, self.answer(example)) for number, example in found)


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(0, 99))
def test_every_group_has_its_own_in_the_given_order(sizes, seed):
    found = read(run(ShuffledBackend(batch=seed), make_text_groups(*sizes)))
    assert found == expect(*sizes)


def test_groups_are_taken_one_after_another_and_let_go():
    references = []

    class Watched(list):
        """Examples that say whether they are still referred to."""

    def make():
        for number in itertools.count():
            examples = Watched(make_text_groups(2)[0][1])
            references.append(weakref.ref(examples))
            yield f"g{number}", examples

    backend = EchoBackend(batch=4)
    outcomes = run(backend, make())
    for number, (_, completions) in enumerate(itertools.islice(outcomes, 500)):
        assert completions
        assert max(backend.taken) <= 2 * number + 8
        if number % 100 == 0:
            gc.collect()
            assert sum(reference() is not None for reference in references) <= 4
    assert not backend.closed
    outcomes.close()
    assert backend.closed


def test_groups_of_one_id_are_kept_apart_and_some_are_empty():
    groups = [("same", examples) for _, examples in make_text_groups(1, 2)]
    assert [len(found) for _, found in run(EchoBackend(), groups)] == [1, 2]
    assert list(run(EchoBackend(), [])) == []
    assert read(run(EchoBackend(), make_text_groups(0, 0))) == expect(0, 0)


def test_a_failure_is_no_text_and_belongs_to_its_item():
    def answer(example):
        text = example.prompt[-1].text
        return Failure("picture", "torn") if text == "g0.1" else Completion(text)

    torn = Failure("picture", "torn")
    assert list(run(EchoBackend(answer), make_text_groups(3, 1))) == [
        ("g0", [Completion("g0.0"), torn, Completion("g0.2")]),
        ("g1", [Completion("g1.0")]),
    ]


def test_what_the_groups_raise_is_raised():
    def make():
        yield from make_text_groups(1)
        raise OSError("gone")

    backend = EchoBackend()
    outcomes = run(backend, make())
    assert next(outcomes)[0] == "g0"
    with pytest.raises(OSError, match="gone"):
        next(outcomes)
    assert backend.closed


def test_progress_counts_items_groups_and_failures():
    seen = []
    answers = iter([Completion("a"), Failure("memory", ""), Completion("b")])
    backend = EchoBackend(lambda _: next(answers))

    def note(num_done, num_all, line):
        groups, *failed, rate = line.split(", ")
        assert rate.endswith("/s")
        seen.append((num_done, num_all, groups, *failed))

    list(run(backend, make_text_groups(2, 0, 1), report_progress=note))
    one, two = (1, 3, "0 groups"), (2, 3, "1 groups", "1 failed")
    assert seen == [one, two, (3, 3, "3 groups", "1 failed")]
    seen.clear()
    list(run(EchoBackend(), iter(make_text_groups(1)), report_progress=note))
    assert seen[0][1] is None
    list(run(EchoBackend(), iter(make_text_groups(1)), report_progress=note, num_items=9))
    assert seen[1][1] == 9


def test_a_line_about_a_stream_has_its_rate_and_comes_at_its_end(monkeypatch):
    clock = iter([0.0, 0.5, 1.0, 1.5, 2.0])
    timed = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("groupwise.inference.stream.time", timed)
    said = []
    line = ProgressLine("items", said.append, clock=lambda: 0.0)
    list(run(EchoBackend(), make_text_groups(1, 1, 1, 1), report_progress=line))
    assert said == ["4 of 4 items, 4 groups, 2.0/s"]


PENALISED = Sampling(max_new_tokens=9, repetition_penalty=1.1)
QUICK = RetrySettings(max_attempts=3, base_delay_s=0.001)


@pytest.fixture
def server(server):
    server.answer = lambda request: Fault(content=find_text(request))
    return server


def find_text(request):
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def find_picture(request):
    part = request["messages"][-1]["content"][0]
    kind, _, data = part["image_url"]["url"].partition(",")
    return kind, base64.b64decode(data)


def make_settings(server, **changes):
    given = {"url": server.url, "model": MODEL, "timeout_s": 20.0, "retry": QUICK} | changes
    return ServerSettings(**given)


def serve(server, groups, *, max_pixels=10_000, **changes):
    stream = ServerModel(make_settings(server, **changes), max_pixels=max_pixels)
    settings = StreamSettings(batch_size=2)
    return generate_groups(stream, groups, sampling=PENALISED, settings=settings)


def test_groups_of_all_sizes_keep_their_own_behind_a_server(server):
    sizes = (3, 0, 1, 60, 0, 7)
    assert read(serve(server, make_text_groups(*sizes))) == expect(*sizes)
    assert len(server.asked) == 71
    assert server.asked[0]["repetition_penalty"] == 1.1
    assert server.asked[0]["max_tokens"] == 9


def test_no_more_is_asked_at_once_than_allowed(server):
    server.answer = lambda _: Fault(delay_s=0.01)
    list(serve(server, make_text_groups(40), limits=LimitSettings(max_concurrency=3)))
    assert 1 < server.most_open <= 3


def test_what_fails_for_a_while_is_asked_again(server):
    server.script = [Fault(status=500, body=b""), Fault(cut=True), Fault(status=429, body=b"")]
    assert read(serve(server, make_text_groups(4, 4))) == expect(4, 4)
    assert len(server.asked) == 11


def test_what_fails_for_good_is_a_failure_of_its_item(server):
    def answer(request):
        text = find_text(request)
        if text == "g0.1":
            return Fault(status=400, body=b'{"error": {"message": "too many tokens"}}')
        return Fault(content=None) if text == "g1.0" else Fault(content=text)

    server.answer = answer
    (_, [one, refused, two]), (_, [missing]) = serve(server, make_text_groups(3, 1))
    assert (one.text, two.text) == ("g0.0", "g0.2")
    assert (refused.cause, missing.cause) == ("refused", "no_content")
    assert "too many tokens" in refused.message
    assert sum(find_text(asked) == "g1.0" for asked in server.asked) == 3


def test_a_reply_that_is_cut_says_so(server):
    server.answer = lambda _: Fault(content="{", finish_reason="length")
    assert list(serve(server, make_text_groups(1))) == [
        ("g0", [Completion("{", finish_reason="length")])
    ]


def test_larger_pictures_are_sent_upright_within_the_limit_and_leave_no_file(
    server, tmp_path, monkeypatch
):
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.jpg"
    Image.new("RGB", (400, 200), "red").save(path, exif=exif)
    list(serve(server, [("a", (ask("a", path), ask("b", path)))]))
    assert len(server.asked) == 2
    for asked in server.asked:
        kind, content = find_picture(asked)
        assert kind == "data:image/png;base64"
        assert Image.open(io.BytesIO(content)).size == (70, 140)
    assert list((tmp_path / "copies").iterdir()) == []


def test_pictures_within_the_limit_and_beyond_it_keep_their_places(server, tmp_path):
    small, large = draw(tmp_path / "照片 1.jpg", (40, 30)), draw(tmp_path / "large.png", (400, 200))
    parts = [read_picture(small), "a", read_picture(large), "b"]
    prompt = [Message("user", "?"), Message("assistant", "!"), Message("user", parts)]
    list(serve(server, [("a", (make_example(prompt, cluster="g"),))]))
    content = server.asked[0]["messages"][-1]["content"]
    assert [part.get("text") for part in content] == [None, "a", None, "b"]
    urls = [part["image_url"]["url"].partition(",")[2] for part in content[::2]]
    sizes = [Image.open(io.BytesIO(base64.b64decode(url))).size for url in urls]
    assert sizes == [(40, 30), (140, 70)]
    assert find_picture(server.asked[0]) == ("data:image/jpeg;base64", small.read_bytes())


def test_a_broken_picture_is_not_sent(server, tmp_path):
    whole = draw(tmp_path / "whole.jpg", (300, 200))
    (tmp_path / "torn.jpg").write_bytes(whole.read_bytes()[:1500])
    examples = (ask("a", whole), ask("b", tmp_path / "torn.jpg"), ask("c", whole))
    [(_, [_, failure, _])] = serve(server, [("a", examples)], max_pixels=None)
    assert failure.cause == "picture"
    assert "torn.jpg" in failure.message
    assert sorted(find_text(asked) for asked in server.asked) == ["a", "c"]


class SlowFirst(ServerModel):
    """Answers the first item when so many others have been answered, and notes who began."""

    def __init__(self, settings, num_others):
        super().__init__(settings)
        self.num_open = num_others
        self.is_free = asyncio.Event()
        self.begun = []

    async def reply(self, example, *, sampling):
        text = example.prompt[-1].text
        self.begun.append(text)
        if text == "g0.0":
            await asyncio.wait_for(self.is_free.wait(), timeout=60)
            await asyncio.sleep(0.2)  # whoever may begin now has begun
            self.num_begun = len(self.begun)
        self.num_open -= 1
        if self.num_open == 0:
            self.is_free.set()
        return Reply(text)


def test_a_slow_reply_bounds_what_is_started(server):
    """All are answered at once but the first; what waits for it is bounded."""
    settings = make_settings(server, limits=LimitSettings(max_concurrency=2))
    model, groups = SlowFirst(settings, 23), make_text_groups(*[1] * 400)
    found = generate_groups(model, groups, sampling=GREEDY, settings=StreamSettings(batch_size=2))
    assert read(found) == expect(*[1] * 400)
    assert model.num_begun == 24


def test_leaving_early_stops_asking(server):
    server.answer = lambda request: Fault(content=find_text(request), delay_s=0.01)
    outcomes = serve(server, make_text_groups(*[1] * 500), limits=LimitSettings(max_concurrency=2))
    assert next(outcomes)[0] == "g0"
    outcomes.close()
    assert read(serve(server, make_text_groups(20))) == expect(20)
    assert len(server.asked) < 20 + 30


def answer_but(fault, places):
    """Answer the items of one group but those at some places."""
    bad = {f"g0.{place}" for place in places}
    return lambda asked: fault if find_text(asked) in bad else Fault(content=find_text(asked))


ONE_BY_ONE = LimitSettings(max_concurrency=1)
REFUSED = Fault(status=400, body=b'{"error": {"message": "too many tokens"}}')


def test_a_server_that_is_gone_or_refuses_everything_ends_the_stream(server):
    server.answer = answer_but(Fault(cut=True), range(10, 90))
    with pytest.raises(ModelError, match=r"16 items in a row failed, .*no connection to"):
        list(serve(server, make_text_groups(90), limits=ONE_BY_ONE))
    assert len(server.asked) <= 10 + 3 * (16 + 5)
    server.answer = lambda _: REFUSED
    with pytest.raises(ModelError, match=r"16 items in a row failed, .*too many tokens"):
        list(serve(server, make_text_groups(90), limits=ONE_BY_ONE))


def test_one_that_comes_back_in_time_is_asked_on_and_may_refuse_a_whole_group(server):
    server.answer = answer_but(Fault(cut=True), [*range(15), *range(20, 35)])
    [(_, found)] = serve(server, make_text_groups(40), limits=ONE_BY_ONE)
    assert [one.cause for one in found if isinstance(one, Failure)] == ["connection"] * 30
    server.answer = answer_but(REFUSED, range(1, 40))
    [(_, found)] = serve(server, make_text_groups(41), limits=ONE_BY_ONE)
    assert sum(isinstance(one, Failure) for one in found) == 39


def test_an_empty_reply_is_an_answer_and_a_missing_one_is_not(server):
    server.script = [Fault(content=""), *[Fault(content=None)] * 3]
    (_, first), (_, [missing]) = serve(server, make_text_groups(1, 1), limits=ONE_BY_ONE)
    assert first == [Completion("")]
    assert (missing.cause, "no content" in missing.message) == ("no_content", True)
    assert len(server.asked) == 4
