"""The page of rounds: what a loop shows, to people who are logged in."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.serving.feedback import Desk
from groupwise.serving.review import ShownCandidate, ShownChange, ShownLook, ShownRounds
from groupwise.serving.review.rounds import HEIGHT, WIDTH, draw_curve

LOOK = ShownLook(
    name="001-001-abcd.json",
    num_items=46,
    num_sessions=23,
    served=0.0,
    candidate=0.76,
    gain_low=0.32,
    evidence=0.5,
    held_out_served=None,
    held_out_candidate=0.48,
    loss_p=0.0022,
    level=0.025,
    verdict="undecided",
    unbeaten=("memory",),
)


class Loop:
    """A loop with one round that goes on and one that has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def show(self) -> ShownRounds:
        going_on = ShownCandidate(2, "<b>grpo</b>", (0.1, 0.5, 0.9), ())
        return ShownRounds(
            (going_on, ShownCandidate(1, "", (), (LOOK,))),
            (ShownChange("2026-01-02T03:04:05+00:00", "rolled back", "v<1>"),),
        )

    def find_certificate(self, name: str) -> Path | None:
        return self.folder / name if name == LOOK.name else None


@pytest.fixture
def loop(tmp_path):
    """The loop of the server; without it there is none."""
    (tmp_path / LOOK.name).write_text('{"verdict": "undecided"}')
    return [Loop(tmp_path)]


@pytest.fixture
def serve(start, store, loop):
    def serve_one(labels=None, **settings):
        rounds = loop[0] if loop else None
        return start(desk=Desk(store, key=b"a secret of the tests", rounds=rounds), **settings)

    return serve_one


def test_the_page_shows_candidates_and_what_was_served(enter) -> None:
    person = enter()
    assert 'href="rounds"' in person.page
    page = person.client.get("/review/rounds").text
    assert "Candidate 1 · undecided" in page
    assert "46 answers, 23 sessions" in page
    assert re.search(r"0\.0\s%\s→\s76\.0\s%", page)
    assert re.search(r"–\s→\s48\.0\s%", page)
    assert "rolled back" in page
    assert "&lt;b&gt;grpo&lt;/b&gt;" in page
    assert "v&lt;1&gt;" in page
    assert "<polyline" in page
    assert "no better than memory, which takes no training" in page


def test_the_page_is_chinese_for_whoever_reads_chinese(enter) -> None:
    person = enter(**{"Accept-Language": "zh-CN"})
    page = person.client.get("/review/rounds").text
    assert "候选 1 · 未定" in page
    assert "回退" in page
    assert "不优于无需训练的 memory" in page


def test_a_certificate_is_sent_by_its_name_and_nothing_else_is(enter) -> None:
    person = enter()
    sent = person.client.get(f"/review/certificates/{LOOK.name}")
    assert sent.json() == {"verdict": "undecided"}
    for name in ("other.json", "..%2Fkept%2Ffeedback.db", "%2e%2e"):
        assert person.client.get(f"/review/certificates/{name}").status_code == 404


def test_nobody_sees_rounds_without_logging_in(enter) -> None:
    person = enter()
    person.client.cookies.clear()
    for place in ("rounds", f"certificates/{LOOK.name}"):
        reply = person.client.get(f"/review/{place}")
        assert reply.status_code == 303
        assert reply.headers["location"] == "login"


def test_a_server_without_a_loop_says_so(enter, loop) -> None:
    loop.clear()
    person = enter()
    assert 'href="rounds"' not in person.page
    reply = person.client.get("/review/rounds")
    assert reply.status_code == 404
    assert "no loop" in reply.text


@given(values=st.lists(st.floats(-1, 2, allow_nan=False), max_size=50))
def test_a_curve_stays_in_its_box(values: list[float]) -> None:
    points = [tuple(map(float, point.split(","))) for point in draw_curve(values).split()]
    assert len(points) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
