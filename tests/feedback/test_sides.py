"""Which sessions teach and which test is drawn by their names alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.feedback import (
    FeedbackItem,
    GivenLabel,
    Shown,
    Sides,
    list_complete,
    name_session,
)
from groupwise.feedback.sides import alternate

SIDES = Sides(seed=3, test_share=0.4)
_NAMES = st.text(min_size=1, max_size=8)


def _show(name: str, session: str = "s", prediction: str = "a") -> Shown:
    return Shown(name, 0.0, {}, session, (), prediction, 0.5, "v")


def _item(shown: Shown, *labels: str) -> FeedbackItem:
    given = (GivenLabel(f"person {i}", label, 0.0) for i, label in enumerate(labels))
    return FeedbackItem(shown, tuple(given))


@given(session=_NAMES, seed=st.integers(0, 2**31), share=st.floats(0.01, 0.99))
def test_a_session_is_on_one_side_for_good(session: str, seed: int, share: float) -> None:
    sides = Sides(seed, share)
    assert sides.find(session) == Sides(seed, share).find(session)
    assert sides.find(session) in ("teaches", "tests")
    # More sessions test with a larger share, and none of them comes back.
    if sides.find(session) == "tests":
        assert Sides(seed, 0.999).find(session) == "tests"


def test_about_the_wanted_share_of_sessions_tests() -> None:
    found = [SIDES.find(f"session {number}") for number in range(4000)]
    assert 0.37 < found.count("tests") / len(found) < 0.43


def test_another_seed_divides_otherwise() -> None:
    names = [f"session {number}" for number in range(200)]
    assert [SIDES.find(n) for n in names] != [Sides(4, 0.4).find(n) for n in names]


def test_an_answer_without_a_session_is_a_session_of_its_own() -> None:
    assert name_session(_show("a1", session="")) == "a1"


@settings(max_examples=50)
@given(
    ids=st.lists(_NAMES, min_size=1, max_size=30, unique=True),
    num=st.integers(1, 10),
    flip=st.sampled_from(("a", "b")),
)
def test_what_is_asked_about_depends_on_ids_alone(ids: list[str], num: int, flip: str) -> None:
    session = next(f"s{i}" for i in range(100) if SIDES.find(f"s{i}") == "tests")
    shown = [_show(name, session) for name in ids]
    others = [_show(name, session, prediction=flip) for name in reversed(ids)]
    asked = SIDES.draw_asked(shown, num)[session]
    assert len(asked) == min(num, len(ids))
    again = SIDES.draw_asked(others, num)[session]
    assert [one.id for one in asked] == [one.id for one in again]
    assert {one.id for one in asked} <= {
        one.id for one in SIDES.draw_asked(shown, num + 1)[session]
    }


def test_sessions_that_teach_are_not_asked_about() -> None:
    session = next(f"s{i}" for i in range(100) if SIDES.find(f"s{i}") == "teaches")
    assert SIDES.draw_asked([_show("x", session)], 3) == {}


def test_a_session_counts_when_all_that_was_asked_is_said() -> None:
    first, second, third = (_show(name) for name in "abc")
    asked = {"s": [first, second], "t": [third]}
    said = {"a": _item(first, "yes"), "c": _item(third, "no")}
    assert list_complete(asked, said) == [said["c"]]
    said["b"] = _item(second, "no")
    assert list_complete(asked, said) == [said["a"], said["b"], said["c"]]


def test_disagreement_ends_the_wait_and_counts_for_nobody() -> None:
    first, second = _show("a"), _show("b")
    said = {"a": _item(first, "yes", "no"), "b": _item(second, "yes")}
    assert list_complete({"s": [first, second]}, said) == [said["b"]]


@given(asked=st.lists(_NAMES, unique=True, max_size=9), others=st.lists(_NAMES, unique=True))
def test_asked_answers_come_in_turn_with_the_others_and_each_once(
    asked: list[str], others: list[str]
) -> None:
    found = [one.id for one in alternate([*map(_show, asked)], [*map(_show, others)])]
    rest = [name for name in others if name not in asked]
    assert sorted(found) == sorted({*asked, *others})
    assert [name for name in found if name in asked] == asked
    assert [name for name in found if name not in asked] == rest
    for place in range(min(len(asked), len(rest))):
        assert {found[2 * place], found[2 * place + 1]} == {asked[place], rest[place]}
