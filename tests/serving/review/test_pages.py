"""What people see and say: escaped, in their language, and with every picture that is kept."""

import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.requests import Request

from groupwise.core import DataError
from groupwise.feedback import Shown, Sides, name_person
from groupwise.serving.review.choices import list_choices
from groupwise.serving.review.languages import choose_language
from groupwise.serving.review.leases import Leases
from groupwise.serving.review.pages import render
from groupwise.serving.review.visitors import make_visitor
from groupwise.serving.review.waiting import Turn, WaitingAnswers
from groupwise.serving.settings import AskedSettings, ReviewSettings

PLACE = re.compile(r"\{[^}]*\}")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus='alert(1)' autofocus='",
    "</bdi></button><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;&#x3c;",
    "\u202egnp.exe\u202c \u200f\u2067\x00\x1b[2J",
)


class Tags(HTMLParser):
    """Counts tags, and collects attributes and what is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.shown += data


def render_one(text, labels=("yes", "no"), language="en"):
    row = {"task": text, f"{text}!": [text, {"deep": text}]}
    shown = Shown("a", 0.0, row, "", (), text, 0.5, text)
    turn = Turn(shown, (), 1, 2, 61.0, can_undo=True)
    reply = render(
        "page",
        language,
        turn=turn,
        choices=list_choices(labels),
        visitor=make_visitor(text, 1.0),
        form_token="f",
        notice=text,
    )
    return reply.body.decode()


@given(st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=500), st.booleans())
def test_whatever_a_text_says_the_page_has_the_same_tags(text, is_open):
    labels = () if is_open else (f"{text}1", f"{text}2")
    plain = Tags(render_one("x", () if is_open else ("x1", "x2")))
    found = Tags(render_one(text, labels))
    assert found.tags == plain.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "1 done, 2 waiting · about 2 min at your pace"),
        ("zh", "已完成 1 个，等待 2 个 · 按您的速度约需 2 分钟"),
    ],
)
def test_progress_is_told_in_whole_minutes(language, said):
    assert said in Tags(render_one("x", language=language)).shown


def test_nothing_is_scripted_or_styled_in_the_page():
    found = Tags(render_one("x"))
    names = {name for name, _ in found.attributes}
    assert not [name for name in names if name.startswith(("on", "hx-on")) or name == "style"]
    assert "style" not in found.tags
    sources = [value for name, value in found.attributes if name in ("src", "href", "action")]
    assert not [value for value in sources if value and ("//" in value or value.startswith("/"))]


def test_what_turns_a_text_around_or_commands_a_terminal_is_seen():
    shown = Tags(render_one(HOSTILE[-1])).shown
    assert "\ufffdgnp.exe\ufffd" in shown
    assert "␀␛[2J" in shown
    assert not set("\u202e\u202c\u2067\x00\x1b") & set(shown)


def test_a_label_that_hides_something_is_said_as_it_is(enter, remember, store):
    labels = ("ja\u202e", "<nein>")
    remember("a")
    ann = enter(labels=labels)
    assert "&lt;nein&gt;" in ann.page
    assert "ja\ufffd" in ann.page
    assert ann.say(labels[0]).status_code == 200
    assert store.list_items()[0].label == labels[0]


def test_a_row_of_a_hundred_kilobytes_is_shown(enter, remember):
    text = "<b>长&" * 25_000
    remember("a", row={"task": text, "page": "", "none": None, "n": 1.5, "lone": "\ud800"})
    ann = enter()
    assert text in Tags(ann.page).shown
    assert 'class="long" tabindex="0"' in ann.page


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        (("a",), "1"),
        (("a", "b"), "fj"),
        (("a", "b", "c"), "123"),
        (tuple("abcdefghijkl"), "123456789"),
        ((), ""),
    ],
)
def test_labels_have_keys(labels, keys):
    choices = list_choices(labels)
    assert [choice.label for choice in choices] == list(labels)
    assert "".join(choice.key for choice in choices) == keys


def test_people_say_what_is_right_and_take_it_back(enter, remember, store, predictor):
    for number in range(2):
        remember(f"{number}", 0.5 + number / 10)
    ann = enter()
    assert ann.answer == "0"
    assert "You said: 不通过." in ann.say("不通过").text
    [item] = store.list_items()
    assert (item.label, item.labels[0].person) == (
        "不通过",
        name_person("ann", b"a secret of the tests"),
    )
    assert (ann.answer, "1 done, 1 waiting" in ann.page) == ("1", True)
    assert "Your last word is taken back." in ann.post("undo").text
    assert (ann.answer, store.list_items()) == ("0", [])
    assert "There is nothing to take back." in ann.post("undo").text
    assert "Skipped" in ann.post("skip", answer="0").text
    assert ann.answer == "1"
    assert "not kept any more" in ann.say("通过", answer="other").text
    counted = ann.client.get("/metrics").text
    assert 'groupwise_feedback_total{word="new"} 2.0' in counted


def test_the_page_works_without_scripts(enter, remember, store):
    remember("a")
    ann = enter()
    fields = {"form": ann.page.split('name="form" value="')[1][:64], "answer": "a", "label": "通过"}
    origin = {"Origin": str(ann.client.base_url).rstrip("/")}
    reply = ann.client.post("/review/say", data=fields, headers=origin)
    assert (reply.status_code, reply.headers["location"]) == (303, "./")
    assert store.list_items()[0].label == "通过"
    assert "Nothing waits for you." in ann.look()


def test_two_people_are_asked_about_different_answers(enter, remember):
    for name in "ab":
        remember(name)
    ann, bob, eve = (enter(name) for name in ("ann", "bob", "eve"))
    assert (ann.answer, bob.answer, eve.answer) == ("a", "b", None)
    assert ann.look()
    assert ann.answer == "a"


def test_open_answers_are_confirmed_as_they_are_or_written_anew(enter, remember, store):
    for number, text in enumerate(("eins\r\nzwei", "drei")):
        remember(f"{number}", 0.5 + number / 10, prediction=text)
    ann = enter(labels=())
    assert ann.post("say", answer="0", is_right="yes").status_code == 200
    assert ann.say("vier\r\nfünf").status_code == 200
    assert [item.label for item in store.list_items()] == ["eins\r\nzwei", "vier\nfünf"]
    remember("none", prediction=None)
    assert 'name="is_right"' not in ann.look()
    assert ann.post("say", answer="none", is_right="yes").status_code == 422
    assert ann.say("x" * 1001).status_code == 422


def test_a_store_that_cannot_be_written_is_told(enter, remember, store, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def fail(*given):
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    remember("a")
    ann = enter()
    monkeypatch.setattr(store, "say", fail)
    refused = ann.say("通过")
    assert (refused.status_code, "cannot be written" in refused.text) == (503, True)


def test_pictures_of_kept_answers_are_sent_as_policies_see_them(enter, remember, store, draw):
    moving = io.BytesIO()
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "green")]
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:])
    contents = [draw(), draw(form="TIFF"), moving.getvalue(), b"<html><script>alert(1)</script>"]
    kept = remember("a", contents=contents)
    stray = store.pictures.keep(draw("blue"))
    ann = enter()
    jpeg, *others, broken = [ann.client.get(f"/review/pictures/{one}") for one in kept.pictures]
    assert (jpeg.content, jpeg.headers["content-type"]) == (contents[0], "image/jpeg")
    assert [one.headers["content-type"] for one in others] == ["image/png"] * 2
    shown = Image.open(io.BytesIO(others[1].content))
    assert (getattr(shown, "n_frames", 1), shown.getpixel((0, 0))) == (1, (255, 0, 0))
    assert (broken.status_code, broken.text) == (404, "There is no such picture.")
    for name in (stray, "%2e%2e", "%2e%2e%2ffeedback.db", "feedback.db", "%25"):
        assert ann.client.get(f"/review/pictures/{name}").status_code == 404


def test_pictures_that_were_deleted_say_so(enter, remember, store, draw):
    kept = remember("a", contents=[draw("red"), draw("green")])
    store.pictures.delete(kept.pictures[1])
    ann = enter(**{"Accept-Language": "zh"})
    assert ann.page.count("这张图片已被删除。") == 1
    assert ann.page.count("<img") == 1
    assert ann.client.get(f"/review/pictures/{kept.pictures[1]}").status_code == 404


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB,en;q=0.9,zh;q=0.8", "en"),
        ("fr, zh-TW;q=0.4, en;q=0.3", "zh"),
        ("zh;q=0, en;q=0.1", "en"),
        ("de", "en"),
        ("zh;q=viel, en", "en"),
    ],
)
def test_the_browser_says_which_language(header, language):
    assert choose_language(make_request(header)) == language


@given(st.text(st.characters(max_codepoint=255)))
def test_any_header_has_a_language(header):
    assert choose_language(make_request(header)) in ("en", "zh")


def make_request(header: str) -> Request:
    headers = [(b"accept-language", header.encode("latin-1"))]
    return Request({"type": "http", "headers": headers, "query_string": b"", "path": "/"})


def test_a_link_chooses_the_language_for_good(enter, remember):
    remember("a")
    ann = enter()
    assert "What is the right answer?" in ann.page
    assert "正确答案是什么？" in ann.client.get("/review/?language=zh").text
    assert "正确答案是什么？" in ann.look()
    assert "您说的是：通过。" in ann.say("通过").text
    assert "表单属于另一次会话" in ann.post("undo", form="").text
    assert "Nothing waits" in ann.client.get("/review/?language=en").text
    assert "Nothing waits" in ann.client.get("/review/?language=<script>").text


STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["take", "end", "wait"]), st.integers(0, 4)),
    max_size=40,
)


@given(STEPS)
def test_leases_are_those_of_the_last_seconds_and_never_too_many(steps):
    now, expected = 0.0, dict[str, tuple[str, float]]()
    leases = Leases(3.0, clock=lambda: now, max_people=2)
    for person, what, number in steps:
        if what == "wait":
            now += number
        expected.pop(person, None) if what != "wait" else None
        if what == "take":
            leases.take(str(number), person)
            expected[person] = (str(number), now + 3.0)
        elif what == "end":
            leases.end(person)
        expected = {one: lease for one, lease in expected.items() if lease[1] > now}
        if len(expected) > 2:
            del expected[next(iter(expected))]
        for one in "abcd":
            assert leases.find(one) == expected.get(one, (None,))[0]
            others = {answer for other, (answer, _) in expected.items() if other != one}
            assert leases.list_others(one) == others


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
