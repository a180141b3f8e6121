"""The HTTP engine against a server that fails, over real HTTP on loopback."""

import asyncio
import base64
import io
import json
import math
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import numpy as np
import pytest
from faulty_server import MODEL, Fault
from hypothesis import given
from hypothesis import strategies as st
from picture_kinds import save_kinds
from PIL import Image
from streams import draw

from groupwise.core import ConfigError, DataError, Message, make_example, open_picture, read_picture
from groupwise.inference.model import RequestError, Sampling, retry, run_on_shared_loop
from groupwise.inference.opening import open_model
from groupwise.inference.pictures import encode_picture
from groupwise.inference.server import ServerModel, describe_status, parse_retry_after, read_reply
from groupwise.inference.settings import (
    LimitSettings,
    ModelSource,
    RetrySettings,
    ServerSettings,
)

GREEDY = Sampling()
QUICK = RetrySettings(max_attempts=3, base_delay_s=0.001)


def make_engine(server, **changes):
    given = {"url": server.url, "model": MODEL, "timeout_s": 5.0, "retry": QUICK} | changes
    return ServerModel(ServerSettings(**given))


def ask(text="is it?", **named):
    return make_example(
        [Message("system", "be brief"), Message("user", text)], cluster="g", **named
    )


def respond(engine, example=None, sampling=GREEDY):
    return run_on_shared_loop(engine.reply(example or ask(), sampling=sampling))


def respond_to_all(engine, examples, sampling=GREEDY):
    """Return the replies; what fails is asked again."""

    async def ask_all():
        settings = engine.settings.retry
        asked = (partial(engine.reply, one, sampling=sampling) for one in examples)
        return await asyncio.gather(*(retry(attempt, settings) for attempt in asked))

    return run_on_shared_loop(ask_all())


def weigh(engine, labels=("yes", "no")):
    return run_on_shared_loop(engine.label_shares(ask(), labels=labels))


def test_a_reply_has_its_text_and_what_it_cost(server):
    server.script = [Fault(content="好的 yes")]
    reply = respond(make_engine(server, prompt_price=1.0, completion_price=10.0))
    assert (reply.text, reply.finish_reason) == ("好的 yes", "stop")
    assert (reply.usage.num_calls, reply.usage.prompt_tokens) == (1, 10)
    assert reply.usage.cost == pytest.approx((10 + 3 * 10) / 1e6)
    assert server.asked[0]["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "is it?"},
    ]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(status=429, body=b"{}"), "rate_limit"),
        (Fault(status=500, body=b"oops"), "server_error"),
        (Fault(status=503, body=b"<html>"), "server_error"),
        (Fault(status=408, body=b""), "timeout"),
        (Fault(status=400, body=b'{"error": {"message": "too long"}}'), "refused"),
        (Fault(status=301, body=b"", headers={"Location": "http://127.0.0.1:1/"}), "refused"),
        (Fault(delay_s=30), "timeout"),
        (Fault(trickle_s=0.05), "timeout"),
        (Fault(cut=True), "connection"),
        (Fault(body=b'{"choices": ['), "malformed"),
        (Fault(body=b""), "malformed"),
        (Fault(body=b"[" * 100_000), "malformed"),
        (Fault(body=b'{"choices": []}'), "malformed"),
        (Fault(body=b"\xff\xfe"), "malformed"),
        (Fault(headers={"Content-Encoding": "gzip"}), "malformed"),
    ],
)
def test_a_failure_has_its_cause(server, fault, cause):
    server.script = [fault]
    with pytest.raises(RequestError) as caught:
        respond(make_engine(server, timeout_s=0.3 if cause == "timeout" else 10.0))
    assert caught.value.cause == cause
    assert caught.value.usage.num_calls == 1
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(content=None), "no_content"),
        (Fault(content=" \n"), "empty"),
        (Fault(content="<true_fal", finish_reason="length"), "truncated"),
        (Fault(content="half", finish_reason="content_filter"), "truncated"),
    ],
)
def test_a_reply_that_is_no_whole_text_says_why_and_what_it_cost(server, fault, cause):
    server.script = [fault]
    reply = respond(make_engine(server))
    with pytest.raises(RequestError) as caught:
        reply.require_text()
    assert (caught.value.cause, caught.value.usage.completion_tokens) == (cause, 3)
    assert caught.value.is_retryable


def test_a_server_that_is_not_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(RequestError, match="no connection") as caught:
        respond(ServerModel(ServerSettings(url=url, model=MODEL)))
    assert caught.value.cause == "connection"


def test_a_wrong_model_name_is_not_asked_again(server):
    engine = make_engine(server, model="other")
    with pytest.raises(RequestError, match="`other` does not exist") as caught:
        respond_to_all(engine, [ask()])
    assert caught.value.cause == "refused"
    assert not caught.value.is_retryable
    assert len(server.asked) == 1


def test_what_failed_is_repeated_and_sampling_is_sent(server):
    server.answer = lambda request: Fault(content=request["messages"][-1]["content"])
    server.script = [Fault(status=500, body=b""), Fault(cut=True), Fault(status=429, body=b"")]
    texts = [f"number {number}" for number in range(20)]
    sampling = Sampling(temperature=0.5, top_p=0.9, max_new_tokens=7)
    replies = respond_to_all(make_engine(server), map(ask, texts), sampling)
    assert [reply.text for reply in replies] == texts
    assert len(server.asked) == 23
    asked = server.asked[0]
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (0.5, 0.9, 7)


NEUTRAL = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
FULL = {
    **{"temperature": 0.7, "top_p": 0.9, "top_k": 20},
    **{"min_p": 0.1, "repetition_penalty": 1.1, "seed": 7},
}


def test_every_parameter_of_sampling_is_sent_so_that_a_server_fills_in_none(server):
    engine = make_engine(server)
    respond(engine)
    respond(engine, sampling=Sampling(**FULL))
    server.script = [Fault(tokens={"yes": -0.1, "no": -2.5})]
    weigh(engine)
    for asked in (server.asked[0], *server.asked[2:]):
        assert {name: asked[name] for name in NEUTRAL} == NEUTRAL
        assert "seed" not in asked
    assert {name: server.asked[1][name] for name in FULL} == FULL


def test_what_a_server_refuses_is_left_out_and_may_not_be_asked_for(server):
    engine = make_engine(server, sends_extensions=False)
    respond(engine, sampling=Sampling(temperature=0.7, seed=7))
    assert not {"top_k", "min_p", "repetition_penalty"} & set(server.asked[0])
    assert (server.asked[0]["temperature"], server.asked[0]["seed"]) == (0.7, 7)
    with pytest.raises(ConfigError, match="not to be sent top_k and repetition_penalty"):
        respond(engine, sampling=Sampling(**FULL | {"min_p": 0.0}))


EXTRAS = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}


def test_extras_are_sent_with_every_request(server):
    engine = make_engine(server, extras=EXTRAS)
    respond(engine)
    server.script = [Fault(tokens={"yes": -0.1, "no": -2.5})]
    weigh(engine)
    for asked in server.asked:
        assert {name: asked[name] for name in EXTRAS} == EXTRAS
        assert asked["max_tokens"] > 0
    assert engine.identity["extras"] == json.dumps(EXTRAS, sort_keys=True)


def test_no_extra_takes_the_place_of_a_parameter(server):
    respond(make_engine(server))
    for name in (*server.asked[0], "stream", "n", "seed", "logprobs"):
        with pytest.raises(ValueError, match=f"{name} cannot be an extra"):
            ServerSettings(url=server.url, model=MODEL, extras={name: 1})


def test_a_refused_extra_is_named(server):
    server.script = [Fault(status=400, body=b"Extra inputs are not permitted")] * 2
    with pytest.raises(RequestError, match=r"not permitted.*extras: reasoning_effort, chat_"):
        respond(make_engine(server, extras=EXTRAS))
    with pytest.raises(RequestError) as caught:
        respond(make_engine(server))
    assert "extras" not in str(caught.value)


@pytest.mark.parametrize(
    "details", [None, [1], {"reasoning_tokens": -1}, {"reasoning_tokens": "2"}]
)
def test_reasoning_tokens_that_are_not_told_are_none(details):
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "completion_tokens_details": details}
    choice = {"message": {"content": "x"}, "finish_reason": "stop"}
    reply = read_reply(json.dumps({"choices": [choice], "usage": usage}).encode())
    assert (reply.usage.completion_tokens, reply.usage.reasoning_tokens) == (3, 0)


def test_a_server_that_asks_to_wait_is_left_alone(server):
    server.script = [Fault(status=429, body=b"", headers={"Retry-After": "0.3"})]
    engine = make_engine(server, limits=LimitSettings(max_concurrency=1))
    respond_to_all(engine, [ask("1"), ask("2"), ask("3")])
    assert len(server.asked) == 4
    assert all(at_s - server.asked_at_s[0] >= 0.3 for at_s in server.asked_at_s[1:])


def test_a_server_that_asks_to_wait_too_long_is_given_up(server):
    server.script = [Fault(status=429, body=b"", headers={"Retry-After": "3600"})]
    with pytest.raises(RequestError) as caught:
        respond_to_all(make_engine(server), [ask()])
    assert (caught.value.retry_after_s, len(server.asked)) == (3600.0, 1)


def test_no_more_is_asked_at_once_than_allowed(server):
    server.answer = lambda _: Fault(delay_s=0.01)
    engine = make_engine(server, limits=LimitSettings(max_concurrency=3))
    respond_to_all(engine, [ask(str(number)) for number in range(20)])
    assert 1 < server.most_open <= 3


def test_any_loop_may_await(server):
    engine = make_engine(server)

    async def wait():
        return await asyncio.gather(*(engine.reply(ask(), sampling=GREEDY) for _ in range(5)))

    for _ in range(2):
        assert [reply.text for reply in asyncio.run(wait())] == ["yes"] * 5
    run_on_shared_loop(engine.close())
    assert respond(engine).text == "yes"


def test_a_key_is_read_from_the_environment(server, monkeypatch):
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="JUDGE_API_KEY"):
        make_engine(server, api_key_variable="JUDGE_API_KEY")
    monkeypatch.setenv("JUDGE_API_KEY", "k1")
    respond(make_engine(server, api_key_variable="JUDGE_API_KEY"))
    assert server.headers[0]["Authorization"] == "Bearer k1"


def test_pictures_are_sent_where_they_stand(server, tmp_path):
    for colour in ("red", "blue"):
        Image.new("RGB", (8, 4), colour).save(tmp_path / f"{colour}.png")
    red, blue = (read_picture(tmp_path / f"{colour}.png") for colour in ("red", "blue"))
    data = base64.b64encode(red.path.read_bytes()).decode()
    assert encode_picture(red) == f"data:image/png;base64,{data}"
    prompt = [
        Message("system", "be brief"),
        Message("user", "ready?"),
        Message("assistant", "yes"),
        Message("user", [blue, "or", red, "?"]),
    ]
    respond(make_engine(server), make_example(prompt, cluster="g"))
    sent = server.asked[0]["messages"]
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]
    assert [one["content"] for one in sent[:3]] == [
        "be brief",
        [{"type": "text", "text": "ready?"}],
        "yes",
    ]
    assert sent[3]["content"] == [
        {"type": "image_url", "image_url": {"url": encode_picture(blue)}},
        {"type": "text", "text": "or"},
        {"type": "image_url", "image_url": {"url": encode_picture(red)}},
        {"type": "text", "text": "?"},
    ]


def test_a_picture_that_changed_is_not_sent(server, tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 4), "red").save(path)
    example = ask(pictures=[read_picture(path)])
    Image.new("RGB", (8, 4), "blue").save(path)
    with pytest.raises(DataError, match="changed"):
        respond(make_engine(server), example)
    assert server.asked == []


def test_labels_are_weighed_by_the_listed_first_tokens(server):
    tokens = {" yes": math.log(0.6), "no": math.log(0.3), "x": math.log(0.1)}
    server.answer = lambda _: Fault(tokens=tokens, finish_reason="length")
    found = weigh(make_engine(server))
    assert found.shares == {"yes": pytest.approx(2 / 3), "no": pytest.approx(1 / 3)}
    assert [asked["top_logprobs"] for asked in server.asked] == [20]


def test_labels_that_are_not_listed_have_no_share(server):
    with pytest.raises(RequestError, match="no log-probabilities"):
        weigh(make_engine(server))
    server.asked.clear()
    server.answer = lambda _: Fault(tokens={"maybe": -0.1}, finish_reason="length")
    with pytest.raises(RequestError, match="none of the 1") as caught:
        weigh(make_engine(server))
    assert (caught.value.cause, len(server.asked)) == ("unlisted", 1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("2", 2.0), ("0.5", 0.5), ("-3", 0.0), (None, None), ("soon", None), ("inf", None)],
)
def test_retry_after_is_in_seconds_or_a_date(value, seconds):
    assert parse_retry_after(value) == seconds
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    assert 40 < parse_retry_after(later) <= 50
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_a_message_is_found_in_the_body_of_an_error():
    body = json.dumps({"error": {"message": "context of 512"}}).encode()
    assert "context of 512" in str(describe_status(400, body, None))
    assert "plain" in str(describe_status(500, b"plain text", None))
    assert "no message" in str(describe_status(500, b"", None))


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": "\ud800"}, "finish_reason": "stop"},
        {"message": {"content": 7}, "finish_reason": "stop"},
        {"message": {"content": "yes"}},
        {"message": None, "finish_reason": "stop"},
        "yes",
        {
            "message": {"content": "yes"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"top_logprobs": [{"token": "a", "logprob": math.nan}]}]},
        },
        {
            "message": {"content": "yes"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"top_logprobs": [{"token": "a", "logprob": 2.0}]}]},
        },
    ],
)
def test_whatever_is_not_clearly_a_completion_is_malformed(choice):
    with pytest.raises(RequestError) as caught:
        read_reply(json.dumps({"choices": [choice]}).encode())
    assert caught.value.cause == "malformed"


@pytest.mark.parametrize("num_sent", [0, 2])
def test_a_completion_has_one_choice(num_sent):
    choice = {"message": {"content": "yes"}, "finish_reason": "stop"}
    with pytest.raises(RequestError, match=f"{num_sent} choices instead of 1"):
        read_reply(json.dumps({"choices": [choice] * num_sent}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "finish_reason", "logprobs"]), inner
        )
    ),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_body_breaks_the_reader(body):
    try:
        reply = read_reply(body)
    except RequestError as error:
        cause = error.cause
    else:
        cause = "malformed"
        assert reply.text == json.loads(body)["choices"][0]["message"]["content"]
    assert cause == "malformed"


def test_the_identity_says_what_answers_depend_on(server):
    engine = make_engine(server, revision="r1", top_log_probs=5)
    assert engine.identity == {
        "model": MODEL,
        "revision": "r1",
        "first_tokens": "by spelling, 5 listed",
    }
    assert make_engine(server, url="http://127.0.0.1:1/v1").identity["model"] == MODEL
    limited = ModelSource(server=engine.settings, max_pixels=900)
    assert open_model(limited).identity == {**engine.identity, "max_pixels": "900"}


def test_a_picture_is_sent_within_the_limit_of_pixels(server, tmp_path):
    Image.new("RGB", (60, 40), "red").save(tmp_path / "red.png")
    asked = make_example([Message("user", [read_picture(tmp_path / "red.png")])], cluster="g")
    settings = ModelSource(server=make_engine(server).settings, max_pixels=900)
    respond(open_model(settings), asked)
    [shown] = server.asked[0]["messages"][0]["content"]
    assert open_sent(shown["image_url"]["url"]).size == (36, 24)


def test_a_server_on_this_machine_is_reached_past_the_proxy_of_the_environment(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert respond(make_engine(server)).text
    assert respond(make_engine(server, no_proxy=True)).text
    with pytest.raises(RequestError, match="no connection"):
        respond(make_engine(server, no_proxy=False))
    elsewhere = ServerSettings(url="http://judge.example/v1", model="m")
    assert not elsewhere.passes_proxies_by()


def open_sent(url):
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def drop_alpha(picture):
    return picture.convert("RGB")


def put_on_white(picture):
    glass = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", glass.size, "white"), glass).convert("RGB")


@pytest.mark.parametrize("decode", [drop_alpha, put_on_white])
def test_any_server_sees_the_pixels_that_training_sees(tmp_path, decode):
    for kind, picture in save_kinds(draw(tmp_path / "base.png", (60, 40))).items():
        own, sent = open_picture(picture), open_sent(encode_picture(picture))
        assert np.array_equal(np.asarray(decode(sent)), np.asarray(own)), kind


def test_what_every_server_reads_alike_is_sent_as_it_is(tmp_path):
    kinds = save_kinds(draw(tmp_path / "base.png", (60, 40)))
    for kind in ("jpeg", "grey", "webp"):
        content = base64.b64decode(encode_picture(kinds[kind]).partition(",")[2])
        assert content == kinds[kind].path.read_bytes(), kind


@pytest.mark.parametrize("kind", ["jpeg", "grey", "turned"])
def test_a_picture_beyond_the_limit_is_sent_within_it(tmp_path, kind):
    kinds = save_kinds(draw(tmp_path / "base.png", (60, 40)))
    sent = open_sent(encode_picture(kinds[kind], max_pixels=600))
    whole = open_sent(encode_picture(kinds[kind], max_pixels=2400))
    assert 500 < sent.width * sent.height <= 600 < 2400 == whole.width * whole.height
    assert (sent.width > sent.height) == (whole.width > whole.height)


QUICK_RETRY = RetrySettings(max_attempts=4, base_delay_s=0.0)


def test_delays_double_up_to_the_longest_with_jitter_unless_a_server_asks_for_time():
    settings = RetrySettings(base_delay_s=8.0)
    for num_failures, longest in [(1, 8.0), (2, 16.0), (3, 30.0), (2000, 30.0)]:
        delays = {settings.choose_delay(num_failures, None) for _ in range(50)}
        assert longest / 2 <= min(delays) < max(delays) <= longest
    assert settings.choose_delay(1, 60.0) == 60.0
    assert settings.choose_delay(2, 0.1) >= 8.0


@pytest.mark.parametrize(
    ("cause", "retry_after_s", "num_attempts"),
    [("empty", None, 4), ("unparsable", 0.0, 4), ("refused", None, 1), ("rate_limit", 121.0, 1)],
)
def test_what_cannot_help_is_not_repeated(cause, retry_after_s, num_attempts):
    failures = []

    async def fail():
        raise RequestError(cause, "no", retry_after_s=retry_after_s)

    with pytest.raises(RequestError, match="no"):
        asyncio.run(retry(fail, QUICK_RETRY, on_failure=failures.append))
    assert len(failures) == num_attempts


def test_the_first_success_ends_it():
    left = [RequestError("empty", "no"), RequestError("timeout", "no")]

    async def fail_twice():
        if left:
            raise left.pop()
        return "yes"

    assert asyncio.run(retry(fail_twice, QUICK_RETRY)) == "yes"
