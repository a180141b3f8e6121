"""Who is asked what: one answer for one person, nothing lost, and the last word taken back."""

import pytest

from groupwise.core import DataError
from groupwise.feedback import Sides
from groupwise.serving.review.waiting import WaitingAnswers
from groupwise.serving.settings import AskedSettings, ReviewSettings


@pytest.fixture
def time_s():
    return [0.0]


@pytest.fixture
def waiting(store, time_s):
    return WaitingAnswers(store, ReviewSettings(lease_s=60), clock=lambda: time_s[0])


def ask(waiting, person):
    shown = waiting.ask(person).shown
    return None if shown is None else shown.id


def test_the_least_certain_comes_first_and_stays_until_it_is_answered(waiting, remember):
    for name, confidence in (("sure", 0.9), ("torn", 0.5)):
        remember(name, confidence)
    assert [ask(waiting, "ann") for _ in range(2)] == ["torn", "torn"]
    assert waiting.say("ann", "torn", "不通过")
    turn = waiting.ask("ann")
    assert (turn.shown.id, turn.shown.row) == ("sure", {"task": "doors"})
    assert (turn.num_done, turn.num_waiting, turn.can_undo) == (1, 1, True)
    waiting.say("ann", "sure", "通过")
    turn = waiting.ask("ann")
    assert (turn.shown, turn.num_done, turn.num_waiting) == (None, 2, 0)


def test_what_one_person_is_asked_is_not_handed_to_another_for_a_while(waiting, remember, time_s):
    for name in "abc":
        remember(name)
    assert [ask(waiting, one) for one in ("ann", "bob", "eve", "kim")] == ["a", "b", "c", None]
    time_s[0] = 30.0
    assert ask(waiting, "bob") == "b"
    time_s[0] = 61.0
    assert ask(waiting, "kim") == "a"
    assert ask(waiting, "bob") == "b"


def test_nothing_is_lost_if_two_answer_the_same(waiting, remember, store, time_s):
    remember("a")
    assert ask(waiting, "ann") == "a"
    time_s[0] = 61.0
    assert ask(waiting, "bob") == "a"
    waiting.say("bob", "a", "通过")
    waiting.say("ann", "a", "不通过")
    [item] = store.list_items()
    assert [(given.person, given.label) for given in item.labels] == [
        ("bob", "通过"),
        ("ann", "不通过"),
    ]


def test_the_last_words_are_taken_back_one_by_one(waiting, remember, store):
    for name in "ab":
        remember(name)
        waiting.say("ann", name, "通过")
    waiting.say("bob", "a", "通过")
    assert waiting.undo("ann")
    assert ask(waiting, "ann") == "b"
    assert waiting.undo("ann")
    assert [given.person for item in store.list_items() for given in item.labels] == ["bob"]
    assert not waiting.undo("ann")
    assert ask(waiting, "ann") == "b"


def test_saying_it_twice_is_one_word_to_take_back(waiting, remember, store):
    remember("a")
    assert waiting.say("ann", "a", "通过")
    assert not waiting.say("ann", "a", "通过")
    assert waiting.say("ann", "a", "不通过")
    assert waiting.undo("ann")
    assert not waiting.undo("ann")
    assert store.list_items() == []


def test_what_is_skipped_is_left_to_others(waiting, remember):
    for name in "ab":
        remember(name)
    waiting.skip("ann", ask(waiting, "ann"))
    assert ask(waiting, "ann") == "b"
    assert ask(waiting, "bob") == "a"
    waiting.skip("ann", "b")
    assert ask(waiting, "ann") is None


def test_what_was_said_elsewhere_or_is_gone_is_not_asked(waiting, remember, store):
    for name in "abc":
        remember(name)
    assert ask(waiting, "ann") == "a"
    store.say("a", "bob", "通过")
    with store._write() as connection:
        connection.exec_driver_sql("DELETE FROM answers WHERE id = 'b'")
    assert ask(waiting, "ann") == "c"
    with pytest.raises(DataError, match="there is no answer 'b'"):
        waiting.say("ann", "b", "通过")


def test_new_answers_are_found_when_nothing_waits_or_after_a_while(waiting, remember, time_s):
    remember("sure", 0.9)
    assert ask(waiting, "ann") == "sure"
    remember("torn", 0.5)
    assert ask(waiting, "bob") is None  # asked too soon after the store was read
    time_s[0] = 0.1
    assert ask(waiting, "bob") == "torn"
    remember("unknown", None)
    time_s[0] = 11.0
    waiting.say("bob", "torn", "通过")
    assert ask(waiting, "bob") == "unknown"


def test_the_time_that_is_left_is_that_of_the_usual_answer(waiting, remember, time_s):
    for number in range(10):
        remember(f"{number}")
    for number, at_s in enumerate((0.0, 4.0, 9.0, 1000.0)):
        time_s[0] = at_s
        waiting.say("ann", f"{number}", "通过")
        assert waiting.ask("ann").left_s is None
    time_s[0] = 1005.0
    waiting.say("ann", "4", "通过")
    assert waiting.ask("ann").left_s == 5.0 * 5


def test_pictures_say_what_became_of_them(waiting, remember, store, draw):
    kept = remember("a", contents=[draw("red"), draw("green"), b"no picture"])
    store.pictures.delete(kept.pictures[1])
    found = waiting.ask("ann").pictures
    assert [(one.name, one.is_there) for one in found] == [
        (kept.pictures[0], True),
        (kept.pictures[1], False),
        (kept.pictures[2], True),
    ]


def test_pictures_that_look_alike_wait_for_others(waiting, remember, draw):
    for number, colour in enumerate(("red", "red", "green")):
        remember(f"{number}", 0.5 + number / 100, [draw(colour, size=(32, 24 + number))])
    remember("split", 0.53, [draw_split(draw)])
    order = []
    while (name := ask(waiting, "ann")) is not None:
        order.append(name)
        waiting.skip("ann", name)
    assert order == ["0", "split", "1", "2"]


def draw_split(draw):
    import io

    from PIL import Image

    picture = Image.open(io.BytesIO(draw("white")))
    picture.paste("black", (0, 0, 16, 24))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def test_what_tests_candidates_is_asked_about_in_turn(store, remember, time_s):
    """Also what the policy is sure of: a session counts when all of it has a label."""
    asked = AskedSettings(seed=1, test_share=0.5, per_session=2)
    sides = Sides(asked.seed, asked.test_share)
    testing = next(name for name in "abcdefgh" if sides.find(name) == "tests")
    teaching = next(name for name in "abcdefgh" if sides.find(name) == "teaches")
    for number in range(3):
        remember(f"sure{number}", 0.99, session=testing)
        remember(f"torn{number}", 0.5, session=teaching)
    waiting = WaitingAnswers(store, ReviewSettings(asked=asked), clock=lambda: time_s[0])
    order = []
    for _ in range(6):
        order.append(ask(waiting, "ann"))
        waiting.say("ann", order[-1], "通过")
    assert [name[:4] for name in order] == ["sure", "torn", "sure", "torn", "torn", "sure"]
