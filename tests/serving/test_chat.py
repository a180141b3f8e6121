"""The view of a policy that OpenAI's clients know."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def chat(client, messages=HELLO, **fields):
    return client.post(CHAT, json={"model": "policy", "messages": messages, **fields})


def show(picture, kind="image/jpeg"):
    url = f"data:{kind};base64,{base64.b64encode(picture).decode()}"
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}}


def test_a_conversation_gets_its_answer(start, draw, tmp_path):
    client = start()
    turns = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "!"},
        {
            "role": "user",
            "content": [show(draw("red")), {"type": "text", "text": "or"}, show(draw("green"))],
        },
    ]
    answer = chat(client, turns)
    assert answer.status_code == 200, answer.text
    values = answer.json()
    assert values["id"].startswith("chatcmpl-")
    assert values["created"] > 1_700_000_000
    del values["id"], values["created"]
    text = "system/user/assistant/user: 红绿"
    assert values == {
        "object": "chat.completion",
        "model": "policy",
        "system_fingerprint": "v1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": len(text),
            "total_tokens": 4 + len(text),
        },
    }
    assert list((tmp_path / "uploads").iterdir()) == []
    models = client.get("/v1/models").json()
    assert (models["object"], [one["id"] for one in models["data"]]) == ("list", ["policy", "v1"])


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_may_be_cut_and_says_so(start, name):
    choice = chat(start(), **{name: 3}).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == "use"


def test_what_changes_nothing_is_taken(start):
    neutral = {
        "n": 1,
        "stream": False,
        "temperature": 0.0,
        "top_p": 0.3,
        "seed": 7,
        "stop": None,
        "tools": [],
        "presence_penalty": 0,
        "user": "me",
        "response_format": {"type": "text"},
    }
    assert chat(start(), **neutral).status_code == 200


def test_what_cannot_be_answered_is_refused_in_openais_form(start, draw, predictor):
    client = start(max_pictures=2, max_picture_mib=0.01)
    url = {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}
    large = draw() + bytes(range(256)) * 80
    picture = [{"role": "user", "content": [show(draw())]}]
    cases = [
        ({"stream": True}, 400, "stream is not taken"),
        ({"n": 2}, 400, "n is not taken"),
        ({"temperature": 0.7}, 400, "temperature is not taken"),
        ({"tools": [{"type": "function"}]}, 400, "tools is not taken"),
        ({"max_tokns": 3}, 400, "max_tokns is not taken"),
        ({"max_tokens": 0}, 400, "max_tokens: input should be greater than or equal to 1"),
        ({"model": "gpt-4"}, 404, "there is no model 'gpt-4'; there is policy"),
        ({"messages": []}, 400, "messages: list should have at least 1 item"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages.0.role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "must end with a user turn"),
        ({"messages": [{"role": "user", "content": [url]}]}, 400, "no address is opened"),
        ({"messages": [{**picture[0], "role": "system"}, *HELLO]}, 400, "only a user's turn"),
        ({"messages": [{"role": "user", "content": [show(large)]}]}, 413, "larger than 0.01 MiB"),
        ({"messages": [{"role": "user", "content": [show(b"x")]}]}, 400, "no whole picture"),
        ({"messages": picture * 3}, 413, "3 pictures; at most 2"),
        ({"messages": [{"role": "user", "content": "long"}]}, 400, "the prompt is too long"),
        ({"messages": [{"role": "user", "content": "break"}]}, 500, "broke on it"),
    ]
    for fields, status, sentence in cases:
        answer = chat(client, **fields)
        error = answer.json()["error"]
        assert (answer.status_code, set(error)) == (status, {"message", "type", "param", "code"})
        assert sentence in error["message"]
    form = client.post(CHAT, content=b"a=1", headers={"Content-Type": "text/plain"})
    assert (form.status_code, form.json()["error"]["type"]) == (415, "invalid_request_error")
    assert chat(client).status_code == 200


def test_the_same_guards_stand_before_it(start, predictor):
    client = start(token="a secret of ours", max_waiting=1, max_batch=1, max_body_mib=0.01)
    refused = chat(client)
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"
    assert client.get("/v1/models").status_code == 401
    client.headers["Authorization"] = "Bearer a secret of ours"
    large = chat(client, [{"role": "user", "content": "x" * 20_000}])
    assert large.status_code == 413
    assert "larger than 0.01 MiB" in large.json()["error"]["message"]
    predictor.delay_s = 0.5
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: chat(client), range(4)))
    late = [answer for answer in answers if answer.status_code == 429]
    assert late
    assert late[0].json()["error"]["type"] == "rate_limit_error"


def test_openais_own_client_reads_the_answers(start):
    openai = pytest.importorskip("openai", reason="the client openai is not installed")
    client = openai.OpenAI(base_url=str(start().base_url.join("/v1")), api_key="none")
    found = client.chat.completions.create(model="policy", messages=HELLO, temperature=0)
    assert found.choices[0].message.content == "user: "
    assert [one.id for one in client.models.list()] == ["policy", "v1"]
