import asyncio
import base64
import contextlib
import hmac
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from waiting import wait_until

from groupwise.serving.bench import Screens
from groupwise.serving.guesses import Guesses

ROW = '{"task": "doors"}'


def ask(client, pictures, *, task="doors", **fields):
    files = [("pictures", (f"{i}.jpg", content)) for i, content in enumerate(pictures)]
    return client.post(
        "/v1/predict", files=files, data={"row": json.dumps({"task": task})} | fields
    )


def ask_in_json(client, pictures, *, head="", **fields):
    held = [head + base64.b64encode(content).decode() for content in pictures]
    return client.post("/v1/predict", json={"row": {"task": "doors"}, "pictures": held, **fields})


def test_a_row_gets_its_answer(start, draw, read_metric, tmp_path):
    client = start()
    answer = ask(client, [draw("green"), draw("red")], id="夜 7")
    assert answer.status_code == 200
    assert answer.json() == {
        "id": "夜 7",
        "answer": "通过",
        "confidence": 0.9,
        "reason": "颜色",
        "text": "通过!",
        "needs_person": False,
        "details": {"num_pictures": 2},
        "model": "v1",
        "answer_id": None,
    }
    assert ask(client, [draw("red"), draw("green")], task="门检查").json()["answer"] == "不通过"
    silent = client.post("/v1/predict", json={"row": {"task": "doors"}}).json()
    assert (silent["answer"], silent["reason"], silent["needs_person"]) == (None, "no label", True)
    assert list((tmp_path / "uploads").iterdir()) == []
    about = {"name": "stand-in", "calibrated": False, "version": "v1", "labels": ["通过", "不通过"]}
    assert client.get("/v1/model").json() == about
    assert read_metric(client, 'groupwise_answers_total{answer="不通过"') == 1
    assert read_metric(client, 'groupwise_answers_total{answer="none"') == 1
    assert read_metric(client, "groupwise_answers_for_people_total") == 1


@pytest.mark.parametrize("head", ["", "data:image/jpeg;base64,", "data:;base64,"])
def test_pictures_in_json_are_taken(start, draw, head):
    client = start()
    answer = ask_in_json(client, [draw("red"), draw("green")], head=head, id="7")
    assert answer.json()["answer"] == "不通过"
    assert answer.json()["details"] == {"num_pictures": 2}


@pytest.mark.parametrize(
    ("form", "mode"), [("PNG", "RGB"), ("JPEG", "CMYK"), ("GIF", "P"), ("PNG", "RGBA")]
)
def test_pictures_of_other_forms_are_taken(start, draw, form, mode):
    assert ask(start(), [draw("green", form, mode=mode)]).json()["answer"] == "通过"


def test_questions_that_wait_are_asked_together(start, draw, predictor):
    client = start(max_batch=4)
    predictor.delay_s = 0.3
    colours = ["green" if number % 3 else "red" for number in range(9)]
    with ThreadPoolExecutor(9) as pool:
        answers = list(
            pool.map(lambda i: ask(client, [draw(colours[i])], id=str(i)).json(), range(9))
        )
    expected = ["通过" if colour == "green" else "不通过" for colour in colours]
    assert [answer["answer"] for answer in answers] == expected
    assert [answer["id"] for answer in answers] == [str(i) for i in range(9)]
    assert max(map(len, predictor.batches)) == 4
    assert sum(map(len, predictor.batches)) == 9


def test_one_broken_question_does_not_take_others_with_it(start, draw, predictor, read_metric):
    client = start(max_batch=8, batch_wait_ms=200)
    predictor.broken = {"1"}
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda i: ask(client, [draw()], id=str(i)), range(3)))
    assert [answer.status_code for answer in answers] == [200, 500, 200]
    assert answers[1].json() == {"detail": "the predictor broke on it (ZeroDivisionError)"}
    assert read_metric(client, "groupwise_predictor_errors_total") == 1


def test_too_many_waiting_requests_are_told_to_come_later(start, draw, predictor):
    client = start(max_waiting=2, max_batch=1)
    predictor.delay_s = 0.5
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: ask(client, [draw()]), range(6)))
    statuses = sorted(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert sum(map(len, predictor.batches)) == statuses.count(200)
    assert ask(client, [draw()]).status_code == 200


def test_the_token_is_asked_for_and_compared_in_constant_time(start, draw, monkeypatch):
    compared = []
    compare = hmac.compare_digest

    def watch(given, expected):
        compared.append((given, expected))
        return compare(given, expected)

    monkeypatch.setattr(hmac, "compare_digest", watch)
    client = start(token="a secret of ours")
    given = ["", "Bearer", "Bearer a", "Bearer a secret of ourS", "Bearer a secret of ours"]
    for token in given:
        client.get("/v1/model", headers={"Authorization": token})
    expected = b"Bearer a secret of ours"
    assert compared == [(token.encode(), expected) for token in given]
    assert ask(client, [draw()]).headers["www-authenticate"] == "Bearer"
    client.headers["Authorization"] = "Bearer a secret of ours"
    assert ask(client, [draw()]).status_code == 200


def test_bodies_over_the_limit_are_refused_declared_or_not(start, draw):
    client = start(max_body_mib=0.05)
    answer = ask(client, [draw() + bytes(100_000)])
    assert answer.status_code == 413
    assert "larger than 0.05 MiB" in answer.json()["detail"]

    def stream():
        yield b"--x\r\nContent-Disposition: form-data; name=row\r\n\r\n"
        for _ in range(100):
            yield bytes(1000)

    form = {"Content-Type": "multipart/form-data; boundary=x"}
    with contextlib.suppress(httpx2.TransportError):  # it may close before all was sent
        assert client.post("/v1/predict", content=stream(), headers=form).status_code == 413
    assert ask(client, [draw()]).status_code == 200


def test_an_asker_who_goes_away_is_not_answered(start, draw, predictor, read_metric):
    client = start(max_batch=1)
    predictor.delay_s = 0.5
    busy = threading.Thread(target=ask, args=(client, [draw()]), kwargs={"id": "busy"})
    busy.start()
    wait_until(lambda: predictor.batches == [["busy"]])

    async def give_up():
        async with httpx2.AsyncClient(base_url=client.base_url) as other:
            files = [("pictures", ("a.jpg", draw()))]
            call = other.post("/v1/predict", files=files, data={"row": ROW, "id": "gone"})
            await asyncio.wait_for(call, 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    busy.join()
    assert ask(client, [draw()], id="next").status_code == 200
    assert predictor.batches == [["busy"], ["next"]]
    assert read_metric(client, "groupwise_requests_waiting ") == 0


def test_an_answer_that_takes_too_long_is_an_error_of_time(start, draw, predictor):
    client = start(answer_timeout_s=0.1)
    predictor.delay_s = 0.5
    answer = ask(client, [draw()])
    assert answer.status_code == 504
    assert answer.json()["detail"] == "no answer within 0.1 s"


def test_ten_at_once_then_one_each_ten_seconds():
    now = [0.0]
    guesses = Guesses(lambda: now[0])

    def guess():
        if guesses.are_too_many("a"):
            return False
        guesses.note("a")
        return True

    assert [guess() for _ in range(12)] == [True] * 10 + [False] * 2
    now[0] += 9.9
    assert not guess()
    now[0] += 0.1
    assert (guess(), guess(), guesses.are_too_many("b")) == (True, False, False)
    now[0] += 1000
    assert [guess() for _ in range(11)] == [True] * 10 + [False]


def test_addresses_are_not_kept_without_end():
    guesses = Guesses(lambda: 0.0)
    for number in range(10_100):
        guesses.note(str(number))
    assert len(guesses._known) == 10_000


def test_the_servers_own_token_is_guessed_no_faster(start):
    client = start(token="geheimnis")
    wrong, right = ({"Authorization": f"Bearer {word}"} for word in ("falsch", "geheimnis"))
    found = [client.get("/v1/model", headers=wrong).status_code for _ in range(11)]
    assert found == [401] * 10 + [429]
    assert client.get("/v1/model", headers=right).status_code == 429
    elsewhere = {"X-Forwarded-For": "192.0.2.9"}
    assert client.get("/v1/model", headers=right | elsewhere).status_code == 200
    assert [client.get("/v1/model").status_code, client.get("/healthz").status_code] == [429, 200]


ASKED = ("/v1/predict", "/v1/screens")
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_the_server(start, predictor, mode):
    client = start(behind=Screens(), max_pictures=4, max_body_mib=1)
    schema = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert {operation.path for operation in operations} >= {
        "/v1/predict",
        "/v1/reload",
        "/v1/screens",
        "/metrics",
        "/readyz",
    }
    statuses = {}
    for operation in operations:
        for case in draw_cases(operation, mode):
            response = case.call()
            statuses.setdefault(operation.path, set()).add(response.status_code)
            case.validate_response(response, checks=CHECKS)
    assert statuses["/v1/predict"] & {400, 415, 422}
    assert statuses["/v1/screens"] & {400, 415, 422}
    assert client.get("/readyz").status_code == 200


def draw_cases(operation, mode):
    """Return cases of one route; none where there is nothing to get wrong."""
    cases = []

    @settings(
        max_examples=60 if operation.path in ASKED else 5,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def collect(case):
        cases.append(case)

    if mode is GenerationMode.POSITIVE or operation.body:
        collect()
    return cases
