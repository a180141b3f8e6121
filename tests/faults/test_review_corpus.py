"""Cookies and forms that were let in, or nearly: each is somebody or nobody, as its row says."""

import io
import json
import re
import time

import pytest
from corpora import each_row
from PIL import Image
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from groupwise.feedback import FeedbackStore, Shown, name_person
from groupwise.serving import ServeSettings
from groupwise.serving.feedback import Desk
from groupwise.serving.meters import Meters
from groupwise.serving.review import application
from groupwise.serving.review.visitors import Seal, make_visitor

KEY, TOKEN, ORIGIN = b"a secret of the tests", "geheimnis", "http://testserver"


@pytest.fixture
def store(tmp_path):
    store = FeedbackStore(tmp_path / "kept")
    yield store
    store.close()


@pytest.fixture
def picture(store):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    shown = Shown(
        id="a",
        at_s=0.0,
        row={"task": "doors"},
        session="",
        pictures=(),
        prediction="passed",
        confidence=0.5,
        version="v1",
    )
    return store.remember(shown, [stream.getvalue()]).pictures[0]


@pytest.fixture
def client(store):
    settings = ServeSettings(token=TOKEN)
    page = application.make_review(Desk(store, key=KEY), ["passed"], settings, Meters())
    return TestClient(Starlette(routes=[Mount("/review", page)]), follow_redirects=False)


def log_in(client, name):
    """Return the form token of the login page, and the cookies of who has entered."""
    form = re.search(r'name="form" value="(\w+)"', client.get("/review/login").text)[1]
    entrance = client.cookies[application.ENTRANCE]
    fields = {"form": form, "name": name, "token": TOKEN}
    client.post("/review/login", data=fields, headers={"Origin": ORIGIN})
    return form, {"entrance": entrance, "session": client.cookies[application.SESSION]}


def forge(key, name):
    """Sign a session as the page does, with a key that somebody may have."""
    seal = Seal(KEY, TOKEN)
    seal._key = key or seal._key
    return seal.write(application.SESSION, make_visitor(name, time.time() + 60))


@each_row("review")
def test_who_a_cookie_is(row, client, store, picture):
    form, cookies = log_in(client, "ann")
    person = bytes.fromhex(name_person(f"groupwise review {json.dumps(TOKEN)}", KEY))
    cookies |= {
        "nameless": forge(b"", ""),
        "blank": forge(b"", " "),
        "person": forge(person, "eve"),
    }
    client.cookies.clear()
    client.cookies.set(row["sent_as"], cookies[row["cookie"]])
    method, _, path = row["request"].format(picture=picture).partition(" ")
    fields = {"form": form, "answer": "a", "label": "passed", "name": "eve", "token": TOKEN}
    sent = {"data": fields, "headers": {"Origin": ORIGIN}} if method == "POST" else {}
    reply = client.request(method, path, **sent)
    if row["expected"] == "nobody":
        is_sent_away = reply.headers.get("location") == "login"
        assert is_sent_away or reply.status_code in (401, 403)
        assert application.SESSION not in reply.cookies
    else:
        assert (reply.status_code, row["expected"] in reply.text) == (200, True)
    assert store.list_items() == []
