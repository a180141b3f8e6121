"""The order in which people are asked: whole, repeatable, and monotone in what it goes by."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import DataError
from groupwise.feedback import (
    FeedbackItem,
    GivenLabel,
    Shown,
    Sides,
    describe_look,
    list_complete,
    name_session,
    order_for_people,
)
from groupwise.feedback.sides import alternate

SHOWN = st.builds(
    Shown,
    id=st.uuids().map(str),
    at_s=st.integers(0, 5).map(float),
    row=st.just({}),
    session=st.sampled_from(["", "a", "b"]),
    pictures=st.lists(st.sampled_from(["p", "q", "r"]), max_size=2).map(tuple),
    prediction=st.sampled_from([None, "yes", "no"]),
    confidence=st.none() | st.floats(0, 1),
    version=st.just("v1"),
)
WAITING = st.lists(SHOWN, max_size=12, unique_by=lambda one: one.id)
LOOKS = {"p": "00ff", "q": "00ff"}
ORDERS = ("value", "random", "oldest")


def make_shown(name, confidence=0.5, **other):
    values = {"row": {}, "session": "", "pictures": (), "prediction": "yes", "version": "v1"}
    return Shown(id=name, at_s=0.0, confidence=confidence, **(values | other))


def judge(shown, one, share):
    """Return an answer; of the one that is meant, a judge says with this probability: no."""
    if shown is not one:
        return shown
    return replace(shown, judge_label="neither", judge_probability=share)


def list_names(shown):
    return [one.id for one in shown]


@pytest.mark.parametrize("order", ORDERS)
@given(waiting=WAITING, labelled=WAITING, random=st.randoms())
def test_every_answer_is_asked_once_whatever_order_they_come_in(order, waiting, labelled, random):
    said = list(labelled)
    found = order_for_people(waiting, said, order=order, looks=LOOKS, seed=3)
    assert sorted(list_names(found)) == sorted(list_names(waiting))
    random.shuffle(waiting)
    random.shuffle(said)
    assert order_for_people(waiting, said, order=order, looks=LOOKS, seed=3) == found


@given(WAITING, st.data())
def test_a_less_certain_answer_is_never_asked_later(waiting, data):
    if not waiting:
        return
    place = data.draw(st.integers(0, len(waiting) - 1))
    one = waiting[place]
    lower = st.none() | st.floats(0, 1 if one.confidence is None else one.confidence)
    changed = replace(one, confidence=None if one.confidence is None else data.draw(lower))
    before = list_names(order_for_people(waiting)).index(one.id)
    after = order_for_people([*waiting[:place], changed, *waiting[place + 1 :]])
    assert list_names(after).index(one.id) <= before


@given(WAITING, st.data())
def test_an_answer_that_a_judge_disagrees_with_is_never_asked_later(waiting, data):
    if not waiting:
        return
    one = data.draw(st.sampled_from(waiting))
    low, high = sorted(data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    places = [
        list_names(order_for_people([judge(other, one, share) for other in waiting])).index(one.id)
        for share in (low, high)
    ]
    assert places[1] <= places[0]


@given(WAITING, WAITING, st.data())
def test_labels_of_its_session_never_bring_an_answer_forward(waiting, labelled, data):
    if not waiting:
        return
    one = data.draw(st.sampled_from(waiting))
    if not one.session:
        return
    said = labelled
    more = [*said, make_shown("further", session=one.session)]
    before, after = (list_names(order_for_people(waiting, s)).index(one.id) for s in (said, more))
    assert after >= before


@given(WAITING, WAITING)
def test_people_are_asked_the_same_one_by_one(waiting, labelled):
    said, left, asked = list(labelled), list(waiting), []
    for _ in waiting:
        first = order_for_people(left, said, looks=LOOKS)[0]
        asked.append(first)
        left.remove(first)
        said.append(first)
    assert asked == order_for_people(waiting, labelled, looks=LOOKS)


def test_who_has_no_answer_or_no_confidence_comes_first():
    shown = [make_shown("sure", 0.9), make_shown("unknown", None), make_shown("torn", 0.5)]
    shown.append(make_shown("unanswered", 0.99, prediction=None))
    order = list_names(order_for_people(shown))
    assert order == ["unanswered", "unknown", "torn", "sure"]


@pytest.mark.parametrize(("label", "probability"), [("no", 1.0), ("yes", 0.0)])
def test_an_answer_that_the_judge_gives_no_right_comes_first(label, probability):
    judged = make_shown("a", 0.9, judge_label=label, judge_probability=probability)
    shown = [make_shown("unknown", None), make_shown("torn", 0.5), judged]
    assert list_names(order_for_people(shown)) == ["a", "unknown", "torn"]


def test_a_judge_that_agrees_changes_nothing():
    shown = [make_shown("torn", 0.5), make_shown("sure", 0.9)]
    agreed = [replace(one, judge_label="yes", judge_probability=1.0) for one in shown]
    assert list_names(order_for_people(agreed)) == list_names(order_for_people(shown))


def test_further_answers_of_a_cluster_wait_for_other_clusters():
    alike = [make_shown(f"a{n}", 0.4 + n / 100, pictures=("p", "q")[n : n + 1]) for n in (0, 1)]
    other = make_shown("b", 0.5, pictures=("r",))
    assert list_names(order_for_people([*alike, other])) == ["a0", "a1", "b"]
    assert list_names(order_for_people([*alike, other], looks=LOOKS)) == ["a0", "b", "a1"]
    said = [make_shown("before", pictures=("q",))]
    assert list_names(order_for_people([*alike, other], said, looks=LOOKS)) == ["b", "a0", "a1"]


def test_where_an_answer_stands_at_random_does_not_depend_on_the_others():
    shown = [make_shown(f"{number}") for number in range(20)]
    whole = order_for_people(shown, order="random", seed=1)
    assert order_for_people(shown[:9], order="random", seed=1) == [
        s for s in whole if s in shown[:9]
    ]
    assert order_for_people(shown, order="random", seed=2) != whole


def test_pictures_look_alike_in_other_sizes_and_not_turned(tmp_path):
    half = Image.new("RGB", (64, 48), "white")
    half.paste("black", (0, 0, 32, 48))
    half.save(tmp_path / "a.png")
    half.resize((200, 150)).save(tmp_path / "b.jpg")
    half.rotate(180).save(tmp_path / "c.png")
    looks = [describe_look(tmp_path / name) for name in ("a.png", "b.jpg", "c.png")]
    assert looks == ["3333", "3333", "cccc"]
    (tmp_path / "d.png").write_bytes(b"none")
    with pytest.raises(DataError):
        describe_look(tmp_path / "d.png")


SIDES = Sides(seed=3, test_share=0.4)
_NAMES = st.text(min_size=1, max_size=8)


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
    assert name_session(make_shown("a1", session="")) == "a1"


@settings(max_examples=50)
@given(
    ids=st.lists(_NAMES, min_size=1, max_size=30, unique=True),
    num=st.integers(1, 10),
    flip=st.sampled_from(("a", "b")),
)
def test_what_is_asked_about_depends_on_ids_alone(ids: list[str], num: int, flip: str) -> None:
    session = next(f"s{i}" for i in range(100) if SIDES.find(f"s{i}") == "tests")
    shown = [make_shown(name, session=session) for name in ids]
    others = [make_shown(name, session=session, prediction=flip) for name in reversed(ids)]
    asked = SIDES.draw_asked(shown, num)[session]
    assert len(asked) == min(num, len(ids))
    again = SIDES.draw_asked(others, num)[session]
    assert [one.id for one in asked] == [one.id for one in again]
    assert {one.id for one in asked} <= {
        one.id for one in SIDES.draw_asked(shown, num + 1)[session]
    }


def test_sessions_that_teach_are_not_asked_about() -> None:
    session = next(f"s{i}" for i in range(100) if SIDES.find(f"s{i}") == "teaches")
    assert SIDES.draw_asked([make_shown("x", session=session)], 3) == {}


def test_a_session_counts_when_all_that_was_asked_is_said() -> None:
    first, second, third = (make_shown(name) for name in "abc")
    asked = {"s": [first, second], "t": [third]}
    said = {"a": _item(first, "yes"), "c": _item(third, "no")}
    assert list_complete(asked, said) == [said["c"]]
    said["b"] = _item(second, "no")
    assert list_complete(asked, said) == [said["a"], said["b"], said["c"]]


def test_disagreement_ends_the_wait_and_counts_for_nobody() -> None:
    first, second = make_shown("a"), make_shown("b")
    said = {"a": _item(first, "yes", "no"), "b": _item(second, "yes")}
    assert list_complete({"s": [first, second]}, said) == [said["b"]]


@given(asked=st.lists(_NAMES, unique=True, max_size=9), others=st.lists(_NAMES, unique=True))
def test_asked_answers_come_in_turn_with_the_others_and_each_once(
    asked: list[str], others: list[str]
) -> None:
    found = [one.id for one in alternate([*map(make_shown, asked)], [*map(make_shown, others)])]
    rest = [name for name in others if name not in asked]
    assert sorted(found) == sorted({*asked, *others})
    assert [name for name in found if name in asked] == asked
    assert [name for name in found if name not in asked] == rest
    for place in range(min(len(asked), len(rest))):
        assert {found[2 * place], found[2 * place + 1]} == {asked[place], rest[place]}
