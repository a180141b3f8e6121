"""Who comes in: with a name, with the token where there is one, from this page and no other."""

import base64
import json

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.feedback import name_person
from groupwise.serving.review.application import ENTRANCE, SESSION
from groupwise.serving.review.visitors import Seal, Visitor, is_token, make_visitor


def test_nobody_is_shown_anything_before_they_log_in(serve, remember, draw):
    kept = remember("a", contents=[draw()])
    client = serve(token="geheimnis")
    for place in ("", "undo", "say"):
        assert "通过" not in client.get(f"/review/{place}").text
    assert client.get("/review").headers["location"].endswith("/review/")
    assert client.get("/review/").headers["location"] == "login"
    assert client.get(f"/review/pictures/{kept.pictures[0]}").status_code == 401
    client.cookies.set(SESSION, "e30=.00")
    assert client.get("/review/").headers["location"] == "login"
    sent = client.post("/review/say", headers={"HX-Request": "true"})
    assert (sent.status_code, sent.headers["hx-redirect"]) == (401, "login")


def test_the_token_opens_the_page_alone_and_the_page_opens_nothing_else(enter, remember):
    remember("a")
    ann = enter(token="geheimnis")
    assert ann.entered.status_code == 303
    assert ann.answer == "a"
    assert ann.client.get("/v1/model").status_code == 401
    assert ann.client.get("/review/%2e%2e/v1/model").status_code == 404
    for place in ("/reviews", "/review%2e", "/v1/model/../review/"):
        assert ann.client.get(place).status_code == 401, place


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"token": "falsch"}, 401, "The token is wrong."),
        ({"token": ""}, 401, "The token is wrong."),
        ({"token": "geheimnis", "name": "  "}, 422, "Tell a name"),
        ({"token": "geheimnis", "name": "n" * 201}, 422, "Tell a name"),
    ],
)
def test_without_token_or_name_nobody_comes_in(enter, fields, status, said):
    ann = enter(token="geheimnis")
    ann.client.cookies.clear()
    ann.page = ann.client.get("/review/login").text
    refused = ann.post("login", **({"name": "ann"} | fields))
    assert (refused.status_code, said in refused.text) == (status, True)
    assert SESSION not in ann.client.cookies


def test_cookies_are_for_this_page_and_for_no_script(enter):
    ann = enter(token="geheimnis")
    [cookie] = ann.entered.headers.get_list("set-cookie")[:1]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/review"} <= parts
    assert "secure" not in parts
    assert ENTRANCE not in ann.client.cookies
    behind = {"X-Forwarded-Proto": "https"}
    login = ann.client.get("/review/login", headers=behind)
    assert "secure" in login.headers["set-cookie"].lower()
    # So is a session over TLS, whatever the proxy says.
    ann.page = ann.client.get("/review/login").text
    sent = {"Host": "pages.example", "Origin": "https://pages.example"}
    entered = ann.post("login", sent, name="ann", token="geheimnis")
    [cookie] = entered.headers.get_list("set-cookie")[:1]
    assert (cookie.startswith(SESSION), "secure" in cookie.lower()) == (True, True)


def test_guesses_are_slowed_and_who_has_the_token_elsewhere_is_not(enter):
    ann = enter(token="geheimnis")
    eve = {"X-Forwarded-For": "192.0.2.7"}

    def guess(token):
        ann.page = ann.client.get("/review/login").text
        return ann.post("login", eve, name="eve", token=token)

    assert [guess(f"{n}").status_code for n in range(12)] == [401] * 10 + [429] * 2
    refused = guess("geheimnis")
    assert (refused.status_code, "Too many wrong tokens" in refused.text) == (429, True)
    assert refused.headers["retry-after"] == "10"
    ann.page = ann.client.get("/review/login").text
    assert ann.post("login", name="ann", token="geheimnis").status_code == 303


def test_people_are_who_the_proxy_says(enter, remember, store):
    remember("a")
    own = {"feedback": {"folder": ".", "review": {"name_header": "X-User"}}}
    ann = enter("eve", "geheimnis", settings=own, **{"X-User": "ann"})
    client = httpx2.Client(base_url=ann.client.base_url)
    assert ann.say("通过").status_code == 200
    [item] = store.list_items()
    assert [given.person for given in item.labels] == [name_person("ann", b"a secret of the tests")]
    assert ann.client.get("/review/", headers={"X-User": "bob"}).headers["location"] == "login"
    assert enter("eve", "geheimnis").entered.status_code == 422
    said = {"answer_id": "a", "user": "eve", "label": "通过"}
    bearer = {"Authorization": "Bearer geheimnis"}
    for name, status in (("ann", 403), ("eve", 200)):
        sent = client.post("/v1/feedback", json=said, headers={**bearer, "X-User": name})
        assert sent.status_code == status
    assert client.post("/v1/feedback", json=said, headers=bearer).status_code == 403


def test_a_session_ends_in_the_browser(enter):
    ann = enter()
    assert ann.post("logout").headers["location"] == "login"
    assert ann.client.get("/review/").headers["location"] == "login"


def test_a_form_of_one_session_is_not_taken_in_another(enter, remember, store):
    remember("a")
    ann, bob = enter("ann"), enter("bob")
    bob.page = ann.page
    assert bob.say("通过", answer="a").status_code == 403
    assert store.list_items() == []


def test_every_answer_forbids_what_the_page_does_not_need(enter, remember, draw):
    kept = remember("a", contents=[draw()])
    ann = enter()
    places = ("", "login", "nowhere", f"pictures/{kept.pictures[0]}", "static/review.js")
    replies = [ann.client.get(f"/review/{place}") for place in places]
    replies.append(ann.post("say", form=""))
    assert [reply.status_code for reply in replies] == [200, 200, 404, 200, 200, 403]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"


def test_without_a_desk_there_is_no_page(start):
    client: httpx2.Client = start()
    assert client.get("/review/").status_code == 404


SEAL = Seal(b"k" * 16, None)
VISITORS = st.builds(
    Visitor, id=st.text(max_size=8), name=st.text(max_size=200), ends_at_s=st.floats(1, 1e9)
)


@given(VISITORS)
def test_a_session_is_read_until_it_ends(visitor):
    text = SEAL.write("a", visitor)
    assert text.isascii()
    assert SEAL.read("a", text, 0.0) == visitor
    assert SEAL.read("a", text, visitor.ends_at_s) is None


@given(VISITORS, st.data())
def test_whoever_changes_a_session_has_none(visitor, data):
    text = SEAL.write("a", visitor)
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters().filter(lambda one: one != text[place]))
    assert SEAL.read("a", text[:place] + letter + text[place + 1 :], 0.0) is None


@given(st.text())
def test_what_is_no_session_is_none(text):
    assert SEAL.read("a", text, 0.0) is None


def test_a_form_token_is_no_session_and_a_session_of_other_fields_is_none():
    visitor = make_visitor("ann", 9.0)
    body = base64.urlsafe_b64encode(json.dumps({"id": "a"}).encode()).decode()
    assert SEAL.read("a", f"{body}.{SEAL._sign('a', body)}", 0.0) is None
    assert SEAL.read("a", f"{visitor.id}.{SEAL.write_form_token('a', visitor)}", 0.0) is None


def test_sessions_end_with_the_key_and_with_the_token():
    visitor = make_visitor("ann", 9.0)
    for other in (Seal(b"l" * 16, None), Seal(b"k" * 16, "geheimnis")):
        assert other.read("a", SEAL.write("a", visitor), 0.0) is None
        assert not other.is_form_token(SEAL.write_form_token("a", visitor), "a", visitor)
    assert SEAL.is_form_token(SEAL.write_form_token("a", visitor), "a", visitor)
    assert not SEAL.is_form_token(
        SEAL.write_form_token("a", visitor), "a", make_visitor("ann", 9.0)
    )


def test_a_token_is_asked_for_where_there_is_one():
    assert is_token("", None)
    assert is_token("geheimnis", "geheimnis")
    assert not is_token("", "geheimnis")
    assert not is_token("Geheimnis", "geheimnis")


@given(VISITORS)
def test_what_is_signed_for_one_purpose_is_nothing_for_another(visitor):
    text, form = SEAL.write("a", visitor), SEAL.write_form_token("a", visitor)
    assert SEAL.read("b", text, 0.0) is None
    assert not SEAL.is_form_token(form, "b", visitor)
