import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from damaged_pictures import damage_picture

from groupwise.core import open_picture
from groupwise.serving import uploads


def ask(client, pictures):
    files = [("pictures", (f"{i}.jpg", content)) for i, content in enumerate(pictures)]
    return client.post("/v1/predict", files=files, data={"row": '{"task": "doors"}'})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_pictures_are_refused_in_a_sentence(start):
    """17127: of its EXIF data Pillow raises a struct.error."""
    client = start()
    for seed in (*range(40), 17127):
        answer = ask(client, [damage_picture(seed)])
        assert answer.status_code in (200, 422), (seed, answer.text)
        if answer.status_code == 422:
            assert answer.json()["detail"].startswith("picture 1 is no whole picture")


@pytest.fixture
def decoding(monkeypatch):
    """Watch what is decoded on arrival; large pictures wait for an event."""
    monkeypatch.setattr(uploads, "LARGE_PIXELS", 10_000)
    seen, may_go_on, is_waiting = [], threading.Event(), threading.Semaphore(0)

    def watch(path):
        picture = open_picture(path)
        seen.append(picture.size)
        if picture.width * picture.height > 10_000:
            is_waiting.release()
            assert may_go_on.wait(timeout=30)
        return picture

    monkeypatch.setattr(uploads, "open_picture", watch)
    yield seen, may_go_on, is_waiting
    may_go_on.set()


def test_too_many_pixels_together_are_refused_before_any_is_decoded(start, draw, decoding):
    client = start(max_request_megapixels=0.03)
    answer = ask(client, [draw(size=(100, 99))] * 4)
    assert answer.status_code == 413
    assert (
        answer.json()["detail"] == "the pictures have 0 megapixels together; at most 0.03 are taken"
    )
    assert decoding[0] == []
    assert ask(client, [draw(size=(100, 99))] * 3).status_code == 200


def test_pixels_of_all_requests_together_are_limited(start, draw, decoding, tmp_path):
    _, may_go_on, is_waiting = decoding
    client = start(max_held_megapixels=0.03)
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(ask, client, [draw(size=(200, 140))])
        assert is_waiting.acquire(timeout=30)
        refused = ask(client, [draw(size=(100, 99))])
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert ask(client, [draw()]).status_code == 200  # small enough
        may_go_on.set()
        assert large.result().status_code == 200
    assert ask(client, [draw(size=(200, 160))]).status_code == 200  # alone: within its own limit
    assert list((tmp_path / "uploads").iterdir()) == []


def test_small_pictures_do_not_wait_for_large_ones(start, draw, decoding):
    _, may_go_on, is_waiting = decoding
    client = start()
    with ThreadPoolExecutor(4) as pool:
        large = [pool.submit(ask, client, [draw(size=(200, 140))] * 2) for _ in range(4)]
        assert is_waiting.acquire(timeout=30)
        assert ask(client, [draw()]).json()["answer"] == "通过"
        assert not any(one.done() for one in large)
        may_go_on.set()
        assert {one.result().status_code for one in large} == {200}
