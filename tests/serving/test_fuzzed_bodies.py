"""Whatever stands in a body, the answer is one that the schema knows, and the server goes on."""

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from damaged_pictures import damage_picture
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ODD = st.binary(max_size=8) | st.sampled_from(
    [b"\r\n", b"--x", b"--x--\r\n", b"\0", b"\xff", b"%00", b"\xed\xa0\x80", b"]" * 300, b"1e999"]
)
PICTURES = st.integers(0, 2**32).map(damage_picture)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
ROWS = st.fixed_dictionaries({"task": st.just("doors") | JSON}) | JSON
HELD = PICTURES.map(lambda content: base64.b64encode(content).decode()) | st.text(max_size=8)
BODIES = {
    "/v1/predict": st.fixed_dictionaries(
        {}, optional={"id": st.text() | JSON, "row": ROWS, "pictures": st.lists(HELD) | JSON}
    ),
}
KINDS = st.sampled_from(
    [
        "application/json",
        "multipart/form-data; boundary=x",
        "multipart/form-data; boundary=x; charset=utf-7",
        "multipart/form-data",
        'multipart/form-data; boundary="',
        "text/plain",
        "",
    ]
)
KNOWN = {200, 400, 404, 413, 415, 422, 429}


@st.composite
def forms(draw: Any) -> bytes:
    """Draw a form in which much may be wrong."""
    names = st.sampled_from(
        [b"name=row", b"name=id", b'name="pictures"; filename="a"', b"name", b""]
    )
    parts = [
        b"--x\r\nContent-Disposition: form-data; %b%b\r\n\r\n%b\r\n"
        % (draw(names), draw(ODD) * draw(st.booleans()), content)
        for content in draw(st.lists(PICTURES | ODD | ROWS.map(write_json), max_size=4))
    ]
    return b"".join(parts) + b"--x--\r\n"


def write_json(value: object) -> bytes:
    return json.dumps(value).encode()


@st.composite
def bodies(draw: Any) -> tuple[str, str, bytes]:
    """Draw a path, a content type and a body that nearly fit each other."""
    path = draw(st.sampled_from(list(BODIES)))
    kind = draw(KINDS)
    body = draw(forms() if "form" in kind else BODIES[path].map(write_json))
    for odd in draw(st.lists(ODD, max_size=2)):
        place = draw(st.integers(0, len(body)))
        body = body[:place] + odd + body[place + draw(st.integers(0, 4)) :]
    return path, kind, body


@pytest.fixture
def client(start: Callable[..., httpx2.Client]) -> httpx2.Client:
    return start()


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(sent=bodies())
def test_no_body_breaks_the_server(client, sent: tuple[str, str, bytes]) -> None:
    path, kind, body = sent
    answer = client.post(path, content=body, headers={"Content-Type": kind})
    assert answer.status_code in KNOWN, answer.text
    assert isinstance(answer.json(), dict)
    assert client.get("/healthz").status_code == 200
