"""Many requests at once, pictures within the limit, failures kept to their item."""

import asyncio
import base64
import io
from concurrent.futures import Future
from typing import ClassVar

import pytest
from faulty_server import MODEL, Fault
from PIL import Image
from streams import ask, draw, expect, make_text_groups, read

from groupwise.core import (
    Completion,
    ConfigError,
    Message,
    ModelError,
    make_example,
    read_picture,
)
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.inference.local_responder import LocalResponder
from groupwise.inference.responder import Reply
from groupwise.inference.server import ServerEngine
from groupwise.inference.server_settings import LimitSettings, RetrySettings, ServerSettings
from groupwise.inference.streaming.groups import generate_groups
from groupwise.inference.streaming.server import ServerBackend
from groupwise.inference.streaming.work import StreamSettings, WorkGroup, WorkItem

GREEDY = Sampling(max_new_tokens=9, repetition_penalty=1.1)
QUICK = RetrySettings(max_attempts=3, base_delay_s=0.001, max_delay_s=0.002)


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


def run(server, groups, *, order="given", max_pixels=10_000, **changes):
    return generate_groups(
        ServerBackend(make_settings(server, **changes)),
        groups,
        sampling=GREEDY,
        settings=StreamSettings(order=order, max_pixels=max_pixels, batch_size=4, look_ahead=2),
    )


@pytest.mark.parametrize("order", ["given", "finished"])
def test_groups_of_all_sizes_keep_their_own(server, order):
    sizes = (3, 0, 1, 60, 0, 7)
    found = read(run(server, make_text_groups(*sizes), order=order))
    assert sorted(found) == expect(*sizes)
    assert found == expect(*sizes) or order == "finished"
    assert len(server.asked) == 71
    assert server.asked[0]["repetition_penalty"] == 1.1
    assert server.asked[0]["max_tokens"] == 9


def test_no_more_is_asked_at_once_than_allowed(server):
    server.answer = lambda _: Fault(delay_s=0.01)
    list(run(server, make_text_groups(40), limits=LimitSettings(max_concurrency=3)))
    assert 1 < server.most_open <= 3


def test_what_fails_for_a_while_is_asked_again(server):
    server.script = [Fault(status=500, body=b""), Fault(cut=True), Fault(status=429, body=b"")]
    assert read(run(server, make_text_groups(4, 4))) == expect(4, 4)
    assert len(server.asked) == 11


def test_what_fails_for_good_is_a_failure_of_its_item(server):
    def answer(request):
        text = find_text(request)
        if text == "g0.1":
            return Fault(status=400, body=b'{"error": {"message": "too many tokens"}}')
        return Fault(content=None) if text == "g1.0" else Fault(content=text)

    server.answer = answer
    first, second = run(server, make_text_groups(3, 1))
    assert [c.text for c in first.completions[::2]] == ["g0.0", "g0.2"]
    assert [(f.cause, "too many tokens" in f.message) for f in first.failures] == [
        ("refused", True)
    ]
    assert [f.cause for f in second.failures] == ["no_content"]
    assert sum(find_text(asked) == "g1.0" for asked in server.asked) == 3


def test_a_reply_that_is_cut_says_so(server):
    server.answer = lambda _: Fault(content="{", finish_reason="length")
    [outcome] = run(server, make_text_groups(1))
    assert outcome.completions == (Completion("{", finish_reason="length"),)


def test_larger_pictures_are_sent_within_the_limit_and_their_copies_removed(
    server, tmp_path, monkeypatch
):
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 200), "red").save(tmp_path / "turned.jpg", exif=exif)
    path = tmp_path / "turned.jpg"
    groups = [WorkGroup("a", (ask("a", path), ask("b", path)))]
    list(run(server, groups))
    for asked in server.asked:
        kind, content = find_picture(asked)
        assert kind == "data:image/png;base64"
        assert Image.open(io.BytesIO(content)).size == (70, 140)
    assert list((tmp_path / "copies").iterdir()) == []


def test_pictures_within_the_limit_and_beyond_it_keep_their_places(server, tmp_path):
    small, large = draw(tmp_path / "照片 1.jpg", (40, 30)), draw(tmp_path / "large.png", (400, 200))
    parts = [read_picture(small), "a", read_picture(large), "b"]
    prompt = [Message("user", "?"), Message("assistant", "!"), Message("user", parts)]
    list(run(server, [WorkGroup("a", (make_example(prompt, cluster="g"),))]))
    content = server.asked[0]["messages"][-1]["content"]
    assert [part.get("text") for part in content] == [None, "a", None, "b"]
    urls = [part["image_url"]["url"].partition(",")[2] for part in content[::2]]
    sizes = [Image.open(io.BytesIO(base64.b64decode(url))).size for url in urls]
    assert sizes == [(40, 30), (140, 70)]
    assert find_picture(server.asked[0]) == ("data:image/jpeg;base64", small.read_bytes())


def test_copies_of_larger_pictures_do_not_pile_up(server, tmp_path, monkeypatch):
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    num_copies = []

    def answer(_):
        num_copies.append(len(list((tmp_path / "copies").rglob("*.png"))))
        return Fault()

    server.answer = answer
    path = draw(tmp_path / "large.jpg", (400, 200))
    groups = [WorkGroup("a", tuple(ask(str(n), path) for n in range(30)))]
    list(run(server, groups, limits=LimitSettings(max_concurrency=1)))
    assert 1 <= max(num_copies) <= 6


def test_a_broken_picture_is_not_sent(server, tmp_path):
    whole = draw(tmp_path / "whole.jpg", (300, 200))
    (tmp_path / "torn.jpg").write_bytes(whole.read_bytes()[:1500])
    examples = (ask("a", whole), ask("b", tmp_path / "torn.jpg"), ask("c", whole))
    [outcome] = run(server, [WorkGroup("a", examples)], max_pixels=None)
    assert [f.cause for f in outcome.failures] == ["picture"]
    assert "torn.jpg" in outcome.failures[0].message
    assert sorted(find_text(asked) for asked in server.asked) == ["a", "c"]


class SlowFirst:
    """Answers the first item when all others have been answered."""

    identity: ClassVar = {}

    def __init__(self, num_others):
        self.num_open = num_others
        self.is_free = asyncio.Event()

    async def respond(self, example, *, sampling):
        text = example.prompt[-1].text
        if text == "g0.0":
            await asyncio.wait_for(self.is_free.wait(), timeout=60)
        self.num_open -= 1
        if self.num_open == 0:
            self.is_free.set()
        return Reply(text)


def test_a_slow_reply_does_not_hold_up_what_is_taken_as_finished():
    backend = ServerBackend(SlowFirst(199), max_concurrency=2)
    settings = StreamSettings(order="finished", batch_size=4, look_ahead=2)
    groups = make_text_groups(*[1] * 200)
    found = read(generate_groups(backend, groups, sampling=GREEDY, settings=settings))
    assert found.index(("g0", ["g0.0"])) > 190
    assert sorted(found) == sorted(expect(*[1] * 200))


@pytest.mark.parametrize(("order", "num_started"), [("given", 24), ("finished", 400)])
def test_a_slow_reply_bounds_what_is_started_in_the_given_order(server, order, num_started):
    """All are answered at once but the first; what waits for it in the given order is bounded."""
    backend = ServerBackend(make_settings(server, limits=LimitSettings(max_concurrency=2)))
    settings = StreamSettings(order=order, batch_size=4, look_ahead=2, num_threads=4)
    running, started = {}, []
    for item in backend._pace((WorkItem(n, None) for n in range(400)), running, settings):
        if item is None and len(running) == 1:
            break
        if item is not None:
            started.append(item.number)
            running[Future()] = item.number
        else:
            for future in [f for f, number in running.items() if number > 0]:
                del running[future]
    assert len(started) == num_started


def test_leaving_early_stops_asking(server):
    server.answer = lambda request: Fault(content=find_text(request), delay_s=0.01)
    outcomes = run(server, make_text_groups(*[1] * 500), limits=LimitSettings(max_concurrency=2))
    assert next(outcomes).id == "g0"
    outcomes.close()
    assert read(run(server, make_text_groups(20))) == expect(20)
    assert len(server.asked) < 20 + 30


def test_any_responder_may_answer(text, text_examples):
    engine = LocalEngine(text, batch_size=4)
    backend = ServerBackend(LocalResponder(engine, model="tiny", revision="1"), max_concurrency=4)
    sampling = Sampling(max_new_tokens=6)
    groups = [WorkGroup("a", tuple(text_examples))]
    [outcome] = generate_groups(backend, groups, sampling=sampling)
    expected = engine.generate(text_examples, sampling=sampling)
    assert [c.text for c in outcome.completions] == [drawn[0].text for drawn in expected]


def test_settings_of_the_server_are_used(server, monkeypatch):
    settings = make_settings(server, limits=LimitSettings(max_concurrency=7))
    for given in (settings, ServerEngine(settings)):
        backend = ServerBackend(given)
        assert (backend.max_concurrency, backend.retry_settings) == (7, QUICK)
    assert ServerBackend(settings, max_concurrency=2).max_concurrency == 2
    monkeypatch.delenv("NO_SUCH_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_API_KEY"):
        ServerBackend(make_settings(server, api_key_variable="NO_SUCH_API_KEY"))


def answer_but(fault, places):
    """Answer the items of one group but those at some places."""
    bad = {f"g0.{place}" for place in places}
    return lambda asked: fault if find_text(asked) in bad else Fault(content=find_text(asked))


ONE_BY_ONE = LimitSettings(max_concurrency=1)
REFUSED = Fault(status=400, body=b'{"error": {"message": "too many tokens"}}')


def test_a_server_that_is_gone_or_refuses_everything_ends_the_stream(server):
    server.answer = answer_but(Fault(cut=True), range(10, 90))
    with pytest.raises(ModelError, match=r"16 items in a row failed, .*no connection to"):
        list(run(server, make_text_groups(90), limits=ONE_BY_ONE))
    assert len(server.asked) <= 10 + 3 * (16 + 5)
    server.answer = lambda _: REFUSED
    with pytest.raises(ModelError, match=r"16 items in a row failed, .*too many tokens"):
        list(run(server, make_text_groups(90), limits=ONE_BY_ONE))


def test_one_that_comes_back_in_time_is_asked_on_and_may_refuse_a_whole_group(server):
    server.answer = answer_but(Fault(cut=True), [*range(15), *range(20, 35)])
    [outcome] = run(server, make_text_groups(40), limits=ONE_BY_ONE)
    assert [f.cause for f in outcome.failures] == ["connection"] * 30
    server.answer = answer_but(REFUSED, range(1, 40))
    [outcome] = run(server, make_text_groups(41), limits=ONE_BY_ONE)
    assert len(outcome.failures) == 39
