"""Sessions: only the server writes them, and they end."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from groupwise.serving.review.visitors import Seal, Visitor, is_token, make_visitor

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
