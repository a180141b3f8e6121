import asyncio
import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest


def ask(client, pictures, *, task="doors", **fields):
    files = [("pictures", (f"{i}.jpg", content)) for i, content in enumerate(pictures)]
    return client.post("/v1/groups", files=files, data={"task": task, **fields})


def read_metric(client, name):
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def wait_until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_group_gets_its_verdict(start, draw, tmp_path):
    client = start()
    answer = ask(client, [draw("green"), draw("red")], id="夜 7")
    assert answer.status_code == 200
    assert answer.json() == {
        "id": "夜 7",
        "task": "doors",
        "verdict": "通过",
        "reason": "颜色",
        "confidence": 0.9,
        "needs_person": False,
        "failure": None,
        "details": {"num_pictures": 2},
    }
    assert ask(client, [draw("red"), draw("green")], task="门检查").json()["verdict"] == "不通过"
    assert list((tmp_path / "uploads").iterdir()) == []
    assert client.get("/v1/model").json() == {"tasks": ["门检查", "doors"], "name": "stand-in"}
    assert read_metric(client, "groupwise_verdicts_total{") == 2


@pytest.mark.parametrize(
    ("form", "mode"), [("PNG", "RGB"), ("JPEG", "CMYK"), ("GIF", "P"), ("PNG", "RGBA")]
)
def test_pictures_of_other_forms_are_taken(start, draw, form, mode):
    assert ask(start(), [draw("green", form, mode=mode)]).json()["verdict"] == "通过"


def test_what_cannot_be_judged_is_refused_in_a_sentence(start, draw, predictor):
    client = start(max_pictures=2, max_picture_mib=0.01, max_megapixels=0.1)
    noise = bytes(range(256)) * 80
    cases = [
        (ask(client, [draw()], task="windows"), 422, "there is no task 'windows'"),
        (ask(client, [draw(size=(300, 200))[:-300]]), 422, "picture 1 is no whole picture"),
        (ask(client, [draw(), b"not a picture"]), 422, "picture 2 is no whole picture"),
        (ask(client, [draw(), b""]), 422, "picture 2 is no whole picture"),
        (ask(client, [draw()] * 3), 413, "3 pictures; at most 2"),
        (ask(client, [draw() + noise]), 413, "picture 1 is larger than 0.01 MiB"),
        (ask(client, [draw(size=(500, 400))]), 413, "0 megapixels"),
    ]
    for answer, status, sentence in cases:
        assert answer.status_code == status, answer.text
        assert sentence in answer.json()["detail"]
    nothing = client.post("/v1/groups", data={"task": "doors"})
    assert (nothing.status_code, nothing.json()) == (422, {"detail": "pictures: field required"})
    assert client.post("/v1/groups", content=b"{}").status_code == 422
    assert predictor.batches == []
    assert ask(client, [draw()]).json()["verdict"] == "通过"


def test_groups_that_wait_are_judged_together(start, draw, predictor):
    client = start(max_batch=4)
    predictor.delay_s = 0.3
    colours = ["green" if number % 3 else "red" for number in range(9)]
    with ThreadPoolExecutor(9) as pool:
        answers = list(
            pool.map(lambda i: ask(client, [draw(colours[i])], id=str(i)).json(), range(9))
        )
    expected = ["通过" if colour == "green" else "不通过" for colour in colours]
    assert [answer["verdict"] for answer in answers] == expected
    assert [answer["id"] for answer in answers] == [str(i) for i in range(9)]
    assert max(map(len, predictor.batches)) == 4
    assert sum(map(len, predictor.batches)) == 9


def test_one_broken_group_does_not_take_others_with_it(start, draw, predictor):
    client = start(max_batch=8, batch_wait_ms=200)
    predictor.broken = {"1"}
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda i: ask(client, [draw()], id=str(i)).json(), range(3)))
    assert [answer["verdict"] for answer in answers] == ["通过", None, "通过"]
    assert answers[1]["failure"] == "error: ZeroDivisionError"
    assert answers[1]["needs_person"]
    assert read_metric(client, "groupwise_predictor_errors_total") == 1


def test_too_many_waiting_groups_are_told_to_come_later(start, draw, predictor):
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


def test_a_token_is_asked_for(start, draw):
    client = start(token="a secret of ours")
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    for path in ("/metrics", "/v1/model", "/openapi.json"):
        assert client.get(path).status_code == 401
    assert ask(client, [draw()]).headers["www-authenticate"] == "Bearer"
    client.headers["Authorization"] = "Bearer a secret of ourS"
    assert ask(client, [draw()]).status_code == 401
    client.headers["Authorization"] = "Bearer a secret of ours"
    assert ask(client, [draw()]).status_code == 200


def test_bodies_over_the_limit_are_refused_declared_or_not(start, draw):
    client = start(max_body_mib=0.05)
    answer = ask(client, [draw() + bytes(100_000)])
    assert answer.status_code == 413
    assert "larger than 0.05 MiB" in answer.json()["detail"]

    def stream():
        yield b"--x\r\nContent-Disposition: form-data; name=task\r\n\r\n"
        for _ in range(100):
            yield bytes(1000)

    form = {"Content-Type": "multipart/form-data; boundary=x"}
    with contextlib.suppress(httpx2.TransportError):  # it may close before all was sent
        assert client.post("/v1/groups", content=stream(), headers=form).status_code == 413
    assert ask(client, [draw()]).status_code == 200


def test_a_slow_asker_is_given_up(start, draw):
    client = start(read_timeout_s=0.3, max_waiting=1)
    with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
        slow.sendall(
            b"POST /v1/groups HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
        )
        slow.settimeout(20)
        assert b" 408 " in slow.recv(1000).splitlines()[0]
    wait_until(lambda: ask(client, [draw()]).status_code == 200)


def test_an_asker_who_goes_away_is_not_judged(start, draw, predictor):
    client = start(max_batch=1)
    predictor.delay_s = 0.5
    busy = threading.Thread(target=ask, args=(client, [draw()]), kwargs={"id": "busy"})
    busy.start()
    wait_until(lambda: predictor.batches == [["busy"]])

    async def give_up():
        async with httpx2.AsyncClient(base_url=client.base_url) as other:
            files = [("pictures", ("a.jpg", draw()))]
            call = other.post("/v1/groups", files=files, data={"task": "doors", "id": "gone"})
            await asyncio.wait_for(call, 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    busy.join()
    assert ask(client, [draw()], id="next").status_code == 200
    assert predictor.batches == [["busy"], ["next"]]
    assert read_metric(client, "groupwise_groups_waiting ") == 0


def test_a_verdict_that_takes_too_long_is_an_error_of_time(start, draw, predictor):
    client = start(answer_timeout_s=0.1)
    predictor.delay_s = 0.5
    answer = ask(client, [draw()])
    assert answer.status_code == 504
    assert answer.json()["detail"] == "no verdict within 0.1 s"
